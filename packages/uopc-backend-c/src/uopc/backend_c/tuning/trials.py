"""Candidates as native functions, and how long they take."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.backend_c import room
from uopc.backend_c.cache import cache_dir
from uopc.backend_c.emit import PARALLEL_DEFINED, Function
from uopc.backend_c.load import Library, LoadError, load
from uopc.backend_c.pool import use_pool
from uopc.backend_c.printer import global_buffers
from uopc.backend_c.scratch import scratch_folder
from uopc.backend_c.spellings import Spellings
from uopc.backend_c.toolchain import CompileError, compile_shared, find_compiler
from uopc.backend_c.tuning.memory import Memory
from uopc.runtime import Lowered
from uopc.schedule.candidates import Candidate
from uopc.uop import Ops, UOp

SAMPLE = 3e-4
"""Seconds that a sample takes at least: so often a program runs for one."""
SAMPLES = 5
"""Of so many the least counts: whatever else runs on a machine makes some longer."""
LEAST = 3  # rounds


@dataclass(frozen=True)
class Trial:
    """A candidate, compiled: ``run`` gets a table, see `Memory`."""

    candidate: Candidate
    run: Callable[[Any], None]


def compiled(
    candidates: Sequence[Candidate], memory: Memory, spellings: Spellings, opt: int
) -> list[Trial]:
    """Candidates as functions, each one a file of its own; without those that fail.

    No entry of the cache is made of them: most are not used again.
    """
    texts: dict[int, tuple[str, str]] = {}
    for i, candidate in enumerate(candidates):
        name = f"trial{i}"
        sink = UOp(Ops.SINK, candidate.sink.src, name)
        try:
            function = Function.of(Lowered(sink, str(candidate)), spellings)
        except Exception:  # what no chooser has asked for, a printer may not know
            continue
        file = "\n".join([*function.helpers, function.text])
        texts[i] = file, _timed(function, sink, memory)
    return [
        Trial(candidates[i], library.function(f"time_trial{i}"))
        for library, found in _libraries(texts, opt)
        for i in found
    ]


def _timed(function: Function, sink: UOp, memory: Memory) -> str:
    """A function that calls another as often as the last place of its table says."""
    places = [memory.buffers.index(b) for b in global_buffers(sink)]
    given = ", ".join(f"table[{i}]" for i in places)
    return (
        f"{function.prototype}\n"
        f"void time_{function.name}(void** table) {{\n"
        f"  long count = *(long*)table[{len(memory.buffers)}];\n"
        f"  for (long i = 0; i < count; i++) {function.name}({given});\n}}\n"
    )


def _libraries(
    texts: Mapping[int, tuple[str, str]], opt: int
) -> Iterator[tuple[Library, list[int]]]:
    """One for all; where that fails, for each half, down to the one at fault."""
    if not texts:
        return
    try:
        yield _library(texts, opt), list(texts)
    except (CompileError, LoadError):
        rows, half = list(texts.items()), len(texts) // 2
        if half:
            yield from _libraries(dict(rows[:half]), opt)
            yield from _libraries(dict(rows[half:]), opt)


def _library(texts: Mapping[int, tuple[str, str]], opt: int) -> Library:
    with scratch_folder(room.TEMPORARY, cache_dir()) as folder:
        sources = []
        for i, (text, _) in texts.items():
            sources.append(folder / f"trial{i}.c")
            sources[-1].write_text(f"{text}\n")
        sources.append(folder / "entry.c")
        calls = "\n".join(call for _, call in texts.values())
        sources[-1].write_text(f"{PARALLEL_DEFINED}\n{calls}\n")
        compile_shared(find_compiler(), sources, folder / "trials.so", opt)
        library = load(folder / "trials.so")
    use_pool(library)
    return library


class Clock:
    """Times trials on the same memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._count = np.ones(1, np.int64)
        self._table = memory.table(self._count)

    def once(self, trial: Trial) -> float:
        """Run it once, from the data as it was at first; the seconds."""
        self._memory.reset(outputs=True)
        return self._seconds(trial, 1)

    def rounds(
        self, trials: Sequence[Trial], count: int, deadline: float
    ) -> list[list[float]]:
        """For each trial, seconds of a run in each round; in a round all take turns.

        Every other round goes through them backwards. There are fewer rounds, but
        `LEAST`, if time runs out. All run equally often for a sample, because to wake
        threads takes its time.
        """
        least = min(min(self.once(t), self.once(t)) for t in trials)
        often = math.ceil(SAMPLE / max(least, 1e-7))
        found: list[list[float]] = [[] for _ in trials]
        for k in range(count):
            if k >= LEAST and time.monotonic() > deadline:
                break
            order = range(len(trials)) if k % 2 else range(len(trials) - 1, -1, -1)
            for i in order:
                self._memory.reset()
                samples = [self._seconds(trials[i], often) for _ in range(SAMPLES)]
                found[i].append(min(samples))
        return found

    def _seconds(self, trial: Trial, count: int) -> float:
        self._count[0] = count
        start = time.perf_counter()
        trial.run(self._table)
        return (time.perf_counter() - start) / count


def ratio(before: Sequence[float], after: Sequence[float]) -> float:
    """How long the second takes over the first: the median of the rounds."""
    return statistics.median(b / a for a, b in zip(before, after, strict=True))

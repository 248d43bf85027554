"""Which nests of the programs that ran are worth looking at."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uopc.backend_c.target import current_target
from uopc.backend_c.tuned import anonymous, known_schedule
from uopc.backend_c.tuning.memory import Memory
from uopc.backend_c.watch import Watch, Watched
from uopc.config import overriding
from uopc.runtime import Lowered
from uopc.schedule.candidates import Candidate
from uopc.schedule.rules import find_schedule
from uopc.uop import UOp

MOST = 0.9
"""Of all the time, so much is looked at."""


@dataclass
class Nest:
    """A loop program that ran.

    Attributes:
        name: of its function.
        plain: the program without a schedule.
        current: with the one that it has.
        opt: the level of UOPC_OPT that it was compiled at.
        runs: how often it ran, in all programs.
        seconds: what a run takes, about.
    """

    name: str
    plain: UOp
    current: Candidate
    opt: int
    runs: int
    seconds: float

    @property
    def total(self) -> float:
        """The seconds of all its runs."""
        return self.runs * self.seconds


def nests_of_most_time(watch: Watch) -> list[Nest]:
    """The nests that take the most of the time, the longest first.

    Each is timed as it was compiled, alone, on made-up data.
    """
    found: dict[str, Nest] = {}
    for watched in watch.programs:
        if watched.runs and watched.program.opt:
            with overriding(UOPC_OPT=watched.program.opt):
                _add(watched, found)
    nests = sorted(found.values(), key=lambda nest: -nest.total)
    whole, so_far = sum(n.total for n in nests), 0.0
    chosen: list[Nest] = []
    for nest in nests:
        if so_far < MOST * whole:
            chosen.append(nest)
        so_far += nest.total
    return chosen


def _add(watched: Watched, found: dict[str, Nest]) -> None:
    for lowered in watched.program.text.calls:
        if lowered.plain is None:
            continue
        key = anonymous(lowered.plain)
        if key in found:
            found[key].runs += watched.runs
        elif nest := _nest(watched, lowered, lowered.plain):
            found[key] = nest


def _nest(watched: Watched, lowered: Lowered, plain: UOp) -> Nest | None:
    """A nest with its time; None if the schedule is not ours to choose."""
    chosen = find_schedule(plain, current_target(), known_schedule)
    if chosen.rule is not None:
        return None
    program = watched.program
    seconds = _seconds(program.library.address(lowered.sink.arg), lowered.sink)
    current = Candidate(chosen.steps, lowered.sink)
    name = lowered.sink.arg
    return Nest(name, plain, current, program.opt, watched.runs, seconds)


def _seconds(address: int | None, sink: UOp) -> float:
    """About how long a function of a program takes; 0 if it is not to be found."""
    if address is None:
        return 0.0
    memory = Memory(sink)
    places = [memory.address(b) for b in memory.buffers]
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(places))(address)
    return statistics.median([_timed(run, places) for _ in range(4)][1:])


def _timed(run: Callable[..., None], places: Sequence[int]) -> float:
    start = time.perf_counter()
    run(*places)
    return time.perf_counter() - start

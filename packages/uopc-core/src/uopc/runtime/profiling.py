"""How long each kernel takes: UOPC_DEBUG, a table, a file for a trace viewer."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.config import get
from uopc.kernelize import Kernel, Plan
from uopc.runtime.backends import Backend, Program
from uopc.runtime.steps import KernelWork, steps_of
from uopc.uop import UOp

Array = np.ndarray[Any, Any]

_active: ContextVar[tuple[Profile, ...]] = ContextVar("uopc_profiles", default=())


@dataclass(frozen=True)
class KernelRun:
    """One run of one kernel; ``start`` in seconds on the clock of all runs."""

    kernel: Kernel
    shape: str
    work: KernelWork
    start: float
    seconds: float
    backend: str
    thread: int

    @property
    def gflops(self) -> float:
        """Billions of the counted operations per second."""
        return self.work.flops / self.seconds / 1e9

    @property
    def gbytes(self) -> float:
        """Billions of the counted bytes per second."""
        return self.work.nbytes / self.seconds / 1e9

    def __str__(self) -> str:
        return (
            f"kernel {self.kernel.name}: {self.shape}, {self.seconds * 1e6:.1f} us, "
            f"{self.gflops:.2f} GFLOP/s, {self.gbytes:.2f} GB/s"
        )


class Profile:
    """The kernels that ran, in order; ``str`` gives a table."""

    def __init__(self) -> None:
        self.runs: list[KernelRun] = []

    def __str__(self) -> str:
        """A row for each distinct kernel, that of the most time first."""
        groups: dict[UOp, list[KernelRun]] = {}
        for r in self.runs:
            groups.setdefault(r.kernel.ast, []).append(r)
        total = _seconds(self.runs)
        lines = [
            f"{'kernel':<24} {'shape':<18} {'runs':>6} {'ms':>10} {'%':>5} "
            f"{'GFLOP/s':>8} {'GB/s':>7}"
        ]
        for runs in sorted(groups.values(), key=_seconds, reverse=True):
            first, took = runs[0], _seconds(runs)
            flops = len(runs) * first.work.flops / took / 1e9
            gbytes = len(runs) * first.work.nbytes / took / 1e9
            lines.append(
                f"{first.kernel.name:<24} {first.shape:<18} {len(runs):>6} "
                f"{took * 1e3:>10.3f} {took / total:>5.0%} {flops:>8.2f} {gbytes:>7.2f}"
            )
        lines.append(f"{'all':<43} {len(self.runs):>6} {total * 1e3:>10.3f}")
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file in Chrome's trace format.

        To be opened in chrome://tracing or https://ui.perfetto.dev.
        """
        import json  # not at import, for start-up's sake

        events = [
            {
                "name": r.kernel.name,
                "cat": r.backend,
                "ph": "X",  # a complete event: it has a start and a duration
                "ts": r.start * 1e6,
                "dur": r.seconds * 1e6,
                "pid": os.getpid(),
                "tid": r.thread,
                "args": {
                    "shape": r.shape,
                    "flops": r.work.flops,
                    "bytes": r.work.nbytes,
                },
            }
            for r in self.runs
        ]
        with open(path, "w") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)


def _seconds(runs: Sequence[KernelRun]) -> float:
    return sum(r.seconds for r in runs)


@contextmanager
def profile() -> Iterator[Profile]:
    """Collect the kernels of all plans that this context runs.

    Each kernel is a call of its own, which adds some microseconds to its time; the
    compilation that this takes at first is not counted. Profiles nest; what other
    threads run is not seen.
    """
    collected = Profile()
    token = _active.set((*_active.get(), collected))
    try:
        yield collected
    finally:
        _active.reset(token)


def profiled() -> bool:
    """Whether a `profile` is active here."""
    return bool(_active.get())


def watched() -> bool:
    """Whether kernels that are run now are to be timed one by one."""
    return profiled() or get("UOPC_DEBUG") >= 1


def run_program(
    program: Program, plan: Plan, backend: Backend, arrays: Sequence[Array]
) -> None:
    """Run a plan on its arrays: by one call, or kernel by kernel if it is watched."""
    if not watched():
        program(arrays)
        return
    steps = steps_of(plan, backend)
    for i, k in enumerate(plan.kernels):
        start = time.perf_counter()
        steps.run(i, arrays)
        seconds = max(time.perf_counter() - start, 1e-9)
        shape = f"{k.ast.dtype}[{', '.join(map(str, k.ast.shape))}]"
        work, thread = steps.work(i), threading.get_native_id()
        run = KernelRun(k, shape, work, start, seconds, backend.name, thread)
        for p in _active.get():
            p.runs.append(run)
        if get("UOPC_DEBUG") >= 1:
            # Plans and C are printed the same each time; times are not.
            print(run, file=sys.stderr)

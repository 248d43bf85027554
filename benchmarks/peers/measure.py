"""Timing one workload of one framework, in the process that this runs in."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from peers.checks import digest
from peers.columns import BY_NAME as COLUMNS
from peers.columns import Column
from peers.result import Result
from peers.workloads import BY_NAME as WORKLOADS
from peers.workloads import Workload

FIRST_CALLS = 4
SHORTEST = 2e-3
LONGEST = 60.0
MOST_SAMPLES = 300
FRESH_PROCESSES = 7
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
_BUSY = "while True:\n    pass"


def busy_seconds() -> float:
    """Processor time that all processes have used; 0 where the system does not say."""
    try:
        with open("/proc/stat") as stream:
            ticks = [int(word) for word in stream.readline().split()[1:9]]
    except OSError:
        return 0.0
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Processor time of this process and of those it has waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(
            resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
    )


def processors() -> set[int]:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


@contextlib.contextmanager
def one_core_taken() -> Iterator[None]:
    """Another process keeps one of this one's processors busy meanwhile."""
    taken = min(processors())
    start = [sys.executable, "-c", _BUSY]
    with subprocess.Popen(start) as other:
        try:
            if hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(other.pid, {taken})
            yield
        finally:
            other.kill()


def sample(
    call: Callable[[], Any],
    repeats: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Milliseconds of a call, each a mean over enough calls to be measured.

    At least ``repeats`` samples (three, where they take a minute), and more until
    ``seconds`` have passed.
    """
    begun = clock()
    call()
    calls = max(1, int(SHORTEST / max(clock() - begun, 1e-9)))
    for _ in range(calls):
        call()
    found: list[float] = []
    begun = clock()
    while len(found) < repeats or clock() - begun < seconds:
        start = clock()
        for _ in range(calls):
            call()
        found.append(1e3 * (clock() - start) / calls)
        late = clock() - begun > LONGEST and len(found) >= 3
        if late or len(found) >= MOST_SAMPLES:
            break
    return found


def _in_fresh_processes(column: Column, workload: Workload, result: Result) -> None:
    """Time whole processes; the first one finds empty caches."""
    if workload.kind == "import":
        program = (
            "import time; t = time.perf_counter()\n"
            f"{column.importing}\n"
            "print(1e3 * (time.perf_counter() - t))"
        )
    else:
        program = column.hello
    found = []
    for _ in range(FRESH_PROCESSES + 1):
        start = time.perf_counter()
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        whole = 1e3 * (time.perf_counter() - start)
        found.append(float(done.stdout) if workload.kind == "import" else whole)
    result.first, *others = found
    result.median, result.least = statistics.median(others), min(others)
    result.samples = len(others)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    result.memory = usage.ru_maxrss / 1024


def _in_this_process(
    column: Column,
    workload: Workload,
    result: Result,
    repeats: int,
    seconds: float,
    clock: Callable[[], float],
) -> None:
    framework = importlib.import_module(column.module)
    result.version = framework.version()
    call = framework.make(workload, result.threads)
    values: list[float] = []
    for i in range(FIRST_CALLS):
        start = time.perf_counter()
        made = call()
        took = 1e3 * (time.perf_counter() - start)
        result.first = result.first or took
        if isinstance(made, float):
            values.append(made)
        elif made is not None and i == 0:
            values = digest(np.asarray(framework.as_numpy(made)))
    result.values = values
    with one_core_taken() if workload.contended else contextlib.nullcontext():
        begun, busy, own = time.perf_counter(), busy_seconds(), own_seconds()
        found = sample(call, repeats, seconds, clock)
        wall = time.perf_counter() - begun
        foreign = (busy_seconds() - busy) - (own_seconds() - own)
    if not workload.contended:
        result.foreign = max(0.0, foreign / wall)
    result.median, result.least = statistics.median(found), min(found)
    result.samples = len(found)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result.memory = usage.ru_maxrss / 1024


def measure(
    column: str, workload: str, threads: int, repeats: int, seconds: float, clock: str
) -> Result:
    """Time a workload by a clock of `CLOCKS`; an error becomes the result's."""
    result = Result(column, workload, threads)
    what, work = COLUMNS[column], WORKLOADS[workload]
    try:
        if work.kind in ("import", "hello"):
            _in_fresh_processes(what, work, result)
        else:
            _in_this_process(what, work, result, repeats, seconds, CLOCKS[clock])
    except Exception as error:  # whatever a framework raises belongs into the table
        lines = str(error).strip().splitlines() or [""]
        result.error = f"{type(error).__name__}: {lines[-1][:200]}"
    return result

"""Starting the processes in turns: A, B, C, then C, B, A, and so on."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from peers.columns import Column
from peers.measure import busy_seconds, processors
from peers.result import Result
from peers.workloads import Workload

_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NPROC",
)
_CACHES = ("XDG_CACHE_HOME", "UOPC_CACHE_DIR")
_DROPPED = ("UOPC_", "XLA_", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
_SETTLING = 0.3


@dataclass(frozen=True)
class Settings:
    """How much is measured.

    Attributes:
        rounds: processes for each workload, column and number of threads.
        repeats: samples at least.
        seconds: of sampling at least.
        patience: seconds to wait at most until the processors are idle.
        timeout: seconds that a process may take.
        clock: a name of `measure.CLOCKS`.
    """

    rounds: int = 1
    repeats: int = 9
    seconds: float = 1.0
    patience: float = 10.0
    timeout: float = 300.0
    clock: str = "wall"


def wait_until_idle(threads: int, patience: float) -> None:
    """Wait until others leave ``threads`` processors, or patience has run out."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        busy = busy_seconds()
        time.sleep(_SETTLING)
        used = (busy_seconds() - busy) / _SETTLING
        if used < (os.cpu_count() or 1) - threads + 0.15:
            return


def _inherited() -> dict[str, str]:
    """The variables of this process that do not change what is measured."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_DROPPED)}


def environment(column: Column, threads: int, cache: str, cc: str) -> dict[str, str]:
    """The variables of a process: of uopc's, only what the column says."""
    kept = _inherited() | dict.fromkeys(_THREADS, str(threads))
    kept |= dict.fromkeys(_CACHES, cache)
    kept |= {k: v.format(cc=cc) for k, v in column.environment.items()}
    folders = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def compile_sources() -> None:
    """Write uopc's bytecode, as pip does for what it installs: a checkout has none."""
    folders = importlib.import_module("uopc").__path__
    command = [sys.executable, "-m", "compileall", "-q", *folders]
    subprocess.run(command, env=_inherited(), check=True)


def _pin(cpus: set[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)


def run_one(
    column: Column, workload: Workload, threads: int, settings: Settings, cc: str
) -> Result:
    """Measure in a process of its own, on as many processors as threads."""
    words = [column.name, workload.name, threads]
    words += [settings.repeats, settings.seconds, settings.clock]
    command = [sys.executable, "-m", "peers", *map(str, words)]
    cpus = set(sorted(processors())[-threads:])
    failed = partial(Result, column.name, workload.name, threads)
    with tempfile.TemporaryDirectory(prefix="bench-") as cache:
        try:
            done = subprocess.run(
                command,
                env=environment(column, threads, cache, cc),
                capture_output=True,
                text=True,
                timeout=settings.timeout,
                check=False,
                preexec_fn=partial(_pin, cpus),
            )
        except subprocess.TimeoutExpired:
            return failed(error=f"it takes more than {settings.timeout:.0f} s")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return failed(error=f"exit status {done.returncode}: {last[:200]}")
    return Result.from_json(lines[-1])


def order(
    workloads: Sequence[Workload],
    columns: Sequence[Column],
    threads: Sequence[int],
    rounds: int,
) -> Iterator[tuple[Column, Workload, int]]:
    """What runs when; every other round goes through the columns backwards.

    With one thread no core can be taken from it: that would be a matter of the
    system's scheduler.
    """
    for turn in range(rounds):
        for workload in workloads:
            for column in columns if turn % 2 == 0 else columns[::-1]:
                for n in threads:
                    fits = not workload.contended or n > 1
                    if fits and workload.kind not in column.without:
                        yield column, workload, n


def run_all(
    plan: Sequence[tuple[Column, Workload, int]],
    settings: Settings,
    seen: Callable[[Result], None],
) -> list[Result]:
    """Measure all of a plan; each result is shown as soon as it is there."""
    cc = compiler()
    compile_sources()
    results = []
    for column, workload, n in plan:
        wait_until_idle(n, settings.patience)
        result = run_one(column, workload, n, settings, cc)
        seen(result)
        results.append(result)
    return results


def compiler() -> str:
    """The command of the C compiler that uopc finds; empty without one."""
    from uopc.backend_c.toolchain import CompilerNotFoundError, find_compiler

    with contextlib.suppress(CompilerNotFoundError):
        return shlex.join(find_compiler().argv)
    return ""

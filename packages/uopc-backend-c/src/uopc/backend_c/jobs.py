"""Running compilers: several at once, stopped in time, their failures described."""

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from uopc.backend_c import cpu
from uopc.backend_c.progress import Progress
from uopc.backend_c.scratch import surely
from uopc.runtime.interrupts import interrupts_held


class CompileError(RuntimeError):
    """The compiler failed. `source` is kept on disk for the reader.

    `status` is the exit status, minus the signal's number, or None where the
    compiler did not start or did not end; `stderr` is all that it printed.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        status: int | None,
        reason: str,
        stderr: str,
        source: Path,
    ) -> None:
        # The arguments go to the base class whole, so that the error can be pickled.
        super().__init__(command, status, reason, stderr, source)
        self.command = command
        self.status = status
        self.reason = reason
        self.stderr = stderr
        self.source = source

    def __str__(self) -> str:
        head = f"the C compiler failed: {self.reason}"
        command = f"  command: {shlex.join(self.command)}"
        source = f"  source:  {self.source}"
        return "\n".join([head, command, source, *trim(self.stderr)])


@dataclass
class Stats:
    """Counters of this process, for tests and reports."""

    compiler_runs: int = 0
    hits: int = 0
    misses: int = 0
    damaged: int = 0
    plan_hits: int = 0
    """Plans that were found without being lowered or printed."""
    kernels: int = 0
    """Kernels that were lowered and printed, each distinct one of a plan once."""

    def reset(self) -> None:
        """Set every counter to zero."""
        for counter in fields(self):
            setattr(self, counter.name, 0)


stats = Stats()


@dataclass(frozen=True)
class Job:
    """One command to run, and the source that an error should point to."""

    command: tuple[str, ...]
    source: Path
    seconds: float


@dataclass(frozen=True)
class _Started:
    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    begun: float

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        # The whole group: a compiler's driver leaves the work to its children.
        # Asked first, for the number of a process that ended may be another's.
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Batch:
    """Commands that run beside each other; more may be added while they do.

    Whoever has one stops it at the end, so that no compiler is left running.
    """

    def __init__(self, folder: Path, jobs: Iterable[Job] = ()) -> None:
        self._folder = folder
        self._environment = _environment(folder)
        self._waiting: deque[tuple[int, Job]] = deque()
        self._active: dict[int, _Started] = {}
        self._printed: list[str] = []
        for job in jobs:
            self.add(job)

    def add(self, job: Job) -> None:
        """Another command, which starts as soon as it may."""
        self._waiting.append((len(self._printed), job))
        self._printed.append("")

    def step(self, workers: int) -> None:
        """Note what has ended, and start what may run, `workers` at once.

        Raises `CompileError` for a command that failed, or takes too long.
        """
        for index, started in list(self._active.items()):
            if _ended(started):
                del self._active[index]
                self._printed[index] = started.text()
                _check(started)
        while self._waiting and len(self._active) < workers:
            index, job = self._waiting.popleft()
            # Else a process that has just begun might be known to nobody.
            with interrupts_held():
                log = self._folder / f"{index}.log"
                self._active[index] = _start(job, log, self._environment)

    def finish(self) -> list[str]:
        """Run what is left, on all cores; returns what each command printed."""
        workers, progress = cpu.cores(), Progress(len(self._printed))
        try:
            self.step(workers)
            while self._active:
                left = len(self._active) + len(self._waiting)
                progress.show(len(self._printed) - left)
                time.sleep(0.002)
                self.step(workers)
        finally:
            surely(progress.close)
        return self._printed

    def stop(self) -> None:
        """End all that runs, and start nothing more."""
        self._waiting.clear()
        for started in self._active.values():
            started.stop()


def run(jobs: Sequence[Job], folder: Path) -> list[str]:
    """Run commands, as many at once as there are cores; return what they printed.

    The first failure stops the others and raises `CompileError`. Whatever ends this
    function, an interrupt too, no compiler is left running.
    """
    batch = Batch(folder, jobs)
    try:
        return batch.finish()
    finally:
        surely(batch.stop)


def _start(job: Job, log: Path, environment: Mapping[str, str]) -> _Started:
    stats.compiler_runs += 1
    try:
        # A file, not a pipe: a child that lingers would hold a pipe open for ever.
        with log.open("wb") as stream:
            process = subprocess.Popen(
                job.command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        reason = f"it could not be started: {error}"
        raise CompileError(job.command, None, reason, "", job.source) from error
    return _Started(job, process, log, time.monotonic())


def _ended(started: _Started) -> bool:
    if started.process.poll() is not None:
        return True
    job = started.job
    if time.monotonic() - started.begun > job.seconds:
        started.stop()
        reason = f"it took more than {job.seconds:g} seconds"
        raise CompileError(job.command, None, reason, started.text(), job.source)
    return False


def _check(started: _Started) -> None:
    status, job = started.process.returncode, started.job
    if status == 0:
        return
    reason = f"exit status {status}"
    if status < 0:
        names = {known.value: known.name for known in signal.Signals}
        reason = f"killed by signal {names.get(-status, -status)}"
        if -status == signal.SIGKILL:
            reason += " (perhaps for want of memory)"
    raise CompileError(job.command, status, reason, started.text(), job.source)


def _environment(folder: Path) -> dict[str, str]:
    # Untranslated messages, and the compiler's own temporary files in a folder
    # that goes away even if the compiler is killed.
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)}
    # Where there is none, gcc itself was found on this one, but does not find ld.
    environment.setdefault("PATH", os.defpath)
    home = environment.get("HOME", "")
    if not (os.path.isabs(home) and os.access(home, os.W_OK)):
        # Where zig cannot make its own folder, it may try for ever.
        environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(folder / "zig"))
    return environment


def trim(text: str, head: int = 30, tail: int = 5) -> list[str]:
    """The first and last lines of a compiler's output, over-long lines shortened."""
    lines = [x if len(x) <= 300 else f"{x[:297]}..." for x in text.splitlines()]
    left = len(lines) - head - tail
    if left <= 0:
        return lines
    return [*lines[:head], f"... ({left} more lines)", *lines[-tail:]]

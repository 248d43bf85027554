"""Finding the C compiler and running it.

The compiler is found, not assumed: `UOPC_CC`, then ``cc``, ``gcc`` and ``clang`` on
the PATH, then the ``ziglang`` wheel. Commands are lists of words; no shell is used.
"""

import contextlib
import functools
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from uopc import config
from uopc.backend_c import cpu
from uopc.backend_c.interrupts import interrupts_held
from uopc.backend_c.progress import Progress

TIMEOUT = 300.0
"""Seconds one run of the compiler may take."""

BASE_FLAGS: tuple[str, ...] = (
    "-std=gnu11",
    "-fPIC",
    "-shared",
    # Integers wrap, as they do in NumPy.
    "-fwrapv",
    # A multiply-add is fused where the C says so, never behind the user's back.
    "-ffp-contract=off",
    # Neither changes a result; both let the compiler vectorise.
    "-fno-math-errno",
    "-fno-trapping-math",
)
NATIVE = "-march=native"
LIBRARIES: tuple[str, ...] = ("-lm",)

_LEVELS = {0: "-O1", 1: "-O3", 2: "-O3"}
_CANDIDATES = ("cc", "gcc", "clang")
# How gcc, clang, zig and an assembler older than its compiler refuse the target.
_TARGET_REFUSED = re.compile(r"march|no such instruction|unknown (target )?cpu", re.I)
_refusing: set[tuple[str, ...]] = set()


class CompilerNotFoundError(RuntimeError):
    """There is no C compiler; the message says what was tried and what to install."""


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
class Compiler:
    """A compiler command and the program behind it.

    `version` and `kind` start the compiler when they are first asked for.
    """

    argv: tuple[str, ...]
    path: Path

    @property
    def version(self) -> str:
        """The first line of ``--version``, or "unknown"."""
        banner = _banner(self.argv, self.fingerprint())
        return banner.partition("\n")[0].strip() or "unknown"

    @property
    def kind(self) -> str:
        """One of "gcc", "clang", "zig" and "unknown"."""
        if "ziglang" in self.argv or self.path.stem == "zig":
            return "zig"
        banner = _banner(self.argv, self.fingerprint()).lower()
        if "clang" in banner:
            return "clang"
        # Under the name of cc, gcc's first line does not say gcc.
        known = "gcc" in banner or "free software foundation" in banner
        return "gcc" if known else "unknown"

    def fingerprint(self) -> tuple[str, ...]:
        """Path, size and time of every program that the command names.

        More than `path`, because in ``ccache gcc`` the second word matters too.
        """
        named = (shutil.which(word) for word in self.argv if word[:1] != "-")
        files = {str(self.path)} | {os.path.realpath(found) for found in named if found}
        rows = []
        for file in sorted(files):
            with contextlib.suppress(OSError):
                facts = os.stat(file)
                rows.append(f"{file}:{facts.st_size}:{facts.st_mtime_ns}")
        return tuple(rows)


def find_compiler() -> Compiler:
    """The compiler to use; remembered for each `UOPC_CC` and PATH."""
    key = (config.get("UOPC_CC").strip(), os.environ.get("PATH", os.defpath))
    compiler = _find(*key)
    if not compiler.path.exists():
        # Removed since it was found: look again.
        _find.cache_clear()
        compiler = _find(*key)
    return compiler


@functools.lru_cache(maxsize=16)
def _find(command: str, path: str) -> Compiler:
    if command:
        return _from_command(command, path)
    for name in _CANDIDATES:
        if found := shutil.which(name, path=path):
            # The link's own name is called (a link may be a wrapper that looks at
            # it), but the file behind it is what a new version replaces.
            program = os.path.abspath(found)
            return Compiler((program,), Path(os.path.realpath(program)))
    spec = importlib.util.find_spec("ziglang")
    if spec is not None and spec.origin:
        zig = Path(spec.origin).with_name("zig")
        argv = (sys.executable, "-m", "ziglang", "cc")
        return Compiler(argv, zig if zig.exists() else Path(sys.executable))
    tried = f"{', '.join(_CANDIDATES)} on the PATH, and the ziglang wheel"
    raise CompilerNotFoundError(_not_found(f"tried {tried} (UOPC_CC is not set)"))


def _from_command(command: str, path: str) -> Compiler:
    # A command that was asked for and is missing is an error: quietly taking
    # another compiler would hide it.
    try:
        words = shlex.split(command)
    except ValueError as error:
        problem = f"UOPC_CC={command!r} cannot be split into words: {error}"
        raise CompilerNotFoundError(_not_found(problem)) from None
    program = os.path.expanduser(words[0]) if words else ""
    found = shutil.which(program, path=path) if program else None
    if found is None:
        problem = f"UOPC_CC={command!r}: there is no program {program!r}"
        raise CompilerNotFoundError(_not_found(problem))
    found = os.path.abspath(found)
    return Compiler((found, *words[1:]), Path(os.path.realpath(found)))


def _not_found(tried: str) -> str:
    return (
        f"no C compiler found: {tried}.\n"
        "Install one: `apt install gcc` (Debian, Ubuntu), `xcode-select --install`"
        " (macOS), or anywhere `pip install uopc-backend-c[zig]`;\n"
        "or set UOPC_CC to a compiler's command, with arguments if need be (the"
        " variable CC is not read).\n"
        "Without a compiler, UOPC_BACKEND=interp still works, slowly."
    )


@functools.lru_cache(maxsize=16)
def _banner(argv: tuple[str, ...], fingerprint: tuple[str, ...]) -> str:
    with tempfile.TemporaryDirectory(prefix="uopc-") as folder:
        job = Job((*argv, "--version"), Path(), 30.0)
        try:
            return run([job], Path(folder))[0].strip()
        except CompileError:
            return ""


def flags(opt: int, compiler: Compiler | None = None) -> tuple[str, ...]:
    """The flags of an optimisation level, for one file into one shared object.

    A target named in `UOPC_CC` itself replaces ``-march=native``.
    """
    if opt not in _LEVELS:
        raise ValueError(f"optimisation level {opt!r}: expected one of 0, 1, 2")
    words = compiler.argv if compiler else ()
    named = any(word.startswith(("-march=", "-mcpu=")) for word in words)
    return (*BASE_FLAGS, *(() if named else (NATIVE,)), _LEVELS[opt])


def compile_shared(
    compiler: Compiler, sources: Sequence[Path], output: Path, opt: int
) -> None:
    """Compile `sources` into the shared object `output`.

    Several files are compiled at once, on all cores. What is temporary is written
    beside `output`, in a folder that the caller removes.
    """
    chosen = flags(opt, compiler)
    identity = (*compiler.argv, *compiler.fingerprint())
    if identity in _refusing:
        chosen = tuple(flag for flag in chosen if flag != NATIVE)
    try:
        return _compile(compiler, sources, output, chosen)
    except CompileError as error:
        refused = (error.status or 0) > 0 and _TARGET_REFUSED.search(error.stderr)
        if NATIVE not in chosen or not refused:
            raise
    plain = tuple(flag for flag in chosen if flag != NATIVE)
    _compile(compiler, sources, output, plain)
    _refusing.add(identity)


def _compile(
    compiler: Compiler, sources: Sequence[Path], output: Path, chosen: tuple[str, ...]
) -> None:
    inputs = [str(source) for source in sources]
    if len(sources) > 1:
        alone = tuple(flag for flag in chosen if flag != "-shared")
        start = (*compiler.argv, *alone, "-c")
        inputs = [str(output.parent / f"{i}.o") for i in range(len(sources))]
        jobs = [
            Job((*start, str(source), "-o", made), source, TIMEOUT)
            for source, made in zip(sources, inputs, strict=True)
        ]
        run(jobs, output.parent)
    command = (*compiler.argv, *chosen, *inputs, "-o", str(output), *LIBRARIES)
    text = run([Job(command, sources[0], TIMEOUT)], output.parent)[0]
    if not output.is_file() or not output.stat().st_size:
        reason = "it reported success but wrote no output"
        raise CompileError(command, 0, reason, text, sources[0])


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


def run(jobs: Sequence[Job], folder: Path) -> list[str]:
    """Run commands, as many at once as there are cores; return what they printed.

    The first failure stops the others and raises `CompileError`. Whatever ends this
    function, an interrupt too, no compiler is left running.
    """
    environment, workers = _environment(folder), cpu.cores()
    waiting = deque(enumerate(jobs))
    active: dict[int, _Started] = {}
    printed = [""] * len(jobs)
    progress = Progress(len(jobs))
    try:
        while waiting or active:
            while waiting and len(active) < workers:
                index, job = waiting.popleft()
                # Else a process that has just begun might be known to nobody.
                with interrupts_held():
                    active[index] = _start(job, folder / f"{index}.log", environment)
            for index, started in list(active.items()):
                if _ended(started):
                    del active[index]
                    printed[index] = started.text()
                    _check(started)
            if active:
                progress.show(len(jobs) - len(active) - len(waiting))
                time.sleep(0.002)
    finally:
        with interrupts_held():
            for started in active.values():
                started.stop()
            progress.close()
    return printed


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
    if "HOME" not in environment:
        environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(folder / "zig"))
    return environment


def trim(text: str, head: int = 30, tail: int = 5) -> list[str]:
    """The first and last lines of a compiler's output, over-long lines shortened."""
    lines = [x if len(x) <= 300 else f"{x[:297]}..." for x in text.splitlines()]
    left = len(lines) - head - tail
    if left <= 0:
        return lines
    return [*lines[:head], f"... ({left} more lines)", *lines[-tail:]]

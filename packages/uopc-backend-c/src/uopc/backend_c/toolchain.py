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
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uopc import config
from uopc.backend_c.jobs import CompileError, Job, Stats, run, stats, trim
from uopc.backend_c.load import is_loadable
from uopc.backend_c.scratch import scratch_folder

__all__ = [
    "CompileError",
    "Compiler",
    "CompilerNotFoundError",
    "Stats",
    "compile_shared",
    "find_compiler",
    "flags",
    "stats",
    "trim",
    "unit_job",
]

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

# Schedules unroll and reorder loops and write vectors; of what -O3 adds to -O2, only
# that gcc vectorises is of use, for loops that are left as they are. The rest takes a
# fifth of the compiler's time and makes nothing faster.
_OPTIMISED = ("-O2", "-ftree-vectorize")
_LEVELS = {0: ("-O1",), 1: _OPTIMISED, 2: _OPTIMISED}
_CANDIDATES = ("cc", "gcc", "clang")
# How gcc, clang, zig and an assembler older than its compiler refuse the target.
_TARGET_REFUSED = re.compile(r"march|no such instruction|unknown (target )?cpu", re.I)
_refusing: set[tuple[str, ...]] = set()


class CompilerNotFoundError(RuntimeError):
    """There is no C compiler; the message says what was tried and what to install."""


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
        if os.path.isfile(program):
            problem = f"UOPC_CC={command!r}: {program!r} is not executable"
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
    with scratch_folder("uopc-") as folder:
        job = Job((*argv, "--version"), Path(), 30.0)
        try:
            return run([job], folder)[0].strip()
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
    return (*BASE_FLAGS, *(() if named else (NATIVE,)), *_LEVELS[opt])


def compile_shared(
    compiler: Compiler,
    sources: Sequence[Path],
    output: Path,
    opt: int,
    objects: Sequence[Path] | None = None,
) -> None:
    """Compile `sources` into the shared object `output`.

    Several files are compiled at once, on all cores, unless their `objects` are there
    already. What is temporary is written beside `output`, in a folder that the caller
    removes.
    """
    chosen = _accepted(compiler, opt)
    try:
        return _compile(compiler, sources, output, chosen, objects)
    except CompileError as error:
        refused = (error.status or 0) > 0 and _TARGET_REFUSED.search(error.stderr)
        if NATIVE not in chosen or not refused:
            raise
    plain = tuple(flag for flag in chosen if flag != NATIVE)
    _compile(compiler, sources, output, plain)
    _refusing.add((*compiler.argv, *compiler.fingerprint()))


def unit_job(compiler: Compiler, source: Path, made: Path, opt: int) -> Job:
    """How one of several files is compiled into an object."""
    return _unit_job(compiler, source, made, _accepted(compiler, opt))


def _accepted(compiler: Compiler, opt: int) -> tuple[str, ...]:
    """The flags of a level, without what the compiler is known to refuse."""
    chosen = flags(opt, compiler)
    if (*compiler.argv, *compiler.fingerprint()) in _refusing:
        chosen = tuple(flag for flag in chosen if flag != NATIVE)
    return chosen


def _unit_job(
    compiler: Compiler, source: Path, made: Path, chosen: tuple[str, ...]
) -> Job:
    alone = tuple(flag for flag in chosen if flag != "-shared")
    command = (*compiler.argv, *alone, "-c", str(source), "-o", str(made))
    return Job(command, source, TIMEOUT)


def _compile(
    compiler: Compiler,
    sources: Sequence[Path],
    output: Path,
    chosen: tuple[str, ...],
    objects: Sequence[Path] | None = None,
) -> None:
    inputs = sources if objects is None else objects
    if objects is None and len(sources) > 1:
        inputs = [output.parent / f"{i}.o" for i in range(len(sources))]
        jobs = [
            _unit_job(compiler, source, made, chosen)
            for source, made in zip(sources, inputs, strict=True)
        ]
        run(jobs, output.parent)
    words = (*map(str, inputs), "-o", str(output))
    command = (*compiler.argv, *chosen, *words, *LIBRARIES)
    text = run([Job(command, sources[0], TIMEOUT)], output.parent)[0]
    if not output.is_file() or not output.stat().st_size:
        reason = "it reported success but wrote no output"
        raise CompileError(command, 0, reason, text, sources[0])
    with output.open("rb") as stream:
        if not is_loadable(stream.read(20)):
            reason = "it wrote what is no shared object for this machine"
            raise CompileError(command, 0, reason, text, sources[0])

"""What this distribution registers with uopc."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uopc.backend_c.backend import NAME, CBackend
from uopc.backend_c.folder import chosen_folder
from uopc.backend_c.pool import threads
from uopc.backend_c.spellings import SPELLINGS
from uopc.backend_c.target import current_target
from uopc.backend_c.toolchain import (
    CompileError,
    Compiler,
    CompilerNotFoundError,
    compile_shared,
    find_compiler,
)
from uopc.config import get
from uopc.plugins import hookimpl

if TYPE_CHECKING:
    import argparse


@hookimpl
def uopc_register_backends(register: Any) -> None:
    """The C backend."""
    register(NAME, CBackend)


@hookimpl
def uopc_register_spellings(register: Any) -> None:
    """The C text of the built-in ops."""
    for op, spelling in SPELLINGS.items():
        register(NAME, op, spelling)


@hookimpl
def uopc_doctor() -> list[tuple[str, str]]:
    """The compiler, the processor and the cache."""
    wanted = get("UOPC_CC")
    try:
        compiler = find_compiler()
        rows = [
            ("C compiler", " ".join(compiler.argv)),
            ("C compiler version", compiler.version),
        ]
        if reason := _trial(compiler):
            whose = f"UOPC_CC={wanted!r}" if wanted else "the C compiler"
            rows.append(("problem", f"{whose} does not compile: {reason}"))
    except CompilerNotFoundError as error:
        what, _, advice = str(error).partition("\n")
        rows = [("C compiler", f"none: {what}")]
        if wanted or not get("UOPC_BACKEND"):
            # The reference backend runs then, unasked.
            rows.append(("problem", " ".join(f"{what} {advice}".split())))
    folder, problem = chosen_folder()
    if problem:
        rows.append(("problem", f"compiled code cannot be kept in {folder}: {problem}"))
    else:  # the compiler's answer is kept there
        width = current_target().vector_bytes * 8
        rows.append(("vector width", f"{width} bits"))
    return [
        *rows,
        ("threads", str(threads())),
        ("cache folder", f"{folder}{', unusable' if problem else ''}"),
    ]


def _trial(compiler: Compiler) -> str | None:
    """Why the compiler makes no shared object of a line of C, or None."""
    with tempfile.TemporaryDirectory(prefix="uopc-") as folder:
        source, output = Path(folder, "trial.c"), Path(folder, "trial.so")
        source.write_text("int trial(void) { return 0; }\n")
        try:
            compile_shared(compiler, [source], output, 1)
        except CompileError as error:
            said = " ".join(error.stderr.split())[:200]
            return f"{error.reason}: {said}" if said else error.reason
        return None


@hookimpl
def uopc_register_commands(cli: Any) -> None:
    """The commands ``uopc compile``, ``cache``, ``tune`` and ``ulp``."""
    cli.add("compile", "print a graph as C", _configure, _run)
    help = "show or clear what was compiled before"
    cli.add("cache", help, _configure_cache, _run_cache)
    help = "run a script, and measure which schedules are best for it"
    cli.add("tune", help, _configure_tune, _run_tune)
    help = "measure how exact the C backend's functions on vectors are"
    cli.add("ulp", help, _configure_ulp, _run_ulp)


def _configure(parser: argparse.ArgumentParser) -> None:
    # The command is imported when it is used, for start-up's sake.
    from uopc.backend_c.command import configure

    configure(parser)


def _run(args: argparse.Namespace) -> int:
    from uopc.backend_c.command import run_compile

    return run_compile(args)


def _configure_cache(parser: argparse.ArgumentParser) -> None:
    from uopc.backend_c.cache_command import configure

    configure(parser)


def _run_cache(args: argparse.Namespace) -> int:
    from uopc.backend_c.cache_command import run_cache

    return run_cache(args)


def _configure_tune(parser: argparse.ArgumentParser) -> None:
    from uopc.backend_c.tuning.command import configure

    configure(parser)


def _run_tune(args: argparse.Namespace) -> int:
    from uopc.backend_c.tuning.command import run_tune

    return run_tune(args)


def _configure_ulp(parser: argparse.ArgumentParser) -> None:
    from uopc.backend_c.vector_math.command import configure

    configure(parser)


def _run_ulp(args: argparse.Namespace) -> int:
    from uopc.backend_c.vector_math.command import run_ulp

    return run_ulp(args)

"""What this distribution registers with uopc."""

from __future__ import annotations

from typing import Any

from uopc.backend_c.backend import NAME, CBackend
from uopc.backend_c.cache import cache_dir
from uopc.backend_c.cpu import vector_width
from uopc.backend_c.spellings import SPELLINGS
from uopc.backend_c.toolchain import CompilerNotFoundError, find_compiler
from uopc.plugins import hookimpl


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
    try:
        compiler = find_compiler()
        rows = [
            ("C compiler", " ".join(compiler.argv)),
            ("C compiler version", compiler.version),
        ]
    except CompilerNotFoundError as error:
        rows = [("C compiler", f"none: {error}")]
    return [
        *rows,
        ("vector width", f"{vector_width()} bits"),
        ("cache folder", str(cache_dir())),
    ]

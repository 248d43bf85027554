"""The C backend as the runtime sees it."""

from __future__ import annotations

from uopc.backend_c.program import CProgram
from uopc.backend_c.spellings import Spellings
from uopc.backend_c.toolchain import CompilerNotFoundError, find_compiler
from uopc.kernelize import Plan
from uopc.plugins import registry
from uopc.uop import BUILTIN_OPS, OpDef, Ops

NAME = "c"


def spellings() -> Spellings:
    """The C spellings of all loaded plugins."""
    return {op: s for (name, op), s in registry().spellings.items() if name == NAME}


class CBackend:
    """Prints plans as C, compiles and loads them."""

    name = NAME
    priority = 10
    in_place = True

    def unavailable(self) -> str | None:
        """Why no C can be compiled here, or None."""
        try:
            find_compiler()
        except CompilerNotFoundError as error:
            return str(error)
        return None

    def supports(self, op: OpDef) -> bool:
        """Elementwise ops with a spelling, and of others what the compiler knows."""
        if op.kind == "elementwise":
            return (NAME, op) in registry().spellings
        return op in BUILTIN_OPS and op is not Ops.CONV  # lowered, it fuses

    def compile(self, plan: Plan) -> CProgram:
        """A native program for ``plan``."""
        return CProgram(plan, spellings())

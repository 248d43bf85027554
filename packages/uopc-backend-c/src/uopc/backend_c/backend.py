"""The C backend as the runtime sees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from uopc.backend_c.program import CProgram
from uopc.backend_c.spellings import Spellings
from uopc.backend_c.toolchain import CompilerNotFoundError, find_compiler
from uopc.kernelize import Kernel, Plan
from uopc.plugins import registry
from uopc.runtime.values import importing
from uopc.uop import BUILTIN_OPS, OpDef, Ops

NAME = "c"
MAX_NESTS = 1024  # remembered
UNKNOWN: list[bool] = []  # not an answer: a nest has kernels


def spellings() -> Spellings:
    """The C spellings of all loaded plugins."""
    return {op: s for (name, op), s in registry().spellings.items() if name == NAME}


class CBackend:
    """Prints plans as C, compiles and loads them."""

    name = NAME
    priority = 10
    in_place = True

    def __init__(self) -> None:
        self._nests: dict[object, list[bool] | None] = {}

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

    def in_one_nest(self, kernels: Sequence[Kernel]) -> Collection[int] | None:
        """The buffers in scratch if one loop nest runs these kernels, or None."""
        with importing:
            from uopc.backend_c.target import current_target
            from uopc.runtime.nests import Nest, in_scratch

        nest = Nest(tuple(kernels))
        target = current_target()
        key = (nest.key, target)
        found = self._nests.get(key, UNKNOWN)
        if found is UNKNOWN:
            found = in_scratch(nest, target)
            if len(self._nests) >= MAX_NESTS:
                self._nests.clear()  # another thread may have read it before
            self._nests[key] = found
        if found is None:
            return None
        return {k.out for k, inside in zip(nest.kernels, found, strict=True) if inside}

    def compile(self, plan: Plan) -> CProgram:
        """A native program for ``plan``."""
        return CProgram(plan, spellings())

"""The C backend: printing, compiling, caching and loading native programs."""

from typing import TYPE_CHECKING

from uopc.backend_c.backend import CBackend, spellings
from uopc.backend_c.pool import set_threads, threads
from uopc.backend_c.program import CProgram
from uopc.backend_c.spelling import Spelling
from uopc.backend_c.toolchain import CompileError, CompilerNotFoundError
from uopc.exports import on_demand
from uopc.kernelize import Kernel
from uopc.uop import UOp

if TYPE_CHECKING:
    from uopc.backend_c.emit import print_plan

__all__ = [
    "CBackend",
    "CProgram",
    "CompileError",
    "CompilerNotFoundError",
    "Spelling",
    "kernel_source",
    "print_plan",
    "set_threads",
    "threads",
]


def kernel_source(kernel: Kernel | UOp, name: str = "kernel") -> str:
    """One kernel as C: a plan's kernel, or a graph lowered on its own.

    A graph keeps its buffers' slot numbers; the output takes the largest one
    that is still read plus one.
    """
    from uopc.backend_c.emit import print_kernel

    if isinstance(kernel, Kernel):
        ast, name = kernel.ast, kernel.name
    else:
        ast = kernel
    text, helpers = print_kernel(ast, name, spellings())
    return "\n".join([*helpers, text])


if not TYPE_CHECKING:
    # What is compiled already needs no printer.
    __getattr__ = on_demand(__name__, {"emit": "print_plan"})

"""Parallel loops: their bodies are functions that a pool of threads may call.

Each is called through ``uopc_parallel``, which the program defines.
"""

from __future__ import annotations

from collections.abc import Iterable

from uopc.backend_c.scalars import buffers, variable
from uopc.backend_c.types import c_type
from uopc.uop import Ops, UOp


def is_task(statement: UOp) -> bool:
    """Whether a statement is a parallel loop."""
    loop = statement.src[0]
    runs = statement.op is Ops.END and loop.op is Ops.RANGE
    return runs and loop.arg.kind == "parallel"


def shared_locals(statements: Iterable[UOp]) -> set[UOp]:
    """The local buffers that a parallel loop and another statement both use."""
    statements = list(statements)
    used = [set(buffers([s], "local")) for s in statements]
    shared: set[UOp] = set()
    for k, s in enumerate(statements):
        if is_task(s):
            shared |= used[k] & set().union(*used[:k], *used[k + 1 :])
    return shared


def task_start(name: str, loop: UOp, taken: Iterable[UOp], index: str) -> list[str]:
    """The first lines of a task, which takes its table of buffers apart.

    ``index`` is what the body calls the round's number; empty if it does not use it.
    """
    lines = [f"static void {name}(void** p, long i) {{"]
    for k, b in enumerate(taken):
        lines.append(f"  {c_type(b.dtype)}* restrict {variable(b)} = p[{k}];")
    t = c_type(loop.dtype)
    lines.append(f"  {t} {index} = ({t})i;" if index else "  (void)i;")
    return lines

"""How much a program does, counted from its loops."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.kernelize import make_plan
from uopc.runtime import lower
from uopc.uop import Ops, UOp


def iterations(sink: UOp) -> list[int]:
    """How often each innermost loop of a loop program runs its body, in order.

    The product of its extent and of those of the loops around it. A statement outside
    of all loops counts as a loop that runs once; one beside an inner loop is part of
    the loop around both and not counted.
    """
    found: list[int] = []
    pending = [(s, 1) for s in reversed(sink.src)]
    while pending:
        statement, times = pending.pop()
        if statement.op is Ops.END:
            loop, *body = statement.src
            times *= loop.arg.extent
            inner = [s for s in body if s.op is Ops.END]
            pending += [(s, times) for s in reversed(inner)]
            if inner:
                continue
        found.append(times)
    return found


def plan_iterations(roots: Sequence[UOp]) -> dict[str, list[int]]:
    """``iterations`` of each kernel of the plan that computes ``roots``, by name.

    A name that occurs before gets a number. The loops are those of the current
    UOPC_OPT.
    """
    plan, _ = make_plan(roots)
    found: dict[str, list[int]] = {}
    for k in plan.kernels:
        name, n = k.name, 1
        while name in found:
            n += 1
            name = f"{k.name}_n{n}"
        found[name] = iterations(lower(k.ast, k.name))
    return found

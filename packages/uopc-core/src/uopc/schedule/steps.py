"""The steps a schedule is made of: each a small function over the loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uopc.simplify import Simplifier
from uopc.uop import Ops, UOp, substitute, toposort


@dataclass(frozen=True)
class Blocked:
    """Compute ``width`` neighbouring outputs at once.

    The output loop numbered ``number`` is split by ``width``, and the inner
    part moves into every statement of its body, so that it becomes the
    innermost loop of the reductions, over one accumulator per output. Each
    output still adds its terms in the same order: no result changes.
    """

    number: int
    width: int

    def __str__(self) -> str:
        return f"blocked(ridx{self.number}, {self.width})"


Step = Blocked


def apply_schedule(sink: UOp, steps: Sequence[Step]) -> UOp:
    """The loop program after all steps."""
    for step in steps:
        sink = _blocked(sink, step)
    return Simplifier()(sink)


def _blocked(sink: UOp, step: Step) -> UOp:
    nodes = toposort([sink])
    end = next(
        u for u in nodes if u.op is Ops.END and u.src[0].arg.number == step.number
    )
    loop = end.src[0]
    number, extent, dtype, _ = loop.arg
    fresh = 1 + max(u.arg.number for u in nodes if u.op is Ops.RANGE)
    outer = UOp(Ops.RANGE, (), (number, extent // step.width, dtype))
    inner = UOp(Ops.RANGE, (), (fresh, step.width, dtype))
    position = outer * UOp.const(step.width, dtype) + inner
    if extent == step.width:
        position = inner
    changes = {loop: position, **_widen(end, inner, step.width)}
    body = [_distribute(s, inner, changes) for s in end.src[1:]]
    new = body if extent == step.width else [UOp(Ops.END, (outer, *body))]
    return _replace_statement(sink, end, new)


def _widen(end: UOp, inner: UOp, width: int) -> dict[UOp, UOp]:
    """One accumulator per lane: reads and stores at index ``inner``."""
    changes: dict[UOp, UOp] = {}
    for u in toposort([end]):
        if u.op is Ops.BUFFER and u.arg.space == "local":
            wide = UOp.buffer(width, u.dtype, u.arg.slot, space="local")
            zero = UOp.const(0, inner.dtype)
            changes[u] = wide
            changes[UOp(Ops.INDEX, (u, zero))] = UOp(Ops.INDEX, (wide, inner))
    return changes


def _distribute(statement: UOp, inner: UOp, changes: dict[UOp, UOp]) -> UOp:
    """``statement`` once per lane, the lane loop innermost."""
    if statement.op is Ops.END:
        loop, *body = statement.src
        inside = (_distribute(s, inner, changes) for s in body)
        return UOp(Ops.END, (loop, *inside))
    target, index, value = statement.src
    index, value = substitute([index, value], changes)
    if target in changes:
        target, index = changes[target], inner
    return UOp(Ops.END, (inner, UOp(Ops.STORE, (target, index, value))))


def _replace_statement(sink: UOp, old: UOp, new: list[UOp]) -> UOp:
    """The program with one statement replaced by several."""
    rebuilt: dict[UOp, list[UOp]] = {old: new}
    for u in toposort([sink]):
        if u.op in (Ops.END, Ops.SINK) and u is not old:
            src = [t for s in u.src for t in rebuilt.get(s, [s])]
            rebuilt[u] = [UOp(u.op, tuple(src), u.arg)]
    return rebuilt[sink][0]

"""Graphs over a whole batch: what vmap does to a graph, one local rule per op.

The batch is always the first axis of what has it. What does not depend on a batched
input stays as it is, and is only repeated where an op meets both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from uopc.plugins import current, endless, lowered, note_owner, registry
from uopc.uop import OpDef, Ops, UOp, collector_paused, toposort

if TYPE_CHECKING:
    from uopc.plugins.registry import BatchingRule


class NoBatchingRule(NotImplementedError):
    """An op that depends on a batched input has no batching rule."""


@collector_paused()
def batched(roots: Sequence[UOp], inputs: Mapping[UOp, UOp]) -> list[tuple[UOp, bool]]:
    """The roots for a whole batch of some inputs.

    Args:
        roots: pure shape graphs.
        inputs: for each node that stands for one element of the batch (a PARAM,
            mostly), the node that holds them all: of the same dtype, and of its shape
            after a first axis of length n, which is the same for all inputs.

    Returns for each root its node, and whether it has the batch as a first axis; one
    that depends on no input is returned as it is. Raises ValueError for an input that
    does not fit, NoBatchingRule for an op without a rule. Nodes stay shared, and the
    cost is linear in the graph.
    """
    n = _length(inputs)
    whole = dict(inputs)
    _fill(whole, roots, (), n, registry().batchings)
    return [(whole.get(r, r), r in whole) for r in roots]


def repeated(u: UOp, n: int) -> UOp:
    """What is the same for all n elements of a batch, with the batch as first axis."""
    if u.op is Ops.EXPAND:
        base = u.src[0].src[0] if u.src[0].op is Ops.RESHAPE else u.src[0]
        # Constants in one step, as const_like writes them: rules look at those. The
        # rest stays a node of its own, which a checkpoint may have named.
        if base.op in (Ops.CONST, Ops.IOTA):
            return base.reshape((1, *u.src[0].shape)).expand((n, *u.shape))
    return u.reshape((1, *u.shape)).expand((n, *u.shape))


def _length(inputs: Mapping[UOp, UOp]) -> int:
    """How many elements the batch has."""
    lengths: dict[int, UOp] = {}
    for u, whole in inputs.items():
        if whole.dtype is not u.dtype or whole.shape[1:] != u.shape or not whole.shape:
            raise ValueError(
                f"batched: {whole.dtype}{list(whole.shape)} is no batch of "
                f"{u.dtype}{list(u.shape)}"
            )
        lengths.setdefault(whole.shape[0], whole)
    if len(lengths) != 1:
        raise ValueError(
            "batched: expected inputs with one length of the first axis, got "
            + (", ".join(map(repr, lengths.values())) or "no inputs")
        )
    return next(iter(lengths))


def _fill(
    whole: dict[UOp, UOp],
    roots: Iterable[UOp],
    ends: Collection[UOp],
    n: int,
    rules: Mapping[OpDef, BatchingRule],
) -> None:
    """Add the node for the batch of all that depends on what has one.

    The walk ends at what has one, and at ``ends``.
    """
    order = toposort(roots, lambda u: () if u in whole or u in ends else u.src)
    for u in order:
        if u not in whole and u not in ends and not whole.keys().isdisjoint(u.src):
            whole[u] = _step(u, whole, n, rules)


def _step(
    u: UOp, whole: dict[UOp, UOp], n: int, rules: Mapping[OpDef, BatchingRule]
) -> UOp:
    """One op over the batch."""
    rule = rules.get(u.op)
    if rule is not None:
        sources = tuple([whole.get(s, s) for s in u.src])
        try:
            result = rule(u, sources, tuple([s in whole for s in u.src]))
            _check(u, result, n)
        except Exception as error:
            note_owner(error, f"batching rule of op {u.op.name!r}", "batchings", u.op)
            raise
        return result
    if u.op.kind == "elementwise":
        every = (whole[s] if s in whole else repeated(s, n) for s in u.src)
        return UOp(u.op, tuple(every), u.arg)
    if u.op.lower is None:
        raise _no_rule(u)
    inside = lowered(u)
    try:
        _fill(whole, [inside], frozenset(u.src), n, rules)
    except RecursionError:
        raise endless(u) from None
    return whole[inside] if inside in whole else repeated(inside, n)


def _check(u: UOp, result: object, n: int) -> None:
    """Refuse what a rule, which is anybody's code, must not return."""
    shape = (n, *u.shape)
    if not isinstance(result, UOp):
        raise TypeError(
            f"the batching rule of {u.op.name} gave {result!r}; expected a node of "
            f"{u.dtype}{list(shape)}"
        )
    if result.shape != shape or result.dtype is not u.dtype:
        raise ValueError(
            f"the batching rule of {u.op.name} gave {result.dtype}"
            f"{list(result.shape)}, expected {u.dtype}{list(shape)}: the node's shape "
            "after the batch"
        )


def _no_rule(u: UOp) -> NoBatchingRule:
    if u.op.kind == "loop":
        return NoBatchingRule(
            f"no batching rule for {u.op.name}: it is about memory or loops; batch the "
            "graph before it is lowered"
        )
    return NoBatchingRule(
        f"no batching rule for {u.op.name}; register one with the "
        "uopc_register_batchings hook, or give the op a 'lower'"
        f"{current().failure_note()}"
    )

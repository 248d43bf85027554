"""Which nodes become buffers.

The walk goes from the outputs down and carries, for every node, the contexts
it would be evaluated in: (kernel, view) pairs, where a view is the chain of
movement ops between the node and the kernel's output. More than one context
means the node would be computed more than once. The cost model:

* a node under an EXPAND that repeats it is stored if computing it costs more
  than ``EXPANDED_COST`` additions (a relu in a matmul's loop is recomputed);
* a node with several contexts is stored if recomputing it would cost more
  than ``SHARED_COST`` additions (the exp of a softmax is recomputed);
* a reduction is stored, unless it can be the one reduction of its kernel: it
  has one context, and only elementwise ops and reshapes follow it;
* a SCATTER_ADD is stored, because it adds to its result in place.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from uopc.uop import Ops, UOp

EXPANDED_COST = 16
SHARED_COST = 64
MAX_CONTEXTS = 16
_COST_CAP = 1 << 20


class Context(NamedTuple):
    """Where a node is evaluated."""

    kernel: UOp
    view: int  # an interned chain of movement ops
    pure: bool  # only elementwise ops and reshapes since the output
    expanded: bool  # the last step repeats elements: an EXPAND, or by an index


class Choice(NamedTuple):
    """Whether a node's values are stored, and what that was decided by.

    Attributes:
        node: the node.
        cost: work to compute one element from buffers, in additions.
        again: how many times more it would be computed if it were not stored.
        expanded: whether one of these is for elements that are repeated.
        stored: whether it gets a buffer.
    """

    node: UOp
    cost: int
    again: int
    expanded: bool
    stored: bool

    def __str__(self) -> str:
        u = self.node
        size = math.prod(u.shape)
        where = " and for repeated elements" if self.expanded else ""
        done = "stored" if self.stored else "computed again"
        return (
            f"{u.op.name} {u.dtype}{list(u.shape)}: {self.cost} additions an element, "
            f"{self.again} times more{where}, {size * u.dtype.itemsize} bytes: {done}"
        )


def read(u: UOp) -> tuple[UOp, ...]:
    """The sources whose values ``u`` needs; for others of a STAGE it only waits."""
    return u.src[:1] if u.op is Ops.STAGE else u.src


def inline_cost(order: Sequence[UOp], stored: Collection[UOp]) -> dict[UOp, int]:
    """Work to compute one element of each node from buffers, in additions."""
    cost: dict[UOp, int] = {}
    for u in order:
        if u.op is Ops.CONST:
            cost[u] = 0
        elif u.op.kind in ("leaf", "reduce") or u in stored:
            cost[u] = 1
        else:
            cost[u] = min(_COST_CAP, u.op.cost + sum([cost[s] for s in read(u)]))
    return cost


def choose_buffers(
    order: Sequence[UOp], roots: Collection[UOp], forced: Collection[UOp]
) -> set[UOp]:
    """The nodes of ``order`` (children first) that get a buffer."""
    return _Grouping(order, roots, forced).run()


def buffer_choices(order: Sequence[UOp], roots: Collection[UOp]) -> list[Choice]:
    """The terms of the cost model: every node that there was a choice about."""
    grouping = _Grouping(order, roots, ())
    grouping.run()
    return grouping.choices[::-1]


class _Grouping:
    def __init__(
        self, order: Sequence[UOp], roots: Collection[UOp], forced: Collection[UOp]
    ) -> None:
        self.order = order
        self.must = {
            *roots,
            *forced,
            *(u for u in order if u.op is Ops.SCATTER_ADD),
            *(u for u in order if u.op is Ops.STAGE and u.arg == "contiguous"),
        }
        self.cost = inline_cost(order, self.must)
        self.contexts: dict[UOp, set[Context]] = {}
        self.views: dict[tuple[int, UOp, bool], int] = {}
        self.has_reduce: set[UOp] = set()
        self.stored: set[UOp] = set()
        self.choices: list[Choice] = []

    def run(self) -> set[UOp]:
        for u in reversed(self.order):
            contexts = self.contexts.pop(u, set())
            if not contexts and u not in self.must:
                continue  # something waits for it, and nobody reads it
            if u.op is Ops.BUFFER or (u.op.kind == "leaf" and u not in self.must):
                continue
            if u in self.must or self._worth_storing(u, contexts):
                contexts = self._store(u)
            if u.op.kind == "reduce":
                contexts = self._place_reduce(u, contexts)
            self._hand_down(u, contexts)
        return self.stored

    def _store(self, u: UOp) -> set[Context]:
        self.stored.add(u)
        return {Context(u, 0, True, False)}

    def _worth_storing(self, u: UOp, contexts: set[Context]) -> bool:
        if u.op.kind == "movement" or (u.op is Ops.INDEX and _repeats(u)):
            return False  # its source is the better place
        cost, again = self.cost[u], len(contexts) - 1
        expanded = any(c.expanded for c in contexts)
        worth = (
            (cost > EXPANDED_COST and expanded)
            or cost * again > SHARED_COST
            or (again >= MAX_CONTEXTS and cost > 1)
        )
        if cost > 1 and (again or expanded):
            self.choices.append(Choice(u, cost, again, expanded, worth))
        return worth

    def _place_reduce(self, u: UOp, contexts: set[Context]) -> set[Context]:
        if len(contexts) == 1:
            (only,) = contexts
            if only.pure and only.kernel not in self.has_reduce:
                self.has_reduce.add(only.kernel)
                return contexts
        self.has_reduce.add(u)
        return self._store(u)

    def _hand_down(self, u: UOp, contexts: set[Context]) -> None:
        for i, s in enumerate(read(u)):
            single = u.op is Ops.INDEX and i > 0 and s.shape == u.shape
            if u.op.kind == "elementwise" or u.op is Ops.STAGE or single:
                passed = contexts  # an index of single elements is read where they are
            else:
                # Indices are read elsewhere than the elements they choose.
                apart = u.op in (Ops.INDEX, Ops.SCATTER_ADD) and i > 0
                passed = {self._seen_through(c, u, apart) for c in contexts}
            self.contexts.setdefault(s, set()).update(passed)

    def _seen_through(self, c: Context, u: UOp, apart: bool) -> Context:
        """The context below ``u``, which moves elements."""
        view = self.views.setdefault((c.view, u, apart), len(self.views) + 1)
        # A reduction under a PERMUTE runs in its own order; the copy that
        # transposes is a kernel of its own.
        pure = c.pure and u.op is Ops.RESHAPE
        copies = u.op in (Ops.EXPAND, Ops.INDEX) and _repeats(u)
        grows = _places_rows(u) if apart else copies
        kept = c.expanded and u.op in (Ops.RESHAPE, Ops.PERMUTE)
        return Context(c.kernel, view, pure, grows or kept)


def _places_rows(u: UOp) -> bool:
    """Whether every index of a gather or scatter serves several elements."""
    rows = u.src[0] if u.op is Ops.SCATTER_ADD else u
    return math.prod(rows.shape) > math.prod(u.src[1].shape)


def _repeats(u: UOp) -> bool:
    return math.prod(u.shape) > math.prod(u.src[0].shape)

"""Along which axes a node is constant, as far as its graph shows at a glance."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from uopc.autodiff.remembering import memo
from uopc.uop import Ops, UOp

NODES = 64  # how far to look


def repeated_axes(u: UOp) -> set[int]:
    """The axes along which an EXPAND repeats the elements of ``u``."""
    axes = list(range(len(u.shape)))  # of the node, by the number they have in ``u``
    found: set[int] = set()
    while u.op in (Ops.EXPAND, Ops.PERMUTE):
        if u.op is Ops.PERMUTE:
            order = [0] * len(axes)
            for out, source in enumerate(u.arg):
                order[source] = axes[out]
            axes = order
        else:
            lengths = zip(axes, u.src[0].shape, u.shape, strict=True)
            found |= {axis for axis, n, m in lengths if n != m}
        u = u.src[0]
    return found


def constant_axes(u: UOp) -> frozenset[int]:
    """The axes along which all elements are surely equal.

    Looks at no more than ``NODES`` nodes it does not know, so it may miss some.
    """
    return _Walk().axes(u)


class _Walk:
    def __init__(self) -> None:
        self.seen = 0
        self.known: dict[UOp, frozenset[int]] = memo(_Walk)

    def axes(self, u: UOp) -> frozenset[int]:
        """The axes of ``u``."""
        known = self.known.get(u)
        if known is not None:
            return known
        self.seen += 1
        single = frozenset([i for i, n in enumerate(u.shape) if n == 1])
        if self.seen > NODES:
            return single
        found = self.known[u] = single | self._found(u)
        return found

    def _found(self, u: UOp) -> AbstractSet[int]:
        if u.op.kind == "elementwise" or u.op is Ops.STACK:
            return self._common(u)
        if not u.src or u.op is Ops.REDUCE:
            return set()  # what a reduction keeps is seldom constant
        inner = self.axes(u.src[0])
        if u.op is Ops.EXPAND:
            lengths = zip(u.src[0].shape, u.shape, strict=True)
            return inner | {i for i, (n, m) in enumerate(lengths) if n != m}
        if u.op is Ops.PERMUTE:
            return {out for out, source in enumerate(u.arg) if source in inner}
        if u.op is Ops.RESHAPE:
            return _regrouped(u, inner)
        if u.op in (Ops.SHRINK, Ops.FLIP, Ops.STAGE):
            return inner
        if u.op in (Ops.INDEX, Ops.SCATTER_ADD):  # those that no index is for
            read = len(u.src) - 1, len(u.src[1].shape)
            before, after = read if u.op is Ops.INDEX else read[::-1]
            return {i - before + after for i in inner if i >= before}
        return set()

    def _common(self, u: UOp) -> AbstractSet[int]:
        """What all sources share, those of a STACK one axis further on."""
        further = 1 if u.op is Ops.STACK else 0
        found: set[int] | None = None
        for s in u.src:
            if _filled(s):
                continue  # constant along all axes
            axes = {i + further for i in self.axes(s)}
            found = axes if found is None else found & axes
            if not found:
                return set()
        return set(range(further, len(u.shape))) if found is None else found


def _filled(u: UOp) -> bool:
    """Whether all elements are one number."""
    while u.op in (Ops.EXPAND, Ops.RESHAPE):
        u = u.src[0]
    return u.op is Ops.CONST


def _regrouped(u: UOp, inner: AbstractSet[int]) -> set[int]:
    """The axes of a RESHAPE that come from constant ones alone."""
    old, found = u.src[0].shape, set()
    if 0 in old:
        return set()
    for before, after in regrouped(old, u.shape):
        if all(k in inner or old[k] == 1 for k in before):
            found |= set(after)
    return found


@functools.lru_cache(maxsize=4096)
def regrouped(
    old: tuple[int, ...], new: tuple[int, ...]
) -> Sequence[tuple[range, range]]:
    """The smallest groups of axes, one on each side, with as many elements.

    No length may be 0.
    """
    groups = []
    i = j = 0
    while j < len(new):
        first, then = i, j
        i, j = min(i + 1, len(old)), j + 1
        while math.prod(old[first:i]) != math.prod(new[then:j]):
            if math.prod(old[first:i]) < math.prod(new[then:j]):
                i += 1
            else:
                j += 1
        groups.append((range(first, i), range(then, j)))
    return tuple(groups)

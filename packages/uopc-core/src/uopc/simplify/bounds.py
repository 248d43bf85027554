"""Interval analysis: the smallest and largest value of an integer expression."""

from __future__ import annotations

from collections.abc import Iterable

from uopc.uop import Ops, UOp, toposort

Interval = tuple[int, int]


class Bounds:
    """Intervals of scalar integer and bool nodes, remembered per node.

    Sums and products are computed exactly and fall back to the whole range of
    the dtype when they might wrap, so a stated interval is always true.
    ``known`` are intervals that are taken for granted.
    """

    def __init__(self, known: Iterable[tuple[UOp, Interval]] = ()) -> None:
        self._memo: dict[UOp, Interval] = dict(known)

    def __call__(self, u: UOp) -> Interval:
        """The interval of ``u``, whose dtype is an integer or bool."""
        if u in self._memo:
            return self._memo[u]
        # Deep expressions must not recurse, so the sources come first.
        for node in toposort([u], self._unknown):
            lo, hi = self.exact(node)
            if lo < node.dtype.min or hi > node.dtype.max:
                lo, hi = node.dtype.min, node.dtype.max
            self._memo[node] = (lo, hi)
        return self._memo[u]

    def _unknown(self, u: UOp) -> tuple[UOp, ...]:
        return tuple(s for s in u.src if _bounded(s) and s not in self._memo)

    def wraps(self, u: UOp) -> bool:
        """Whether ``u``'s own operation might leave the range of its dtype."""
        lo, hi = self.exact(u)
        return lo < u.dtype.min or hi > u.dtype.max

    def exact(self, u: UOp) -> Interval:
        """The interval before wrapping, from the sources' intervals."""
        whole = (u.dtype.min, u.dtype.max)
        if any(s.dtype.is_float for s in u.src):
            return whole
        match u.op:
            case Ops.CONST:
                return int(u.value), int(u.value)
            case Ops.RANGE:
                return 0, max(0, u.arg[1] - 1)
            case Ops.ADD:
                (a, b), (c, d) = map(self, u.src)
                return a + c, b + d
            case Ops.MUL:
                (a, b), (c, d) = map(self, u.src)
                ends = (a * c, a * d, b * c, b * d)
                return min(ends), max(ends)
            case Ops.MAX:
                (a, b), (c, d) = map(self, u.src)
                return max(a, c), max(b, d)
            case Ops.FLOORDIV:
                (a, b), (c, d) = map(self, u.src)
                if c <= 0:
                    return whole
                ends = (a // c, a // d, b // c, b // d)
                return min(ends), max(ends)
            case Ops.FLOORMOD:
                (a, b), (c, d) = map(self, u.src)
                if c <= 0:
                    return whole
                return (a, b) if a >= 0 and b < c else (0, d - 1)
            case Ops.WHERE:
                (a, b), (c, d) = map(self, u.src[1:])
                return min(a, c), max(b, d)
            case Ops.CAST:
                a, b = self(u.src[0])
                fits = u.dtype.min <= a and b <= u.dtype.max
                return (a, b) if fits and u.dtype.kind != "bool" else whole
            case Ops.CMPLT:
                (a, b), (c, d) = map(self, u.src)
                return int(b < c), int(a < d)
            case Ops.CMPNE:
                (a, b), (c, d) = map(self, u.src)
                return int(b < c or d < a), int(len({a, b, c, d}) > 1)
            case Ops.AND if u.dtype.kind != "int":
                return 0, min(self(u.src[0])[1], self(u.src[1])[1])
            case _:
                return whole


def _bounded(u: UOp) -> bool:
    return not u.dtype.is_float and u.dtype.kind != "void"

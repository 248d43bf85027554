"""Interval analysis: the smallest and largest value of an integer expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uopc.simplify.linear import Interval, Sum, decompose, span
from uopc.uop import OpDef, Ops, UOp, lazy, toposort

Facts = tuple[tuple[UOp, Interval], ...]


class Bounds:
    """Intervals of scalar integer and bool nodes, remembered per node.

    Sums and products are computed exactly and fall back to the whole range of
    the dtype when they might wrap, so a stated interval is always true.
    ``known`` are intervals that are taken for granted.

    Attributes:
        plain: the intervals without what is taken for granted.
        taken_apart: the addends of nodes, remembered for ``decompose``.
    """

    def __init__(self, known: Facts = (), plain: Bounds | None = None) -> None:
        self._known = known
        self._memo: dict[UOp, Interval] = dict(known)
        self._wraps: dict[UOp, bool] = {}
        self.plain = self if plain is None else plain
        self.taken_apart: dict[UOp, tuple[Sum, int]] = {}

    @lazy
    def sums(self) -> list[tuple[Sum, Interval]]:
        """What is known of sums, for all that contain them."""
        facts = [(u, i) for u, i in self._known if u.op is Ops.ADD]
        return [(decompose(u, self.plain), i) for u, i in facts]

    def given(self, more: Facts) -> Bounds:
        """The intervals where more is known."""
        return Bounds(self._known + more, self.plain) if more else self

    def __call__(self, u: UOp) -> Interval:
        """The interval of ``u``, whose dtype is an integer or bool."""
        found = self._memo.get(u)
        if found is not None:
            return found
        # Deep expressions must not recurse, so the sources come first.
        for node in toposort([u], self._unknown) if self._unknown(u) else (u,):
            interval = self.exact(node)
            if node.op in _GROWING:
                interval = self._inside(node, interval)
            self._memo[node] = interval
        return self._memo[u]

    def _unknown(self, u: UOp) -> tuple[UOp, ...]:
        return tuple(s for s in u.src if s not in self._memo and _bounded(s))

    def _inside(self, u: UOp, interval: Interval) -> Interval:
        """The interval of a sum or product, which might wrap."""
        lo, hi = interval
        self._wraps[u] = wraps = lo < u.dtype.min or hi > u.dtype.max
        if wraps:
            return u.dtype.min, u.dtype.max
        if self.sums and u.op is Ops.ADD:
            low, high = span(decompose(u, self), self)
            return max(lo, low), min(hi, high)
        return interval

    def wraps(self, u: UOp) -> bool:
        """Whether ``u``'s own operation might leave the range of its dtype."""
        if u.op in _GROWING and u not in self._wraps:
            self._inside(u, self.exact(u))
        return self._wraps.get(u, False)

    def exact(self, u: UOp) -> Interval:
        """The interval before wrapping, from the sources' intervals."""
        rule = _INTERVALS.get(u.op)
        found = None
        if rule is not None and all(_bounded(s) for s in u.src):
            found = rule(u, [self(s) for s in u.src])
        return (u.dtype.min, u.dtype.max) if found is None else found


def _bounded(u: UOp) -> bool:
    return not u.dtype.is_float and u.dtype.kind != "void"


def _product(u: UOp, s: Sequence[Interval]) -> Interval:
    (a, b), (c, d) = s
    ends = (a * c, a * d, b * c, b * d)
    return min(ends), max(ends)


def _quotient(u: UOp, s: Sequence[Interval]) -> Interval | None:
    (a, b), (c, d) = s
    if c <= 0:
        return None
    ends = (a // c, a // d, b // c, b // d)
    return min(ends), max(ends)


def _remainder(u: UOp, s: Sequence[Interval]) -> Interval | None:
    (a, b), (c, d) = s
    if c <= 0:
        return None
    return (a, b) if a >= 0 and b < c else (0, d - 1)


def _cast(u: UOp, s: Sequence[Interval]) -> Interval | None:
    ((a, b),) = s
    fits = u.dtype.min <= a and b <= u.dtype.max
    return (a, b) if fits and u.dtype.kind != "bool" else None


def _less(u: UOp, s: Sequence[Interval]) -> Interval:
    (a, b), (c, d) = s
    return int(b < c), int(a < d)


def _differ(u: UOp, s: Sequence[Interval]) -> Interval:
    (a, b), (c, d) = s
    return int(b < c or d < a), int(len({a, b, c, d}) > 1)


def _and(u: UOp, s: Sequence[Interval]) -> Interval | None:
    (a, b), (c, d) = s
    if u.dtype.kind == "bool":
        return min(a, c), min(b, d)
    return (0, min(b, d)) if u.dtype.kind == "uint" else None


def _where(u: UOp, s: Sequence[Interval]) -> Interval:
    """Of the branch only what the condition lets through, as of a clamped index."""
    cond, a, _ = u.src
    (low, high), other = s[1:]
    pending = [cond]
    while pending:
        c = pending.pop()
        if c.op is Ops.AND:
            pending += c.src
        elif c.op is Ops.CMPLT and c.src[0] is a and c.src[1].op is Ops.CONST:
            high = min(high, int(c.src[1].value) - 1)
        elif c.op is Ops.CMPLT and c.src[1] is a and c.src[0].op is Ops.CONST:
            low = max(low, int(c.src[0].value) + 1)
    if low > high:
        return other  # never taken
    return min(low, other[0]), max(high, other[1])


# From the intervals of the sources; None means any value.
_INTERVALS: dict[OpDef, Callable[[UOp, Sequence[Interval]], Interval | None]] = {
    Ops.CONST: lambda u, s: (int(u.value), int(u.value)),
    Ops.RANGE: lambda u, s: (0, max(0, u.arg.extent - 1)),
    Ops.ADD: lambda u, s: (s[0][0] + s[1][0], s[0][1] + s[1][1]),
    Ops.MUL: _product,
    Ops.MAX: lambda u, s: (max(s[0][0], s[1][0]), max(s[0][1], s[1][1])),
    Ops.FLOORDIV: _quotient,
    Ops.FLOORMOD: _remainder,
    Ops.WHERE: _where,
    Ops.CAST: _cast,
    Ops.CMPLT: _less,
    Ops.CMPNE: _differ,
    Ops.AND: _and,
}
_GROWING = (Ops.ADD, Ops.MUL)

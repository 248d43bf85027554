"""What a vector loop's variable, its lane, does to integer expressions.

An expression is affine in the lane if it is a base plus the lane times an integer, for
every lane there is, without wrapping around in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from uopc.simplify import Bounds, Simplifier
from uopc.simplify.linear import decompose
from uopc.uop import Ops, UOp, substitute, toposort


class Affine(NamedTuple):
    """``base + lane * step``; the base is the same for all lanes."""

    base: UOp
    step: int


class Lanes:
    """Answers about expressions over one vector loop's variable."""

    def __init__(self, loop: UOp, bounds: Bounds) -> None:
        self.loop = loop
        self.count: int = loop.arg.extent
        self._bounds = bounds
        self._simplify = Simplifier()
        self._varies: dict[UOp, bool] = {}
        self._affine: dict[UOp, Affine | None] = {}

    def varies(self, u: UOp) -> bool:
        """Whether ``u`` depends on the lane."""
        if u not in self._varies:
            for v in toposort([u], lambda n: () if n in self._varies else n.src):
                if v not in self._varies:
                    found = v is self.loop or any(self._varies[s] for s in v.src)
                    self._varies[v] = found
        return self._varies[u]

    def at(self, u: UOp, lane: int) -> UOp:
        """``u`` for one lane."""
        place = UOp.const(lane, self.loop.dtype)
        return substitute([u], {self.loop: place})[0]

    def affine(self, u: UOp) -> Affine | None:
        """``u`` as base and step, if it is affine."""
        if u not in self._affine:
            for v in toposort([u], lambda n: () if n in self._affine else n.src):
                if v not in self._affine:
                    self._affine[v] = self._taken_apart(v)
        return self._affine[u]

    def offsets(self, u: UOp) -> tuple[UOp, list[int]] | None:
        """``u`` in the first lane, and how much more it is in each, if that is fixed.

        Of ``(8*i + lane) // 2`` it is ``4*i``, and 0, 0, 1, 1, 2, 2, 3, 3.
        """
        each = [self._simplify(self.at(u, i)) for i in range(self.count)]
        sums = [decompose(v, self._bounds) for v in each]
        terms, first = sums[0]
        if any(more != terms for more, _ in sums):
            return None
        return each[0], [constant - first for _, constant in sums]

    def settled(self, roots: Iterable[UOp]) -> list[UOp]:
        """The roots, with what turns out to be the same for all lanes made so.

        Of ``(8*i + lane) // 8`` remains ``i*8 // 8``.
        """
        new: dict[UOp, UOp] = {}
        roots = list(roots)
        for u in toposort(roots):
            v = u.with_src(tuple([new[s] for s in u.src]))
            if v.dtype.is_int and v.op.kind == "elementwise" and self.varies(v):
                found = self.affine(v)
                if found is not None and found.step == 0:
                    v = found.base
            new[u] = v
        return [new[r] for r in roots]

    def _taken_apart(self, u: UOp) -> Affine | None:
        if not self.varies(u):
            return Affine(u, 0)
        if u is self.loop:
            return Affine(UOp.const(0, u.dtype), 1)
        parts = [self._affine[s] for s in u.src]
        if not u.dtype.is_int or self._bounds.wraps(u):
            return None
        match u.op:
            case Ops.ADD:
                a, b = parts
                return a and b and Affine(_sum(a.base, b.base), a.step + b.step)
            case Ops.MUL if u.src[1].op is Ops.CONST and parts[0]:
                base, step = parts[0]
                return Affine(_product(base, u.src[1]), step * int(u.src[1].value))
            case Ops.CAST if parts[0] and self._fits(u.src[0], u):
                base, step = parts[0]
                return Affine(base.cast(u.dtype), step)
            case Ops.WHERE if not self.varies(u.src[0]):
                _, a, b = parts
                if a and b and a.step == b.step:
                    return Affine(u.src[0].where(a.base, b.base), a.step)
            case Ops.FLOORDIV | Ops.FLOORMOD if u.src[1].op is Ops.CONST and parts[0]:
                return self._divided(u, parts[0])
        return None

    def _fits(self, source: UOp, target: UOp) -> bool:
        """Whether a cast changes no value."""
        if not source.dtype.is_int:
            return False
        low, high = self._bounds(source)
        return target.dtype.min <= low and high <= target.dtype.max

    def _divided(self, u: UOp, part: Affine) -> Affine | None:
        """A quotient or remainder by a constant."""
        by, (base, step) = int(u.src[1].value), part
        if by <= 0:
            return None
        quotient = u.op is Ops.FLOORDIV
        divided = UOp(u.op, (base, u.src[1]))
        if step % by == 0:
            return Affine(divided, step // by if quotient else 0)
        # All lanes lie between the same two multiples of the divisor.
        terms, constant = decompose(base, self._bounds)
        unit = math.gcd(by, *terms.values())
        first = constant % unit
        last = first + step * (self.count - 1)
        if 0 <= last < unit:
            return Affine(divided, 0 if quotient else step)
        return None

    def whole(self, gate: UOp) -> UOp | None:
        """A condition that, if it holds, says that ``gate`` holds in every lane.

        It is the gate in the first and in the last lane, if that is a conjunction of
        comparisons that are affine in the lane. None if there is no such thing.
        """
        pending = [gate]
        while pending:
            u = pending.pop()
            if not self.varies(u):
                continue
            if u.op is Ops.AND:
                pending += u.src
                continue
            if u.op is Ops.CMPNE and u.src[1].op is Ops.CONST and u.src[1].value:
                u = u.src[0]  # "not" of a comparison is a comparison
            if not self._half_line(u):
                return None
        both = self._simplify(self.at(gate, 0) & self.at(gate, self.count - 1))
        never = both.op is Ops.CONST and not both.value
        return None if never else both

    def _half_line(self, u: UOp) -> bool:
        integers = all(s.dtype.is_int for s in u.src)
        if u.op is not Ops.CMPLT or not integers:
            return False
        return all(self.affine(s) is not None for s in u.src)


def _sum(a: UOp, b: UOp) -> UOp:
    for x, y in ((a, b), (b, a)):
        if y.op is Ops.CONST and y.value == 0:
            return x
    return a + b


def _product(a: UOp, b: UOp) -> UOp:
    if a.op is Ops.CONST:
        return a.const_like(int(a.value) * int(b.value))
    return a * b

"""Derivatives of a graph by differences, with its selections held fixed.

What is chosen at a point (the branch of a WHERE, the winner of a maximum, an index, a
quotient in ``%``) has no derivative. Held as it is there, the rest of a graph is a
smooth function near the point, also where a branch that was not taken is singular;
neither guards nor rules are needed to differentiate it. It is computed in long double,
so that differences have digits to spare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from uopc.testing.bounded import Array
from uopc.uop import Ops, UOp, toposort

Wide = np.longdouble
Function = Callable[[float], Any]

# Five points: exact for polynomials of degree 4 and 5.
STEPS = (-2, -1, 0, 1, 2)
FIRST = np.array([1, -8, 0, 8, -1], Wide) / 12
SECOND = np.array([-1, 16, -30, 16, -1], Wide) / 12
STEP = 2.0**-11


class Frozen:
    """A graph as a function of its float inputs, smooth near one point.

    Args:
        roots: what to compute.
        inputs: the values of the leaves at the point.
    """

    def __init__(self, roots: Sequence[UOp], inputs: Mapping[UOp, Array]) -> None:
        self.roots = roots
        self.point: dict[UOp, Array] = dict(inputs)
        self.order = toposort(roots, lambda u: () if u in inputs else u.src)
        with np.errstate(all="ignore"):
            for u in self.order:
                if u not in inputs:
                    sources = [self.point[s] for s in u.src]
                    self.point[u] = u.op.compute(u, *sources)

    def at(self, inputs: Mapping[UOp, Array]) -> list[Array]:
        """The roots in long double; inputs that are not given stay as they are."""
        values = {u: x.astype(Wide) for u, x in inputs.items()}
        with np.errstate(all="ignore"):
            for u in self.order:
                if u not in values:
                    values[u] = self._value(u, [values[s] for s in u.src])
        return [values[r] for r in self.roots]

    def _value(self, u: UOp, sources: Sequence[Array]) -> Array:
        point, before = self.point[u], [self.point[s] for s in u.src]
        if is_fixed(u) or not u.src:
            return point.astype(Wide) if u.dtype.is_float else point
        if u.op is Ops.MAX:
            (a, b), (p, q) = sources, before
            return np.where(q < p, a, np.where(p < q, b, (a + b) / 2))
        if u.op is Ops.REDUCE and u.arg.op is Ops.MAX:
            wins = before[0] == point.reshape(point.shape + (1,) * u.arg.n)
            axes = tuple(range(point.ndim, wins.ndim))
            total: Array = np.where(wins, sources[0], 0).sum(axis=axes)
            return np.asarray(total / wins.sum(axis=axes))
        if u.op is Ops.FLOORMOD:
            return np.asarray(sources[0] - sources[1] * (before[0] // before[1]))
        if u.op is Ops.CAST:
            return sources[0]
        meaning: Any = u.op.numpy
        return np.asarray(meaning(u, *sources))


def is_fixed(u: UOp) -> bool:
    """Whether a node is constant to derivatives, whatever its sources do."""
    if not u.dtype.is_float or not u.op.differentiable:
        return True
    if u.op is Ops.STAGE:
        return bool(u.arg == "detach")
    return u.op is Ops.CAST and not u.src[0].dtype.is_float


class Difference(NamedTuple):
    """A derivative by differences, and how far a wider step is from it."""

    value: float
    doubt: float


def differences_of(f: Function, order: int) -> Difference:
    """The first or second derivative of a function at 0."""
    pattern = FIRST if order == 1 else SECOND
    fine, coarse = (
        sum(c * f(k * h) for c, k in zip(pattern, STEPS, strict=True))
        / Wide(h) ** order
        for h in (STEP, 2 * STEP)
    )
    return Difference(float(fine), abs(float(fine - coarse)))

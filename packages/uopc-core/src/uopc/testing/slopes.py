"""Derivatives by differences, in float64, and what they cannot show: kinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from uopc.interp import evaluate
from uopc.testing.bounded import Array
from uopc.uop import UOp

# Fourth-order central differences: at the first step truncation and cancellation are
# below 1e-11 for functions and derivatives of size 1. The others are tried where it
# fails, since a kink or a pole may be closer than a step.
STEPS = (1e-3, 1e-4, 1e-5)
TOLERANCE = 1e-8
KINK = 1e-3

Data = Mapping[UOp, Array]


def apart(a: Array, b: Array, tolerance: float = TOLERANCE) -> Array:
    """Where two arrays differ by more than a tolerance, relative above 1."""
    with np.errstate(all="ignore"):
        scale = 1.0 + np.maximum(np.abs(a), np.abs(b))
        return np.asarray(~((np.abs(a - b) <= tolerance * scale) | (a == b)))


@dataclass(frozen=True)
class Path:
    """Roots along a line through a point: functions of one number.

    Attributes:
        roots: what is evaluated.
        weights: what the roots' elements are multiplied with before all are added.
        data: the point, values of all leaves.
        way: the direction, for the leaves that move.
    """

    roots: Sequence[UOp]
    weights: Sequence[Array]
    data: Data
    way: Data

    def values(self, t: float) -> list[Array]:
        """The roots at ``t``."""
        moved = {p: self.data[p] + t * v for p, v in self.way.items()}
        with np.errstate(all="ignore"):
            return list(evaluate(self.roots, {**self.data, **moved}))

    def total(self, t: float) -> float:
        """The weighted sum at ``t``."""
        return weighted(self.values(t), self.weights)

    def slopes(self, h: float) -> list[Array]:
        """The derivative of each root at 0, by steps of ``h``."""
        at = {k: self.values(k * h) for k in (-2, -1, 1, 2)}
        lists = zip(at[-2], at[-1], at[1], at[2], strict=True)
        with np.errstate(all="ignore"):
            return [(8 * (d - b) - (e - a)) / (12 * h) for a, b, d, e in lists]

    def off(self, found: Sequence[Array]) -> list[tuple[Array, Array]] | None:
        """For each root where ``found`` is off and the derivative; None if nowhere."""
        first = None
        for h in STEPS:
            wanted = self.slopes(h)
            pairs = [(apart(f, w), w) for f, w in zip(found, wanted, strict=True)]
            if not any(bad.any() for bad, _ in pairs):
                return None
            first = first or pairs
        return first

    def off_total(self, found: float) -> float | None:
        """The derivative of the weighted sum if ``found`` is not it."""
        first = None
        for h in STEPS:
            wanted = weighted(self.slopes(h), self.weights)
            if not apart(np.asarray(found), np.asarray(wanted)).any():
                return None
            first = wanted if first is None else first
        return first

    def sides(self) -> tuple[float, float] | None:
        """The one-sided derivatives of the weighted sum, if they differ: a kink."""
        found: tuple[float, float] | None = None
        for h in STEPS[1:]:
            left, right = (_one_sided(self.total, s * h) for s in (-1, 1))
            if not apart(np.asarray(left), np.asarray(right), KINK).any():
                return None
            found = (left, right)
        return found


def _one_sided(f: Callable[[float], float], h: float) -> float:
    return (4 * f(h) - 3 * f(0.0) - f(2 * h)) / (2 * h)


def weighted(values: Sequence[Array], weights: Sequence[Array]) -> float:
    """The inner product of two lists of arrays."""
    with np.errstate(all="ignore"):
        pairs = zip(values, weights, strict=True)
        return sum(float((v * w).sum()) for v, w in pairs)

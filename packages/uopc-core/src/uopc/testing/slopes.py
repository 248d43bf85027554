"""Derivatives by differences, in float64, and where they show nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from uopc.interp import evaluate
from uopc.testing.bounded import Array
from uopc.uop import UOp

# Fourth-order central differences: at the first step truncation and cancellation are
# below 1e-11 for functions and derivatives of size 1. The others are tried where it
# fails, since a kink or a pole may be closer than a step, and then the same relative
# to the size of the point, at which a step of fixed size may be lost in rounding.
STEPS = (1e-3, 1e-4, 1e-5, 1e-6)
TOLERANCE = 1e-8
# By how much more than two estimates differ from each other a number must differ from
# them to be wrong. They may settle slowly, and what is left is then more than that.
MARGIN = 10
SETTLED = 0.1  # how close two estimates are at the least, relative
KINK = 1e-3  # by how much sides differ at a kink that is told of, or besides a NaN
LOST = 1e-10  # shorter steps, relative to the size of the point, are lost in rounding
EPS = float(np.finfo(np.float64).eps)

Data = Mapping[UOp, Array]


def apart(
    a: Array, b: Array, tolerance: float = TOLERANCE, floor: float = 1.0
) -> Array:
    """Where two arrays differ by more than a tolerance, relative above ``floor``."""
    with np.errstate(all="ignore"):
        scale = floor + np.maximum(np.abs(a), np.abs(b))
        return np.asarray(~((np.abs(a - b) <= tolerance * scale) | (a == b)))


def first(bad: Array) -> tuple[int, ...]:
    """The place of the first element of a mask that is set."""
    return tuple(int(k) for k in np.unravel_index(bad.argmax(), bad.shape))


def weighted(values: Sequence[Array], weights: Sequence[Array]) -> float:
    """The inner product of two lists of arrays."""
    with np.errstate(all="ignore"):
        pairs = zip(values, weights, strict=True)
        return sum(float((v * w).sum()) for v, w in pairs)


@dataclass(frozen=True)
class Slope:
    """Estimates of a derivative by steps of one size, of each element.

    Attributes:
        step: the size.
        floor: below what derivatives count as small: along a long step whatever is
            bounded seems flat.
        middle: from both sides.
        left: from the left side alone.
        right: from the right side alone.
        noise: by how much rounding may have changed ``middle``.
    """

    step: float
    floor: float
    middle: Array
    left: Array
    right: Array
    noise: Array


@dataclass(frozen=True)
class Verdict:
    """What differences say of numbers that are not what they estimate.

    Attributes:
        wrong: where they settle on another number.
        unsure: where they do not settle, or the sides disagree: they show nothing.
        wanted: the number.
        slopes: estimates, by falling steps.
    """

    wrong: Array
    unsure: Array
    wanted: Array
    slopes: Sequence[Slope]

    def reason(self, at: tuple[int, ...] = ()) -> str:
        """Why an element is not sure."""
        long, short = self.slopes[0], self.slopes[-1]
        left, right = float(long.left[at]), float(long.right[at])
        if apart(np.asarray(left), np.asarray(right), KINK):
            return (
                f"from the left the difference is {left:.6g}, from the right "
                f"{right:.6g}"
            )
        return (
            f"the difference does not settle: it is {long.middle[at]:.6g} by steps of "
            f"{long.step:.6g}, {short.middle[at]:.6g} by steps of {short.step:.6g}"
        )


def judge(found: Array, agree: Array, families: Sequence[Sequence[Slope]]) -> Verdict:
    """What the estimates say of ``found`` where they do not ``agree`` with it.

    Those of a family have falling steps. They have settled on a number if two by
    neighbouring steps agree, up to rounding. ``found`` is wrong if it is further from
    there than they are from each other, and than the two sides are: at a kink a
    derivative is anything between them.
    """
    wanted, error = np.full(found.shape, np.nan), np.full(found.shape, np.inf)
    best = np.full(found.shape, SETTLED)
    with np.errstate(all="ignore"):
        for a, b in itertools.chain(*map(itertools.pairwise, families)):
            gap = np.abs(a.middle - b.middle) + np.maximum(a.noise, b.noise)
            relative = gap / (a.floor + np.abs(a.middle))
            closer = relative < best
            best = np.where(closer, relative, best)
            wanted, error = np.where(closer, (a.middle, gap), (wanted, error))
        off = np.where(np.isfinite(found), np.abs(found - wanted), KINK)
        unsure = ~np.isfinite(wanted) | (off <= MARGIN * error)
        tries = itertools.chain(*families)
        gaps = [np.abs(s.right - s.left) for s in tries]
        unsure |= np.all([np.isnan(g) | (off <= MARGIN * g) for g in gaps], axis=0)
    return Verdict(~agree & ~unsure, ~agree & unsure, wanted, families[0])


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

    def middles(self, h: float) -> list[Array]:
        """The derivative of each root at 0, by steps of ``h`` to both sides."""
        at = [self.values(k * h) for k in (-2, -1, 1, 2)]
        with np.errstate(all="ignore"):
            return [
                np.asarray((8 * (d - b) - (e - a)) / (12 * h))
                for a, b, d, e in zip(*at, strict=True)
            ]

    def slopes(self, h: float, floor: float) -> list[Slope]:
        """All that steps of ``h`` tell of each root."""
        at = [self.values(k * h) for k in (-2, -1, 0, 1, 2)]
        size = self.size()
        found = []
        with np.errstate(all="ignore"):
            for m, (a, b, c, d, e) in zip(
                self.middles(h), zip(*at, strict=True), strict=True
            ):
                noise = EPS * (4 * np.abs(c) + size * np.abs(m)) / h
                left = (a - 4 * b + 3 * c) / (2 * h)
                right = (4 * d - e - 3 * c) / (2 * h)
                found.append(Slope(h, floor, *map(np.asarray, (m, left, right, noise))))
        return found

    def size(self) -> float:
        """The largest number that moves."""
        parts = [np.abs(self.data[p][v != 0]) for p, v in self.way.items()]
        every = np.concatenate([np.zeros(1), *parts])
        return float(every[np.isfinite(every)].max())

    def families(self) -> list[list[tuple[float, float]]]:
        """Falling steps, as they are and by the size of the point, and their floors."""
        size = self.size()
        plain = [(h, 1.0) for h in STEPS if h >= LOST * size]
        scaled = [(size * h, min(1.0, 1 / size)) for h in STEPS if size]
        return [family for family in (plain, scaled) if family]

    def off(self, found: Sequence[Array]) -> list[Verdict] | None:
        """What differences say of each root's supposed derivative; None if yes."""
        agree = [np.zeros(np.shape(f), bool) for f in found]
        for h, floor in itertools.chain(*self.families()):
            pairs = zip(found, self.middles(h), agree, strict=True)
            agree = [a | ~apart(f, w, floor=floor) for f, w, a in pairs]
            if all(a.all() for a in agree):
                return None
        families = [[self.slopes(*h) for h in steps] for steps in self.families()]
        return [
            judge(f, a, [[slopes[k] for slopes in family] for family in families])
            for k, (f, a) in enumerate(zip(found, agree, strict=True))
        ]

    def off_total(self, found: float) -> Verdict | None:
        """The same of the derivative of the weighted sum, a number."""
        number = np.asarray(found)
        for h, floor in itertools.chain(*self.families()):
            wanted = np.asarray(weighted(self.middles(h), self.weights))
            if not apart(number, wanted, floor=floor).any():
                return None
        families = [[self._total(*h) for h in steps] for steps in self.families()]
        return judge(number, np.zeros((), bool), families)

    def _total(self, h: float, floor: float) -> Slope:
        slopes, w = self.slopes(h, floor), self.weights

        def total(part: Callable[[Slope], Array], weights: Sequence[Array]) -> Array:
            return np.asarray(weighted([part(s) for s in slopes], weights))

        return Slope(
            h,
            floor,
            total(lambda s: s.middle, w),
            total(lambda s: s.left, w),
            total(lambda s: s.right, w),
            total(lambda s: s.noise, [np.abs(x) for x in w]),
        )

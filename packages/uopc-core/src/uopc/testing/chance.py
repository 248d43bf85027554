"""Random choices, shapes and data, as random graphs need them.

Every choice is one number from a source: a seed's, those of an earlier graph, or
hypothesis'. 0 always stands for the simplest choice, so that a graph gets smaller and
plainer as its choices do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from uopc.dtype import DType, boolean
from uopc.testing.bounded import Array
from uopc.uop import cast_array

Shape = tuple[int, ...]
T = TypeVar("T")
# From n to one of 0, 1, ..., n - 1.
Source = Callable[[int], int]

FLOAT_SPECIALS = (math.nan, -0.0, math.inf, -math.inf, 1e-42, 3e-8, -3e38, 6e4)


def seeded(seed: int) -> Source:
    """The choices that a seed stands for."""
    draw = random.Random(seed).random
    return lambda n: int(draw() * n)


def recorded(choices: Iterable[int]) -> Source:
    """These choices, and 0 from then on."""
    rest = iter(choices)
    return lambda n: min(next(rest, 0), n - 1)


class Chance:
    """A stream of random choices, which it keeps in ``choices``."""

    def __init__(self, source: Source) -> None:
        self.choices: list[int] = []
        self._source = source

    def below(self, n: int) -> int:
        """An integer from 0 to ``n - 1``."""
        if n <= 1:
            return 0
        choice = self._source(n)
        self.choices.append(choice)
        return choice

    def span(self, action: Callable[[], T]) -> T:
        """What ``action`` gives, whose choices belong together."""
        return action()

    def chance(self, p: float) -> bool:
        """True with probability ``p``; False is the simpler choice."""
        return self.below(100) >= 100 - round(100 * p)

    def pick(self, items: Sequence[Any]) -> Any:
        """One of ``items``, the simplest of which is the first."""
        return items[self.below(len(items))]

    def random_shape(self, limit: int) -> Shape:
        """Up to four axes and ``limit`` elements; now and then one without any."""
        return self.span(lambda: self._shape(limit))

    def _shape(self, limit: int) -> Shape:
        rank = self.pick((1, 1, 0, 2, 2, 2, 3, 3, 4))
        shape = [self.pick((2, 2, 1, 3, 3, 4, 5, 7, 8)) for _ in range(rank)]
        if rank and self.chance(0.07):
            shape[self.below(rank)] = 0
        while math.prod(shape) > limit:
            shape.pop()
        return tuple(shape)

    def data(self, size: int, dtype: DType) -> Array:
        """A flat array: small numbers mostly, and what a type has at its ends."""
        return self.span(lambda: self._data(size, dtype))

    def _data(self, size: int, dtype: DType) -> Array:
        style = self.below(8)
        if style == 0:
            return cast_array(np.arange(1, size + 1) % 100, dtype)
        # Two streams, so that a smaller array starts like a larger one.
        seed = self.below(1 << 16)
        rng, other = np.random.default_rng(seed), np.random.default_rng((1, seed))
        if dtype is boolean:
            return rng.integers(0, 2, size).astype(bool)
        if style < 3:
            low = 0 if dtype.kind == "uint" else -4
            return cast_array(rng.integers(low, 10, size), dtype)
        x = _float_data(rng, size, style) if dtype.is_float else _raw(rng, size, dtype)
        if style < 6:
            return cast_array(x, dtype)
        few = other.random(size) < 0.15
        few[:1] = True
        ends: tuple[Any, ...] = FLOAT_SPECIALS
        if dtype.is_int:
            ends = (dtype.min, dtype.max, 0)
            if style == 6:  # small otherwise
                x = cast_array(x % 10, dtype)
        values = cast_array(np.array(ends, x.dtype), dtype)
        return np.where(
            few,
            np.random.default_rng((2, seed)).choice(values, size),
            cast_array(x, dtype),
        )

    def scalar(self, dtype: DType) -> bool | int | float:
        """A constant."""
        if dtype is boolean:
            return self.chance(0.5)
        if self.chance(0.15):
            return self.special(dtype)
        if dtype.is_float:
            return float(self.pick((1.0, 0.0, 2.0, 0.5, -1.0, -0.25, -1.5, 3.25)))
        small = [n for n in (1, 0, 2, 3, 4, 5, -1, -2, -3) if n >= dtype.min]
        return int(self.pick(small))

    def special(self, dtype: DType) -> bool | int | float:
        """A constant of the kind that rewrites get wrong."""
        if dtype.is_float:
            return float(self.pick(FLOAT_SPECIALS))
        return int(self.pick((dtype.max, dtype.min, dtype.bits, dtype.bits - 1)))


def _float_data(rng: np.random.Generator, size: int, style: int) -> Array:
    x: Array = rng.standard_normal(size) * rng.choice([0.5, 1.0, 1.0, 4.0])
    return np.round(x) if style == 6 else x  # ties, zeros of both signs


def _raw(rng: np.random.Generator, size: int, dtype: DType) -> Array:
    """Integers of any bits."""
    raw = rng.integers(0, 256, size * dtype.itemsize, np.uint8)
    return raw.view(dtype.numpy)

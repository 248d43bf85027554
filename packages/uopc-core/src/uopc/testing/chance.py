"""Random numbers, shapes and data, as random graphs need them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from uopc.dtype import DType, boolean
from uopc.testing.bounded import Array

Shape = tuple[int, ...]

FLOAT_SPECIALS = (0.0, -0.0, math.inf, -math.inf, math.nan, 1e-42, -3e38, 0.5, 1.0)


class Chance:
    """A stream of random choices; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def chance(self, p: float) -> bool:
        """True with probability ``p``."""
        return bool(self.rng.random() < p)

    def below(self, n: int) -> int:
        """An integer from 0 to ``n - 1``."""
        return int(self.rng.integers(n))

    def pick(self, items: Sequence[Any]) -> Any:
        """One of ``items``."""
        return items[self.below(len(items))]

    def random_shape(self, limit: int) -> Shape:
        """Up to four axes and ``limit`` elements; now and then one without any."""
        rank = self.pick((0, 1, 1, 2, 2, 2, 3, 3, 4))
        shape = [self.pick((1, 2, 2, 3, 3, 4, 5, 7, 8)) for _ in range(rank)]
        if rank and self.chance(0.07):
            shape[self.below(rank)] = 0
        while math.prod(shape) > limit:
            shape.pop()
        return tuple(shape)

    def data(self, size: int, dtype: DType) -> Array:
        """A flat array: small numbers mostly, and what a type has at its ends."""
        rng = self.rng
        if dtype is boolean:
            return rng.integers(0, 2, size).astype(bool)
        if dtype.is_float:
            scale = self.pick((0.5, 1.0, 1.0, 4.0))
            x: Array = (rng.standard_normal(size) * scale).astype(dtype.numpy)
            if self.chance(0.3):
                x = np.round(x)  # ties, zeros of both signs
            if self.chance(0.15):
                few = rng.random(size) < 0.15
                x[few] = rng.choice(FLOAT_SPECIALS, int(few.sum()))
            return x
        if self.chance(0.25):
            raw = rng.integers(0, 256, size * dtype.itemsize, np.uint8)
            x = raw.view(dtype.numpy)
            few = rng.random(size) < 0.2
            x[few] = rng.choice(np.array([dtype.min, dtype.max, 0], dtype.numpy), size)[
                few
            ]
            return x
        low = -4 if dtype.kind == "int" else 0
        return rng.integers(low, 10, size).astype(dtype.numpy)

    def scalar(self, dtype: DType) -> bool | int | float:
        """A constant."""
        if dtype is boolean:
            return self.chance(0.5)
        if dtype.is_float:
            if self.chance(0.03):
                return float(self.pick(FLOAT_SPECIALS))
            return float(self.pick((-1.5, -1.0, -0.25, 0.0, 0.5, 1.0, 2.0, 3.25)))
        low = max(-3, dtype.min)
        ends = (dtype.min, dtype.max, dtype.bits - 1, dtype.bits)
        return int(self.pick(ends)) if self.chance(0.1) else low + self.below(9)

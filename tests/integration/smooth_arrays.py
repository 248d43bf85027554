"""Arrays at which functions have derivatives, for tests that take differences there."""

from __future__ import annotations

import math

import numpy as np


class Draws:
    """Random arrays in f64, the same in each run for a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def apart(self, *shape: int) -> np.ndarray:
        """Numbers in no order, none of them near another or near 0."""
        x = self.rng.permutation(np.arange(1.0, math.prod(shape) + 1)).reshape(shape)
        return np.asarray(x / 3 * self.rng.choice([-1, 1], shape))

    def near_one(self, *shape: int) -> np.ndarray:
        """Positive numbers, not near 0."""
        return self.rng.uniform(0.6, 1.9, shape)

    def small(self, *shape: int) -> np.ndarray:
        """Numbers of both signs."""
        return self.rng.uniform(-1, 1, shape)

    def chances(self, *shape: int) -> np.ndarray:
        """Probabilities: over the last axis they add up to 1."""
        *lead, n = shape
        return self.rng.dirichlet(np.ones(n), lead)


LABELS = np.array([2, -100, 1], np.int32)
ROWS = np.array([1, 0, 1, 7], np.int32)
ALONG = np.array([[1, 0, 1], [0, 0, 1]], np.int32)

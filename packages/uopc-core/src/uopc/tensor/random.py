"""The random state behind Tensor.rand and Tensor.randn."""

from __future__ import annotations

import math
import operator

import numpy as np

from uopc import composite
from uopc.dtype import DType, f32
from uopc.runtime.values import lock, state
from uopc.tensor.base import Base
from uopc.uop import UOp


class Generator:
    """A stream of random numbers: a key, and a counter that only grows.

    Both are 0-d buffers, so a graph that draws has the same structure every
    time. The same seed gives the same stream on every backend.
    """

    def __init__(self, seed: int = 0) -> None:
        self.key = Base(np.asarray(seed % 2**64, np.uint64))
        self.counter = Base(np.asarray(0, np.uint64))
        # Pending draws are settled with whatever is realized next.
        state.extend((self.key, self.counter))

    def seed(self, seed: int) -> None:
        """Start the stream over from ``seed``, an integer."""
        seed = operator.index(seed)
        with lock:
            self.key.assign(Base(np.asarray(seed % 2**64, np.uint64)))
            self.counter.assign(Base(np.asarray(0, np.uint64)))

    def _bits(self, n: int) -> UOp:
        with lock:
            bits = composite.random_bits(self.key.uop, self.counter.uop, n)
            self.counter.assign(Base(self.counter.uop + composite.blocks(n)))
        return bits

    def uniform(self, shape: tuple[int, ...], dtype: DType = f32) -> UOp:
        """Uniform in [0, 1)."""
        if 0 in shape:
            return UOp.const(0, dtype).broadcast_scalar(shape)
        return composite.uniform(self._bits(math.prod(shape)), dtype).reshape(shape)

    def normal(self, shape: tuple[int, ...], dtype: DType = f32) -> UOp:
        """Normal with mean 0 and variance 1."""
        if 0 in shape:
            return UOp.const(0, dtype).broadcast_scalar(shape)
        return composite.normal(self._bits(2 * math.prod(shape)), dtype).reshape(shape)


default = Generator()

"""Made-up data for a loop program, of the real sizes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from uopc.backend_c.printer import global_buffers
from uopc.runtime.buffers import empty
from uopc.runtime.validate import all_near
from uopc.uop import Ops, UOp, cast_array, toposort

Array = np.ndarray[Any, Any]


class Memory:
    """Arrays for the global buffers of a program.

    Floats are from 0.25 to 1.75: no sum of them cancels, so that results that differ
    by more than rounding are wrong. Integers that choose elements are in range.

    Attributes:
        buffers: the nodes, in the order of a function's arguments.
        arrays: their flat memory, in the same order.
    """

    def __init__(self, sink: UOp) -> None:
        self.buffers = tuple(global_buffers(sink))
        nodes = toposort([sink])
        self._written = {u.src[0] for u in nodes if u.op is Ops.STORE}
        self._rough = any(u.dtype.is_half for u in nodes)
        below = _ranges(nodes)
        self._read = {u.src[0] for u in nodes if u.op is Ops.INDEX}
        self.arrays = [empty(b.arg.size, b.dtype) for b in self.buffers]
        self._given: dict[UOp, Array] = {}
        for i, (b, array) in enumerate(zip(self.buffers, self.arrays, strict=True)):
            array[:] = _made_up(b, i, below)
            if b in self._written:
                self._given[b] = array.copy()

    def reset(self, outputs: bool = False) -> None:
        """What a program writes over its inputs, as it was at first.

        Other ``outputs`` too, so that what a program leaves out is seen.
        """
        for b, array in zip(self.buffers, self.arrays, strict=True):
            if b in self._given and (outputs or b in self._read):
                array[:] = self._given[b]

    def results(self) -> list[Array]:
        """Copies of what a run has written."""
        pairs = zip(self.buffers, self.arrays, strict=True)
        return [b.dtype.load(a.copy()) for b, a in pairs if b in self._written]

    def agree(self, a: Sequence[Array], b: Sequence[Array]) -> bool:
        """Whether two results are equal, but for rounding."""
        return all_near(a, b, self._rough)

    def address(self, b: UOp) -> int:
        """Where a buffer's memory is."""
        array = self.arrays[self.buffers.index(b)]
        return int(array.ctypes.data)

    def table(self, count: Array) -> Any:
        """The addresses of all buffers, and then that of a counter."""
        places = [int(a.ctypes.data) for a in (*self.arrays, count)]
        return (ctypes.c_void_p * len(places))(*places)


def _made_up(b: UOp, seed: int, below: dict[UOp, int]) -> Array:
    rng, dtype, size = np.random.default_rng(seed), b.dtype, b.arg.size
    stored: Array
    if dtype.is_float:
        values = rng.random(size, np.float32) * np.float32(1.5) + np.float32(0.25)
        stored = dtype.store(cast_array(values, dtype))
        return stored
    high = min(dtype.max, below.get(b, 100) - 1)
    stored = rng.integers(0, high + 1, size).astype(dtype.numpy)
    return stored


def _ranges(nodes: Sequence[UOp]) -> dict[UOp, int]:
    """Where buffers hold positions: how many of these there are.

    A program reads no element before it has compared a position with that number.
    """
    found: dict[UOp, int] = {}
    for u in nodes:
        if u.op is not Ops.CMPLT or u.src[1].op is not Ops.CONST:
            continue
        count = int(u.src[1].value)
        for read in toposort(u.src[:1]):
            if read.op is Ops.INDEX and count > 0 and not read.dtype.is_float:
                b = read.src[0]
                found[b] = min(found.get(b, count), count)
    return found

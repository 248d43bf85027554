"""Which element of a source an output element is read from.

One function per op: ``(node, index) -> the index into its source``, where an
index is one integer expression per axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from uopc.dtype import DType
from uopc.simplify import Simplifier
from uopc.uop import OpDef, Ops, UOp

Index = tuple[UOp, ...]


class Indexer:
    """Builds index expressions, simplifying each as it grows."""

    def __init__(self, dtype: DType, simplify: Simplifier) -> None:
        self.dtype = dtype
        self.simplify = simplify

    def const(self, value: int) -> UOp:
        """A constant of the index dtype."""
        return UOp.const(value, self.dtype)

    def flatten(self, index: Sequence[UOp], shape: Sequence[int]) -> UOp:
        """The row-major position of ``index`` in an array of ``shape``."""
        total: UOp | None = None
        stride = math.prod(shape)
        for i, n in zip(index, shape, strict=True):
            stride //= max(n, 1)
            term = i * self.const(stride)
            total = term if total is None else total + term
        return self.simplify(self.const(0) if total is None else total)

    def unflatten(self, position: UOp, shape: Sequence[int]) -> Index:
        """The index whose row-major position in ``shape`` is ``position``."""
        index: list[UOp] = []
        stride = math.prod(shape)
        for axis, n in enumerate(shape):
            stride //= max(n, 1)
            i = position // self.const(max(stride, 1))
            if axis > 0:
                i = i % self.const(max(n, 1))
            index.append(self.simplify(i))
        return tuple(index)

    def source_index(self, u: UOp, index: Index) -> Index:
        """The index into the source of a movement op."""
        return _RULES[u.op](self, u, index)


def runs(inner: Sequence[int], outer: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Runs of axes of two shapes with equal element counts, as short as possible."""
    i = j = 0
    while i < len(inner) or j < len(outer):
        first_i, first_j = i, j
        size_i = size_j = 1
        # Take at least one axis from a side that has some left, then catch up.
        if i < len(inner):
            size_i, i = inner[i], i + 1
        if j < len(outer) and (size_i > 1 or i >= len(inner)):
            size_j, j = outer[j], j + 1
        while size_i != size_j:
            if size_i < size_j:
                size_i, i = size_i * inner[i], i + 1
            else:
                size_j, j = size_j * outer[j], j + 1
        yield slice(first_i, i), slice(first_j, j)


def _reshape(self: Indexer, u: UOp, index: Index) -> Index:
    """Match runs of axes with equal element counts, and divide only in those."""
    inner, outer = u.src[0].shape, u.shape
    if 0 in inner:
        return tuple(self.const(0) for _ in inner)
    result: list[UOp] = []
    for i, j in runs(inner, outer):
        old, new = inner[i], outer[j]
        kept = [k for k, n in zip(index[j], new, strict=True) if n > 1]
        if sum(n > 1 for n in old) == len(kept) == 1:
            result += [kept[0] if n > 1 else self.const(0) for n in old]
        else:
            position = self.flatten(index[j], new)
            result += self.unflatten(position, old)
    return tuple(result)


def _expand(self: Indexer, u: UOp, index: Index) -> Index:
    zero = self.const(0)
    return tuple(
        zero if n == 1 else i for i, n in zip(index, u.src[0].shape, strict=True)
    )


def _permute(self: Indexer, u: UOp, index: Index) -> Index:
    result = list(index)
    for k, axis in enumerate(u.arg):
        result[axis] = index[k]
    return tuple(result)


def _shrink(self: Indexer, u: UOp, index: Index) -> Index:
    return tuple(
        self.simplify(i + self.const(b)) if b else i
        for i, (b, _) in zip(index, u.arg, strict=True)
    )


def _flip(self: Indexer, u: UOp, index: Index) -> Index:
    return tuple(
        self.simplify(i * self.const(-1) + self.const(n - 1)) if axis in u.arg else i
        for axis, (i, n) in enumerate(zip(index, u.shape, strict=True))
    )


_RULES: dict[OpDef, Callable[[Indexer, UOp, Index], Index]] = {
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: _expand,
    Ops.PERMUTE: _permute,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
}

"""Tensor's functions over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from uopc import composite
from uopc.composite import broadcast_shape, broadcast_to, reduce_axes
from uopc.dtype import boolean, i32, promote
from uopc.tensor.arithmetic import Arithmetic
from uopc.tensor.base import Base
from uopc.uop import Ops, UOp

Axis = int | Sequence[int] | None


class Reduction(Arithmetic):
    """``axis`` is a number, several, or None for all; negative counts back."""

    __slots__ = ()

    def sum(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Sum; bool is counted as i32."""
        x = self.uop.cast(i32) if self.dtype is boolean else self.uop
        return self._new(reduce_axes(x, Ops.ADD, self._axes(axis), keepdim))

    def prod(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Product; bool is counted as i32."""
        x = self.uop.cast(i32) if self.dtype is boolean else self.uop
        return self._new(reduce_axes(x, Ops.MUL, self._axes(axis), keepdim))

    def max(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Largest value, NaN if any is; ties share the gradient evenly.

        Raises ValueError over no elements.
        """
        return self._new(reduce_axes(self.uop, Ops.MAX, self._axes(axis), keepdim))

    def min(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Smallest value: ``-max(-x)``; ties share the gradient evenly."""
        if self.dtype.is_int or self.dtype is boolean:
            # Complement reverses the order of integers without overflow.
            return ~((~self).max(axis, keepdim))
        return -((-self).max(axis, keepdim))

    def _in_f32(self, function: Callable[[UOp], UOp]) -> Self:
        """``function`` of the node; of a half type in f32, and rounded at the end.

        Integers and bool become f32.
        """
        x = self._float()
        return self._new(function(x.cast(x.dtype.wide)).cast(x.dtype))

    def mean(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Mean; integers become f32. NaN over no elements."""
        axes = self._axes(axis)
        return self._in_f32(lambda x: composite.mean(x, axes, keepdim))

    def var(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Population variance (divides by n; torch divides by n - 1)."""
        axes = self._axes(axis)
        return self._in_f32(lambda x: composite.variance(x, axes, keepdim))

    def softmax(self, axis: int = -1) -> Self:
        """exp(x) over its sum along one axis."""
        axis = self._axis(axis)
        return self._in_f32(lambda x: composite.softmax(x, axis))

    def log_softmax(self, axis: int = -1) -> Self:
        """Logarithm of softmax, without overflow."""
        axis = self._axis(axis)
        return self._in_f32(lambda x: composite.log_softmax(x, axis))

    def cross_entropy(self, labels: Self) -> Self:
        """Mean of ``-log_softmax(self)[label]`` over all labels.

        Args:
            labels: class indices, an integer tensor of this shape without the
                last axis, which holds the classes. A label that is no class
                adds 0 to the sum and still counts in the mean.
        """
        if not isinstance(labels, Base):
            raise TypeError(
                "cross_entropy: the labels must be an integer Tensor, not "
                f"{type(labels).__name__}"
            )
        if not labels.dtype.is_int or labels.shape != self.shape[:-1]:
            raise ValueError(
                f"cross_entropy: logits {self.dtype}{list(self.shape)} need integer "
                f"labels of shape {list(self.shape[:-1])}, got "
                f"{labels.dtype}{list(labels.shape)}"
            )
        return self._in_f32(lambda x: composite.cross_entropy(x, labels.uop))

    def one_hot(self, n: int) -> Self:
        """A new last axis of length ``n``: 1.0 at the index, else 0.0 (f32)."""
        if not self.dtype.is_int:
            raise TypeError(f"one_hot needs an integer tensor, not {self.dtype}")
        mask = self._new(composite.one_hot(self.uop, n))
        return mask.where(1.0, 0.0)

    def __matmul__(self, other: Self) -> Self:
        """Matrix product by NumPy's rules: 1-d operands, broadcast batches.

        Half types are multiplied and summed in f32; the result is rounded once.
        """
        if not isinstance(other, Base):
            raise TypeError(f"matmul: expected a Tensor, got {type(other).__name__}")
        try:
            dtype = promote(self.dtype, other.dtype)
        except TypeError as error:
            raise TypeError(_mismatch(self, other, str(error))) from None
        a, b = self.uop.cast(dtype.wide), other.uop.cast(dtype.wide)
        if not a.shape or not b.shape:
            raise ValueError(_mismatch(self, other, "both need at least one axis"))
        if len(a.shape) == 1:
            a = a.reshape((1, *a.shape))
        if len(b.shape) == 1:
            b = b.reshape((*b.shape, 1))
        if a.shape[-1] != b.shape[-2]:
            raise ValueError(
                _mismatch(self, other, f"inner lengths {a.shape[-1]} and {b.shape[-2]}")
            )
        try:
            lead = broadcast_shape(a.shape[:-2], b.shape[:-2])
        except ValueError as error:
            raise ValueError(_mismatch(self, other, str(error))) from None
        out = composite.matmul(
            broadcast_to(a, lead + a.shape[-2:]), broadcast_to(b, lead + b.shape[-2:])
        )
        out = _drop_axes(out, self.ndim == 1, other.ndim == 1)
        return self._new(out.cast(dtype), other)

    matmul = __matmul__
    dot = __matmul__


def _drop_axes(out: UOp, rows: bool, columns: bool) -> UOp:
    """Remove the axes that 1-d operands were given."""
    *lead, m, n = out.shape
    kept = ([] if rows else [m]) + ([] if columns else [n])
    return out if not rows and not columns else out.reshape((*lead, *kept))


def _mismatch(a: Reduction, b: Reduction, why: str) -> str:
    return (
        f"matmul: {a.dtype}{list(a.shape)} @ {b.dtype}{list(b.shape)}: {why}; "
        "expected (..., M, K) @ (..., K, N)"
    )

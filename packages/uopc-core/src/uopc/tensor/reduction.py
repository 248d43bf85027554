"""Tensor's functions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

from uopc import composite
from uopc.composite import broadcast_shape, broadcast_to, reduce_axes
from uopc.dtype import boolean, f32, f64, i32, promote
from uopc.tensor.base import Base
from uopc.tensor.elements import Elements
from uopc.uop import OpDef, Ops, UOp

Axis = int | Sequence[int] | None


class Reduction(Elements):
    """``axis`` is a number, several, or None for all; negative counts back."""

    __slots__ = ()

    def sum(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Sum; bool is counted as i32."""
        axes = self._axes(axis)
        return self._new(reduce_axes(self._countable(), Ops.ADD, axes, keepdim))

    def prod(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Product; bool is counted as i32.

        The gradient for an element is the product of the others, also at zeros.
        """
        axes = self._axes(axis)
        return self._new(reduce_axes(self._countable(), Ops.MUL, axes, keepdim))

    def cumsum(self, axis: int = -1) -> Self:
        """Sums of the elements up to each one along an axis; bool is counted as i32.

        f32 is added up in f64 and half types in f32; the result is rounded once. Takes
        a fixed number of operations per element, and memory in proportion to them.
        NumPy's default is the flattened array.
        """
        return self._cumulative(Ops.ADD, axis)

    def cumprod(self, axis: int = -1) -> Self:
        """Products of the elements up to each one along an axis, like ``cumsum``.

        The gradient is exact for any number of zeros.
        """
        return self._cumulative(Ops.MUL, axis)

    def _cumulative(self, op: OpDef, axis: int) -> Self:
        at, x = self._axis(axis), self._countable()
        wide = f64 if x.dtype is f32 else x.dtype.wide
        return self._new(composite.cumulative(x.cast(wide), op, at).cast(x.dtype))

    def _countable(self) -> UOp:
        """The node; of bool, as i32."""
        return self.uop.cast(i32) if self.dtype is boolean else self.uop

    def max(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Largest value, NaN if any is; ties share the gradient evenly.

        So it is in JAX. Raises ValueError over no elements.
        """
        return self._new(reduce_axes(self.uop, Ops.MAX, self._axes(axis), keepdim))

    def min(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Smallest value, NaN if any is; ties share the gradient evenly.

        It is ``-max(-x)``, of integers and bool the complement of the complement's
        largest. Raises ValueError over no elements.
        """
        if self.dtype.is_int or self.dtype is boolean:
            # Complement reverses the order of integers without overflow.
            return ~((~self).max(axis, keepdim))
        return -((-self).max(axis, keepdim))

    def any(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Whether some element is not zero: bool, false of no elements."""
        flags = self._flags()
        if not self.numel():  # a maximum of nothing has no value
            return self._new(flags.cast(i32)).sum(axis, keepdim).ne(0)
        return self._new(reduce_axes(flags, Ops.MAX, self._axes(axis), keepdim))

    def all(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Whether no element is zero: bool, true of no elements."""
        return ~self._new(self._flags().logical_not()).any(axis, keepdim)

    def _flags(self) -> UOp:
        """Whether each element is not zero; NaN is not."""
        return self.uop if self.dtype is boolean else self.uop.ne(0)

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

    def var(
        self, axis: Axis = None, keepdim: bool = False, correction: float = 0
    ) -> Self:
        """Variance: squared distances from the mean, summed, over n - correction.

        By default that of the population, as in NumPy and JAX; PyTorch's correction is
        1. It is exactly 0 where all elements are equal. Over no elements it is NaN, and
        where n is not larger than the correction it is 0/0 or infinite, as in NumPy.
        Integers become f32.
        """
        axes = self._axes(axis)
        return self._in_f32(lambda x: composite.variance(x, axes, keepdim, correction))

    def std(
        self, axis: Axis = None, keepdim: bool = False, correction: float = 0
    ) -> Self:
        """Standard deviation: the root of ``var``, computed without overflow.

        Where all elements are equal it is exactly 0, and so is its gradient there, as
        in PyTorch; JAX gives NaN. The second gradient is finite, but there is none.
        """
        axes = self._axes(axis)
        return self._in_f32(lambda x: composite.deviation(x, axes, keepdim, correction))

    def norm(self, p: float = 2, axis: Axis = None, keepdim: bool = False) -> Self:
        """The norm of vectors: of all elements, or along some axes together.

        Args:
            p: 2, the root of the sum of squares, without overflow or underflow of the
                squares; 1, the sum of magnitudes; or inf, the largest magnitude.
                Others raise ValueError.
            axis: as elsewhere. Several axes hold one vector (NumPy's ``linalg.norm``
                takes two for a matrix, whose 2-norm is another).
            keepdim: keep those axes, with length 1.

        At kinks the gradient is the subgradient of least norm: 0 at the zero vector,
        0 at zeros for p = 1, shared evenly by the largest magnitudes for p = inf.
        JAX gives NaN at the zero vector for p = 2, and 1 at zeros for p = 1. Integers
        become f32; over no elements it is 0.
        """
        axes = self._axes(axis)
        return self._in_f32(lambda x: composite.norm(x, p, axes, keepdim))

    def logsumexp(self, axis: Axis = None, keepdim: bool = False) -> Self:
        """Logarithm of the sum of exp(x), without overflow; the gradient is softmax.

        Over -inf alone, or over nothing, it is -inf and its gradient 0 (in JAX
        NaN); +inf gives inf, whose gradient is NaN for that element and 0 for
        the others. Integers become f32.
        """
        axes = self._axes(axis)
        return self._in_f32(lambda x: composite.logsumexp(x, axes, keepdim))

    def softmax(self, axis: int = -1) -> Self:
        """exp(x) over its sum along one axis, without overflow.

        An element of -inf has the value 0 and the gradient 0, so that
        ``mask.where(x, -inf).softmax()`` is the softmax of what the mask keeps. Where
        all are -inf, or one is +inf, the result is NaN, as in PyTorch and JAX.
        """
        axis = self._axis(axis)
        return self._in_f32(lambda x: composite.softmax(x, axis))

    def log_softmax(self, axis: int = -1) -> Self:
        """Logarithm of softmax, without overflow: x minus its logsumexp.

        An element of -inf stays -inf and does not touch the others. Where all are
        -inf, or one is +inf, the result is NaN, as in PyTorch and JAX.
        """
        axis = self._axis(axis)
        return self._in_f32(lambda x: composite.log_softmax(x, axis))

    def cross_entropy(
        self,
        labels: Self,
        ignore_index: int | None = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Mean of ``-log_softmax(self)[label]`` over all labels.

        Args:
            labels: class indices, an integer tensor of this shape without the
                last axis, which holds the classes. A label that is no class
                adds 0 to the sum and still counts in the mean. Or probabilities, a
                float tensor of this shape: then it is the mean over the rows of
                ``-(p * log_softmax(self)).sum(-1)``; a probability of 0 adds 0 also
                where the logit is -inf.
            ignore_index: a label that adds 0, has no gradient, and does not count in
                the mean; None for no such label. The mean over ignored labels alone
                is 0, with a gradient of 0 (PyTorch gives NaN).
            label_smoothing: from 0 to 1, how much of each label is spread evenly over
                all classes, as in PyTorch.
            reduction: "mean", "sum", or "none" for one loss per label.

        Half types are computed in f32 and rounded once. The mean over no labels at all
        is NaN. Raises TypeError if ``labels`` is no Tensor, ValueError for other shapes
        and types, and for a ``reduction`` or ``label_smoothing`` that is not known.
        """
        if not isinstance(labels, Base):
            raise TypeError(
                "cross_entropy: the labels must be an integer Tensor, not "
                f"{type(labels).__name__}"
            )
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(
                f"cross_entropy: the reduction must be mean, sum or none, not "
                f"{reduction!r}"
            )
        if not 0 <= label_smoothing <= 1:
            raise ValueError(
                f"cross_entropy: label_smoothing must be from 0 to 1, not "
                f"{label_smoothing}"
            )
        if labels.dtype.is_float and labels.shape == self.shape and self.ndim:
            return self._soft_cross_entropy(labels, label_smoothing, reduction)
        if not labels.dtype.is_int or labels.shape != self.shape[:-1]:
            raise ValueError(
                f"cross_entropy: logits {self.dtype}{list(self.shape)} need integer "
                f"labels of shape {list(self.shape[:-1])}, got "
                f"{labels.dtype}{list(labels.shape)}"
            )
        options = (ignore_index, label_smoothing, reduction)
        return self._in_f32(lambda x: composite.cross_entropy(x, labels.uop, *options))

    def _soft_cross_entropy(self, target: Self, smoothing: float, how: str) -> Self:
        x = self._float()
        dtype = promote(x.dtype, target.dtype)
        logits, p = (u.cast(dtype.wide) for u in (x, target.uop))
        loss = composite.soft_cross_entropy(logits, p, smoothing, how)
        return self._new(loss.cast(dtype), target)

    def one_hot(self, n: int) -> Self:
        """A new last axis of length ``n``: 1.0 at the index, else 0.0 (f32).

        ``one_hot(n) @ table`` is a gather of rows, and as cheap as one.
        """
        if not self.dtype.is_int:
            raise TypeError(f"one_hot needs an integer tensor, not {self.dtype}")
        mask = self._new(composite.one_hot(self.uop, n))
        return mask.where(1.0, 0.0)

    def __matmul__(self, other: Self) -> Self:
        """Matrix product by NumPy's rules: 1-d operands, broadcast batches.

        Half types are multiplied and summed in f32; the result is rounded once.

        ``i.one_hot(n) @ table``, with a table of one or two axes, becomes the gather
        of rows that it stands for: ``index`` then reads and ``scatter_add`` adds up
        only those rows, and an infinity or NaN in another row has no effect. So does
        any comparison of integers with 0 to n - 1 that looks like a one-hot matrix
        (see ``uopc.composite.one_hot_index``), unless it requires a gradient.
        """
        if not isinstance(other, Base):
            got = type(other).__name__
            raise TypeError(f"matmul: expected a Tensor, got {got}; wrap it in one")
        try:
            dtype = promote(self.dtype, other.dtype)
        except TypeError as error:
            raise TypeError(_mismatch(self, other, str(error))) from None
        chosen = None if self._wants else composite.one_hot_index(self.uop)
        if chosen is not None and self.shape[-1:] == other.shape[:1] and other.ndim < 3:
            return self._new(other.uop.cast(dtype).index(chosen), other)
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
        out = _product(a, b, lead)
        out = _drop_axes(out, self.ndim == 1, other.ndim == 1)
        return self._new(out.cast(dtype), other)

    def __imatmul__(self, other: Self) -> Self:
        return self._updated(self @ other)

    matmul = __matmul__
    dot = __matmul__


def _product(a: UOp, b: UOp, lead: tuple[int, ...]) -> UOp:
    """The products over common leading axes.

    If there is but one right factor, all rows are those of one matrix: then the
    gradient of that factor is one product as well, not one for each and their sum.
    """
    if len(b.shape) == 2:
        *_, m, k = a.shape
        rows = a.reshape((math.prod(lead) * m, k))
        return composite.matmul(rows, b).reshape((*lead, m, b.shape[-1]))
    return composite.matmul(
        broadcast_to(a, lead + a.shape[-2:]), broadcast_to(b, lead + b.shape[-2:])
    )


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

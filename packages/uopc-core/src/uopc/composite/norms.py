"""Norms and spreads over axes: differentiable everywhere, also at zero."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.composite.elementwise import absolute, square
from uopc.composite.math import mean
from uopc.composite.shape import count, reduce_axes, zeros_like
from uopc.uop import Ops, UOp


def norm(x: UOp, p: float, axes: Sequence[int], keepdim: bool) -> UOp:
    """The vector norm over ``axes``: of ``p`` 1, 2 or inf; 0 over no elements.

    Where no derivative exists the gradient is the subgradient of least norm: 0
    at the zero vector, 0 for a 1-norm's zeros, shared evenly by the largest of
    an inf-norm.
    """
    if p not in (1, 2, math.inf):
        raise ValueError(f"norm: p must be 1, 2 or inf, not {p}")
    if not count(x, axes):
        return reduce_axes(x, Ops.ADD, axes, keepdim)
    if p == 1:
        return reduce_axes(absolute(x), Ops.ADD, axes, keepdim)
    if p == math.inf:
        return reduce_axes(absolute(x), Ops.MAX, axes, keepdim)
    return _euclidean(x, axes, keepdim)


def _euclidean(x: UOp, axes: Sequence[int], keepdim: bool) -> UOp:
    """The root of the sum of squares, as of BLAS without overflow or underflow.

    Everything is divided by the largest magnitude first and multiplied by it at
    the end. The norm does not depend on that scale, so it may be held constant.
    """
    top = reduce_axes(absolute(x), Ops.MAX, axes, keepdim=True).detach()
    usable = (top > 0.0) & (top < math.inf)
    scale = usable.where(top, top.const_like(1.0))
    total = reduce_axes(square(x / scale.expand(x.shape)), Ops.ADD, axes, True)
    result = total.sqrt() * scale
    # The value is 0 anyway, but nothing flows through the root of 0.
    result = total.eq(0.0).where(zeros_like(result), result)
    return result if keepdim else _without(result, axes)


def _without(x: UOp, axes: Sequence[int]) -> UOp:
    """``x`` without axes of length 1."""
    return x.reshape([n for i, n in enumerate(x.shape) if i not in axes])


def centered(x: UOp, axes: Sequence[int]) -> UOp:
    """``x`` minus its mean over ``axes``: exactly 0 where all elements are equal.

    The first element is subtracted before the mean is taken. That leaves the
    result as it is, makes constant rows exact, and keeps digits of numbers that
    lie far from 0 but close to each other.
    """
    if not count(x, axes):
        return x
    window = [(0, 1) if i in axes else (0, n) for i, n in enumerate(x.shape)]
    x = x - x.shrink(window).detach().expand(x.shape)
    return x - mean(x, axes, keepdim=True).expand(x.shape)


def variance(x: UOp, axes: Sequence[int], keepdim: bool, correction: float = 0) -> UOp:
    """The sum of squared distances from the mean over ``count - correction``.

    Without a correction that is the population variance. NaN over no elements,
    and where nothing is left to divide by and the spread is 0.
    """
    total = reduce_axes(square(centered(x, axes)), Ops.ADD, axes, keepdim)
    left = max(count(x, axes) - correction, 0)
    return total * (1 / left) if left else total / 0.0


def deviation(x: UOp, axes: Sequence[int], keepdim: bool, correction: float = 0) -> UOp:
    """The root of the variance, as a norm: its gradient at zero spread is 0."""
    left = max(count(x, axes) - correction, 0)
    if not left:
        return variance(x, axes, keepdim, correction).sqrt()  # NaN, and so its gradient
    return norm(centered(x, axes), 2, axes, keepdim) * (1 / math.sqrt(left))

"""Composite functions over axes, on float nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.composite.elementwise import exp, log
from uopc.composite.shape import broadcast_to, count, iota, reduce_axes, zeros_like
from uopc.dtype import i32, i64
from uopc.uop import Ops, UOp


def mean(x: UOp, axes: Sequence[int], keepdim: bool) -> UOp:
    """Sum over ``axes`` times one over their element count; NaN over nothing."""
    n = count(x, axes)
    total = reduce_axes(x, Ops.ADD, axes, keepdim)
    return total * (1 / n if n else math.nan)


def shift(x: UOp, axis: int) -> UOp:
    """``x`` minus its maximum, held constant: a shift changes no softmax."""
    top = reduce_axes(x, Ops.MAX, [axis], keepdim=True).detach()
    return x - top.expand(x.shape)


def logsumexp(x: UOp, axes: Sequence[int], keepdim: bool) -> UOp:
    """log of the sum of exp(x), without overflow.

    -inf, with a gradient of 0, where every element is -inf or there is none.
    """
    if not count(x, axes):
        return reduce_axes(x, Ops.ADD, axes, keepdim) - math.inf
    top = reduce_axes(x, Ops.MAX, axes, keepdim=True).detach()
    finite = (top > -math.inf) & (top < math.inf)
    top = finite.where(top, zeros_like(top))
    e = exp(x - top.expand(x.shape))
    total = reduce_axes(e, Ops.ADD, axes, keepdim)
    result = log(total) + top.reshape(total.shape)
    # The value is -inf anyway, but nothing flows through the logarithm of 0.
    return total.eq(0.0).where(result.const_like(-math.inf), result)


def softmax(x: UOp, axis: int) -> UOp:
    """exp(x) over its sum along ``axis``; NaN where every element is -inf."""
    e = exp(shift(x, axis))
    return e / reduce_axes(e, Ops.ADD, [axis], keepdim=True).expand(x.shape)


def log_softmax(x: UOp, axis: int) -> UOp:
    """The logarithm of softmax, without overflow."""
    shifted = shift(x, axis)
    total = reduce_axes(exp(shifted), Ops.ADD, [axis], keepdim=True)
    return shifted - log(total).expand(x.shape)


def one_hot(idx: UOp, n: int) -> UOp:
    """A bool mask of a new last axis: True at the index."""
    shape = (*idx.shape, n)
    # 64 bits hold every position whatever the index's own type.
    idx = idx if idx.dtype is i32 else idx.cast(i64)
    which = broadcast_to(iota(n).cast(idx.dtype), shape)
    return idx.reshape((*idx.shape, 1)).expand(shape).eq(which)


def matmul(a: UOp, b: UOp) -> UOp:
    """(..., M, K) @ (..., K, N) with equal leading axes.

    Both sides are expanded to (..., M, N, K), multiplied, and the last axis
    is summed.
    """
    *lead, m, k = a.shape
    n = b.shape[-1]
    rank = len(lead)
    full_shape = (*lead, m, n, k)
    left = a.reshape((*lead, m, 1, k)).expand(full_shape)
    turned = b.permute((*range(rank), rank + 1, rank))
    right = turned.reshape((*lead, 1, n, k)).expand(full_shape)
    return (left * right).reduce(Ops.ADD, 1)

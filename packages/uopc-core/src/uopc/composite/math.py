"""Composite functions of elements and over axes, on float nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.composite.shape import broadcast_to, count, iota, reduce_axes
from uopc.dtype import i32, i64
from uopc.uop import Ops, UOp


def square(x: UOp) -> UOp:
    """x * x."""
    return x * x


def absolute(x: UOp) -> UOp:
    """``max(x, -x)``; its gradient at 0 is 0, the tie being split."""
    return x.maximum(-x)


def relu(x: UOp) -> UOp:
    """``x`` where positive, else 0; its gradient at 0 is 0."""
    return (x > 0).where(x, x.const_like(0))


def sigmoid(x: UOp) -> UOp:
    """``1 / (1 + exp(-x))``, from ``exp(-|x|)``, which cannot overflow."""
    negative = x < 0.0
    e = UOp(Ops.EXP, (negative.where(x, -x),))
    return negative.where(e, x.const_like(1.0)) / (e + 1.0)


def tanh(x: UOp) -> UOp:
    """Hyperbolic tangent."""
    return UOp(Ops.TANH, (x,))


def exp(x: UOp) -> UOp:
    """e to the power x."""
    return UOp(Ops.EXP, (x,))


def log(x: UOp) -> UOp:
    """Natural logarithm."""
    return UOp(Ops.LOG, (x,))


def cos(x: UOp) -> UOp:
    """Cosine."""
    return UOp(Ops.COS, (x,))


def gelu(x: UOp) -> UOp:
    """GELU in its tanh form (Hendrycks and Gimpel, 2016)."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (tanh(inner) + 1.0)


def mean(x: UOp, axes: Sequence[int], keepdim: bool) -> UOp:
    """Sum over ``axes`` times one over their element count; NaN over nothing."""
    n = count(x, axes)
    total = reduce_axes(x, Ops.ADD, axes, keepdim)
    return total * (1 / n if n else math.nan)


def variance(x: UOp, axes: Sequence[int], keepdim: bool) -> UOp:
    """The population variance: the mean squared distance from the mean."""
    center = x - mean(x, axes, keepdim=True).expand(x.shape)
    return mean(square(center), axes, keepdim)


def _shifted(x: UOp, axis: int) -> UOp:
    """``x`` minus its maximum, held constant: a shift changes no softmax."""
    top = reduce_axes(x, Ops.MAX, [axis], keepdim=True).detach()
    return x - top.expand(x.shape)


def softmax(x: UOp, axis: int) -> UOp:
    """exp(x) over its sum along ``axis``."""
    e = exp(_shifted(x, axis))
    return e / reduce_axes(e, Ops.ADD, [axis], keepdim=True).expand(x.shape)


def log_softmax(x: UOp, axis: int) -> UOp:
    """The logarithm of softmax, without overflow."""
    shifted = _shifted(x, axis)
    total = reduce_axes(exp(shifted), Ops.ADD, [axis], keepdim=True)
    return shifted - log(total).expand(x.shape)


def one_hot(idx: UOp, n: int) -> UOp:
    """A bool mask of a new last axis: True at the index."""
    shape = (*idx.shape, n)
    # 64 bits hold every position whatever the index's own type.
    idx = idx if idx.dtype is i32 else idx.cast(i64)
    which = broadcast_to(iota(n).cast(idx.dtype), shape)
    return idx.reshape((*idx.shape, 1)).expand(shape).eq(which)


def cross_entropy(logits: UOp, labels: UOp) -> UOp:
    """Mean over all labels of minus log_softmax at the label (last axis)."""
    picked = one_hot(labels, logits.shape[-1])
    logp = log_softmax(logits, len(logits.shape) - 1)
    kept = picked.where(logp, logp.const_like(0))
    total = reduce_axes(kept, Ops.ADD, range(len(kept.shape)), keepdim=False)
    n = math.prod(labels.shape)
    return total * (-1 / n if n else math.nan)


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

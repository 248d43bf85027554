"""Cross-entropy, from class indices or from probabilities."""

from __future__ import annotations

import math

from uopc.composite.elementwise import exp, log
from uopc.composite.math import log_softmax, one_hot, shift
from uopc.composite.shape import full, reduce_axes, zeros_like
from uopc.dtype import boolean
from uopc.uop import Ops, UOp


def cross_entropy(
    logits: UOp,
    labels: UOp,
    ignored: int | None = None,
    smoothing: float = 0.0,
    reduction: str = "mean",
) -> UOp:
    """Minus log_softmax of the last axis, at the label.

    Args:
        logits: float, (..., classes).
        labels: integer, (...). One that is no class adds 0 to the sum; one that is
            ``ignored`` does not count in the mean either.
        ignored: that label, or None.
        smoothing: how much of each label is spread evenly over all classes.
        reduction: "mean" over the labels that count, which is 0 if none does, "sum",
            or "none".
    """
    last = len(logits.shape) - 1
    kept = _at_labels(logits, labels, ignored, smoothing)
    if reduction == "none":
        return -kept
    total = reduce_axes(kept, Ops.ADD, range(last), keepdim=False)
    if reduction == "sum":
        return -total
    fits = ignored is not None and labels.dtype.min <= ignored <= labels.dtype.max
    if not fits or not math.prod(labels.shape):
        return _averaged(total, math.prod(labels.shape))
    counts = labels.ne(ignored).cast(total.dtype)  # type: ignore[arg-type]
    n = reduce_axes(counts, Ops.ADD, range(last), keepdim=False)
    # With nothing to average the sum is 0, and so is the mean.
    return -(total / n.maximum(1.0))


def _at_labels(logits: UOp, labels: UOp, ignored: int | None, smoothing: float) -> UOp:
    """log_softmax at each label, 0 for one that is no class or ignored.

    The shifted logit at the label minus the logarithm of the sum, so that the one-hot
    selection does not reach the sum: its gradient needs no mask but whether there is a
    label at all.
    """
    last, classes = len(logits.shape) - 1, logits.shape[-1]
    shifted = shift(logits, last)
    picked = one_hot(labels, classes).where(shifted, zeros_like(shifted))
    at = reduce_axes(picked, Ops.ADD, [last], keepdim=False)
    if smoothing:
        even = reduce_axes(shifted, Ops.ADD, [last], keepdim=False)
        at = at * (1 - smoothing) + even * (smoothing / classes)
    logp = at - log(reduce_axes(exp(shifted), Ops.ADD, [last], keepdim=False))
    counts = _is_class(labels, classes)
    if ignored is not None and 0 <= ignored < classes:
        counts = counts & labels.ne(ignored)
    return counts.where(logp, zeros_like(logp))


def _is_class(labels: UOp, classes: int) -> UOp:
    """Whether each label is in [0, classes), which its type may not even reach."""
    known = full(labels.shape, True, boolean)
    if labels.dtype.kind == "int":
        known = labels > -1
    return known & (labels < classes) if classes <= labels.dtype.max else known


def soft_cross_entropy(
    logits: UOp, target: UOp, smoothing: float = 0.0, reduction: str = "mean"
) -> UOp:
    """Minus the sum over the last axis of ``target`` times log_softmax.

    A class of probability 0 adds 0, also where its logit is -inf; the gradient of its
    target is 0 there.
    """
    last = len(logits.shape) - 1
    if smoothing:
        target = target * (1 - smoothing) + smoothing / logits.shape[-1]
    logp = log_softmax(logits, last)
    never = target.eq(0.0) & logp.eq(-math.inf)
    terms = target * never.where(zeros_like(logp), logp)
    if reduction == "none":
        return -reduce_axes(terms, Ops.ADD, [last], keepdim=False)
    total = reduce_axes(terms, Ops.ADD, range(last + 1), keepdim=False)
    if reduction == "sum":
        return -total
    return _averaged(total, math.prod(logits.shape[:-1]))


def _averaged(total: UOp, n: int) -> UOp:
    """Minus the sum over a number that is known; NaN over nothing."""
    return total * (-1 / n if n else math.nan)

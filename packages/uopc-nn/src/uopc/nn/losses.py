"""Losses: how far predictions are from targets, as one number or one per element.

Names and defaults are PyTorch's. Predictions and targets have equal shapes: nothing is
broadcast, which in a loss is nearly always a mistake. `Tensor.cross_entropy` is a
method, over the last axis.
"""

from __future__ import annotations

from uopc.tensor import Tensor

REDUCTIONS = ("mean", "sum", "none")


def mse_loss(prediction: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The square of the difference: float (...) twice; see `l1_loss` for the rest."""
    _require_equal("mse_loss", prediction, target)
    return _reduced("mse_loss", (prediction - target).square(), reduction)


def l1_loss(prediction: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The absolute difference.

    Args:
        prediction: float, (...).
        target: of the same shape.
        reduction: "mean" over all elements, "sum", or "none": one number for each.

    The gradient where both are equal is 0. Raises ValueError for other shapes and
    names.
    """
    _require_equal("l1_loss", prediction, target)
    return _reduced("l1_loss", (prediction - target).abs(), reduction)


def huber_loss(
    prediction: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """Half the square of a difference d up to ``delta``, and a line from there.

    ``d * d / 2`` if |d| <= delta, else ``delta * (|d| - delta / 2)`` (Huber, Robust
    Estimation of a Location Parameter, 1964). Arguments are those of `l1_loss`.
    """
    _require_equal("huber_loss", prediction, target)
    if not delta > 0:
        raise ValueError(f"huber_loss: expected a delta above 0, got {delta}")
    distance = (prediction - target).abs()
    line = (distance - delta / 2) * delta
    near = distance <= delta
    return _reduced("huber_loss", near.where(distance.square() / 2, line), reduction)


def binary_cross_entropy_with_logits(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Minus ``t * log(sigmoid(x)) + (1 - t) * log(1 - sigmoid(x))``.

    Computed without a difference of large numbers; a logit may be infinite, where the
    target is 0 or 1.

    Args:
        logits: float, (...).
        target: the probability of a yes, 0 to 1, of the same shape.
        weight: what each element's loss is multiplied by; broadcasts.
        reduction: as in `l1_loss`.
        pos_weight: what the part of the yes is multiplied by; broadcasts.
    """
    what = "binary_cross_entropy_with_logits"
    _require_equal(what, logits, target)
    yes = (target == 0).where(0.0, (-logits).softplus() * target)
    if pos_weight is not None:
        yes = yes * pos_weight
    each = yes + (target == 1).where(0.0, logits.softplus() * (1 - target))
    return _reduced(what, each if weight is None else each * weight, reduction)


def nll_loss(
    log_probabilities: Tensor, labels: Tensor, reduction: str = "mean"
) -> Tensor:
    """Minus the logarithm at each label.

    Args:
        log_probabilities: float, (..., classes), such as ``x.log_softmax()``; in
            PyTorch classes are the second axis.
        labels: integer, (...). One that is no class adds 0.
        reduction: as in `l1_loss`; "mean" is over the labels.
    """
    if not labels.dtype.is_int or log_probabilities.shape[:-1] != labels.shape:
        raise ValueError(
            "nll_loss: expected log-probabilities (..., classes) and integer labels "
            f"(...), got {_shown(log_probabilities)} and {_shown(labels)}"
        )
    classes = Tensor.arange(log_probabilities.shape[-1])
    at = labels.unsqueeze(-1) == classes
    return _reduced("nll_loss", -at.where(log_probabilities, 0.0).sum(-1), reduction)


def kl_div(
    log_probabilities: Tensor, target: Tensor, reduction: str = "mean"
) -> Tensor:
    """``t * (log(t) - x)``: how far targets t are from what x is the logarithm of.

    Args:
        log_probabilities: float, (...).
        target: probabilities, not logarithms, of the same shape. One that is 0 adds 0,
            whatever the logarithm there.
        reduction: as in `l1_loss`, or "batchmean": the sum over the length of the first
            axis. That is the divergence itself, "mean" is not; the default is as in
            PyTorch.
    """
    _require_equal("kl_div", log_probabilities, target)
    some = target > 0
    logarithm = some.where(target, 1.0).log()
    each = some.where(target * (logarithm - log_probabilities), 0.0)
    if reduction == "batchmean":
        if not each.ndim:
            raise ValueError("kl_div: 'batchmean' needs a first axis, got a scalar")
        return each.sum() / each.shape[0]
    return _reduced("kl_div", each, reduction, "batchmean")


def _reduced(what: str, each: Tensor, reduction: str, *more: str) -> Tensor:
    if reduction not in REDUCTIONS:
        known = ", ".join(map(repr, (*REDUCTIONS, *more)))
        raise ValueError(f"{what}: expected a reduction of {known}, got {reduction!r}")
    if reduction == "none":
        return each
    return each.mean() if reduction == "mean" else each.sum()


def _require_equal(what: str, prediction: Tensor, target: Tensor) -> None:
    if prediction.shape != target.shape or not prediction.dtype.is_float:
        raise ValueError(
            f"{what}: expected a float prediction and a target of one shape, got "
            f"{_shown(prediction)} and {_shown(target)}"
        )


def _shown(t: Tensor) -> str:
    return f"{t.dtype}{list(t.shape)}"

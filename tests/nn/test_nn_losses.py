"""Losses against their formulas in f64, at ordinary and at extreme values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc import nn
from uopc.tensor import Tensor

Array = np.ndarray[Any, Any]
Loss = Callable[..., Tensor]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def likely(*shape: int, seed: int = 1) -> Array:
    x = np.random.default_rng(seed).random(shape)
    return np.asarray(x / x.sum(-1, keepdims=True)).astype(np.float32)


def bce(x: Array, t: Array) -> Array:
    return np.asarray(t * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x))


def huber(x: Array, t: Array) -> Array:
    d = np.abs(x - t)
    return np.where(d <= 1, d * d / 2, d - 0.5)


LOSSES: dict[str, tuple[Loss, Callable[[Array, Array], Array]]] = {
    "mse": (nn.mse_loss, lambda x, t: (x - t) ** 2),
    "l1": (nn.l1_loss, lambda x, t: np.abs(x - t)),
    "huber": (nn.huber_loss, huber),
    "bce": (nn.binary_cross_entropy_with_logits, bce),
    "kl": (nn.kl_div, lambda x, t: t * (np.log(t) - x)),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(4, 5), (7,), (2, 3, 4)])
def test_each_loss_and_how_it_is_reduced(name: str, shape: tuple[int, ...]) -> None:
    loss, formula = LOSSES[name]
    x, t = numbers(*shape) * 3, likely(*shape)
    right = formula(x.astype(float), t.astype(float))
    for reduction, expected in (
        ("none", right),
        ("sum", right.sum()),
        ("mean", right.mean()),
    ):
        got = loss(Tensor(x), Tensor(t), reduction=reduction).numpy()
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)
    got = loss(Tensor(x), Tensor(t)).numpy()
    np.testing.assert_allclose(got, right.mean(), rtol=2e-5, atol=1e-6)


def test_huber_with_another_delta() -> None:
    got = nn.huber_loss(Tensor([0.0, 3.0, -10.0]), Tensor([1.0, 0.0, 0.0]), "none", 2.0)
    np.testing.assert_allclose(got.numpy(), [0.5, 4.0, 18.0])


def test_logits_may_be_extreme() -> None:
    logits = np.array([-np.inf, np.inf, 1e38, -1e38, 20, -20, 500], np.float32)
    target = np.array([0, 1, 1, 0, 1, 0, 0], np.float32)
    x = Tensor(logits, requires_grad=True)
    each = nn.binary_cross_entropy_with_logits(x, Tensor(target), reduction="none")
    tiny = np.log1p(np.exp(-20.0))
    np.testing.assert_allclose(each.numpy(), [0, 0, 0, 0, tiny, tiny, 500], rtol=1e-6)
    each.sum().backward()
    assert x.grad is not None
    slope = 1 / (1 + np.exp(20.0))
    right = [0, 0, 0, 0, -slope, slope, 1]
    np.testing.assert_allclose(x.grad.numpy(), right, rtol=1e-5, atol=1e-12)


def test_weights_of_binary_cross_entropy() -> None:
    x, t = numbers(4, 3), likely(4, 3)
    w, p = likely(3), likely(3, seed=4) * 5
    got = nn.binary_cross_entropy_with_logits(
        Tensor(x), Tensor(t), Tensor(w), "none", Tensor(p)
    )
    right = p * t * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x)
    np.testing.assert_allclose(got.numpy(), right * w, rtol=1e-5)


def test_divergence_where_a_target_is_zero() -> None:
    x = Tensor([-np.inf, -1.0, -2.0], requires_grad=True)
    t = Tensor([0.0, 0.25, 0.75])
    loss = nn.kl_div(x, t, "sum")
    right = 0.25 * (np.log(0.25) + 1) + 0.75 * (np.log(0.75) + 2)
    np.testing.assert_allclose(loss.item(), right, rtol=1e-6)
    loss.backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [0, -0.25, -0.75])


def test_divergence_per_example() -> None:
    x, t = numbers(4, 5), likely(4, 5)
    got = nn.kl_div(Tensor(x), Tensor(t), "batchmean").item()
    right = (t * (np.log(t) - x)).sum() / 4
    np.testing.assert_allclose(got, right, rtol=1e-5)


def test_nll_is_cross_entropy_after_log_softmax() -> None:
    x, labels = Tensor(numbers(6, 5)), Tensor(np.array([0, 4, 2, 2, 1, 3]))
    for reduction in ("mean", "sum", "none"):
        got = nn.nll_loss(x.log_softmax(), labels, reduction).numpy()
        right = x.cross_entropy(labels, reduction=reduction).numpy()
        np.testing.assert_allclose(got, right, rtol=1e-5)


@pytest.mark.parametrize(
    "loss",
    [f for f, _ in LOSSES.values()],
)
def test_mistakes_are_named(loss: Loss) -> None:
    name = getattr(loss, "__name__", "")
    with pytest.raises(
        ValueError, match=rf"{name}: expected .*f32\[3\] and f32\[3, 1\]"
    ):
        loss(Tensor(numbers(3)), Tensor(numbers(3, 1)))
    with pytest.raises(ValueError, match=rf"{name}: expected a float .*i32\[3\]"):
        loss(Tensor([1, 2, 3], dtype="i32"), Tensor(numbers(3)))
    with pytest.raises(ValueError, match=rf"{name}: .*'mean', 'sum', 'none'.*'max'"):
        loss(Tensor(numbers(3)), Tensor(numbers(3)), reduction="max")


def test_other_mistakes() -> None:
    with pytest.raises(ValueError, match="above 0, got 0"):
        nn.huber_loss(Tensor([1.0]), Tensor([1.0]), delta=0)
    with pytest.raises(ValueError, match=r"nll_loss: .*f32\[3, 2\] and i\d\d\[2\]"):
        nn.nll_loss(Tensor(numbers(3, 2)), Tensor(np.array([0, 1])))
    with pytest.raises(ValueError, match="first axis"):
        nn.kl_div(Tensor(0.5), Tensor(0.5), "batchmean")

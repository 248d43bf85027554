"""Norms, convolutions, dropout and layers in a row, against their formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.nn import (
    SGD,
    Conv1d,
    Conv2d,
    Dropout,
    GroupNorm,
    LayerNorm,
    Linear,
    RMSNorm,
    Sequential,
    evaluate,
    parameters,
    train,
)
from uopc.tensor import Tensor

Array = np.ndarray[Any, Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def normed(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    x = x.astype(float)
    var = x.var(axes, keepdims=True)
    return np.asarray((x - x.mean(axes, keepdims=True)) / np.sqrt(var + eps))


@pytest.mark.parametrize("shape", [5, (5,), (3, 5)])
def test_layer_norm(shape: int | tuple[int, ...]) -> None:
    layer, x = LayerNorm(shape, eps=0.1), numbers(2, 3, 5)
    axes = (-1,) if isinstance(shape, int) else tuple(range(-len(shape), 0))
    w, b = numbers(*layer.shape, seed=1), numbers(*layer.shape, seed=2)
    got = layer(Tensor(x)).numpy()
    np.testing.assert_allclose(got, normed(x, axes, 0.1), rtol=1e-5, atol=1e-6)
    assert layer.weight is not None and layer.bias is not None
    layer.weight.assign(Tensor(w))
    layer.bias.assign(Tensor(b))
    got = layer(Tensor(x)).numpy()
    np.testing.assert_allclose(got, normed(x, axes, 0.1) * w + b, rtol=1e-5, atol=1e-5)


def test_layer_norm_has_what_is_asked_for() -> None:
    assert len(parameters(LayerNorm(3))) == 2
    assert len(parameters(LayerNorm(3, bias=False))) == 1
    assert not parameters(LayerNorm(3, affine=False))
    assert not parameters(RMSNorm(3, affine=False))
    assert not parameters(GroupNorm(1, 3, affine=False))


def test_rms_norm() -> None:
    layer, x = RMSNorm(5), numbers(4, 5)
    right = x / np.sqrt((x.astype(float) ** 2).mean(-1, keepdims=True) + 2**-23)
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), right, rtol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups: int) -> None:
    layer, x = GroupNorm(groups, 6), numbers(2, 6, 3, 4)
    w, b = numbers(6, seed=1), numbers(6, seed=2)
    assert layer.weight is not None and layer.bias is not None
    layer.weight.assign(Tensor(w))
    layer.bias.assign(Tensor(b))
    right = normed(x.reshape(2, groups, -1), (-1,), 1e-5).reshape(x.shape)
    right = right * w[:, None, None] + b[:, None, None]
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), right, rtol=1e-4, atol=1e-5)


def test_convolutions_are_those_of_tensor() -> None:
    x = numbers(2, 4, 9, 8)
    layer = Conv2d(4, 6, (3, 2), stride=2, padding=1, groups=2)
    assert layer.weight.shape == (6, 2, 3, 2)
    right = Tensor(x).conv2d(layer.weight, layer.bias, 2, 1, 1, 2)
    np.testing.assert_array_equal(layer(Tensor(x)).numpy(), right.numpy())
    bound = 1 / np.sqrt(2 * 3 * 2)
    for p in parameters(layer):
        assert 0.3 * bound < np.abs(p.numpy()).max() <= bound
    one = Conv1d(4, 3, 3, padding="same", dilation=2, bias=False)
    assert one.bias is None
    right = Tensor(x[..., 0]).conv1d(one.weight, None, 1, "same", 2)
    np.testing.assert_array_equal(one(Tensor(x[..., 0])).numpy(), right.numpy())


def test_layers_in_a_row_train() -> None:
    model = Sequential(
        Linear(3, 8), LayerNorm(8), Tensor.tanh, Dropout(0.1), Linear(8, 1)
    )
    assert len(model) == 5 and len(list(model)) == 5
    assert model[2] is Tensor.tanh
    assert [p.shape for p in parameters(model)] == [
        (8, 3),
        (8,),
        (8,),
        (8,),
        (1, 8),
        (1,),
    ]
    x = Tensor(numbers(32, 3))
    y = x.sum(-1, keepdim=True).sin()
    optimizer, losses = SGD(parameters(model), lr=0.1), []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward(optimizer.params)
        optimizer.step(loss)
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_dropout_keeps_the_mean() -> None:
    layer, x = Dropout(0.25), Tensor.ones(100, 200)
    y = layer(x).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    assert abs(y.mean() - 1) < 0.02
    assert (layer(x).numpy() != y).any()
    t = Tensor(np.ones(300, np.float32), requires_grad=True)
    kept = layer(t)
    kept.sum().backward([t])
    assert t.grad is not None
    np.testing.assert_array_equal(t.grad.numpy(), kept.numpy())  # its factors
    assert not Dropout(1.0)(x).numpy().any()
    assert Dropout(0.0)(x) is x


def test_models_are_told_whether_they_are_trained() -> None:
    class Model:
        def __init__(self) -> None:
            self.parts = {"a": [Dropout()], "b": Sequential(Dropout(), Tensor.relu)}
            self.training = True

    model = Model()
    x = Tensor.ones(50)
    assert evaluate(model) is model
    assert model.training is False
    first = model.parts["b"][0]
    assert first(x) is x
    assert train(model).training is True
    assert first(x) is not x


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "norm": (lambda: LayerNorm(4)(Tensor.ones(2, 3)), ValueError,
             r"LayerNorm: expected the last axes to be \(4,\), got f32\[2, 3\]"),
    "norm of nothing": (lambda: RMSNorm(0), ValueError, "lengths from 1, got 0"),
    "rms": (lambda: RMSNorm((2, 3))(Tensor.ones(3)), ValueError, r"\(2, 3\), got f32"),
    "group": (lambda: GroupNorm(2, 4)(Tensor.ones(2, 3)), ValueError, r"\(N, 4, \."),
    "groups": (lambda: GroupNorm(2, 3), ValueError, "2 groups do not divide 3"),
    "conv": (lambda: Conv2d(3, 4, 3, groups=2), ValueError, "do not divide 3 input"),
    "kernel": (lambda: Conv2d(3, 4, (3,)), ValueError, r"or 2; got \(3,\)"),
    "dropout": (lambda: Dropout(2), ValueError, "a probability, 0 to 1, got 2"),
    "row": (lambda: Sequential(3), TypeError, "layer 0 is a int"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()

"""Linear and Embedding against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from uopc.dtype import f32
from uopc.nn import Embedding, Linear
from uopc.tensor import Tensor


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (1, 2, 4)])
def test_linear_is_an_affine_map_of_the_last_axis(
    lead: tuple[int, ...], bias: bool
) -> None:
    layer = Linear(3, 4, bias=bias)
    x = numbers(*lead, 3)
    wanted = x.astype(float) @ layer.weight.numpy().astype(float).T
    if bias:
        assert layer.bias is not None
        wanted = wanted + layer.bias.numpy()
    out = layer(Tensor(x))
    assert out.shape == (*lead, 4)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_linear_without_bias_has_none() -> None:
    assert Linear(3, 4, bias=False).bias is None


def test_linear_takes_integers() -> None:
    layer = Linear(2, 3)
    out = layer(Tensor(np.array([[1, -2]], np.int32)))
    assert out.dtype is f32
    wanted = np.array([[1.0, -2.0]]) @ layer.weight.numpy().T + layer.bias.numpy()
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_linear_names_both_lengths_when_they_differ() -> None:
    with pytest.raises(ValueError, match=r"matmul: .*5.* inner lengths 5 and 3"):
        Linear(3, 4)(Tensor(numbers(2, 5)))


@pytest.mark.parametrize("inputs", [1, 16, 400])
def test_linear_starts_uniform_within_one_over_the_root_of_its_inputs(
    inputs: int,
) -> None:
    layer = Linear(inputs, 300)
    bound = 1 / math.sqrt(inputs)
    assert layer.weight.shape == (300, inputs)
    for drawn in (layer.weight.numpy(), layer.bias.numpy()):
        assert np.abs(drawn).max() <= bound
        # A uniform distribution over +-bound has this standard deviation.
        assert drawn.std() == pytest.approx(bound / math.sqrt(3), rel=0.15)
        assert abs(drawn.mean()) < 0.15 * bound


def test_layers_of_one_seed_are_equal_and_two_of_a_stream_are_not() -> None:
    first, second = Linear(4, 4), Linear(4, 4)
    Tensor.manual_seed(0)
    again = Linear(4, 4)
    np.testing.assert_array_equal(first.weight.numpy(), again.weight.numpy())
    np.testing.assert_array_equal(first.bias.numpy(), again.bias.numpy())
    assert (first.weight.numpy() != second.weight.numpy()).mean() > 0.9


@pytest.mark.parametrize(
    "make", [lambda: Linear(3, 2).weight, lambda: Linear(3, 2).bias,
             lambda: Embedding(3, 2).weight],
    ids=["linear weight", "linear bias", "embedding weight"],
)  # fmt: skip
def test_parameters_are_realized_leaves_that_want_gradients(make: object) -> None:
    p = make()  # type: ignore[operator]
    assert p.is_leaf
    assert p.requires_grad
    assert "lazy" not in repr(p)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_embedding_looks_rows_up(shape: tuple[int, ...], dtype: type) -> None:
    table = Embedding(7, 3)
    idx = np.random.default_rng(1).integers(0, 7, shape).astype(dtype)
    out = table(Tensor(np.asarray(idx)))
    assert out.shape == (*shape, 3)
    np.testing.assert_array_equal(out.numpy(), table.weight.numpy()[idx])


def test_embedding_gives_zeros_out_of_range() -> None:
    table = Embedding(3, 2)
    out = table(Tensor(np.array([3, -1, 2], np.int32))).numpy()
    np.testing.assert_array_equal(out[:2], np.zeros((2, 2)))
    np.testing.assert_array_equal(out[2], table.weight.numpy()[2])


def test_embedding_starts_normal_with_deviation_0_02() -> None:
    drawn = Embedding(200, 50).weight.numpy()
    assert drawn.std() == pytest.approx(0.02, rel=0.05)
    assert abs(drawn.mean()) < 1e-3


def test_embedding_gradient_adds_up_rows_looked_up_more_than_once() -> None:
    table = Embedding(4, 2)
    idx = np.array([1, 3, 1], np.int32)
    g = numbers(3, 2)
    (table(Tensor(idx)) * Tensor(g)).sum().backward([table.weight])
    wanted = np.zeros((4, 2))
    np.add.at(wanted, idx, g)
    np.testing.assert_allclose(table.weight.grad.numpy(), wanted, rtol=1e-6)


def test_embedding_refuses_floats() -> None:
    with pytest.raises(TypeError, match="Embedding needs an integer tensor, not f32"):
        Embedding(4, 2)(Tensor(numbers(3)))

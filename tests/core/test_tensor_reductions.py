"""Reductions over any axes, softmax, losses and matrix products against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from uopc.dtype import DTYPES, bf16, boolean, f32, f64, i8, i32, i64, promote, u8
from uopc.tensor import Tensor

ALL = tuple(DTYPES.values())
AXES: list[Any] = [None, 0, 1, 2, -1, -2, (0, 1), (0, 2), (-1, 0), (0, 1, 2), (),
                   [1, 2], np.int64(1)]  # fmt: skip


def data(dtype, shape=(2, 3, 4), seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    low, high = max(dtype.min, -50), min(dtype.max, 50)
    return rng.integers(low, high, shape, endpoint=True).astype(dtype.numpy)


def axes_of(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=repr)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var"])
def test_every_axis(name: str, axis: Any, keepdim: bool) -> None:
    x = data(f64)
    got = getattr(Tensor(x), name)(axis, keepdim)
    expected = getattr(np, name)(x, axis=axes_of(axis), keepdims=keepdim)
    assert got.dtype is f64
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var"])
def test_every_dtype(name: str, dtype) -> None:
    x = dtype.round(data(dtype))
    got = getattr(Tensor(x, dtype=dtype), name)(-1)
    kept = {"max", "min"} if dtype is boolean else {"sum", "prod", "max", "min"}
    if name in ("sum", "prod") and dtype is boolean:
        assert got.dtype is i32
    elif name in kept:
        assert got.dtype is dtype
    else:
        assert got.dtype is (dtype if dtype.is_float else f32)
    wide = x.astype(float) if dtype.is_float or name in ("mean", "var") else x
    numpy: dict[str, Any] = {"sum": np.add.reduce, "prod": np.multiply.reduce}
    if name in numpy:  # in the result's own type: integers wrap
        with np.errstate(all="ignore"):
            expected = numpy[name](wide, axis=-1, dtype=got.dtype.numpy)
    else:
        expected = getattr(np, name)(wide, axis=-1)
    # A half type is accumulated in f32 and rounded once.
    off = (2.0**-7 if dtype is bf16 else 2.0**-10) / 2 if dtype.is_half else 1e-5
    values = got.numpy().astype(float)
    np.testing.assert_allclose(values, expected, rtol=off, atol=1e-5)


@pytest.mark.parametrize("dtype", [i8, u8, i64], ids=str)
def test_extremes_of_integers(dtype) -> None:
    x = np.array([[dtype.min, dtype.max], [dtype.min, dtype.min + 1]], dtype.numpy)
    assert Tensor(x).min(1).tolist() == [dtype.min, dtype.min]
    assert Tensor(x).max(1).tolist() == [dtype.max, dtype.min + 1]


def test_nan_and_infinity() -> None:
    x = Tensor([[1.0, math.nan], [math.inf, -math.inf], [-0.0, 0.0]])
    np.testing.assert_array_equal(x.max(1).numpy(), [math.nan, math.inf, 0])
    np.testing.assert_array_equal(x.min(1).numpy(), [math.nan, -math.inf, 0])
    np.testing.assert_array_equal(x.sum(1).numpy(), [math.nan, math.nan, 0])


EMPTY = [("sum", 0.0), ("prod", 1.0), ("mean", math.nan), ("var", math.nan)]


@pytest.mark.parametrize(("name", "value"), EMPTY)
def test_over_nothing(name: str, value: float) -> None:
    x = Tensor.zeros(2, 0)
    np.testing.assert_array_equal(getattr(x, name)(1).numpy(), [value, value])
    np.testing.assert_array_equal(getattr(x, name)().numpy(), value)
    assert getattr(x, name)(0).shape == (0,)


def test_max_over_nothing_is_an_error_at_the_call() -> None:
    for name in ("max", "min"):
        with pytest.raises(ValueError, match="max over no elements"):
            getattr(Tensor.zeros(2, 0), name)(1)
        assert getattr(Tensor.zeros(2, 0), name)(0).shape == (0,)


def test_scalars_reduce_to_themselves() -> None:
    x = Tensor(3.0)
    for name in ("sum", "prod", "max", "min", "mean"):
        assert getattr(x, name)().item() == 3.0
        assert getattr(x, name)(keepdim=True).shape == ()
    assert x.var().item() == 0.0


def test_variance_is_of_the_population_and_stable() -> None:
    assert Tensor([1.0, 2.0, 3.0, 4.0]).var().item() == 1.25
    x = data(f64, (1000,)) + 1e6
    np.testing.assert_allclose(Tensor(x).var().item(), x.var(), rtol=1e-9)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_softmax(axis: int) -> None:
    x = data(f64) * 3
    got = Tensor(x).softmax(axis)
    np.testing.assert_allclose(got.numpy(), softmax(x, axis), rtol=1e-13)
    np.testing.assert_allclose(got.sum(axis).numpy(), 1, rtol=1e-14)
    logs = Tensor(x).log_softmax(axis).numpy()
    np.testing.assert_allclose(logs, np.log(softmax(x, axis)), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(
        Tensor(x).softmax().numpy(), Tensor(x).softmax(-1).numpy()
    )


def test_softmax_does_not_overflow() -> None:
    x = Tensor([[1000.0, 0.0, -1000.0], [-5000.0, -5000.0, -5000.0]])
    np.testing.assert_allclose(x.softmax().numpy(), [[1, 0, 0], [1 / 3] * 3], rtol=1e-6)
    np.testing.assert_allclose(
        x.log_softmax().numpy(), [[0, -1000, -2000], [-math.log(3)] * 3], rtol=1e-6
    )
    assert Tensor([3, 1]).softmax().dtype is f32


def test_one_hot() -> None:
    idx = np.array([[0, 3], [-1, 4]])
    for dtype in (np.int32, np.int64, np.int8):
        got = Tensor(idx.astype(dtype)).one_hot(4)
        assert got.dtype is f32
        expected = np.zeros((2, 2, 4), np.float32)
        expected[0, 0, 0] = expected[0, 1, 3] = 1
        np.testing.assert_array_equal(got.numpy(), expected)
    assert Tensor(np.zeros((2, 0), np.int32)).one_hot(3).shape == (2, 0, 3)
    assert Tensor(2).one_hot(3).tolist() == [0, 0, 1]
    assert Tensor(np.array([200], np.uint8)).one_hot(300).numpy().argmax() == 200
    with pytest.raises(TypeError, match="one_hot needs an integer tensor, not f32"):
        Tensor([1.0]).one_hot(3)


def test_cross_entropy_is_the_mean_over_labels() -> None:
    x, labels = data(f64, (5, 7)), np.array([0, 6, 2, 2, 3])
    expected = -np.log(softmax(x, 1))[np.arange(5), labels].mean()
    for dtype in (np.int32, np.int64, np.uint8):
        got = Tensor(x).cross_entropy(Tensor(labels.astype(dtype)))
        assert got.shape == ()
        np.testing.assert_allclose(got.item(), expected, rtol=1e-12)
    x, labels = data(f64, (2, 3, 4)), np.array([[0, 1, 2], [3, 3, 0]])
    picked = np.take_along_axis(np.log(softmax(x, 2)), labels[..., None], 2)
    got = Tensor(x).cross_entropy(Tensor(labels))
    np.testing.assert_allclose(got.item(), -picked.mean(), rtol=1e-12)
    assert math.isnan(Tensor.zeros(0, 3).cross_entropy(Tensor.arange(0)).item())


BAD_LABELS = [
    (Tensor([0.0, 1.0]), r"integer labels of shape \[2\], got f32\[2\]"),
    (Tensor([0, 1, 2]), r"logits f32\[2, 3\].*got i32\[3\]"),
    (Tensor([[0], [1]]), r"got i32\[2, 1\]"),
]


@pytest.mark.parametrize(("labels", "words"), BAD_LABELS)
def test_bad_labels(labels, words) -> None:
    with pytest.raises(ValueError, match=words):
        Tensor.zeros(2, 3).cross_entropy(labels)


PRODUCTS = [
    ((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)),
    ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 4)),
    ((1, 1), (1, 1)), ((2, 0), (0, 4)), ((0, 3), (3, 4)), ((2, 3), (3, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), PRODUCTS)
def test_matrix_products(a, b) -> None:
    x, y = data(f64, a), data(f64, b, 1)
    expected = x @ y
    for got in (Tensor(x) @ Tensor(y), Tensor(x).matmul(Tensor(y))):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("a", [i8, i32, u8, f32, f64], ids=str)
@pytest.mark.parametrize("b", [i8, i32, f32], ids=str)
def test_products_are_promoted(a, b) -> None:
    x, y = data(a, (2, 3)), data(b, (3, 2), 1)
    got = Tensor(x) @ Tensor(y)
    dtype = promote(a, b)
    assert got.dtype is dtype
    expected = x.astype(dtype.numpy) @ y.astype(dtype.numpy)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)


BAD_PRODUCTS = [
    ((2, 3), (4, 5), r"f32\[2, 3\] @ f32\[4, 5\]: inner lengths 3 and 4"),
    ((), (3,), r"f32\[\] @ f32\[3\]: both need at least one axis"),
    ((3,), (4,), "inner lengths 3 and 4"),
    (
        (2, 2, 3),
        (3, 3, 4),
        r"f32\[2, 2, 3\] @ f32\[3, 3, 4\].*\(2,\) and \(3,\) do not broadcast",
    ),
]


@pytest.mark.parametrize(("a", "b", "words"), BAD_PRODUCTS)
def test_bad_products(a, b, words) -> None:
    with pytest.raises(ValueError, match=words):
        Tensor.ones(*a) @ Tensor.ones(*b)


def test_a_product_with_something_else() -> None:
    with pytest.raises(TypeError, match=r"u64\[1, 1\] @ i8\[1, 1\]: .*no common"):
        Tensor(np.ones((1, 1), np.uint64)) @ Tensor(np.ones((1, 1), np.int8))
    with pytest.raises(TypeError, match="matmul: expected a Tensor, got ndarray"):
        Tensor.ones(2, 3) @ np.ones((3, 2))
    with pytest.raises(TypeError):
        np.ones((3, 2)) @ Tensor.ones(2, 3)


BAD_AXES = [
    (lambda t: t.sum(2), IndexError, r"axis 2 is out of range for shape \(2, 3\)"),
    (lambda t: t.max(-3), IndexError, "axis -3 is out of range"),
    (lambda t: t.mean((0, 5)), IndexError, "axis 5"),
    (lambda t: t.sum((0, 0)), ValueError, r"twice in \(0, 0\)"),
    (lambda t: t.sum((1, -1)), ValueError, r"twice in \(1, -1\)"),
    (lambda t: t.softmax(2), IndexError, "axis 2"),
    (lambda t: t.sum(0.5), TypeError, "float"),
]


@pytest.mark.parametrize(("call", "kind", "words"), BAD_AXES)
def test_bad_axes(call, kind, words) -> None:
    with pytest.raises(kind, match=words):
        call(Tensor.zeros(2, 3))

"""Positions of extremes, sorting and the largest few, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from uopc.dtype import DTYPES, boolean, f32, i32
from uopc.tensor import Tensor

NAN, INF = np.nan, np.inf


def with_ties(dtype, shape, seed: int = 0) -> np.ndarray:
    """Few different values, at the ends of the type too; of floats also NaN and inf."""
    rng = np.random.default_rng(seed)
    if dtype is boolean:
        return rng.integers(0, 2, shape).astype(bool)
    low, high = (-INF, INF) if dtype.is_float else (dtype.min, dtype.max)
    choices = [0, 1, 2, 3, low, high, *([NAN, -0.0] if dtype.is_float else [])]
    return rng.choice(np.array(choices, dtype.numpy), shape)


def order(x: np.ndarray, descending: bool) -> np.ndarray:
    """A stable order of the last axis, in which NaN is the largest."""
    if x.dtype.kind == "f":
        x = np.nan_to_num(x.astype(float), nan=2e300, posinf=1e300)
    if not descending:
        return np.argsort(x, -1, kind="stable")
    turned = np.argsort(x[..., ::-1], -1, kind="stable")[..., ::-1]
    return x.shape[-1] - 1 - turned


# Beyond 64 elements runs are merged: of 33 to 64 elements, in pairs.
LENGTHS = [0, 1, 2, 7, 64, 65, 100, 129, 300]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("n", LENGTHS)
def test_sorting(n: int, descending: bool) -> None:
    x = with_ties(f32, (3, n), n)
    right = order(x.astype(float), descending)
    t = Tensor(x)
    positions = t.argsort(descending=descending)
    assert positions.dtype is i32
    np.testing.assert_array_equal(positions.numpy(), right)
    got = t.sort(descending=descending).numpy()
    np.testing.assert_array_equal(
        got.view(np.int32), np.take_along_axis(x, right, 1).view(np.int32)
    )
    for k in {0, min(5, n), n}:
        values, places = t.topk(k, largest=descending)
        np.testing.assert_array_equal(places.numpy(), right[:, :k])
        np.testing.assert_array_equal(values.numpy(), got[:, :k])


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_type(dtype) -> None:
    x = with_ties(dtype, (2, 90))
    t = Tensor(x, dtype=dtype)
    x = t.numpy()
    for descending in (False, True):
        right = np.take_along_axis(x, order(x, descending), 1)
        sorted_ = t.sort(descending=descending)
        assert sorted_.dtype is dtype
        np.testing.assert_array_equal(sorted_.numpy(), right)
    np.testing.assert_array_equal(t.argmax(1).numpy(), x.argmax(1))
    np.testing.assert_array_equal(t.argmin(1).numpy(), x.argmin(1))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_every_axis(axis: int) -> None:
    x = with_ties(f32, (3, 70, 4), 1)
    x[np.isnan(x)] = 7
    t = Tensor(x)
    np.testing.assert_array_equal(t.sort(axis).numpy(), np.sort(x, axis))
    values, places = t.topk(2, axis)
    np.testing.assert_array_equal(
        values.numpy(), np.flip(np.sort(x, axis), axis).take([0, 1], axis)
    )
    np.testing.assert_array_equal(
        np.take_along_axis(x, places.numpy(), axis), values.numpy()
    )
    for name in ("argmax", "argmin"):
        for keepdim in (False, True):
            got = getattr(t, name)(axis, keepdim)
            right = getattr(x, name)(axis, keepdims=keepdim)
            np.testing.assert_array_equal(got.numpy(), right)


def test_the_first_of_equal_ones_and_of_nans() -> None:
    x = np.array([[1.0, NAN, 3, NAN], [5, 5, 0, 0], [-INF, -INF, -INF, -INF]])
    t = Tensor(x)
    assert t.argmax(1).tolist() == [1, 0, 0]
    assert t.argmin(1).tolist() == [1, 2, 0]
    assert t.argmax().dtype is i32
    assert (t.argmax().item(), t.argmin().item()) == (1, 1)
    assert t.argmax(keepdim=True).shape == (1, 1)
    assert Tensor(3.0).argmax().item() == 0


def test_what_is_wrong_is_said() -> None:
    t = Tensor.zeros(2, 0)
    for name in ("argmax", "argmin"):
        with pytest.raises(ValueError, match=rf"{name} over no elements.*f32\[2, 0\]"):
            getattr(t, name)(1)
        assert getattr(t, name)(0).shape == (0,)
    for k in (-1, 4):
        with pytest.raises(ValueError, match=r"topk: k must be from 0 to 3.*f32\[3\]"):
            Tensor.zeros(3).topk(k)
    for call in (Tensor.sort, Tensor.argsort, Tensor.argmax):
        with pytest.raises(IndexError, match="axis 1 is out of range"):
            call(Tensor.zeros(3), 1)
    with pytest.raises(IndexError):
        Tensor(1.0).sort()

"""Norms, spreads, cumulative sums and losses: values, conventions and errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from uopc.dtype import bf16, boolean, f16, f32, f64, i8, i32
from uopc.tensor import Tensor

NAN, INF = np.nan, np.inf
AXES: list[Any] = [None, 0, -1, (0, 2), ()]


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=repr)
def test_over_every_axis(axis: Any, keepdim: bool) -> None:
    x = data(2, 3, 4)
    t, where = Tensor(x), {"axis": axis, "keepdims": keepdim}
    pairs = [
        (t.norm(2, axis, keepdim), np.sqrt((x * x).sum(**where))),
        (t.norm(1, axis, keepdim), np.abs(x).sum(**where)),
        (t.norm(math.inf, axis, keepdim), np.abs(x).max(**where)),
        (t.std(axis, keepdim), x.std(**where)),
        (t.logsumexp(axis, keepdim), np.log(np.exp(x).sum(**where))),
    ]
    if axis != ():
        pairs.append((t.var(axis, keepdim, correction=1), x.var(ddof=1, **where)))
        pairs.append((t.std(axis, keepdim, correction=1), x.std(ddof=1, **where)))
    for got, right in pairs:
        assert got.shape == right.shape
        np.testing.assert_allclose(got.numpy(), right, rtol=1e-13, atol=1e-14)


def test_a_norm_neither_overflows_nor_underflows() -> None:
    for scale in (1e30, 1.0, 1e-30, 1e-43):
        x = np.array([3, -4, 0, 12], np.float32) * np.float32(scale)
        right = np.linalg.norm(x.astype(float))
        np.testing.assert_allclose(
            Tensor(x).norm().item(), right, rtol=3e-7, atol=2e-45
        )
    x = np.array([[1e30, -1e30], [1e-30, -1e-30]], np.float32)
    np.testing.assert_allclose(Tensor(x).std(1).numpy(), x[:, 0], rtol=3e-7)
    t = Tensor([[INF, 1.0], [NAN, 1.0], [0.0, 0.0]])
    for p in (1, 2, INF):
        np.testing.assert_array_equal(t.norm(p, 1).numpy(), [INF, NAN, 0])
        np.testing.assert_array_equal(Tensor.zeros(2, 0).norm(p, 1).numpy(), [0, 0])
    for p in (0, 3, -INF):
        with pytest.raises(ValueError, match=f"p must be 1, 2 or inf, not {p}"):
            t.norm(p)


def test_spread_far_from_zero_keeps_its_digits() -> None:
    x = (1e4 + data(1000)).astype(np.float32)
    right = x.astype(float)
    np.testing.assert_allclose(Tensor(x).var().item(), right.var(), rtol=1e-6)
    np.testing.assert_allclose(Tensor(x).std().item(), right.std(), rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_corrections_that_leave_nothing() -> None:
    for x, c in (([2.0], 1), ([2.0], 2), ([1.0, 2.0], 2), ([1.0, 2.0], 3)):
        t = Tensor(x)
        got = [t.var(correction=c).item(), t.std(correction=c).item()]
        np.testing.assert_array_equal(got, [np.var(x, ddof=c), np.std(x, ddof=c)])
    assert math.isnan(Tensor.zeros(0).std().item())


def test_softmax_at_the_ends() -> None:
    t = Tensor([[-INF, 1.0, 1.0], [-INF, -INF, -INF], [INF, 0.0, 0.0]])
    nans = [NAN] * 3
    np.testing.assert_array_equal(t.softmax().numpy(), [[0, 0.5, 0.5], nans, nans])
    logs = t.log_softmax().numpy()
    np.testing.assert_allclose(logs, [[-INF, -math.log(2), -math.log(2)], nans, nans])


@pytest.mark.parametrize("n", [0, 1, 16, 17, 64, 300])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans(name: str, n: int) -> None:
    x = data(2, n, 3) * 0.3 + 1
    for axis, y in ((1, x), (-2, x), (0, x.transpose(1, 0, 2))):
        got = getattr(Tensor(y), name)(axis).numpy()
        np.testing.assert_allclose(got, getattr(np, name)(y, axis), rtol=1e-12)
    y = np.arange(-3, n - 3).astype(np.int8)
    got = getattr(Tensor(y), name)()
    assert got.dtype is i8
    np.testing.assert_array_equal(got.numpy(), getattr(np, name)(y, dtype=np.int8))
    assert getattr(Tensor(y > 0), name)().dtype is i32


def test_scans_keep_nan_to_what_comes_after() -> None:
    x = np.ones(40, np.float32)
    x[20] = NAN
    for name in ("cumsum", "cumprod"):
        got = getattr(Tensor(x), name)().numpy()
        assert np.isfinite(got[:20]).all() and np.isnan(got[20:]).all()
    with pytest.raises(IndexError, match="axis 1"):
        Tensor(x).cumsum(1)


def test_long_sums_are_rounded_once() -> None:
    x = np.random.default_rng(1).random(200_000).astype(np.float32)
    right = np.cumsum(x.astype(float))
    off = np.abs(Tensor(x).cumsum().numpy() - right) / np.spacing(
        right.astype(np.float32)
    )
    assert off.max() <= 0.51
    for dtype in (f16, bf16):
        assert Tensor(np.full(500, 0.25), dtype=dtype).cumsum()[-1].item() == 125


# -- cross-entropy ------------------------------------------------------------


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("ignored", [-100, 2, None])
def test_cross_entropy(ignored: int | None, smoothing: float) -> None:
    x, labels = data(6, 4), np.array([0, 3, 2, -100, 2, 7])
    logp = log_softmax(x)
    each = np.zeros(6)
    for i, k in enumerate(labels):
        if 0 <= k < 4 and k != ignored:
            each[i] = -((1 - smoothing) * logp[i, k] + smoothing * logp[i].mean())
    n = (labels != ignored).sum() if ignored is not None else 6
    rights = {"none": each, "sum": each.sum(), "mean": each.sum() / n}
    for how, right in rights.items():
        for dtype in (np.int32, np.int64):
            given = Tensor(labels.astype(dtype))
            got = Tensor(x).cross_entropy(given, ignored, smoothing, how)
            np.testing.assert_allclose(got.numpy(), right, rtol=1e-12)


BAD = [
    ({"reduction": "avg"}, "mean, sum or none, not 'avg'"),
    ({"label_smoothing": 1.5}, "label_smoothing must be from 0 to 1, not 1.5"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_options_that_are_not_known(options, words) -> None:
    with pytest.raises(ValueError, match=words):
        Tensor.zeros(2, 3).cross_entropy(Tensor([0, 1]), **options)


def test_integers_and_bool_become_f32() -> None:
    for dtype in (i32, boolean):
        t = Tensor([1, 0, 1], dtype=dtype)
        for y in (t.norm(), t.std(), t.var(), t.logsumexp()):
            assert y.dtype is f32
    assert Tensor([1.0], dtype=f64).norm().dtype is f64
    assert Tensor([250.0] * 8, dtype=f16).norm().dtype is f16

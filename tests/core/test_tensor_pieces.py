"""Cutting, repeating, shifting, rounding and their like, as NumPy does them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.tensor import Tensor

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
SPECIAL = np.array(
    [
        *(0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 8388607.5, -4194304.5),
        *(1e30, math.inf, -math.inf, math.nan, 3.0, -7.0, 1e-42),
    ],
    np.float32,
)
MATRIX = RNG.standard_normal((4, 6)).astype(np.float32)
WHOLE = RNG.integers(-9, 9, (3, 4), np.int32)

Case = tuple[Callable[[Tensor], Tensor], Callable[[Array], Any]]
ELEMENTS: dict[str, Case] = {
    "floor": (Tensor.floor, np.floor),
    "ceil": (Tensor.ceil, np.ceil),
    "trunc": (Tensor.trunc, np.trunc),
    "round": (Tensor.round, np.round),
    "sign": (Tensor.sign, np.sign),
    "isnan": (Tensor.isnan, np.isnan),
    "isinf": (Tensor.isinf, np.isinf),
    "isfinite": (Tensor.isfinite, np.isfinite),
    "clamp": (lambda t: t.clamp(-2, 2.5), lambda x: np.clip(x, -2, 2.5)),
    "clamp low": (lambda t: t.clamp(min=1), lambda x: np.maximum(x, 1)),
    "clamp high": (lambda t: t.clip(max=0), lambda x: np.minimum(x, 0)),
    "clamp crossed": (lambda t: t.clamp(3, 1), lambda x: np.clip(x, 3, 1)),
}


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32])
def test_functions_of_elements(name: str, dtype: Any) -> None:
    of, right = ELEMENTS[name]
    with np.errstate(all="ignore"):
        x = SPECIAL.astype(dtype) if dtype is not np.int32 else WHOLE
        expected = np.asarray(right(x))
    got = of(Tensor(x)).numpy()
    np.testing.assert_array_equal(got, expected)
    if expected.dtype.kind == "f" and "clamp" not in name and name != "sign":
        assert (np.signbit(got) == np.signbit(expected))[~np.isnan(expected)].all()
        assert got.dtype == dtype


def test_python_rounds_by_the_same_functions() -> None:
    t = Tensor([1.5, -1.5])
    assert math.floor(t).tolist() == [1.0, -2.0]  # type: ignore[arg-type,attr-defined]
    assert math.ceil(t).tolist() == [2.0, -1.0]  # type: ignore[arg-type,attr-defined]
    assert math.trunc(t).tolist() == [1.0, -1.0]  # type: ignore[arg-type,attr-defined]


PIECES: dict[str, Case] = {
    "roll": (lambda t: t.roll(2, 1), lambda x: np.roll(x, 2, 1)),
    "roll back": (lambda t: t.roll(-9, 0), lambda x: np.roll(x, -9, 0)),
    "roll all": (lambda t: t.roll(5), lambda x: np.roll(x, 5)),
    "roll two": (
        lambda t: t.roll((1, -2), (0, 1)), lambda x: np.roll(x, (1, -2), (0, 1)),
    ),
    "tile": (lambda t: t.tile(2, 3), lambda x: np.tile(x, (2, 3))),
    "tile one": (lambda t: t.tile(2), lambda x: np.tile(x, 2)),
    "tile more": (lambda t: t.tile(3, 1, 2), lambda x: np.tile(x, (3, 1, 2))),
    "tile none": (lambda t: t.tile(0, 2), lambda x: np.tile(x, (0, 2))),
    "each": (lambda t: t.repeat_interleave(3, 0), lambda x: np.repeat(x, 3, 0)),
    "each of all": (lambda t: t.repeat_interleave(2), lambda x: np.repeat(x, 2)),
    "tril": (Tensor.tril, np.tril),
    "tril up": (lambda t: t.tril(2), lambda x: np.tril(x, 2)),
    "triu": (Tensor.triu, np.triu),
    "triu down": (lambda t: t.triu(-1), lambda x: np.triu(x, -1)),
    "diag": (lambda t: t.diag(), np.diag),
    "diag up": (lambda t: t.diag(2), lambda x: np.diag(x, 2)),
    "diag down": (lambda t: t.diag(-3), lambda x: np.diag(x, -3)),
    "diag outside": (lambda t: t.diag(9), lambda x: np.diag(x, 9)),
    "of a vector": (lambda t: t[1].diag(), lambda x: np.diag(x[1])),
    "vector up": (lambda t: t[1].diag(2), lambda x: np.diag(x[1], 2)),
    "vector down": (lambda t: t[1].diag(-1), lambda x: np.diag(x[1], -1)),
    "diff": (Tensor.diff, np.diff),
    "diff twice": (lambda t: t.diff(2, 0), lambda x: np.diff(x, 2, 0)),
    "diff to none": (lambda t: t.diff(7, 0), lambda x: np.diff(x, 7, 0)),
    "movedim": (lambda t: t.unsqueeze(0).movedim(0, -1), lambda x: x[..., None]),
    "ravel": (Tensor.ravel, np.ravel),
    "any": (lambda t: (t > 1).any(0), lambda x: (x > 1).any(0)),
    "all": (
        lambda t: (t > -1).all(-1, True), lambda x: (x > -1).all(-1, keepdims=True),
    ),
    "any number": (lambda t: (t * 0).any(), lambda x: np.False_),
    "unfold": (
        lambda t: t.unfold(1, 3, 2),
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2],
    ),
    "windows of rows": (
        lambda t: t.unfold(0, 2),
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PIECES)
def test_pieces(name: str) -> None:
    of, right = PIECES[name]
    np.testing.assert_array_equal(of(Tensor(MATRIX)).numpy(), right(MATRIX))


def test_splits() -> None:
    t = Tensor(MATRIX)
    for got, lengths in (
        (t.split(4, 1), [4, 2]),
        (t.split([1, 0, 5], -1), [1, 0, 5]),
        (t.chunk(4, 1), [2, 2, 2]),
        (t.chunk(3, 1), [2, 2, 2]),
        (t.chunk(9, 1), [1] * 6),
    ):
        assert [p.shape[1] for p in got] == lengths
        Tensor.realize_all(got)
        np.testing.assert_array_equal(
            np.concatenate([p.numpy() for p in got], 1), MATRIX
        )
    assert [p.shape for p in t.unbind(1)] == [(4,)] * 6
    np.testing.assert_array_equal(t.unbind()[2].numpy(), MATRIX[2])
    assert [p.shape for p in Tensor.zeros(0, 2).split(3)] == [(0, 2)]


def test_nothing_is_all_true_and_none_of_it() -> None:
    empty = Tensor.zeros(0, 3)
    assert empty.all().item() is True
    assert empty.any().item() is False
    assert empty.all(0).tolist() == [True] * 3
    assert empty.any(0, keepdim=True).tolist() == [[False] * 3]
    assert Tensor([math.nan, 0.0]).any().item() is True


def test_masked_fill_keeps_the_type() -> None:
    x = Tensor(WHOLE)
    got = x.masked_fill(x < 0, 7)
    assert got.dtype is x.dtype
    np.testing.assert_array_equal(got.numpy(), np.where(WHOLE < 0, 7, WHOLE))


def test_constructors() -> None:
    for count in (0, 1, 2, 7, 50):
        expected = np.linspace(-1, 3.3, count).astype(np.float32)
        got = Tensor.linspace(-1, 3.3, count)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-7, atol=1e-7)
    assert Tensor.linspace(0.1, 0.7, 3).numpy()[-1] == np.float32(0.7)
    np.testing.assert_array_equal(Tensor.eye(3, 4).numpy(), np.eye(3, 4))
    assert Tensor.eye(2, dtype="int32").tolist() == [[1, 0], [0, 1]]
    x, y = np.arange(3), np.arange(4)
    for how in ("ij", "xy"):
        for got, right in zip(
            Tensor.meshgrid(Tensor(x), Tensor(y), indexing=how),  # type: ignore[arg-type]
            np.meshgrid(x, y, indexing=how),  # type: ignore[call-overload]
            strict=True,
        ):
            np.testing.assert_array_equal(got.numpy(), right)


ERRORS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "split": (lambda t: t.split([1, 2], 1), r"\[1, 2\] does not add up to 6"),
    "split 0": (lambda t: t.split(0), "expected a length from 1, got 0"),
    "chunk": (lambda t: t.chunk(0), "expected a number from 1, got 0"),
    "roll": (lambda t: t.roll((1, 2), 0), "2 shifts for 1 axes"),
    "roll all": (lambda t: t.roll((1, 2)), "needs axes"),
    "tile": (lambda t: t.tile(-1), "expected numbers from 0"),
    "each": (lambda t: t.repeat_interleave(-1), "expected a count from 0"),
    "tril": (lambda t: t[0].tril(), r"two axes or more, got \(6,\)"),
    "diag": (lambda t: t.unsqueeze(0).diag(), r"one or two axes, got \(1, 4, 6\)"),
    "diff": (lambda t: t.diff(-1), "expected n from 0"),
    "unfold": (lambda t: t.unfold(0, 5), r"windows of 5 every 1 do not fit axis 0"),
    "clamp": (lambda t: t.clamp(), "give min, max, or both"),
    "linspace": (lambda t: t.linspace(0, 1, -1), "a count from 0, got -1"),
    "meshgrid": (lambda t: t.meshgrid(t[0], indexing="up"), "'ij' or 'xy', not 'up'"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        call(Tensor(MATRIX))

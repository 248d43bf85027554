"""What assign takes, what it frees, and that constants are data."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import DType, bf16, boolean, f16, f32, f64, i8, i32, u8
from uopc.runtime import buffers, realize, stats
from uopc.tensor import Tensor, realize_all


def held_bytes() -> int:
    gc.collect()
    return sum(a.nbytes for a in buffers._data.values())


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_one_plan_serves_all_values_of_a_number(wanted: bool, as_tensor: bool) -> None:
    x, rate = Tensor([1.0, 2.0]), Tensor(0.5, requires_grad=wanted).realize()
    before = stats()
    for k in range(8):
        rate.assign(Tensor(0.25 * k) if as_tensor else 0.25 * k)
        assert (x * rate).tolist() == [0.25 * k, 0.5 * k]
    assert (stats() - before).plans_made <= 1
    assert (stats() - before).native_calls == 8


@pytest.mark.parametrize("dtype", [bf16, f16, f32, f64, i8, i32, u8, boolean], ids=str)
@pytest.mark.parametrize("value", [0, 1, 0.1, -0.0, np.nan, np.inf, 1e-40, 77])
def test_constants_are_the_data_that_a_program_makes(value: Any, dtype: DType) -> None:
    if not dtype.is_float and not np.isfinite(value):
        return
    shape = (2, 3)
    lazy = Tensor(value, dtype=dtype).reshape(1, 1).expand(*shape)
    (made,) = realize([lazy.uop])
    before = stats()
    found = [lazy.realize(), Tensor.zeros(*shape, dtype=dtype).assign(value)]
    found.append(Tensor.zeros(*shape, dtype=dtype).assign(lazy))
    realize_all(found)
    assert (stats() - before).native_calls == 0
    for t in found:
        assert t.dtype is dtype
        assert t._memory().tobytes() == made.tobytes()


def test_a_number_is_cast_and_broadcast() -> None:
    assert Tensor([[1, 2], [3, 4]]).assign(2.7).tolist() == [[2, 2], [2, 2]]
    assert Tensor([True, False]).assign(3).tolist() == [True, True]
    w = Tensor([1.0, 2.0], requires_grad=True)
    assert w.assign(np.float64(0.5)).tolist() == [0.5, 0.5]
    assert w.requires_grad


def test_what_is_neither_tensor_nor_number_is_refused() -> None:
    t = Tensor([1.0, 2.0])
    for value in ([1.0, 2.0], "1", None):
        with pytest.raises(TypeError, match=r"assign\(f32\[2\]\): expected a Tensor"):
            t.assign(value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="wrap the NumPy array in a Tensor"):
        t.assign(np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(OverflowError, match="300"):
        Tensor([1], dtype=u8).assign(300)
    assert t.tolist() == [1.0, 2.0]


def test_data_that_replaces_data_frees_it_unless_it_is_read() -> None:
    n = 100_000
    t = Tensor(np.zeros(n, np.float32))
    start = held_bytes()
    for k in range(3):
        t.assign(Tensor(np.full(n, k, np.float32)))
        assert held_bytes() == start
    t.assign(4.0)
    assert held_bytes() == start
    reader = t + 1
    t.assign(5.0)
    assert reader.numpy()[0] == 5.0
    assert t.numpy()[-1] == 5.0


def test_constants_that_are_data_are_apart() -> None:
    a, b = Tensor.zeros(3).realize(), Tensor.zeros(3).realize()
    a.assign(a + 1)
    assert (a.tolist(), b.tolist()) == ([1.0] * 3, [0.0] * 3)
    a.assign(7)
    b.assign(a)
    a.assign(a * 2)
    assert (a.tolist(), b.tolist()) == ([14.0] * 3, [7.0] * 3)


# -- updates that nobody asked for --------------------------------------------


def test_an_update_that_fails_does_so_where_it_is_asked_for() -> None:
    w = Tensor([1.0, -1.0], requires_grad=True).realize()
    other = Tensor([1.0, 2.0])
    with overriding(UOPC_NANS=True):
        w.assign(w.detach().log())
        for _ in range(2):
            assert (other + 1).tolist() == [2.0, 3.0]
        for _ in range(2):
            with pytest.raises(FloatingPointError, match="log"):
                w.numpy()
        with pytest.raises(FloatingPointError, match="log"):
            (w + other).numpy()
    assert np.isnan(w.numpy()[1])
    assert w.numpy()[0] == 0


def test_what_is_computed_along_is_not_checked() -> None:
    p = Tensor([1.0, -1.0]).realize()
    logs = p.log()
    p.assign(p + (logs == 0).where(0.0, 1.0))
    with overriding(UOPC_NANS=True):
        assert p.tolist() == [1.0, 0.0]
    assert np.isnan(logs.numpy()[1])


def test_what_is_read_in_part_is_not_computed_along() -> None:
    p = Tensor(np.full((64, 64), 0.5, np.float32)).realize()
    for part in (lambda t: t[0], lambda t: t[:, 1:2], lambda t: t[[3]]):
        many = (p @ p).tanh()
        p.assign(p + part(many))
        p.realize()
        assert "lazy" in repr(many)
        assert many.shape == (64, 64)


def test_nothing_is_computed_along_for_memory_that_others_keep() -> None:
    p = Tensor(np.full((8, 8), 0.5, np.float32)).realize()
    for kept in (True, False):
        was = p.detach() if kept else None
        on_the_way = p.sum(0)
        p.assign(p + on_the_way)
        p.realize()
        assert ("lazy" in repr(on_the_way)) is kept
        del was

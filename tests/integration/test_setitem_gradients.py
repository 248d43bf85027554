"""Assignment to elements: derivatives, memory, jit, on both backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import grad, value_and_grad, vjp, vmap
from uopc.config import overriding
from uopc.runtime import buffer_data, jit
from uopc.runtime.values import held
from uopc.tensor import Tensor
from uopc.testing import check_vjp

Array = np.ndarray[Any, Any]
BACKENDS = ("interp", "c")
X = np.random.default_rng(0).uniform(-1, 1, (3, 4))
INDEX = np.array([2, 0, 2, -1, 7], np.int32)


def draws(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape)


# By name: a key, and the shape of what is assigned.
KEYS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "element": ((1, -1), ()),
    "row": (1, (4,)),
    "a number for a row": (1, ()),
    "column": ((slice(None), 2), (3,)),
    "window": ((slice(1, 3), slice(0, 2)), (2, 2)),
    "backward, by steps": ((slice(None, None, -2), slice(3, 0, -2)), (2, 2)),
    "new axis": ((None, slice(1), ...), (1, 1, 4)),
    "whole": (Ellipsis, (3, 1)),
    "one place of data": (np.array(-1, np.int32), (4,)),
    "rows, twice and out of range": (INDEX, (5, 4)),
    "rows, a number": (INDEX, ()),
    "data beside a slice": ((slice(None, None, -1), INDEX), (3, 5)),
    "elements": ((INDEX, INDEX[::-1]), (5,)),
    "mask": (X > 0, ()),
    "mask of columns": ((slice(1, None), X[0] > 0), (2, 1)),
}


@pytest.mark.parametrize("name", KEYS)
def test_derivatives_to_second_order(name: str) -> None:
    """By what stays, and by what is assigned, which are both used elsewhere too."""
    key, shape = KEYS[name]
    parts = key if isinstance(key, tuple) else (key,)
    arrays = [k for k in parts if isinstance(k, np.ndarray)]

    def call(x: Tensor, value: Tensor, *data: Tensor) -> Tensor:
        given = iter(data)
        where = tuple(next(given) if isinstance(k, np.ndarray) else k for k in parts)
        t = x.sin()
        before = t[...]
        t[where] = value * value
        return t * before + value.sum()

    with overriding(UOPC_OPT=0):
        check_vjp(call, [(X, draws(*shape), *arrays)], backends=BACKENDS)


def both(call: Callable[[], Any]) -> list[Any]:
    results = []
    for backend in BACKENDS:
        with overriding(UOPC_BACKEND=backend, UOPC_OPT=0):
            results.append(call())
    return results


def test_gradients_go_to_what_stays_and_to_the_value() -> None:
    def run() -> Any:
        w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
        v = Tensor([10.0, 20.0], requires_grad=True)
        t = w * w
        early = (t * 1.0).sum()
        t[1:] = v
        t[Tensor([0, 0])] = v * 3.0  # only the last of them shows
        assert t.requires_grad and not t.is_leaf
        (t * Tensor([1.0, 2.0, 3.0])).sum().backward()
        early.backward()
        assert w.grad is not None and v.grad is not None
        return w.grad.tolist(), v.grad.tolist()

    assert both(run) == [([2, 4, 6], [2, 6])] * 2


def test_before_and_after_a_value_is_read() -> None:
    def run(early: bool) -> list[float]:
        w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
        t = w * 2.0
        for k in range(3):
            t[k] = t[k] * t[k - 1]
            if early:
                t.realize()
        t.sum().backward()
        assert w.grad is not None
        return w.grad.tolist()  # type: ignore[no-any-return]

    # t = 4ac, 8abc, 16abcc
    want = [12 + 48 + 16 * 18, 24 + 16 * 9, 4 + 16 + 16 * 12]
    assert both(lambda: run(True)) == both(lambda: run(False)) == [want, want]


def test_plain_data_that_is_given_a_computed_value() -> None:
    """It is no leaf from then on; what asks for it by name need not require it."""
    w = Tensor([1.0, 2.0], requires_grad=True)
    t = Tensor(np.zeros((2, 2), np.float32))
    t[1] = w * 3.0
    assert t.requires_grad and not t.is_leaf
    t.realize()
    (t * t).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [18, 36]
    x, plain = Tensor([1.0, 2.0]), Tensor(np.zeros((2, 2), np.float32))
    plain[0] = x * 3.0
    assert not plain.requires_grad
    plain.realize()
    (plain * plain).sum().backward([x])
    assert x.grad is not None and x.grad.tolist() == [18, 36]


def test_no_gradient_goes_to_what_is_written_over() -> None:
    w = Tensor([0.0, 4.0], requires_grad=True)
    t = w.sqrt()  # its derivative at 0 is infinite
    t[0] = 5.0
    t.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [0, 0.25]


def test_inside_of_transforms() -> None:
    def f(x: Tensor, v: Tensor) -> Tensor:
        x = x[...]  # another tensor, for what is no argument of grad is the caller's
        x[1:] = v
        x[Tensor([0, 0])] *= Tensor([5.0, 3.0])
        return (x * x).sum()

    x, v = Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0])

    def run() -> Any:
        value, slope = value_and_grad(f)(x, v)
        by_v = grad(f, 1)(x, v)
        y, pullback = vjp(f, x, v)
        pulled = pullback(Tensor(1.0))
        return (
            value.item(), slope.tolist(), by_v.tolist(), y.item(),
            [p.tolist() for p in pulled],
        )  # fmt: skip

    found = [[18, 0, 0], [8, 10]]
    assert both(run) == [(50, found[0], found[1], 50, found)] * 2
    assert x.tolist() == [1, 2, 3]

    def g(row: Tensor, i: Tensor, v: Tensor) -> Tensor:
        t = row * 1.0
        t[i] = v
        return t

    rows, index = draws(3, 4), np.array([[0, 0], [3, 1], [-1, 9]])
    values = draws(3, 2)
    for found in both(
        lambda: vmap(g)(Tensor(rows), Tensor(index), Tensor(values)).numpy()
    ):
        want = rows.copy()
        for row, i, v in zip(want, index, values, strict=True):
            row[i[i < 4]] = v[i < 4]
        np.testing.assert_array_equal(found, want)


# -- where the new value lies -------------------------------------------------


def address(t: Tensor) -> int:
    buf = held(t.realize().uop)
    assert buf is not None
    return int(buffer_data(buf).ctypes.data)


WRITES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "window": ((slice(2, 50), slice(1, None, 3)), (48, 3)),
    "row": (3, (8,)),
    "a number": ((slice(None), -1), ()),
    "rows": (np.arange(-5, 15) % 7, (20, 8)),
    "mask": (np.arange(100) % 3 == 0, (8,)),
}


@pytest.mark.parametrize("name", WRITES)
def test_data_that_nobody_else_reads_is_written_in_place(name: str) -> None:
    key, shape = WRITES[name]
    where = Tensor(key) if isinstance(key, np.ndarray) else key

    def run() -> list[bool]:
        x = np.zeros((100, 8))
        t, stays = Tensor(x), []
        for reader in (None, "detach"):
            value, old = draws(*shape), address(t)
            alias = None if reader is None else t.detach()
            t[where], before = Tensor(value), x.copy()
            x[key] = value
            stays.append(address(t) == old)
            np.testing.assert_array_equal(t.numpy(), x)
            if alias is not None:
                np.testing.assert_array_equal(alias.numpy(), before)
        return stays

    assert both(run) == [[True, False]] * 2


def test_what_is_shifted_onto_itself_is_not_written_in_place() -> None:
    def run() -> Any:
        t = Tensor(np.arange(1000.0))
        old = address(t)
        t[1:] = t[:-1]
        return address(t) != old, t.numpy().sum()

    assert both(run) == [(True, np.arange(999.0).sum())] * 2


def test_state_of_a_jitted_function() -> None:
    def run() -> None:
        table, place = Tensor(np.zeros((4, 3), np.float32)), Tensor(0)

        @jit
        def step(x: Tensor) -> Tensor:
            table[place] = x
            table[:, 1] += 1.0
            place.assign((place + 1) % 4)
            return table.sum()

        want = np.zeros((4, 3), np.float32)
        for k in range(9):
            x = np.float32([k, k + 1, k + 2])
            total = step(Tensor(x))
            want[k % 4] = x
            want[:, 1] += 1
            assert total.item() == want.sum()
            if k in (1, 5):
                np.testing.assert_array_equal(table.numpy(), want)
        np.testing.assert_array_equal(table.numpy(), want)

    both(run)

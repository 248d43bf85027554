"""Gradients through gathers and scatters: by data, repeated, wrapped, left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import gradient
from uopc.autodiff.rules import RULES
from uopc.composite import scatter_add, square
from uopc.dtype import boolean, f32, f64, i32, i64, u8
from uopc.interp import evaluate
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 2))
SRC = RNG.standard_normal((3, 5, 2))
ROWS = Tensor(np.array([[1, -1, 1], [3, 0, -5]], np.int64))
COLUMNS = Tensor(np.array([[3, 3, -4], [0, 9, 1]], np.int32))
ALONG = Tensor(RNG.integers(-5, 5, (3, 5, 2)).astype(np.int8))

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: x[ROWS],
    "elements": lambda x: x[ROWS, COLUMNS],
    "beside slices": lambda x: x[:, COLUMNS, ::-1],
    "apart": lambda x: x[ROWS, :, 1],
    "first, with an integer": lambda x: x[-1, :, ROWS],
    "a new axis between": lambda x: x[ROWS, None, COLUMNS],
    "one row": lambda x: x[Tensor(-2)],
    "no rows": lambda x: x[Tensor(np.zeros((0, 2), np.int32))],
    "take": lambda x: x.take(ROWS, 2),
    "take all": lambda x: x.take(COLUMNS, None),
    "gather": lambda x: x.gather(1, ALONG),
    "take_along_axis": lambda x: x.take_along_axis(ALONG[:, :, :1], -2),
    "scatter_add to": lambda x: x.scatter_add(1, ALONG, Tensor(SRC)),
    "scatter_add of": lambda x: Tensor(SRC).scatter_add(1, ALONG[:, :4], x),
    "scatter_add of itself": lambda x: x.scatter_add(0, ALONG[:, :4], x),
    "twice": lambda x: x[ROWS].take(COLUMNS, 1),
    "scattered rows gathered": lambda x: x.scatter_add(1, ALONG[:, :4], x)[ROWS],
    "one-hot": lambda x: (ROWS % 3).one_hot(3) @ x.reshape(3, 8),
    "an index that depends on x": lambda x: x.flatten()[(x > 0).cast(i32) * 3 - 1],
}


def loss(f: Callable[[Tensor], Tensor], x: Tensor) -> UOp:
    """Something curved of the result, every element with a weight of its own."""
    y = f(x)
    weight = np.random.default_rng(1).standard_normal(y.shape)
    return (y.sin() * Tensor(weight)).sum().uop


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_differences_to_second_order(name: str) -> None:
    f, p = FUNCTIONS[name], UOp.param(4000, f64, X.shape)
    total = loss(f, Tensor(p))
    (first,) = gradient(total, [p])
    way = np.random.default_rng(2).standard_normal(X.shape)
    slope = (first * Tensor(way).uop).reduce(Ops.ADD, 3)
    (second,) = gradient(slope, [p])

    def at(u: UOp, x: Array) -> Array:
        leaves = {n: buffers[n] for n in toposort([u]) if n.op is Ops.BUFFER}
        return evaluate([u], {p: x, **leaves})[0]

    buffers = {
        n: _contents(n) for n in toposort([total, slope, second]) if n.op is Ops.BUFFER
    }
    step = 1e-5
    for graph, derivative in ((total, first), (slope, second)):
        ends = [at(graph, X + s * way) for s in (step, -step)]
        numeric = (ends[0] - ends[1]) / (2 * step)
        analytic = (at(derivative, X) * way).sum()
        assert analytic == pytest.approx(numeric, rel=1e-7, abs=1e-7)
    untouched = at(first, X) == 0
    moved = X + untouched * 0.3  # what has no gradient has no effect either
    if name != "an index that depends on x":
        assert at(total, moved) == pytest.approx(at(total, X), rel=1e-12)


def _contents(buf: UOp) -> Array:
    return Tensor(buf).numpy()


def test_the_rules_are_each_other() -> None:
    table, i = UOp.param(0, f32, (5, 3)), UOp.param(1, i32, (4,))
    g = UOp.param(2, f32, (4, 3))
    read = table.index(i)
    added = scatter_add(g, [i], (5,))
    assert RULES[Ops.INDEX](read, g) == (added, None)
    assert RULES[Ops.SCATTER_ADD](added, table) == (read, None)
    constant = table.index(1)
    (whole, _) = RULES[Ops.INDEX](constant, UOp.param(3, f32, (3,)))
    assert not any(u.op is Ops.SCATTER_ADD for u in toposort([whole]))


def test_the_rules_take_a_guard_in_place_of_a_cotangent() -> None:
    """Which elements are live: of a scatter any, of a gather each."""
    table, i = UOp.param(0, f32, (4, 2)), UOp.param(1, i32, (3,))
    live, rows = UOp.param(2, boolean, (3, 2)), UOp.param(3, boolean, (4, 2))
    read = table.index(i)
    back, _ = RULES[Ops.INDEX](read, live)
    forth, _ = RULES[Ops.SCATTER_ADD](scatter_add(read, [i], (4,)), rows)
    assert back is not None
    assert forth is not None
    values = {
        i: np.array([1, 1, 9], np.int32),
        live: np.array([[True, False], [True, False], [True, True]]),
        rows: np.array([[True, True], [False, True], [True, True], [True, True]]),
    }
    was, will = evaluate([back, forth], values)
    assert was.dtype == will.dtype == bool
    assert was.tolist() == [[False] * 2, [True, False], [False] * 2, [False] * 2]
    assert will.tolist() == [[False, True], [False, True], [False, False]]


def test_integers_have_no_gradient_and_stop_none() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    counts = Tensor([0, 0]).scatter_add(0, Tensor([1, 1]), (x > 0).cast(i32))
    assert counts.tolist() == [0, 2]
    assert not counts.requires_grad
    (x * counts).sum().backward([x])
    assert x.grad is not None
    assert x.grad.tolist() == [0, 2]


def test_composite_scatter_of_bools_is_any() -> None:
    g, i = UOp.param(0, boolean, (300,)), UOp.param(1, i64, (300,))
    for value in (True, False):
        given = {g: np.full(300, value), i: np.zeros(300, np.int64)}
        (got,) = evaluate([scatter_add(g, [i], (2,))], given)
        assert got.tolist() == [value, False]


def test_a_square_of_a_gather_is_twice_differentiable_by_hand() -> None:
    table, i = UOp.param(0, f64, (3,)), UOp.param(1, u8, (4,))
    total = square(table.index(i)).reduce(Ops.ADD, 1)
    (g,) = gradient(total, [table])
    (h,) = gradient(square(g).reduce(Ops.ADD, 1), [table])
    x, at = np.array([1.0, 2.0, 3.0]), np.array([0, 2, 2, 9], np.uint8)
    first, second = evaluate([g, h], {table: x, i: at})
    assert first.tolist() == [2, 0, 12]  # 2 n x
    assert second.tolist() == [8, 0, 96]  # 8 n^2 x

"""What has no single right answer: kinks, ties, seeds, targets, what stops."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from uopc.autodiff import gradient
from uopc.composite import absolute, relu, zeros_like
from uopc.dtype import DType, f32, f64, i32, i64, u8
from uopc.testing import buf
from uopc.uop import Ops, UOp

X, Y = UOp.param(0, f64, (3,)), UOp.param(1, f64, (3,))
XS = np.array([-2.0, 0.0, 3.0])


def at(checker: SimpleNamespace, u: UOp, **data: object) -> list[float]:
    """The value of ``u``; ``x`` and ``y`` are given by name."""
    leaves = {"x": X, "y": Y}
    given = {leaves[n]: np.asarray(v, np.float64) for n, v in data.items()}
    return checker.value(u, given).tolist()


# -- kinks and ties -----------------------------------------------------------

MINIMUM = -(-X).reduce(Ops.MAX, 1)
KINKS: dict[str, tuple[UOp, object, list[float]]] = {
    "relu at 0": (relu(X), XS, [0, 0, 1]),
    "relu at -0.0": (relu(X), [-0.0, 0.0, 1.0], [0, 0, 1]),
    "abs at 0": (absolute(X), XS, [-1, 0, 1]),
    "max with 0": (X.maximum(0.0), XS, [0, 0.5, 1]),
    "max from the right": (UOp(Ops.MAX, (X.const_like(0.0), X)), XS, [0, 0.5, 1]),
    "max(x, -x)": (X.maximum(-X), XS, [-1, 0, 1]),
    "max(x, x)": (X.maximum(X), XS, [1, 1, 1]),
    "max of two equal": (X.reduce(Ops.MAX, 1), [1, 3, 3], [0, 0.5, 0.5]),
    "max of three equal": (X.reduce(Ops.MAX, 1), [5, 5, 5], [1 / 3] * 3),
    "max of 0.0 and -0.0": (X.reduce(Ops.MAX, 1), [0.0, -0.0, -1], [0.5, 0.5, 0]),
    "max without a tie": (X.reduce(Ops.MAX, 1), [1, 4, 3], [0, 1, 0]),
    "min of two equal": (MINIMUM, [2, 1, 1], [0, 0.5, 0.5]),
    "min without a tie": (MINIMUM, [2, 1, 3], [0, 1, 0]),
}


@pytest.mark.parametrize("name", KINKS)
def test_a_kink(checker: SimpleNamespace, name: str) -> None:
    f, x, expected = KINKS[name]
    (g,) = gradient(f, [X])
    assert at(checker, g, x=x) == pytest.approx(expected, abs=1e-12)


def test_a_tie_of_two_operands_is_split_for_both(checker: SimpleNamespace) -> None:
    gx, gy = gradient(X.maximum(Y), [X, Y])
    data = {"x": [3, 2, 1], "y": [1, 2, 3]}
    assert at(checker, gx, **data) == [1, 0.5, 0]
    assert at(checker, gy, **data) == [0, 0.5, 1]


def test_ties_are_counted_per_group(checker: SimpleNamespace) -> None:
    x = UOp.param(0, f64, (2, 2, 2))
    data = {x: np.array([[[1, 1], [1, 0]], [[5, 5], [2, 5]]], float)}
    (rows,) = gradient(x.reduce(Ops.MAX, 1), [x])
    (groups,) = gradient(x.reduce(Ops.MAX, 2), [x])
    assert checker.value(rows, data).tolist() == [
        [[0.5, 0.5], [1, 0]],
        [[0.5, 0.5], [0, 1]],
    ]
    third = pytest.approx(1 / 3)
    assert checker.value(groups, data).reshape(2, 4).tolist() == [
        [third, third, third, 0],
        [third, third, 0, third],
    ]


def test_a_product_with_zeros_has_the_gradient_of_the_others(
    checker: SimpleNamespace,
) -> None:
    (g,) = gradient(X.reduce(Ops.MUL, 1), [X])
    assert at(checker, g, x=[2, 0, 3]) == [0, 6, 0]
    assert at(checker, g, x=[0, 0, 3]) == [0, 0, 0]


# -- what stops gradients -----------------------------------------------------


def _both(op: object) -> Callable[[UOp], UOp]:
    return lambda x: UOp(op, (x, x * 2.0))  # type: ignore[arg-type]


STOPS: dict[str, Callable[[UOp], UOp]] = {
    "less": lambda x: (x < x * 2.0).cast(f64),
    "not equal": lambda x: x.ne(x * 2.0).cast(f64),
    "floor division": _both(Ops.FLOORDIV),
    "cast to an integer and back": lambda x: x.cast(i32).cast(f64),
    "cast to bool and back": lambda x: (x > 0.0).cast(u8).cast(f64),
    "detach": lambda x: x.detach(),
    "detach below": lambda x: (x * x).detach().exp2(),
    "condition": lambda x: (x > 0.0).where(x.const_like(2.0), x.const_like(3.0)),
    "position": lambda x: (
        UOp(Ops.IOTA, (), 3).cast(f64) + (x * 0.0).cast(i32).cast(f64)
    ),
}


@pytest.mark.parametrize("name", STOPS)
def test_nothing_flows_through(name: str) -> None:
    (g,) = gradient(STOPS[name](X), [X])
    assert g is zeros_like(X)


@pytest.mark.parametrize("name", STOPS)
def test_a_factor_that_stops_gradients_is_a_constant(
    checker: SimpleNamespace, name: str
) -> None:
    factor = STOPS[name](X)
    (g,) = gradient(X * factor, [X])
    data = {X: np.array([-2.0, 0.25, 3.0])}
    assert checker.value(g, data).tolist() == checker.value(factor, data).tolist()


def test_a_condition_chooses_where_the_gradient_goes(checker: SimpleNamespace) -> None:
    gx, gy = gradient((X > Y).where(X * 2.0, Y * 5.0), [X, Y])
    data = {"x": [1, 2, 3], "y": [2, 2, 2]}
    assert at(checker, gx, **data) == [0, 0, 2]
    assert at(checker, gy, **data) == [5, 5, 0]


@pytest.mark.parametrize(("narrow", "wide"), [(f32, f64), (f64, f32)])
def test_a_float_cast_passes_the_gradient_in_the_type_of_its_source(
    narrow: DType, wide: DType
) -> None:
    x = buf(0, 3, narrow)
    seed = buf(1, 3, wide)
    (g,) = gradient(x.cast(wide), [x], seed)
    assert g is seed.cast(narrow)


def test_an_integer_index_gets_no_gradient_but_the_table_does() -> None:
    x = buf(0, 3)
    (g,) = gradient(x.index(UOp.const(1, i64)), [x])
    assert g.shape == (3,) and g is not zeros_like(x)


def test_a_contiguous_stage_passes_its_gradient() -> None:
    x, seed = buf(0, 3), buf(1, 3)
    (g,) = gradient(UOp(Ops.STAGE, (x,), "contiguous"), [x], seed)
    assert g is seed


# -- seeds and targets --------------------------------------------------------


def test_a_root_that_is_not_scalar_counts_as_its_sum() -> None:
    x = buf(0, 3)
    (whole,) = gradient(x.exp2(), [x])
    (summed,) = gradient(x.exp2().reduce(Ops.ADD, 1), [x])
    assert whole is summed


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,), (2, 0)])
def test_the_default_seed_is_ones_of_the_roots_shape(shape: tuple[int, ...]) -> None:
    x = UOp.param(0, f64, shape)
    (g,) = gradient(x * 3.0, [x])
    assert g is x.const_like(1.0) * x.const_like(3.0)


def test_a_seed_weights_the_outputs(checker: SimpleNamespace) -> None:
    (g,) = gradient(X * X, [X], Y)
    assert at(checker, g, x=[1, 2, 3], y=[1, 10, 100]) == [2, 40, 600]


def test_targets_come_back_in_order_and_as_often_as_asked() -> None:
    x, y = buf(0, 3), buf(1, 3)
    gy, gx, again = gradient(x * y, [y, x, y])
    assert gx is not gy and gy is again
    assert gradient(x * y, []) == []


def test_a_target_that_is_the_root_gets_the_seed() -> None:
    x = buf(0, 3)
    u = x * 2.0
    assert gradient(u, [u]) == [u.const_like(1.0)]
    assert gradient(x, [x]) == [x.const_like(1.0)]
    assert gradient(u, [u], x) == [x]


def test_a_target_may_be_a_result_and_its_sources_are_reached_through_it(
    checker: SimpleNamespace,
) -> None:
    h = X * X
    gh, gx = gradient(h * h * X, [h, X])
    assert at(checker, gh, x=[1, 2, 3]) == [2, 16, 54]  # 2 h x
    assert at(checker, gx, x=[1, 2, 3]) == [5, 80, 405]  # 5 x ** 4


def test_an_unrelated_target_gets_zeros_of_its_shape_and_type() -> None:
    z = UOp.param(7, f32, (4, 2))
    (g,) = gradient(X * X, [z])
    assert g is z.const_like(0.0)
    assert (g.op, g.shape, g.dtype) == (Ops.EXPAND, (4, 2), f32)


def test_a_scalar_unrelated_target_gets_a_bare_zero() -> None:
    (g,) = gradient(X * X, [UOp.param(7, f32)])
    assert g is UOp.const(0.0, f32)


@pytest.mark.parametrize("dtype", [f32, f64])
def test_gradients_have_the_type_of_their_target(dtype: DType) -> None:
    x = buf(0, 3, dtype)
    functions = [x.exp2(), x.log2(), x.sqrt(), x.sin(), x.recip(), x.maximum(-x), x / x]
    (g,) = gradient(UOp.stack(functions), [x])
    assert g.dtype is dtype


EMPTY: dict[str, Callable[[UOp], UOp]] = {
    "sum": lambda x: x.reduce(Ops.ADD, 1),
    "product": lambda x: x.reduce(Ops.MUL, 1),
    "expand": lambda x: x.reshape((1, 2, 0)).expand((4, 2, 0)),
    "slice": lambda x: x.shrink(((0, 1), (0, 0))),
    "square": lambda x: x * x,
    "stack": lambda x: UOp.stack([x, x]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_arrays_without_elements_have_gradients_without_elements(
    checker: SimpleNamespace, name: str
) -> None:
    x = UOp.param(0, f64, (2, 0))
    (g,) = gradient(EMPTY[name](x), [x])
    assert checker.value(g, {x: np.zeros((2, 0))}).shape == (2, 0)


def test_an_empty_window_leaves_zeros(checker: SimpleNamespace) -> None:
    (g,) = gradient(X.shrink(((1, 1),)), [X])
    assert at(checker, g) == [0, 0, 0]
    (g,) = gradient(X.reshape((3, 1)).expand((3, 0)), [X])
    assert at(checker, g) == [0, 0, 0]

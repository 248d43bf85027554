"""Gradients of the functions of elements: by differences, at kinks and at infinity."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from uopc import composite
from uopc.autodiff import gradient
from uopc.dtype import DType, f32, f64
from uopc.interp import evaluate
from uopc.tensor import Tensor
from uopc.uop import UOp

INF, NAN = math.inf, math.nan

SMOOTH: dict[str, Callable[[UOp], UOp]] = {
    name: getattr(composite, name)
    for name in ("exp", "tanh", "sigmoid", "softplus", "logsigmoid", "silu", "gelu")
}
# Both sides of every change of formula, and around 0.
SOMEWHERE = np.array([-6.5, -2.0, -0.7, -0.05, 0.02, 0.4, 1.5, 7.0])


@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_function_to_second_order(name: str, checker: SimpleNamespace) -> None:
    checker.check(SMOOTH[name], [SOMEWHERE], None, {})


@pytest.mark.parametrize("name", ["log", "log1p"])
def test_a_logarithm_to_second_order(name: str, checker: SimpleNamespace) -> None:
    checker.check(getattr(composite, name), [np.array([0.5, 0.9, 1.1, 8.0])], None, {})


def derivatives(f: Callable[[UOp], UOp], x: object, dtype: DType = f64) -> list[object]:
    """The first and second derivative of ``f`` at each of some numbers."""
    data = np.asarray(x, dtype.numpy)
    p = UOp.param(0, dtype, data.shape)
    (first,) = gradient(f(p), [p])
    (second,) = gradient(first, [p])
    return [v.tolist() for v in evaluate([first, second], {p: data})]


FAR = [-INF, -1e30, -1000.0, -200.0, 200.0, 1000.0, 1e30, INF]
LEFT, RIGHT, NEVER = [1.0] * 4 + [0.0] * 4, [0.0] * 4 + [1.0] * 4, [0.0] * 8
# First derivatives; all second ones are 0.
ENDS = {
    "tanh": NEVER, "sigmoid": NEVER, "softplus": RIGHT, "logsigmoid": LEFT,
    "silu": RIGHT, "gelu": RIGHT, "relu": RIGHT, "absolute": [-1.0] * 4 + [1.0] * 4,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("name", ENDS)
def test_far_from_zero_derivatives_are_their_limits(name: str, dtype: DType) -> None:
    first, second = derivatives(getattr(composite, name), FAR, dtype)
    np.testing.assert_allclose(first, ENDS[name], rtol=0, atol=1e-80)
    np.testing.assert_allclose(second, NEVER, rtol=0, atol=1e-80)


# At 0.0 and at -0.0: the first and the second derivative.
AT_ZERO = {
    "exp": (1, 1), "tanh": (1, 0), "sigmoid": (0.25, 0), "softplus": (0.5, 0.25),
    "logsigmoid": (0.5, -0.25), "silu": (0.5, 0.5), "log1p": (1, -1),
    "gelu": (0.5, math.sqrt(2 / math.pi)), "relu": (0, 0), "absolute": (0, 0),
    "square": (0, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_ZERO)
def test_at_zero_both_pieces_of_a_formula_meet(name: str) -> None:
    first, second = derivatives(getattr(composite, name), [0.0, -0.0])
    assert first == pytest.approx([AT_ZERO[name][0]] * 2, abs=1e-15)
    assert second == pytest.approx([AT_ZERO[name][1]] * 2, abs=1e-15)


POLES = {
    "log at 0": (composite.log, 0.0, INF, -INF),
    "log at inf": (composite.log, INF, 0, 0),
    "log1p at -1": (composite.log1p, -1.0, INF, -INF),
    "exp at -inf": (composite.exp, -INF, 0, 0),
    "exp at inf": (composite.exp, INF, INF, INF),
    "sqrt at 0": (lambda x: x.sqrt(), 0.0, INF, -INF),
    "sqrt at inf": (lambda x: x.sqrt(), INF, 0, 0),
    "recip at inf": (lambda x: x.recip(), INF, 0, 0),
}


@pytest.mark.parametrize("name", POLES)
def test_infinite_slopes_show_and_flat_ends_are_flat(name: str) -> None:
    f, x, *expected = POLES[name]
    assert derivatives(f, x) == expected


# -- powers -------------------------------------------------------------------


def test_a_power_to_second_order(checker: SimpleNamespace) -> None:
    x, y = np.array([0.3, 0.9, 1.0, 1.7, 4.0]), np.array([2.5, -1.3, 0.6, 3.0, -2.0])
    checker.check(composite.power, [x, y], None, {})
    checker.check(lambda v: composite.power(v, v), [x], None, {})


def slopes(x: float, y: float) -> tuple[float, float]:
    """The derivatives of x ** y by x and by y."""
    p, q = UOp.param(0, f64), UOp.param(1, f64)
    grads = gradient(composite.power(p, q), [p, q])
    by_x, by_y = evaluate(grads, {p: np.float64(x), q: np.float64(y)})
    return float(by_x), float(by_y)


# x, y: the derivative by x, by y.
POWERS = [
    (0.0, 0.0, 0, 0),
    (0.0, 0.5, INF, 0),
    (0.0, 1.0, 1, 0),
    (0.0, 2.0, 0, 0),
    (0.0, 3.5, 0, 0),
    (-0.0, 1.0, 1, 0),
    (-0.0, 2.0, 0, 0),
    (0.0, -1.0, -INF, -INF),
    (2.0, 0.0, 0, math.log(2)),
    (INF, 0.0, 0, INF),
    (NAN, 0.0, 0, NAN),
    (2.0, 3.0, 12, 8 * math.log(2)),
    (-2.0, 3.0, 12, NAN),
    (-2.0, 2.0, -4, NAN),
    (-2.0, -1.0, -0.25, NAN),
    (-2.0, 0.0, 0, NAN),
    (-2.0, 0.5, NAN, NAN),
    (INF, -1.0, 0, 0),
    (INF, 2.0, INF, INF),
    (0.5, INF, NAN, 0),
    (1.0, 5.0, 5, 0),
]


@pytest.mark.parametrize(("x", "y", "by_x", "by_y"), POWERS)
def test_slopes_of_powers(x: float, y: float, by_x: float, by_y: float) -> None:
    np.testing.assert_allclose(slopes(x, y), (by_x, by_y), rtol=1e-14)


def constant(y: float) -> Callable[[UOp], UOp]:
    return lambda p: (Tensor(p) ** y).uop


@pytest.mark.parametrize("y", [0, 1, 2, 3, 4, 5, 7, 2.5, 6.0])
@pytest.mark.parametrize("x", [0.0, -0.0])
def test_whole_and_large_constant_powers_at_zero(x: float, y: float) -> None:
    """y * x ** (y - 1) and so on, each 0 from where its factor is 0."""
    first, second = derivatives(constant(y), x)
    assert first == (1 if y == 1 else 0)
    assert second == (2 if y == 2 else 0)


@pytest.mark.parametrize("y", [-3, -2, -1, 0, 1, 2, 3, 4, 5, 10, 0.5, -0.5, 2.5])
def test_constant_powers(y: float) -> None:
    """All ways in which a constant power is computed have its derivatives."""
    x = np.array([0.25, 1.0, 3.0])
    first, second = derivatives(constant(y), x)
    np.testing.assert_allclose(first, y * x ** (y - 1.0), rtol=1e-13, atol=1e-13)
    expected = y * (y - 1) * x ** (y - 2.0)
    np.testing.assert_allclose(second, expected, rtol=1e-13, atol=1e-13)


def test_powers_of_negative_bases_have_derivatives() -> None:
    for y in (2, 3, 5, -2):
        (first, second) = derivatives(constant(y), -2.0)
        assert first == pytest.approx(y * (-2.0) ** (y - 1))
        assert second == pytest.approx(y * (y - 1) * (-2.0) ** (y - 2))


def test_exponents_of_a_number() -> None:
    x = Tensor([0.0, 1.0, -2.0], requires_grad=True)
    (2.0**x).sum().backward([x])
    expected = math.log(2) * 2.0 ** np.array([0, 1, -2])
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6)
    zero = Tensor([0.0, 1.0, 2.0], requires_grad=True)
    (0.0**zero).sum().backward([zero])
    assert zero.grad.tolist() == [0, 0, 0]


def test_gradients_of_tensors_to_tensors_are_summed_where_they_broadcast() -> None:
    x = Tensor([[1.0], [2.0]], requires_grad=True)
    y = Tensor([2.0, 3.0, 0.0], requires_grad=True)
    (x**y).sum().backward([x, y])
    assert x.grad.tolist() == [[5], [16]]
    expected = np.log(2) * np.array([4, 8, 1])
    np.testing.assert_allclose(y.grad.numpy(), expected, rtol=1e-6)

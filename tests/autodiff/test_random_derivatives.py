"""Random graphs to order 2, in reverse and forward mode, against differences."""

import math

import numpy as np
import pytest

from uopc.autodiff import gradient
from uopc.autodiff.forward import tangents
from uopc.dtype import f32, f64
from uopc.interp import evaluate
from uopc.testing import random_graph
from uopc.testing.derivatives import Derivatives, along, by_differences, derive
from uopc.testing.frozen import differences_of
from uopc.uop import Ops, UOp, toposort

SEEDS = range(150)
TOLERANCE = 1e-8
DOUBT = 1e-5  # of the differences themselves, from where on they show nothing

SECOND = ("second", "forward over reverse", "reverse over forward")


def wrong_parts(d: Derivatives) -> tuple[list[str], int]:
    """The parts that differ from the differences, and how many say nothing."""
    values = d.arrays(evaluate(d.nodes(), dict(d.data)))
    wrong, open_ = [], 0
    narrow = any(u.dtype is f32 for u in toposort(d.graph.roots))
    for order, names in ((1, ("first",)), (2, SECOND)):
        truth = by_differences(d, order)
        for name in names:
            found, scale = along(d, values[name])
            allowed = (1e-4 if narrow else TOLERANCE) * (1 + scale) + 10 * truth.doubt
            if truth.doubt > DOUBT * (1 + scale):
                open_ += 1
            elif not abs(found - truth.value) <= allowed:
                wrong.append(f"{name}: {found}, differences give {truth}")
    return wrong, open_


@pytest.mark.parametrize("tens", range(0, len(SEEDS), 10))
def test_derivatives_are_those_of_differences(tens: int) -> None:
    open_ = 0
    for seed in SEEDS[tens : tens + 10]:
        g = random_graph(seed, differentiable=True)
        wrong, unclear = wrong_parts(derive(g, gradient, tangents))
        assert not wrong, f"{wrong}\n{g.text()}"
        open_ += unclear
    assert open_ <= 4


def test_every_differentiable_op_and_selection_occurs() -> None:
    graphs = [random_graph(seed, differentiable=True) for seed in range(400)]
    ops = {u.op for g in graphs for u in toposort(g.roots)}
    assert {op.name for op in (Ops.WHERE, Ops.MAX, Ops.INDEX, Ops.SQRT, Ops.LOG)} <= {
        op.name for op in ops
    }
    unused = dead = 0
    for g in graphs:
        read = set(toposort(g.roots))
        unused += any(t not in read for t in g.inputs)
        values = evaluate([*read], dict(g.inputs))
        dead += any(x.dtype.kind == "f" and not np.isfinite(x).all() for x in values)
        for root, (value, _) in zip(g.roots, g.expected, strict=True):
            assert root.dtype is f64
            assert np.isfinite(value).all()
    assert unused > 20
    assert dead > 20


def test_differences_are_right_to_many_digits() -> None:
    f = lambda t: np.exp(np.sin(np.longdouble(3) * np.longdouble(t)))  # noqa: E731
    assert differences_of(f, 1).value == pytest.approx(3, abs=1e-9)
    assert differences_of(f, 2).value == pytest.approx(9, abs=1e-7)


def test_what_a_where_did_not_take_has_no_derivative() -> None:
    """The ends of what is compared: infinite outside the branch, exact inside."""
    x = UOp.buffer(3, f64, 0)
    y = (x > 0).where(x.sqrt() * x.log2(), x.const_like(0))
    (g,) = gradient(y, [x])
    (value,) = evaluate([g], {x: np.array([0.0, -1.0, 4.0])})
    expected = 2 / 4 + 2 / (4 * math.log(2))
    np.testing.assert_allclose(value, [0, 0, expected], rtol=1e-12)


@pytest.mark.parametrize("x", [0.5, 3.0, -2.0])
def test_the_exponent_0_has_a_mixed_derivative(x: float) -> None:
    """d/dx is y * x ** (y - 1), which is 0 at y = 0 but grows there with 1 / x."""
    p, q = UOp.param(0, f64), UOp.param(1, f64)
    (by_x,) = gradient(UOp(Ops.POW, (p, q)), [p])
    (mixed,) = gradient(by_x, [q])
    point = {p: np.float64(x), q: np.float64(0)}
    first, second = evaluate([by_x, mixed], point)
    assert first == 0
    if x > 0:  # otherwise x ** y has no derivative by y
        assert second == pytest.approx(1 / x)


def test_a_wrong_gradient_is_noticed() -> None:
    def twice(root: UOp, targets: list[UOp]) -> list[UOp]:
        return [g * 2.0 for g in gradient(root, targets)]

    noticed = sum(
        bool(
            wrong_parts(derive(random_graph(s, differentiable=True), twice, tangents))[
                0
            ]
        )
        for s in range(10)
    )
    assert noticed > 5

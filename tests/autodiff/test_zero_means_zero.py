"""What a selection leaves out gets a gradient of exactly zero, whatever lies below.

And nothing else does: NaN on the path that was taken still shows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uopc.autodiff import gradient, tangents
from uopc.composite import pad, spread
from uopc.dtype import boolean, f64, i32
from uopc.interp import evaluate
from uopc.uop import Ops, UOp, toposort

X = UOp.param(900, f64, (4,))
V = UOp.param(901, f64, (4,))
MASK = UOp.param(902, boolean, (4,))
AT = np.array([-1.0, 0.0, 0.0, 4.0])
ALONG = np.array([1.0, 2.0, -3.0, 0.5])
POSITIVE = X > 0.0
ZERO = X.const_like(0.0)
ZERO_ONE = (X > 1.0).where(X.const_like(1.0), ZERO)


def log(u: UOp) -> UOp:
    return UOp(Ops.LOG, (u,))


def total(u: UOp) -> UOp:
    return u.reduce(Ops.ADD, len(u.shape)) if u.shape else u


def norm(u: UOp) -> UOp:
    return (u * u).reduce(Ops.ADD, 1).sqrt()


def guarded_norm(u: UOp) -> UOp:
    return (u * u).reduce(Ops.ADD, 1).ne(0.0).where(norm(u), UOp.const(0.0, f64))


def unit(u: UOp) -> UOp:
    n = spread(norm(u), u.shape)
    return n.ne(0.0).where(u / n, u.const_like(0.0))


def where_positive(u: UOp) -> UOp:
    return POSITIVE.where(u, ZERO)


# Functions of X, and their first derivatives at AT as far as they are finite: the
# second is compared between the modes, where all of it must be finite.
FUNCTIONS: dict[str, tuple[Callable[[], UOp], list[float]]] = {
    "sqrt": (lambda: where_positive(X.sqrt()), [0, 0, 0, 0.25]),
    "log": (lambda: where_positive(log(X)), [0, 0, 0, 0.25]),
    "log2": (lambda: where_positive(X.log2()), [0, 0, 0, 0.25 / np.log(2)]),
    "recip": (lambda: where_positive(X.recip()), [0, 0, 0, -1 / 16]),
    "quotient": (lambda: where_positive(X / X), [0, 0, 0, 0]),
    "product": (lambda: where_positive(X.recip() * X * X), [0, 0, 0, 1]),
    "the other branch": (
        lambda: POSITIVE.logical_not().where(ZERO, X.sqrt()),
        [0, 0, 0, 0.25],
    ),
    "sqrt of a selection": (lambda: where_positive(X).sqrt(), [0, 0, 0, 0.25]),
    "nested": (
        lambda: where_positive((X > 1.0).where(X.sqrt() * log(X), X)),
        [0, 0, 0, np.log(4) / 4 + 0.5],
    ),
    "both branches": (
        lambda: POSITIVE.where((X > 1.0).where(X.sqrt(), X), where_positive(log(X))),
        [0, 0, 0, 0.25],
    ),
    "maximum": (
        lambda: where_positive(X.sqrt().maximum(1.0)),
        [0, 0, 0, 0.25],
    ),
    "window": (lambda: X.sqrt().shrink([(3, 4)]), [0, 0, 0, 0.25]),
    "element": (lambda: X.sqrt().index(3), [0, 0, 0, 0.25]),
    "gathered": (
        lambda: X.sqrt().index(UOp.stack([UOp.const(k, i32) for k in (3, 3)])),
        [0, 0, 0, 0.5],
    ),
    "largest": (lambda: (X * X).sqrt().reduce(Ops.MAX, 1), [0, 0, 0, 1]),
    "sqrt of the largest": (
        lambda: (X * ZERO_ONE).reduce(Ops.MAX, 1).sqrt(),
        [0, 0, 0, 0.25],
    ),
    "through views": (
        lambda: where_positive(
            X.sqrt().reshape((2, 2)).permute((1, 0)).permute((1, 0)).reshape((4,))
        ),
        [0, 0, 0, 0.25],
    ),
    "through a sum": (
        lambda: (
            POSITIVE.reshape((4, 1)).expand((4, 3)).where(
                X.sqrt().reshape((4, 1)).expand((4, 3)), UOp.const(0.0, f64)
                .broadcast_scalar((4, 3)),
            )
        ),
        [0, 0, 0, 0.75],
    ),
    "padded": (
        lambda: pad(where_positive(X.sqrt()), [(1, 2)]).sin(),
        [0, 0, 0, 0.25 * np.cos(2)],
    ),
    "beside itself": (
        lambda: where_positive(X.sqrt()) + where_positive(log(X)),
        [0, 0, 0, 0.5],
    ),
}  # fmt: skip


def values(roots: list[UOp], at: np.ndarray = AT) -> list[np.ndarray]:
    given = {X: at, V: ALONG, MASK: np.array([True, False, True, True])}
    with np.errstate(all="ignore"):
        return evaluate(roots, given)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_untaken_branch_adds_exactly_nothing(name: str) -> None:
    build, right = FUNCTIONS[name]
    (g,) = gradient(total(build()), [X])
    (found,) = values([g])
    np.testing.assert_allclose(found, right, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_and_forward_mode_as_well(name: str) -> None:
    y = total(FUNCTIONS[name][0]())
    (g,) = gradient(y, [X])
    (slope,) = tangents([y], [X], [V])
    (forward_over_reverse,) = tangents([g], [X], [V])
    (reverse_over_reverse,) = gradient(total(g * V), [X])
    (reverse_over_forward,) = gradient(slope, [X])
    (forward_over_forward,) = tangents([slope], [X], [V])
    g0, s0, fr, rr, rf, ff = values(
        [g, slope, forward_over_reverse, reverse_over_reverse, reverse_over_forward,
         forward_over_forward]
    )  # fmt: skip
    assert np.isfinite([*g0, s0, *fr, ff]).all()
    np.testing.assert_allclose(s0, g0 @ ALONG, rtol=1e-13)
    for other in (rr, rf):
        np.testing.assert_allclose(other, fr, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(ff, fr @ ALONG, rtol=1e-13, atol=1e-15)
    assert (fr[:3] == 0).all()


@pytest.mark.parametrize("function", [guarded_norm, unit])
def test_a_norm_guarded_by_where(function: Callable[[UOp], UOp]) -> None:
    y = function(X)
    (g,) = gradient(total(y), [X])
    (h,) = gradient(total(g * V), [X])
    (t,) = tangents([total(y)], [X], [V])
    for found in values([g, h, t], np.zeros(4)):
        assert (found == 0).all()
    found = values([g, h, t], AT)
    assert all(np.isfinite(a).all() for a in found)


def test_log_of_a_masked_softmax() -> None:
    """Also where a whole row is masked, and 0 / 0 lies below."""
    shape = (3, 4)
    x = UOp.param(910, f64, shape)
    mask = UOp.param(911, boolean, shape)
    low = x.const_like(-np.inf)
    kept = mask.where(x, low)
    top = spread(kept.reduce(Ops.MAX, 1), shape).detach()
    e = UOp(Ops.EXP, (kept - top,))
    p = e / spread(e.reduce(Ops.ADD, 1), shape)
    y = mask.where(log(p), x.const_like(0.0))
    w = UOp.param(912, f64, shape)
    (g,) = gradient(y, [x], w)
    v = UOp.param(913, f64, shape)
    roots = [g, gradient(total(g * v), [x])[0], *tangents([y, g], [x, w], [v, v])]
    rng = np.random.default_rng(0)
    m = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]], bool)
    xs, ws, vs = (rng.standard_normal(shape) for _ in range(3))
    given = {x: xs, mask: m, w: ws, v: vs}
    with np.errstate(all="ignore"):
        g0, *others = evaluate(roots, given)
    soft = np.where(m, np.exp(xs), 0)
    soft[[0, 2]] /= soft[[0, 2]].sum(1, keepdims=True)
    right = np.where(m, ws - soft * np.where(m, ws, 0).sum(1, keepdims=True), 0)
    np.testing.assert_allclose(g0, right, rtol=1e-12, atol=1e-14)
    assert all((a[1] == 0).all() and np.isfinite(a).all() for a in (g0, *others))


# -- honest NaN -----------------------------------------------------------------


def test_nan_on_the_path_that_was_taken_still_shows() -> None:
    y = (X < 0.0).where(X.sqrt(), X)
    (g,) = gradient(total(y), [X])
    (found,) = values([g])
    assert np.isnan(found[0]) and (found[1:] == 1).all()


def test_an_infinite_slope_that_was_taken_still_shows() -> None:
    y = (X > -0.5).where(X.sqrt(), ZERO)
    (found,) = values([gradient(total(y), [X])[0]])
    assert found[0] == 0 and np.isinf(found[1:3]).all() and found[3] == 0.25


def test_a_residual_of_zero_is_no_reason_to_drop_a_second_derivative() -> None:
    """The cotangent of x - 4 is 0 at 4, and its derivative is not."""
    y = (X - X.const_like(4.0)) * (X - X.const_like(4.0))
    (g,) = gradient(total(y), [X])
    (h,) = gradient(total(g * V), [X])
    (t,) = tangents([g], [X], [V])
    g0, h0, t0 = values([g, h, t], np.full(4, 4.0))
    assert (g0 == 0).all()
    np.testing.assert_array_equal(h0, 2 * ALONG)
    np.testing.assert_array_equal(t0, 2 * ALONG)


def test_nan_in_a_maximum_still_shows() -> None:
    (g,) = gradient(X.reduce(Ops.MAX, 1), [X])
    (found,) = values([g], np.array([1.0, np.nan, 0, 2]))
    assert np.isnan(found).all()


# -- masks and cost ---------------------------------------------------------------


def test_no_mask_gets_into_the_loops_of_a_matrix_product() -> None:
    """h = relu(x @ w1), y = relu(h @ w2): products of whole axes stay bare."""
    x, w1, w2 = (
        UOp.buffer(12, f64, k).reshape(s)
        for k, s in enumerate([(3, 4), (4, 3), (3, 4)])
    )

    def matmul(a: UOp, b: UOp) -> UOp:
        (m, k), n = a.shape, b.shape[1]
        left = a.reshape((m, 1, k)).expand((m, n, k))
        right = b.permute((1, 0)).reshape((1, n, k)).expand((m, n, k))
        return (left * right).reduce(Ops.ADD, 1)

    def relu(u: UOp) -> UOp:
        return (u > 0.0).where(u, u.const_like(0.0))

    y = relu(matmul(relu(matmul(x, w1)), w2))
    grads = gradient(total(y), [x, w1, w2])
    wide = [u for u in toposort(grads) if len(u.shape) == 3]
    assert Ops.MUL in {u.op for u in wide}
    assert Ops.WHERE not in {u.op for u in wide}
    # Nor is anything asked which elements are live.
    assert not [u for u in toposort(grads) if u.op is Ops.REDUCE and u.dtype is boolean]


def test_no_mask_where_nothing_is_selected() -> None:
    y = UOp(Ops.TANH, (X * V,)) / (X * X + 1.0)
    assert Ops.WHERE not in {u.op for u in toposort(gradient(total(y), [X, V]))}


def test_linear_steps_need_no_mask() -> None:
    y = where_positive(-(X * 3.0) + V)
    (g,) = gradient(total(y), [X])
    assert sum(u.op is Ops.WHERE for u in toposort([g])) == 1

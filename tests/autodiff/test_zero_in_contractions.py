"""Zero means zero where a whole row of a product is left out, and in unit vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import grad, hessian, hvp, jacobian, jvp, vmap
from uopc.autodiff.constancy import constant_axes
from uopc.composite import full
from uopc.dtype import f64, i32
from uopc.interp import evaluate
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp

INF = float("inf")
# The first row has no finite products.
X = np.array([[INF, 1.0, -INF], [1.0, 2.0, 0.5], [0.5, -1.0, np.nan]])
LIVE = np.array([False, True, False])


def T(data: Any) -> Tensor:
    return Tensor(np.asarray(data))


ROWS = T(LIVE).unsqueeze(1)
# Of y = X @ w; all use the middle row alone.
USES: dict[str, Callable[[Tensor], Tensor]] = {
    "a window": lambda y: y[1:2].sum(),
    "a mask of rows": lambda y: ROWS.where(y, 0.0).sum(),
    "the other branch": lambda y: (~ROWS).where(0.0, y).sum(),
    "an index": lambda y: y[[1, 1, 7]].sum() * 0.5,
    "turned round": lambda y: y.flip(0).T[:, 1].sum(),
    "regrouped": lambda y: y.reshape(3, 2, 1)[1].sum(),
    "ignored labels": lambda y: y.cross_entropy(T(np.int32([-100, 1, -100]))),
    "two uses": lambda y: ROWS.where(y * y, 0.0).sum() + y[1].sin().sum(),
}


@pytest.mark.parametrize("left", [False, True], ids=["X @ w", "w @ X.T"])
@pytest.mark.parametrize("use", USES)
def test_rows_that_nobody_uses_do_not_reach_the_gradient(use: str, left: bool) -> None:
    def of(x: Any) -> Callable[[Tensor], Tensor]:
        return lambda w: USES[use]((w.T @ T(x).T).T if left else T(x) @ w)

    w, v = T(np.arange(6.0).reshape(3, 2) / 5), T(np.ones((3, 2)))
    finite = of(np.where(np.isfinite(X), X, 0.25))
    for derivative in (
        lambda f: grad(f)(w),
        lambda f: jvp(f, (w,), (v,))[1],
        lambda f: hvp(f, (w,), (v,))[0],
        lambda f: grad(lambda w: (grad(f)(w) * v).sum())(w),
        lambda f: vmap(grad(f))(Tensor.stack([w, v])),
    ):
        got, want = (derivative(f).numpy() for f in (of(X), finite))
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


def test_nan_in_a_row_that_is_used_shows() -> None:
    w = T(np.ones((3, 2)))
    g = grad(lambda w: (T(X) @ w)[:2].sum())(w).numpy()
    assert not np.isfinite(g[[0, 2]]).any()
    assert (g[1] == 3).all()


def test_a_fully_masked_row_of_attention_does_not_reach_the_values() -> None:
    rng = np.random.default_rng(5)
    q, k, v = (T(rng.standard_normal((3, 2))) for _ in range(3))
    mask = T(np.array([[True, True, False], [False] * 3, [True] * 3]))
    some = T(np.array([[True], [False], [True]]))

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        p = mask.where(q @ k.T, -INF).softmax()
        return (some.where(p @ v, 0.0) ** 2).sum()

    grads = grad(attention, (0, 1, 2))(q, k, v)
    assert all(np.isfinite(g.numpy()).all() for g in grads)
    assert (grads[0].numpy()[1] == 0).all()
    forward = [jvp(attention, (q, k, v), (q, k, v))[1].item()]
    backward = sum(
        float((g * t).sum().item()) for g, t in zip(grads, (q, k, v), strict=True)
    )
    np.testing.assert_allclose(forward, backward, rtol=1e-10)
    twice = grad(lambda q: (grad(attention)(q, k, v) ** 2).sum())(q)
    assert np.isfinite(twice.numpy()).all()


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_unit_vector_is_zero_but_in_one_place(mode: Any) -> None:
    x = T([0.0, 4.0])
    got = jacobian(lambda x: x.sqrt(), mode=mode)(x).numpy()
    np.testing.assert_array_equal(got, [[INF, 0], [0, 0.25]])
    mixed = jacobian(lambda x: x.sqrt() * x.flip(0), mode=mode)(x).numpy()
    np.testing.assert_array_equal(mixed, [[INF, 0], [2, 0]])
    got = hessian(lambda x: (x**1.5).sum())(x).numpy()
    np.testing.assert_array_equal(got, [[INF, 0], [0, 0.375]])


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_what_is_read_out_of_range_has_no_derivative(mode: Any) -> None:
    x = T([1.0, 4.0])
    for read in (
        lambda x: x[[0, 7]],
        lambda x: x.take(T(np.int32([0, -9]))),
        lambda x: T(np.int32([0, 7])).one_hot(2).cast(f64) @ x,
    ):
        got = jacobian(lambda x, read=read: read(x).sqrt(), mode=mode)(x).numpy()
        np.testing.assert_array_equal(got, [[0.5, 0], [0, 0]])


# -- what is known to be constant ------------------------------------------------------

A = UOp.param(0, f64, (3, 1, 2))
WIDE = A.expand((3, 4, 2))
CASES: dict[str, UOp] = {
    "repeated": WIDE,
    "turned": WIDE.permute((1, 2, 0)),
    "merged": WIDE.reshape((3, 8)),
    "split": WIDE.permute((1, 0, 2)).reshape((2, 2, 3, 2)),
    "of all": full((3, 2), 1.0, f64),
    "two, along different axes": WIDE + UOp.param(1, f64, (1, 4, 1)).expand((3, 4, 2)),
    "two, along one axis": WIDE + UOp.param(1, f64, (1, 1, 1)).expand((3, 4, 2)),
    "stacked": UOp.stack([WIDE, WIDE * 2.0]),
    "a window": WIDE.shrink([(0, 2), (1, 3), (0, 2)]),
    "read": WIDE.index(UOp.param(2, i32, (5,))),
    "added": UOp(Ops.SCATTER_ADD, (WIDE, UOp.param(2, i32, (3,))), (6,)),
    "nothing": UOp.param(3, f64, (2, 3)),
    "empty": UOp.param(4, f64, (0, 3)).expand((0, 3)).reshape((3, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_constant_axes_are_constant_and_found(name: str) -> None:
    u = CASES[name]
    found = constant_axes(u)
    rng = np.random.default_rng(1)
    data = {
        p: rng.integers(0, 3, p.shape).astype(p.dtype.numpy)
        if p.dtype is i32
        else rng.standard_normal(p.shape)
        for p in u.toposort()
        if p.op is Ops.PARAM
    }
    (value,) = evaluate([u], data)
    if value.size:
        equal = {i for i in range(value.ndim) if not np.ptp(value, axis=i).any()}
        assert found == equal

"""vmap under other transforms and around them, against a loop over the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_loop import AT, RNG, N, T, V, W, X, Y, loop, near, scalar

from uopc.autodiff import (
    checkpoint,
    custom_vjp,
    grad,
    hvp,
    jvp,
    linearize,
    value_and_grad,
    vjp,
    vmap,
)
from uopc.runtime.tree import mapped
from uopc.tensor import Tensor


@scalar
def test_gradients_of_a_batch_and_per_example_gradients(f: Any) -> None:
    wanted = loop(grad(f), T(X))
    near(vmap(grad(f))(T(X)), wanted, 1e-10)
    near(grad(lambda x: vmap(f)(x).sum())(T(X)), wanted, 1e-10)


@scalar
def test_second_order(f: Any) -> None:
    product = loop(lambda x, v: hvp(f, (x,), (v,))[0], T(X), T(V))
    near(vmap(lambda x, v: hvp(f, (x,), (v,))[0])(T(X), T(V)), product, 1e-9)
    near(hvp(lambda x: vmap(f)(x).sum(), (T(X),), (T(V),))[0], product, 1e-9)

    def slope(x: Tensor) -> Tensor:
        return (vmap(grad(f))(x) * T(V)).sum()

    near(grad(slope)(T(X)), product, 1e-9)


@scalar
def test_forward_mode(f: Any) -> None:
    wanted = loop(lambda x, v: jvp(f, (x,), (v,)), T(X), T(V))
    near(vmap(lambda x, v: jvp(f, (x,), (v,)))(T(X), T(V)), wanted, 1e-10)
    near(jvp(vmap(f), (T(X),), (T(V),)), wanted, 1e-10)


@scalar
def test_a_batch_of_batches(f: Any) -> None:
    x = T(RNG.standard_normal((2, N, 4)))
    flat = vmap(f)(x.reshape(2 * N, 4)).numpy()
    near(vmap(vmap(f))(x), flat.reshape(2, N))
    near(vmap(vmap(f), 1, 1)(x), flat.reshape(2, N))
    near(vmap(lambda x: vmap(f)(x).sum())(x), flat.reshape(2, N).sum(1))


@scalar
def test_jacobians_and_hessians_of_one_point(f: Any) -> None:
    x, basis = T(X[0]), T(np.eye(4))
    _, push = linearize(grad(f), x)
    hessian = vmap(lambda v: push(v))(basis)
    rows = [grad(lambda y, i=i: grad(f)(y)[i])(x).numpy() for i in range(4)]
    near(hessian, np.stack(rows), 1e-9)
    _, pull = vjp(grad(f), x)
    near(vmap(pull)(basis)[0], np.stack(rows), 1e-9)


def test_an_outer_product_by_nested_batches() -> None:
    def f(a: Tensor, b: Tensor) -> Tensor:
        return a * b + b

    got = vmap(vmap(f, (None, 0)), (0, None))(T(X[0]), T(Y[0]))
    near(got, X[0][:, None] * Y[0] + Y[0])


def test_tensors_that_a_function_reads_get_gradients() -> None:
    w, x = (Tensor(a, requires_grad=True) for a in (W, X))

    def model(x: Tensor) -> Tensor:
        return ((x @ w).tanh() @ T(W[0])).exp()

    vmap(model)(x).sum().backward()
    assert w.grad is not None and x.grad is not None
    v, y = (Tensor(a, requires_grad=True) for a in (W, X))
    ((y @ v).tanh() @ T(W[0])).exp().sum().backward()
    assert v.grad is not None and y.grad is not None
    near(w.grad, v.grad.numpy())
    near(x.grad, y.grad.numpy())
    assert not vmap(lambda x: x + 1)(T(X)).requires_grad


def test_a_result_requires_a_gradient_if_an_argument_or_what_is_read_does() -> None:
    x, w = Tensor(X, requires_grad=True), Tensor(W, requires_grad=True)
    for f, given, tensor in [
        (lambda x: x @ T(W), x, x),
        (lambda x: x @ w, T(X), w),
        (lambda x: x * 0 + w.sum(), T(X), w),
    ]:
        y = vmap(f)(given)
        assert y.requires_grad
        y.sum().backward()
        assert tensor.grad is not None


def test_per_example_gradients_of_parameters() -> None:
    params = {"w": T(W), "b": T(W[0])}

    def error(p: dict[str, Tensor], x: Tensor, at: Tensor) -> Tensor:
        return -(x @ p["w"] + p["b"]).log_softmax(0).take(at)

    each = vmap(value_and_grad(error), (None, 0, 0))(params, T(X), Tensor(AT))
    wanted = loop(lambda x, at: value_and_grad(error)(params, x, at), T(X), Tensor(AT))
    near(each, wanted, 1e-11)
    total = grad(lambda p: vmap(error, (None, 0, 0))(p, T(X), Tensor(AT)).sum())
    near(total(params), mapped(lambda t: t.sum(0), each[1]), 1e-11)


TABLE = RNG.standard_normal((N, 6, 2))
PLACES = np.array([[0, 0, 5, 9], [-1, 2, 2, -7], [3, 1, 0, 1]], np.int32)


def given_and_every(full: list[Tensor], axes: Any) -> tuple[list[Tensor], list[Tensor]]:
    """What vmap is given, where None shares the first element; and that for a loop."""
    pairs = list(zip(full, axes, strict=True))
    given = [t if a == 0 else t[0] for t, a in pairs]
    return given, [t if a == 0 else Tensor.stack([t[0]] * N) for t, a in pairs]


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)], ids=str)
def test_a_table_and_indices_of_each_example(axes: Any) -> None:
    def f(table: Tensor, at: Tensor) -> Tensor:
        return (table.take(at).sin() * table[1]).sum()

    given, every = given_and_every([T(TABLE), Tensor(PLACES)], axes)
    near(vmap(f, axes)(*given), loop(f, *every))
    near(vmap(grad(f), axes)(*given), loop(grad(f), *every))
    total = grad(lambda t: vmap(f, axes)(t, given[1]).sum())(given[0])
    each = loop(grad(f), *every).numpy()
    near(total, each if axes[0] == 0 else each.sum(0))


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)], ids=str)
def test_adding_at_places_of_each_example(axes: Any) -> None:
    def f(x: Tensor, at: Tensor) -> Tensor:
        return Tensor.zeros(3, dtype=x.dtype).scatter_add(0, at, x) ** 2

    given, every = given_and_every([T(X), Tensor(PLACES)], axes)
    near(vmap(f, axes)(*given), loop(f, *every))


def test_zero_means_zero_over_a_batch() -> None:
    def f(x: Tensor) -> Tensor:
        return (x > 0).where(x.sqrt(), x * 0).sum()

    x = T([[0.0, 4.0], [1.0, 0.0], [-1.0, 0.25]])
    wanted = T([[0.0, 0.25], [0.5, 0.0], [0.0, 1.0]])
    near(vmap(grad(f))(x), wanted)
    near(grad(lambda x: vmap(f)(x).sum())(x), wanted)
    near(
        jvp(vmap(f), (x,), (Tensor.ones(3, 2, dtype=x.dtype),))[1], T([0.25, 0.5, 1.0])
    )


# -- stages ---------------------------------------------------------------------------


def test_detached_values_stay_detached() -> None:
    def f(x: Tensor) -> Tensor:
        return (x * x.detach()).sum()

    near(vmap(grad(f))(T(X)), X)
    near(grad(lambda x: vmap(f)(x).sum())(T(X)), X)


@pytest.mark.parametrize("shared", [True, False])
def test_checkpoints(shared: bool) -> None:
    def f(w: Tensor, x: Tensor) -> Tensor:
        return ((x @ w).tanh() @ w.T).sin().sum()

    inner = checkpoint(f)
    w = T(W) if shared else T(np.stack([W, -W, 2 * W]))
    axes = (None if shared else 0, 0)
    wanted = vmap(grad(f, (0, 1)), axes)(w, T(X))
    near(vmap(grad(inner, (0, 1)), axes)(w, T(X)), wanted)
    near(
        grad(lambda w, x: vmap(inner, axes)(w, x).sum(), (0, 1))(w, T(X)),
        (wanted[0].sum(0) if shared else wanted[0], wanted[1]),
    )
    near(
        vmap(lambda w, x: hvp(inner, (w, x), (w, x)), axes)(w, T(X)),
        vmap(lambda w, x: hvp(f, (w, x), (w, x)), axes)(w, T(X)),
        1e-10,
    )
    outer = checkpoint(lambda w, x: vmap(f, axes)(w, x).sum())
    near(grad(outer, 1)(w, T(X)), wanted[1])


def test_a_checkpoint_of_a_repeated_argument_keeps_its_gradient() -> None:
    w = Tensor(np.float64(0.5), requires_grad=True)

    def f(x: Tensor) -> Tensor:
        inner = checkpoint(lambda w, x: (w * x).sin().sum())
        return inner(w.reshape(1).expand(4), x)

    vmap(f)(T(X)).sum().backward()
    assert w.grad is not None
    near(w.grad, (np.cos(X / 2) * X).sum())


def scaled() -> custom_vjp:
    """w * x, whose gradients are twice and three times what they should be."""

    @custom_vjp
    def f(w: Tensor, x: Tensor) -> Tensor:
        return w * x

    f.defvjp(
        lambda w, x: (w * x, (w, x)),
        lambda kept, g: (2 * g * kept[1], 3 * g * kept[0]),
    )
    return f


def test_functions_with_gradients_of_their_own() -> None:
    f = scaled()
    w, x, y = T(W[:, 0]), T(X), T(Y)

    def total(w: Tensor, x: Tensor) -> Tensor:
        return (f(w, x) * y[0]).sum()

    near(vmap(f, (None, 0))(w, x), W[:, 0] * X)
    near(vmap(grad(total), (None, 0))(w, x), 2 * X * Y[0])
    near(vmap(grad(total, 1), (None, 0))(w, x), np.stack([3 * W[:, 0] * Y[0]] * N))
    over = grad(lambda w, x: (vmap(f, (None, 0))(w, x) * y).sum(), (0, 1))
    near(over(w, x), ((2 * X * Y).sum(0), 3 * W[:, 0] * Y))
    moved = jvp(vmap(f, (None, 0)), (w, x), (w, y))[1]
    near(moved, W[:, 0] * (2 * X + 3 * Y))
    near(
        vmap(lambda x, v: jvp(lambda x: f(w, x), (x,), (v,))[1])(x, y),
        3 * W[:, 0] * Y,
    )
    twice = grad(lambda x: (vmap(grad(total), (None, 0))(w, x) * y).sum())
    near(twice(x), 2 * Y[0] * Y)
    nested = vmap(vmap(grad(lambda w, x: f(w, x)), (None, 0)), (0, None))(w, x[0])
    near(nested, np.stack([2 * X[0]] * 4))


def test_a_gradient_of_its_own_for_what_the_value_ignores() -> None:
    @custom_vjp
    def f(x: Tensor) -> Tensor:
        return Tensor.ones(4, dtype=x.dtype)

    f.defvjp(lambda x: (Tensor.ones(4, dtype=x.dtype), x), lambda x, g: (g * x,))
    near(vmap(f)(T(X)), np.ones((N, 4)))
    near(grad(lambda x: (vmap(f)(x) * T(Y)).sum())(T(X)), X * Y)


def test_equal_batches_are_one_node() -> None:
    f, w, x = scaled(), T(W[:, 0]), T(X)
    g = vmap(f, (None, 0))
    assert g(w, x).uop is g(w, x).uop

"""checkpoint: the same derivatives, with less kept between the passes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uopc.autodiff import checkpoint, grad, gradient, hvp, jvp
from uopc.dtype import f64
from uopc.kernelize import Plan, make_plan
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, toposort

RNG = np.random.default_rng(11)
DEPTH, WIDTH, ROWS = 6, 8, 16


def T(data: object) -> Tensor:
    return Tensor(np.asarray(data, np.float64))


WEIGHTS = [T(RNG.standard_normal((WIDTH, WIDTH)) / 3) for _ in range(DEPTH)]
X = RNG.standard_normal((ROWS, WIDTH))
V = RNG.standard_normal((ROWS, WIDTH))


def block(w: Tensor) -> Callable[[Tensor], Tensor]:
    """Two products and what they need kept: four arrays inside."""
    return lambda h: ((h @ w).tanh() @ w).sin() + h


def network(
    x: Tensor, mark: Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]
) -> Tensor:
    for w in WEIGHTS:
        x = mark(block(w))(x)
    return x.square().sum()


def plain(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return f


def test_values_and_all_derivatives_are_the_same_to_the_bit() -> None:
    found = []
    for mark in (plain, checkpoint):
        x = T(X)

        def f(x: Tensor, mark: Callable[..., Callable[..., Tensor]] = mark) -> Tensor:
            return network(x, mark)

        g = grad(f)(x)
        (h,) = hvp(f, (x,), (T(V),))
        _, slope = jvp(f, (x,), (T(V),))
        rr = grad(lambda x, f=f: (grad(f)(x) * T(V)).sum())(x)
        found.append([f(x).numpy(), g.numpy(), h.numpy(), slope.numpy(), rr.numpy()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    for a, b in zip(found[0][:2], found[1][:2], strict=True):
        np.testing.assert_array_equal(a, b)


def test_parameters_that_it_reads_get_their_gradients() -> None:
    grads = []
    for mark in (plain, checkpoint):
        w = Tensor(X[:WIDTH], requires_grad=True)
        y = mark(lambda h, w=w: (h @ w).tanh())(T(X))
        assert y.requires_grad
        y.square().sum().backward()
        assert w.grad is not None
        grads.append(w.grad.numpy())
    np.testing.assert_array_equal(*grads)


# -- what is kept ------------------------------------------------------------------


def kept(plan: Plan) -> int:
    """How many buffers are written before the loss is and read after it."""
    names = [k.name for k in plan.kernels]
    at = names.index("r")
    written = {k.out for k in plan.kernels[:at]}
    return len({a for k in plan.kernels[at + 1 :] for a in k.args} & written)


def planned(mark: Callable[..., Callable[..., Tensor]]) -> Plan:
    x = T(X)
    loss = network(x, mark)
    plan, _ = make_plan([loss.uop, *gradient(loss.uop, [w.uop for w in WEIGHTS])])
    return plan


def test_the_plan_keeps_the_arguments_of_each_block_and_nothing_inside() -> None:
    before, after = planned(plain), planned(checkpoint)
    assert kept(before) >= 3 * DEPTH  # the three arrays inside each block
    assert kept(after) == DEPTH  # the result of each block
    # The price: what is inside is computed twice.
    assert len(after.kernels) > len(before.kernels)


def test_what_is_computed_again_runs_after_the_cotangent() -> None:
    """Else both copies would be alive at once."""
    plan = planned(checkpoint)
    products = [i for i, k in enumerate(plan.kernels) if k.name == f"r_{ROWS}_{WIDTH}"]
    loss_at = next(i for i, k in enumerate(plan.kernels) if k.name == "r")
    assert sum(i > loss_at for i in products) >= 2 * DEPTH


# -- shapes of functions -------------------------------------------------------------


def test_nested_arguments_and_results() -> None:
    def f(p: dict[str, Tensor], scale: float) -> tuple[Tensor, Tensor]:
        return p["a"] * p["b"] * scale, p["a"].sin()

    def g(a: Tensor, b: Tensor) -> Tensor:
        y, z = checkpoint(f)({"a": a, "b": b}, 3.0)
        return y.sum() + z.sum()

    a, b = X[0], X[1]
    ga, gb = grad(g, (0, 1))(T(a), T(b))
    np.testing.assert_allclose(ga.numpy(), 3 * b + np.cos(a), rtol=1e-14)
    np.testing.assert_allclose(gb.numpy(), 3 * a, rtol=1e-14)


def test_checkpoints_inside_checkpoints() -> None:
    inner = checkpoint(lambda x: (x.sin() * x).tanh())
    outer = checkpoint(lambda x: inner(inner(x) * x).exp())

    def without(x: Tensor) -> Tensor:
        def f(x: Tensor) -> Tensor:
            return (x.sin() * x).tanh()

        return f(f(x) * x).exp().sum()

    x = T(X[0])
    g, right = grad(lambda x: outer(x).sum())(x), grad(without)(x)
    np.testing.assert_allclose(g.numpy(), right.numpy(), rtol=1e-13)
    h = hvp(lambda x: outer(x).sum(), (x,), (T(V[0]),))[0]
    right = hvp(without, (x,), (T(V[0]),))[0]
    np.testing.assert_allclose(h.numpy(), right.numpy(), rtol=1e-12)


def test_what_does_not_depend_on_the_arguments_is_left_alone() -> None:
    y = checkpoint(lambda x: T([1.0, 2.0]) * 2.0)(T([3.0]))
    assert Ops.STAGE not in {u.op for u in toposort([y.uop])}
    x = T([3.0])
    assert checkpoint(lambda x: x)(x).uop is x.uop


def test_a_value_cannot_be_read_inside() -> None:
    with pytest.raises(ValueError, match="placeholder"):
        checkpoint(lambda x: x * x.item())(T(2.0))
    with pytest.raises(TypeError, match="checkpoint: the result of the function is a"):
        checkpoint(lambda x: "text")(T(2.0))


def test_zero_means_zero_through_a_checkpoint() -> None:
    y = checkpoint(lambda x: x.sqrt())
    x = T([0.0, 4.0])
    g = grad(lambda x: (x > 0.0).where(y(x), 0.0).sum())(x)
    np.testing.assert_array_equal(g.numpy(), [0, 0.25])


def test_a_deep_chain_of_checkpoints_is_linear() -> None:
    """Each walk ends at the arguments of its own block."""
    x = UOp.buffer(4, f64, 0)
    f = checkpoint(lambda x: (x.sin() * x).tanh())
    sizes = []
    for n in (50, 100):
        y = Tensor(x)
        for _ in range(n):
            y = f(y)
        total = y.sum().uop
        sizes.append(len(toposort(gradient(total, [x]))))
    assert sizes[1] < 2.1 * sizes[0]


def test_a_target_inside_is_refused_not_given_zeros() -> None:
    x, ones = T([1.0, 2.0]), Tensor.ones(2, dtype=f64)
    inside = x.sin()
    for f, target in (
        (lambda h: h.sin() * h, inside),
        (lambda h: h * ones, ones),
    ):
        loss = checkpoint(f)(x).sum()
        with pytest.raises(ValueError, match=r"f64\[2\], a result of .* checkpoint"):
            gradient(loss.uop, [target.uop])
        with pytest.raises(ValueError, match="inside a checkpoint"):
            loss.backward([target])
    (g,) = gradient(checkpoint(lambda h: h * ones)(inside).sum().uop, [inside.uop])
    assert Tensor(g).tolist() == [1.0, 1.0]

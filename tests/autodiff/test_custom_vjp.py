"""custom_vjp: gradients that are given, and what follows from them."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import (
    NoGradientRule,
    NotLinearError,
    checkpoint,
    custom_vjp,
    grad,
    gradient,
    hvp,
    jacobian,
    jvp,
    stop_gradient,
    vmap,
)
from uopc.dtype import f64, i32
from uopc.kernelize import make_plan
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, toposort

RNG = np.random.default_rng(3)
A, B, V = RNG.standard_normal((3, 4))


def T(data: Any) -> Tensor:
    return Tensor(np.asarray(data, np.float64))


def near(tensor: Tensor, right: Any) -> None:
    np.testing.assert_allclose(tensor.numpy(), right, rtol=1e-12, atol=1e-13)


def cube() -> custom_vjp:
    @custom_vjp
    def cubed(x: Tensor) -> Tensor:
        return x * x * x

    cubed.defvjp(lambda x: (x * x * x, x), lambda x, g: (g * x * x * 3.0,))
    return cubed


def test_value_gradient_and_all_that_follows() -> None:
    f = cube()
    near(f(T(A)), A**3)
    near(grad(lambda x: f(x).sum())(T(A)), 3 * A**2)
    near(jvp(f, (T(A),), (T(V),))[1], 3 * A**2 * V)  # through the reverse rule
    near(hvp(lambda x: f(x).sum(), (T(A),), (T(V),))[0], 6 * A * V)
    near(grad(lambda x: (grad(lambda y: f(y).sum())(x) * T(V)).sum())(T(A)), 6 * A * V)


def test_the_given_gradient_is_what_counts() -> None:
    @custom_vjp
    def rounded(x: Tensor) -> Tensor:
        """To whole numbers, straight through."""
        return (x + 0.5).cast(i32).cast(f64)

    rounded.defvjp(lambda x: (rounded.f(x), None), lambda _, g: (g,))
    near(rounded(T([1.2, 2.7])), [1, 3])
    near(grad(lambda x: (rounded(x) * T([5.0, 7.0])).sum())(T([1.2, 2.7])), [5, 7])
    assert rounded.__name__ == "rounded" and "straight" in (rounded.__doc__ or "")


def test_clipped_gradients_and_constants() -> None:
    @custom_vjp
    def clipped(x: Tensor, limit: float) -> Tensor:
        return x * 1.0

    clipped.defvjp(
        lambda x, limit: (x * 1.0, limit),
        lambda limit, g: (g.maximum(-limit).minimum(limit), None),
    )
    near(grad(lambda x: (clipped(x, 0.5) * T(A) * 2.0).sum())(T(B)),
         np.clip(2 * A, -0.5, 0.5))  # fmt: skip
    with pytest.raises(NotLinearError, match="stage is not linear"):
        jvp(lambda x: clipped(x, 0.5), (T(A),), (T(V),))


def test_nested_arguments_results_and_residuals() -> None:
    @custom_vjp
    def f(p: dict[str, Tensor], k: Tensor) -> tuple[Tensor, Tensor]:
        return p["a"] * p["b"], p["a"].sin()

    def forward(p: dict[str, Tensor], k: Tensor) -> Any:
        return f.f(p, k), {"p": p, "names": ("a", "b")}

    def backward(kept: Any, g: tuple[Tensor, Tensor]) -> Any:
        a, b = (kept["p"][name] for name in kept["names"])
        return {"a": g[0] * b + g[1] * a.cos(), "b": g[0] * a}, None

    f.defvjp(forward, backward)

    def total(a: Tensor, b: Tensor) -> Tensor:
        y, z = f({"a": a, "b": b}, Tensor([1, 2]))
        return (y * T(V)).sum() + (z * z).sum()

    ga, gb = grad(total, (0, 1))(T(A), T(B))
    near(ga, V * B + 2 * np.sin(A) * np.cos(A))
    near(gb, V * A)


def test_backward_of_tensors_goes_through_it() -> None:
    w = Tensor(A, requires_grad=True)
    cube()(w).sum().backward()
    assert w.grad is not None
    near(w.grad, 3 * A**2)


def test_equal_calls_are_equal_graphs() -> None:
    f, x = cube(), T(A)
    assert f(x).uop is f(x).uop
    assert cube()(x).uop is not f(x).uop
    (plan, _), (again, _) = (make_plan([f(t).uop]) for t in (T(A), T(B)))
    assert plan is again
    assert len(plan.kernels) == 1


def test_the_values_of_a_call_are_not_kept() -> None:
    f, x = cube(), T(A)
    near(f(x), A**3)
    gone = weakref.ref(x.uop)
    del x
    gc.collect()
    assert gone() is None


def test_a_zero_is_not_minus_zero_as_a_constant_argument() -> None:
    f = custom_vjp(lambda x, n: x * 1.0)
    f.defvjp(lambda x, n: (x * 1.0, n), lambda n, g: (g / n, None))
    for zero in (0.0, -0.0):
        g = grad(lambda x, zero=zero: f(x, zero).sum())(T(A))
        assert (g.numpy() == math.copysign(math.inf, zero)).all()


# -- what can be wrong -----------------------------------------------------------------


def test_without_a_gradient_it_says_so() -> None:
    f = custom_vjp(lambda x: x)
    with pytest.raises(TypeError, match=r"has no gradient yet; call .*defvjp"):
        f(T(A))


@pytest.mark.parametrize(
    "backward, error, message",
    [
        (lambda r, g: g, TypeError, "tuple with one cotangent for each of 1 arguments"),
        (lambda r, g: (g, g), TypeError, "for each of 1 arguments"),
        (lambda r, g: ([g],), TypeError, "cotangent 0 is not nested like argument 0"),
        (lambda r, g: (g.sum(),), ValueError, r"f64\[\] for an argument of f64\[4\]"),
    ],
)
def test_a_backward_that_does_not_fit(backward: Any, error: Any, message: str) -> None:
    f = custom_vjp(lambda x: x * 2.0)
    f.defvjp(lambda x: (x * 2.0, None), backward)
    with pytest.raises(error, match=message):
        grad(lambda x: f(x).sum())(T(A))


@pytest.mark.parametrize(
    "forward, message",
    [
        (lambda x: x, "fwd returns a pair"),
        (lambda x: (x.sum(), None), "fwd's first result is not nested like f's"),
        (lambda x: ((x, x), None), "fwd's first result is not nested like f's"),
    ],
)
def test_a_forward_that_does_not_fit(forward: Any, message: str) -> None:
    f = custom_vjp(lambda x: x * 2.0)
    f.defvjp(forward, lambda r, g: (g,))
    with pytest.raises(TypeError, match=message):
        f(T(A))


def test_a_parameter_it_is_not_given_is_refused() -> None:
    w = Tensor(A, requires_grad=True)
    f = custom_vjp(lambda x: x * w)
    f.defvjp(lambda x: (x * w, None), lambda r, g: (g,))
    with pytest.raises(ValueError, match="reads a tensor that requires a gradient"):
        f(T(B))


@pytest.mark.parametrize(
    "transform",
    [grad, lambda f: vmap(f), lambda f: checkpoint(f), lambda f: jacobian(f)],
    ids=["grad", "vmap", "checkpoint", "jacobian"],
)
def test_an_argument_of_an_enclosing_transform_that_it_is_not_given_is_refused(
    transform: Callable[[Any], Any],
) -> None:
    def outer(w: Tensor, stop: bool) -> Tensor:
        w = stop_gradient(w) if stop else w
        f = custom_vjp(lambda x: x * w.sum())
        f.defvjp(lambda x: (x * w.sum(), None), lambda r, g: (g * w.sum(),))
        return f(T(2.0))

    with pytest.raises(ValueError, match=r"reads f64\[.*enclosing transform"):
        transform(lambda w: outer(w, stop=False))(T(A))
    transform(lambda w: outer(w, stop=True))(T(A))


def test_its_own_forward_may_call_it_by_its_name() -> None:
    @custom_vjp
    def root(x: Tensor) -> Tensor:
        return x.sqrt()

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        y = root(x)
        return y, y

    root.defvjp(forward, lambda y, g: (g * 7.0 / y,))
    x = T(A * A)
    near(grad(lambda x: root(x).sum())(x), 7 / np.abs(A))
    near(grad(lambda x: root(root(x)).sum())(x), 49 / np.abs(A) ** 1.5)


def test_a_rule_of_another_process_is_named() -> None:
    x = UOp.buffer(4, f64, 0)
    y = UOp(Ops.STAGE, (x * 2.0, x), "custom_999999")
    with pytest.raises(NoGradientRule, match=r"'custom_999999'.*another process"):
        gradient(y, [x])


def test_only_the_value_gets_into_a_kernel() -> None:
    x = T(A)
    y = cube()(x)
    assert Ops.STAGE in {u.op for u in toposort([y.uop])}
    plan, _ = make_plan([y.uop])
    assert Ops.STAGE not in {u.op for u in toposort([plan.kernels[0].ast])}

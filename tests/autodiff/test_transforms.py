"""grad, value_and_grad, vjp, jvp, linearize, hvp over functions of Tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from uopc.autodiff import (
    NotLinearError,
    grad,
    hvp,
    jvp,
    linearize,
    stop_gradient,
    value_and_grad,
    vjp,
)
from uopc.dtype import f64, i32
from uopc.plugins import registry
from uopc.runtime.tree import flatten, mapped
from uopc.tensor import Tensor
from uopc.uop import Ops

RNG = np.random.default_rng(7)
A, B, V, W = RNG.standard_normal((4, 3))


def T(data: Any) -> Tensor:
    return Tensor(np.asarray(data, np.float64))


def near(tensor: Tensor, right: Any) -> None:
    np.testing.assert_allclose(tensor.numpy(), right, rtol=1e-12, atol=1e-13)


def wave(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


def wave_slope(x: np.ndarray) -> np.ndarray:
    return np.cos(x) * x + np.sin(x)


def wave_bend(x: np.ndarray) -> np.ndarray:
    return 2 * np.cos(x) - x * np.sin(x)


# -- grad -----------------------------------------------------------------------


def test_grad_and_value_and_grad() -> None:
    near(grad(wave)(T(A)), wave_slope(A))
    value, g = value_and_grad(wave)(T(A))
    near(value, (np.sin(A) * A).sum())
    near(g, wave_slope(A))


def test_a_gradient_by_one_argument_leaves_the_same_tensor_elsewhere_alone() -> None:
    x = T(A)
    near(grad(lambda a, b: (a * b).sum())(x, x), A)
    near(grad(lambda a: (a * x).sum())(x), A)
    near(grad(lambda a, b: (a * b * b).sum(), argnums=1)(x, x), 2 * A * A)


def test_argnums_in_any_order_and_from_the_end() -> None:
    def f(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return (a * b * b * c).sum()

    gc, ga = grad(f, argnums=(-1, 0))(T(A), T(B), T(V))
    near(gc, A * B * B)
    near(ga, B * B * V)


@pytest.mark.parametrize("argnums", [3, -4, (0, 0), (0, -3)])
def test_argnums_that_do_not_fit(argnums: Any) -> None:
    with pytest.raises(ValueError, match=r"argnums .* with 3 positional arguments"):
        grad(lambda a, b, c: a, argnums=argnums)(T(1), T(2), T(3))


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Layer:
    weight: Any
    bias: Any


def test_gradients_are_nested_like_the_arguments() -> None:
    tree = {"p": Pair(T(A), [T(B), None]), "l": Layer(weight=T(V), bias=(T(2.0),))}

    def f(t: Any) -> Tensor:
        p, layer = t["p"], t["l"]
        return (p.a * p.b[0] * layer.weight).sum() * layer.bias[0]

    g = grad(f)(tree)
    assert list(g) == ["p", "l"] and type(g["p"]) is Pair and type(g["l"]) is Layer
    assert type(g["p"].b) is list and g["p"].b[1] is None
    near(g["p"].a, 2 * B * V)
    near(g["p"].b[0], 2 * A * V)
    near(g["l"].weight, 2 * A * B)
    near(g["l"].bias[0], (A * B * V).sum())


def test_numbers_and_arrays_are_arguments_as_well() -> None:
    near(grad(lambda x: x * x * x)(2.0), 12.0)
    near(grad(lambda x: (x * x).sum())(A), 2 * A)


def test_an_argument_that_does_not_matter_gets_zeros() -> None:
    ga, gb = grad(lambda a, b: a.sum(), argnums=(0, 1))(T(A), T(B))
    near(ga, np.ones(3))
    near(gb, np.zeros(3))


def test_auxiliary_results() -> None:
    def f(x: Tensor) -> tuple[Tensor, dict[str, Any]]:
        return wave(x), {"double": x * 2.0, "name": "wave"}

    (value, aux), g = value_and_grad(f, has_aux=True)(T(A))
    near(value, (np.sin(A) * A).sum())
    near(aux["double"], 2 * A)
    assert aux["name"] == "wave"
    near(g, wave_slope(A))
    g, aux = grad(f, has_aux=True)(T(A))
    near(g, wave_slope(A))
    near(aux["double"], 2 * A)
    with pytest.raises(TypeError, match="has_aux the function returns a pair"):
        grad(wave, has_aux=True)(T(A))


def test_keywords_are_constants() -> None:
    near(grad(lambda x, *, scale: (x * scale).sum())(T(A), scale=T(B)), B)


def test_random_numbers_and_closures_are_seen() -> None:
    w = T(B)
    near(grad(lambda x: (x * w * w).sum())(T(A)), B * B)
    w.assign(T(V))
    near(grad(lambda x: (x * w * w).sum())(T(A)), V * V)


# -- what is wrong with arguments and results -----------------------------------


@pytest.mark.parametrize(
    "argument, message",
    [
        ({"w": Tensor([1, 2])}, r"argument 0\['w'\] has dtype i32.*cast it"),
        ({"w": [T(A), True]}, r"argument 0\['w'\]\[1\] has dtype bool"),
        (Pair(T(A), "name"), r"argument 0\.b is a str; expected a float Tensor"),
        (3, r"argument 0 has dtype i32"),
    ],
)
def test_what_has_no_derivative_is_named(argument: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        grad(lambda t: T(1.0))(argument)


@pytest.mark.parametrize(
    "result, message",
    [
        (lambda x: x, r"one scalar result, not f64\[3\]; reduce it"),
        (lambda x: (x.sum(), x.sum()), r"not f64\[\], f64\[\]"),
    ],
)
def test_a_result_that_is_not_scalar(result: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grad(result)(T(A))


def test_a_result_that_is_no_tensor() -> None:
    with pytest.raises(TypeError, match="the result of the function is a float"):
        grad(lambda x: 1.0)(T(A))
    with pytest.raises(
        TypeError, match="grad: the result of the function has dtype i32"
    ):
        grad(lambda x: x.sum().cast(i32))(T(A))


@pytest.mark.parametrize(
    "read",
    [lambda x: x.item(), lambda x: float(x.numpy()), lambda x: x.tolist()],
)
def test_a_value_cannot_be_read_inside(read: Callable[[Tensor], Any]) -> None:
    with pytest.raises(ValueError, match=r"placeholder.*cannot be read with item\(\)"):
        grad(lambda x: x * read(x))(T(2.0))


# -- vjp, jvp, linearize ----------------------------------------------------------


def test_vjp_of_nested_results() -> None:
    def f(a: Tensor, b: Tensor) -> dict[str, Tensor]:
        return {"product": a * b, "sum": a.sum()}

    value, pullback = vjp(f, T(A), T(B))
    near(value["product"], A * B)
    near(value["sum"], A.sum())
    ga, gb = pullback({"product": T(V), "sum": 2.0})
    near(ga, V * B + 2)
    near(gb, V * A)
    ga, _ = pullback({"product": T(W), "sum": 0.0})  # again, with another cotangent
    near(ga, W * B)


def test_a_cotangent_that_does_not_fit() -> None:
    _, pullback = vjp(lambda a: {"x": a}, T(A))
    with pytest.raises(ValueError, match=r"must be nested like.*\{'x': f64\[3\]\}"):
        pullback(T(A))
    with pytest.raises(
        ValueError, match=r"cotangent\['x'\] is f64\[2\], expected f64\[3"
    ):
        pullback({"x": T([1, 2])})
    with pytest.raises(ValueError, match=r"is f32\[3\], expected f64\[3"):
        pullback({"x": Tensor([1.0, 2.0, 3.0])})


def test_jvp_and_linearize() -> None:
    def f(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a * b.exp(), (a * a).sum()

    value, moved = jvp(f, (T(A), T(B)), (T(V), T(W)))
    near(value[0], A * np.exp(B))
    near(moved[0], V * np.exp(B) + A * np.exp(B) * W)
    near(moved[1], 2 * (A * V).sum())
    value, pushforward = linearize(f, T(A), T(B))
    for v, w in ((V, W), (W, V)):
        near(pushforward(T(v), T(w))[0], v * np.exp(B) + A * np.exp(B) * w)
    with pytest.raises(
        ValueError, match=r"direction\[1\] is f64\[\], expected f64\[3\]"
    ):
        pushforward(T(V), T(1.0))
    with pytest.raises(TypeError, match="are tuples"):
        jvp(wave, (T(A),), T(V))


def test_an_integer_result_does_not_move() -> None:
    value, moved = jvp(lambda x: (x * 2.0, x.cast(i32)), (T(A),), (T(V),))
    assert value[1].dtype is i32 and moved[1].dtype is i32
    assert (moved[1].numpy() == 0).all()
    near(moved[0], 2 * V)


# -- composition -------------------------------------------------------------------


def test_gradients_of_gradients() -> None:
    near(grad(lambda x: (grad(wave)(x) * T(V)).sum())(T(A)), wave_bend(A) * V)
    near(grad(grad(grad(grad(lambda x: x**5))))(T(2.0)), 240.0)


def test_an_inner_transform_does_not_see_the_outer_variable() -> None:
    """d/dx (x * d/dy (x + y)) is 1, not 2."""
    near(grad(lambda x: x * grad(lambda y: x + y)(T(1.0)))(T(1.0)), 1.0)
    near(grad(lambda x: x * grad(lambda y: x * y)(x))(T(3.0)), 6.0)


def test_forward_and_reverse_in_any_order() -> None:
    def slope_forward(x: Tensor) -> Tensor:
        return jvp(wave, (x,), (T(V),))[1]

    near(grad(slope_forward)(T(A)), wave_bend(A) * V)  # reverse over forward
    near(jvp(grad(wave), (T(A),), (T(V),))[1], wave_bend(A) * V)
    near(jvp(slope_forward, (T(A),), (T(W),))[1], (wave_bend(A) * V * W).sum())
    near(hvp(wave, (T(A),), (T(V),))[0], wave_bend(A) * V)

    def pulled(x: Tensor) -> Tensor:
        return vjp(lambda y: y.sin(), x)[1](T(W))[0]

    near(jvp(pulled, (T(A),), (T(V),))[1], -np.sin(A) * V * W)  # jvp of vjp


def test_hvp_of_several_arguments() -> None:
    ha, hb = hvp(lambda a, b: (a * a * b).sum(), (T(A), T(B)), (T(V), T(W)))
    near(ha, 2 * B * V + 2 * A * W)
    near(hb, 2 * A * V)


def test_stop_gradient_of_nested_structures() -> None:
    def f(x: Tensor) -> Tensor:
        held = stop_gradient({"x": x, "n": 1})["x"]
        return (held * x).sum()

    near(grad(f)(T(A)), A)
    near(jvp(f, (T(A),), (T(V),))[1], (A * V).sum())


# -- transforms and backward ---------------------------------------------------------


def test_backward_goes_on_through_what_a_transform_returned() -> None:
    w = Tensor(B, requires_grad=True)
    inner = grad(lambda x: (x * x * w).sum())(T(A))  # 2 x w
    assert inner.requires_grad
    inner.sum().backward()
    assert w.grad is not None
    near(w.grad, 2 * A)
    x = Tensor(A, requires_grad=True)
    grad(wave)(x).sum().backward()
    assert x.grad is not None
    near(x.grad, wave_bend(A))


def test_nothing_requires_a_gradient_for_no_reason() -> None:
    assert not grad(wave)(T(A)).requires_grad
    assert not jvp(wave, (T(A),), (T(V),))[1].requires_grad


def test_a_rule_that_is_not_linear_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry().vjps, Ops.SIN, lambda u, g: (g * g,))
    with pytest.raises(NotLinearError, match="rule of sin is not linear"):
        jvp(lambda x: x.sin(), (T(A),), (T(V),))


# -- trees -----------------------------------------------------------------


def test_trees_come_back_as_they_were() -> None:
    tree = {"a": [1, (2, None)], "b": Pair(3, {}), "c": Layer([4], ())}
    leaves, structure = flatten(tree)
    assert leaves == [1, 2, 3, 4] and structure.size == 4
    assert structure.filled(leaves) == tree
    assert structure.paths("t") == ["t['a'][0]", "t['a'][1][0]", "t['b'].a",
                                    "t['c'].weight[0]"]  # fmt: skip
    assert mapped(lambda n: n + 1, tree)["a"] == [2, (3, None)]
    assert flatten([1, 2])[1] != flatten((1, 2))[1]
    assert flatten({"a": 1})[1] != flatten({"b": 1})[1]
    assert flatten(T(A))[0][0].dtype is f64

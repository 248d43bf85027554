"""vmap by itself: against a loop over the batch, its axes, its mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from by_loop import AT, RNG, SCALAR, N, T, W, X, Y, layer, loop, near

from uopc.autodiff import grad, vmap
from uopc.dtype import f32, i32
from uopc.spec import SpecError
from uopc.tensor import Tensor
from uopc.uop import Ops, toposort


@pytest.mark.parametrize("f", [*SCALAR, layer], ids=lambda f: f.__name__)
def test_a_batch_is_a_loop(f: Any) -> None:
    near(vmap(f)(T(X)), loop(f, T(X)))


def test_integers_and_copies_are_equal_to_the_bit() -> None:
    def f(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        return x.flip(0)[1:], x.take(at), x @ T(np.ones((4, 2))), x.sum(), x.prod()

    x = T(RNG.integers(-9, 9, (N, 4)))  # sums of these are exact
    for a, b in zip(vmap(f)(x, Tensor(AT)), loop(f, x, Tensor(AT)), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_which_axes() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return x * y + x.sum()

    x, y = T(X), T(Y)
    wanted = loop(f, x, y)
    near(vmap(f)(x, y), wanted)
    near(vmap(f, 1)(x.T, y.T), wanted)
    near(vmap(f, -1)(x.T, y.T), wanted)
    near(vmap(f, (1, 0))(x.T, y), wanted)
    near(vmap(f, [0, -2])(x, y), wanted)
    near(vmap(f, (0, None))(x, y[1]), loop(lambda x: f(x, y[1]), x))
    near(vmap(f, (None, 0))(x[1], y), loop(lambda y: f(x[1], y), y))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_where_the_axis_goes(axis: int) -> None:
    def f(x: Tensor) -> Tensor:
        return x.reshape(2, 2) * 2

    near(vmap(f, out_axes=axis)(T(X)), np.moveaxis(X.reshape(N, 2, 2) * 2, 0, axis))


def test_axes_for_each_of_several_results() -> None:
    def f(x: Tensor) -> dict[str, Any]:
        return {"a": x, "b": (x * 2, x.sum()), "c": T(W)}

    found = vmap(f, out_axes={"a": 1, "b": 0, "c": None})(T(X))
    near(found, {"a": X.T, "b": (X * 2, X.sum(1)), "c": W})
    again = vmap(f, out_axes={"a": 1, "b": (-1, 0), "c": 2})(T(X))
    near(again["b"][0], 2 * X.T)
    near(again["c"], np.stack([W] * N, 2))


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Layer:
    w: Any
    b: Any


def test_nested_arguments_and_results() -> None:
    def f(params: Layer, pair: Pair, rest: dict[str, Any]) -> Pair:
        assert rest["how"] == "up" and rest["k"] == 2
        y = pair.a @ params.w + params.b
        return Pair(y * rest["k"], {"sum": [y.sum(), None]})

    params, pair = Layer(T(W), T(W[0])), Pair(T(X), T(Y))
    rest = {"how": "up", "k": 2}
    y = X @ W + W[0]
    wanted = Pair(2 * y, {"sum": [y.sum(1), None]})
    near(vmap(f, (None, 0, None))(params, pair, rest), wanted)
    near(vmap(f, (Layer(None, None), Pair(0, 0), 0))(params, pair, rest), wanted)
    near(
        vmap(f, (Layer(None, 1), 0, {"how": 0, "k": None}))(
            Layer(T(W), T(np.stack([W[0]] * N, 1))), pair, rest
        ),
        wanted,
    )


def test_keywords_are_batched_along_axis_0_and_arrays_become_tensors() -> None:
    def f(x: Tensor, *, scale: Tensor, axis: int) -> Tensor:
        assert x.shape == (4,) and scale.shape == ()
        return x.sum(axis) * scale

    got = vmap(f)(X, scale=T([1, 2, 3]), axis=0)
    near(got, X.sum(1) * [1, 2, 3])


def test_a_function_is_called_once_and_its_name_kept() -> None:
    calls = []

    def named(x: Tensor) -> Tensor:
        """Says it."""
        calls.append(x.shape)
        return x + 1

    f = vmap(named)
    near(f(T(X)), X + 1)
    assert calls == [(4,)]
    assert (f.__name__, f.__doc__) == ("named", "Says it.")


def test_no_elements_and_axes_of_length_zero() -> None:
    for n, k in [(0, 4), (3, 0), (0, 0)]:
        x = T(np.zeros((n, k)))
        assert vmap(lambda x: x.exp().sum())(x).numpy().tolist() == [0.0] * n
        assert vmap(lambda x: x[:, None] * x)(x).shape == (n, k, k)
        assert vmap(grad(lambda x: (x * x).sum()))(x).shape == (n, k)
        per_example = vmap(lambda x, i: x.take(i))(x, Tensor(np.zeros(n, np.int32)))
        assert per_example.numpy().tolist() == [0.0] * n


def test_random_numbers_are_the_same_for_all_elements() -> None:
    Tensor.manual_seed(0)
    drawn = vmap(lambda x: x + Tensor.rand(4))(Tensor.zeros(N, 4)).numpy()
    assert (drawn == drawn[0]).all() and len(set(drawn[0])) == 4
    Tensor.manual_seed(0)
    noise = Tensor.rand(N, 4)
    near(vmap(lambda x, r: x + r)(Tensor.zeros(N, 4), noise), noise)


def test_values_cannot_be_read_inside() -> None:
    reads: list[Callable[[Tensor], Any]] = [Tensor.item, Tensor.numpy, bool, float]
    for read in reads:
        with pytest.raises(SpecError, match=r"vmap, .* cannot be read"):
            vmap(lambda x, read=read: x if read(x) else -x)(T([1.0, 2.0]))


def test_what_a_batch_shares_is_not_copied() -> None:
    x, w = T(X), T(W)
    y = vmap(lambda x: x @ w.exp())(x)
    exp = next(u for u in toposort([y.uop]) if u.op is Ops.EXP)
    assert exp.shape == (4, 5)


@pytest.mark.parametrize("dtype", [f32, i32], ids=str)
def test_other_types(dtype: Any) -> None:
    x = Tensor(RNG.integers(-5, 5, (N, 4)), dtype=dtype)
    near(vmap(lambda x: x * 2 + x.sum())(x), loop(lambda x: x * 2 + x.sum(), x))


# -- mistakes --------------------------------------------------------------------------


def same(*args: Any) -> Any:
    return args[0]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: vmap(same)(T(X), T(W)), ValueError,
            r"differ: argument 0 is f64\[3, 4\] with the batch on axis 0, "
            r"argument 1 is f64\[4, 5\]",
        ),
        (
            lambda: vmap(same, (0, 1))(T(X), {"a": [T(X)]}), ValueError,
            r"argument 1\['a'\]\[0\] is f64\[3, 4\] with the batch on axis 1",
        ),
        (
            lambda: vmap(same)(T(X), k=T(W)), ValueError, r"argument k is f64\[4, 5\]",
        ),
        (
            lambda: vmap(same)(T(X), T(1.0)), ValueError,
            r"argument 1 is f64\[\], which has no axis 0",
        ),
        (lambda: vmap(same, -3)(T(X)), ValueError, "has no axis -3"),
        (lambda: vmap(same, None)(T(X)), ValueError, "no argument has a batch axis"),
        (lambda: vmap(same)(3), ValueError, "no argument has a batch axis"),
        (lambda: vmap(same, (0, 0))(T(X)), ValueError, r"in_axes is \(0, 0\), for a t"),
        (lambda: vmap(same, True)(T(X)), ValueError, "in_axes is True"),
        (lambda: vmap(same, "0")(T(X)), ValueError, "in_axes is '0'"),
        (lambda: vmap(same, ([0],))(T(X)), ValueError, r"in_axes\[0\] is \[0\], for a"),
        (
            lambda: vmap(same, ({"b": 0},))({"a": T(X)}), ValueError,
            r"in_axes\[0\] is {'b': 0}, for a dict with the parts 'a'",
        ),
        (lambda: vmap(same, out_axes=2)(T(X)), ValueError, "cannot put it at 2"),
        (lambda: vmap(same, out_axes=-3)(T(X)), ValueError, "cannot put it at -3"),
        (lambda: vmap(same, out_axes=None)(T(X)), ValueError, "depends on the batch"),
        (lambda: vmap(same, out_axes=(0,))(T(X)), ValueError, r"out_axes is \(0,\)"),
        (lambda: vmap(lambda x: 1.0)(T(X)), TypeError, "the result .* is a float"),
    ],
)  # fmt: skip
def test_mistakes(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call()

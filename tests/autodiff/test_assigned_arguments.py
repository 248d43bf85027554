"""A pullback is at the values of the time: later assignments do not move it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import checkpoint, custom_vjp, linearize, vjp, vmap
from uopc.runtime import buffer_data
from uopc.runtime.values import held
from uopc.tensor import Tensor

A = np.array([1.0, -2.0, 3.0])
V = np.array([0.5, 1.0, -1.0])

own = custom_vjp(lambda x: x * x)
own.defvjp(lambda x: (x * x, x), lambda x, g: (g * x * 2.0,))

SQUARES: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x * x,
    "custom_vjp": own,
    "checkpoint": checkpoint(lambda x: x * x),
    "vmap": vmap(lambda x: x * x),
}


def leaf() -> Tensor:
    return Tensor(A)


def parameter() -> Tensor:
    return Tensor(A, requires_grad=True)


def computed() -> Tensor:
    return Tensor(A) * 1.0


def read() -> Tensor:
    return (Tensor(A) * 1.0).realize()


def read_result() -> Tensor:
    return (parameter() * 1.0).realize()


KINDS = [leaf, parameter, computed, read, read_result]


def pulled(f: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], Any]:
    _, pullback = vjp(f, x)
    return lambda: pullback(Tensor(V))[0]


def pushed(f: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], Any]:
    _, pushforward = linearize(f, x)
    return lambda: pushforward(Tensor(V))


@pytest.mark.parametrize("made", [pulled, pushed])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SQUARES)
def test_an_argument_that_is_assigned_later(
    made: Callable[..., Any], kind: Callable[[], Tensor], name: str
) -> None:
    x = kind()
    derivative = made(SQUARES[name], x)
    for _ in range(2):  # the second time its old memory is nobody else's
        x.assign(x * 10.0)
        np.testing.assert_array_equal(derivative().numpy(), 2 * A * V)
        x.realize()
    np.testing.assert_array_equal(derivative().numpy(), 2 * A * V)
    np.testing.assert_array_equal(x.numpy(), 100 * A)


@pytest.mark.parametrize("made", [pulled, pushed])
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_function_reads_and_returns_is_of_that_time_too(
    made: Callable[..., Any], kind: Callable[[], Tensor]
) -> None:
    w = kind()
    derivative = made(lambda x: x * w, Tensor(V))
    nothing = made(lambda x: w, Tensor(V))
    w.assign(w * 10.0).realize()
    np.testing.assert_array_equal(derivative().numpy(), A * V)
    np.testing.assert_array_equal(nothing().numpy(), 0 * A)


def test_nested_arguments_that_are_assigned_later() -> None:
    x, y = leaf(), parameter()
    _, pullback = vjp(lambda t: t["x"] * t["y"][0], {"x": x, "y": (y,)})
    x.assign(Tensor(V))
    y.assign(Tensor(V))
    (found,) = pullback(Tensor(V))
    np.testing.assert_array_equal(found["x"].numpy(), A * V)
    np.testing.assert_array_equal(found["y"][0].numpy(), A * V)


def test_the_old_value_is_freed_with_the_pullback() -> None:
    x = parameter()
    pullback = vjp(lambda x: x * x, x)[1]
    buf = held(x.uop)
    assert buf is not None
    x.assign(x * 10.0).realize()
    np.testing.assert_array_equal(buffer_data(buf), A)
    del pullback
    x.assign(x * 10.0).realize()
    with pytest.raises(RuntimeError, match="assigned a new value since"):
        buffer_data(buf)


def test_gradients_of_a_parameter_that_was_assigned_a_number() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    w.assign(0.5)
    (w * w).sum().backward([w])
    assert w.grad is not None
    assert w.grad.tolist() == [1.0, 1.0]

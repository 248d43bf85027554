"""Every figure of the worked examples, and gradients of what users write.

Gradients of whole Tensor functions are compared with differences of independent
NumPy functions, so that a mistake in a shared part cannot cancel itself out.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from uopc.tensor import Tensor

FIGURES = 1e-6
F32 = np.float32
Array = np.ndarray


def tensor(values: object, dtype: type = F32) -> Tensor:
    return Tensor(np.array(values, dtype), requires_grad=dtype is not np.int32)


def grads(loss: Tensor, *params: Tensor) -> list[Array]:
    loss.backward(list(params))
    return [p.grad.numpy() for p in params if p.grad is not None]


def _product_plus_x() -> list[Array]:
    x, y = tensor([1, 2, 3]), tensor([10, 20, 30])
    return grads((x * y + x).sum(), x, y)


def _at_the_kink(function: Callable[[Tensor], Tensor]) -> list[Array]:
    x = tensor([-2, 0, 3])
    return grads(function(x).sum(), x)


def _elementwise_ties() -> list[Array]:
    x, y = tensor([3, 2, 1]), tensor([1, 2, 3])
    return grads(x.maximum(y).sum(), x, y)


def _one(values: object, function: Callable[[Tensor], Tensor]) -> list[Array]:
    x = tensor(values)
    return grads(function(x), x)


def _second_of_cube() -> list[Array]:
    x = tensor([1, 2, 3, 4])
    (x * x * x).sum().backward([x])
    g = x.grad
    assert g is not None
    x.grad = None
    return [*grads(g.sum(), x), g.numpy()]


def _cross_entropy() -> list[Array]:
    t = tensor([[2.0, 1.0, 0.1], [0.5, 2.5, 0.3]])
    return grads(t.cross_entropy(tensor([0, 1], np.int32)), t)


def _stack_and_index() -> list[Array]:
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(F32)
    t = tensor(x)
    return grads((t.stack_with(t * t)[1].sum(0) * tensor([1, 2, 3])).sum(), t)


EXAMPLES: dict[str, tuple[Callable[[], list[Array]], list[object]]] = {
    "sum(x * y + x)": (_product_plus_x, [[11, 21, 31], [1, 2, 3]]),
    "abs": (lambda: _at_the_kink(Tensor.abs), [[-1, 0, 1]]),
    "relu": (lambda: _at_the_kink(Tensor.relu), [[0, 0, 1]]),
    "maximum with 0": (lambda: _at_the_kink(lambda x: x.maximum(0)), [[0, 0.5, 1]]),
    "a slice": (
        lambda: _one([1, 2, 3, 4, 5], lambda v: v[1:3].sum()),
        [[0, 1, 1, 0, 0]],
    ),
    "max of three": (lambda: _one([1, 3, 3], Tensor.max), [[0, 0.5, 0.5]]),
    "min of three": (lambda: _one([2, 1, 1], Tensor.min), [[0, 0.5, 0.5]]),
    "max(x, y) with a tie": (_elementwise_ties, [[1, 0.5, 0], [0, 0.5, 1]]),
    "w * detached w": (
        lambda: _one([1, 2], lambda w: (w * w.detach()).sum()),
        [[1, 2]],
    ),
    "w * w": (lambda: _one([1, 2], lambda w: (w * w).sum()), [[2, 4]]),
    "second and first of x ** 3": (_second_of_cube, [[6, 12, 18, 24], [3, 12, 27, 48]]),
    "cross entropy": (
        _cross_entropy,
        [
            [
                [-0.17049944, 0.12121649, 0.04928295],
                [0.05430186, -0.09876046, 0.0444586],
            ]
        ],
    ),
    "stack, then index": (
        _stack_and_index,
        [[[0.25146043, -0.52841944, 3.842536], [0.20980023, -2.1426775, 2.1695704]]],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_printed_figure(name: str) -> None:
    compute, expected = EXAMPLES[name]
    found = compute()
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, np.array(want), rtol=0, atol=FIGURES)


def test_cross_entropy_is_softmax_minus_one_hot_over_the_batch() -> None:
    z = np.array([[2.0, 1.0, 0.1], [0.5, 2.5, 0.3]])
    softmax = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    by_hand = (softmax - np.eye(3)[[0, 1]]) / 2
    np.testing.assert_allclose(_cross_entropy()[0], by_hand, rtol=0, atol=1e-7)


def differences(f: Callable[[Array], float], x: Array, step: float = 1e-3) -> Array:
    """Central differences in float64, one element at a time."""
    g = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        up, down = x.astype(np.float64), x.astype(np.float64)
        up[i] += step
        down[i] -= step
        g[i] = (f(up) - f(down)) / (2 * step)
    return g


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


W = np.arange(12.0).reshape(3, 4) / 7 - 0.6
# What to differentiate: as a Tensor, and in NumPy.
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
    "tanh": (Tensor.tanh, np.tanh),
    "log softmax, sliced": (
        lambda t: t.log_softmax(-1)[:, 1],
        lambda x: np.log(_softmax(x))[:, 1],
    ),
    "both reductions": (
        lambda t: t.max(-1) * t.sum(0).max(),
        lambda x: x.max(-1) * x.sum(0).max(),
    ),
    "pad, slice, square": (
        lambda t: t.pad(((1, 1), (0, 2)))[1:3, 1:].square(),
        lambda x: np.pad(x, ((1, 1), (0, 2)))[1:3, 1:] ** 2,
    ),
    "square root and reciprocal": (
        lambda t: (t.square() + 1).sqrt().reciprocal(),
        lambda x: 1 / np.sqrt(x**2 + 1),
    ),
    "sine of a matmul": (lambda t: (t @ t.T).sin(), lambda x: np.sin(x @ x.T)),
    "sigmoid": (Tensor.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "gelu": (Tensor.gelu, _gelu),
    "relu": (Tensor.relu, lambda x: np.maximum(x, 0)),
    "exp and log": (lambda t: (t.exp() + 1).log(), lambda x: np.log(np.exp(x) + 1)),
    "exp2, log2": (lambda t: (t.exp2() + 1).log2(), lambda x: np.log2(2**x + 1)),
    "sine and cosine": (lambda t: t.sin() * t.cos(), lambda x: np.sin(x) * np.cos(x)),
    "quotient": (lambda t: t / (t.abs() + 1), lambda x: x / (np.abs(x) + 1)),
    "number over tensor": (lambda t: 2 / (t.square() + 1), lambda x: 2 / (x**2 + 1)),
    "powers": (
        lambda t: t**3 + (t.square() + 1) ** 0.5,
        lambda x: x**3 + np.hypot(x, 1),
    ),
    "weighted softmax": (
        lambda t: t.softmax(-1) * Tensor(W.astype(F32)),
        lambda x: _softmax(x) * W,
    ),
    "softmax of columns": (
        lambda t: t.softmax(0) * Tensor(W.astype(F32)),
        lambda x: _softmax(x.T).T * W,
    ),
    "variance": (lambda t: t.var(0), lambda x: x.var(0)),
    "mean and minimum": (
        lambda t: t.mean(1) * t.min(1),
        lambda x: x.mean(1) * x.min(1),
    ),
    "product": (lambda t: t.prod(1), lambda x: x.prod(1)),
    "where": (
        lambda t: (t > 0.1).where(t * 3, t.square()),
        lambda x: np.where(x > 0.1, x * 3, x**2),
    ),
    "broadcast row and column": (
        lambda t: (t[:1] * t[:, :1]).square(),
        lambda x: (x[:1] * x[:, :1]) ** 2,
    ),
    "flip and step": (
        lambda t: t.flip(1)[:, ::2] * t[:, ::-2],
        lambda x: x[:, ::-1][:, ::2] * x[:, ::-2],
    ),
    "cat and transpose": (
        lambda t: (Tensor.cat([t, t * 2], 0).T @ Tensor.cat([t, t], 0)).square(),
        lambda x: (np.concatenate([x, 2 * x]).T @ np.concatenate([x, x])) ** 2,
    ),
    "permute of three axes": (
        lambda t: (
            t.reshape(2, 3, 2).permute(1, 2, 0).reshape(3, 4) * Tensor(W.astype(F32))
        ),
        lambda x: x.reshape(2, 3, 2).transpose(1, 2, 0).reshape(3, 4) * W,
    ),
    "elements": (
        lambda t: t[1, 2] * t[-1, 0] + t[2],
        lambda x: x[1, 2] * x[-1, 0] + x[2],
    ),
    "batched matmul": (
        lambda t: t.reshape(3, 2, 2) @ t.reshape(3, 2, 2).transpose(),
        lambda x: x.reshape(3, 2, 2) @ x.reshape(3, 2, 2).transpose(0, 2, 1),
    ),
    "vector times matrix": (lambda t: t[0] @ t.T, lambda x: x[0] @ x.T),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_against_differences(name: str) -> None:
    function, reference = FUNCTIONS[name]
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(F32)
    t = tensor(x)
    y = function(t)
    weights = np.linspace(0.5, 1.5, y.numel()).reshape(y.shape)
    (g,) = grads((y * Tensor(weights.astype(F32))).sum(), t)
    wanted = differences(lambda v: float(np.sum(reference(v) * weights)), x)
    np.testing.assert_allclose(g, wanted, rtol=2e-4, atol=2e-5)


# Gradients at [-1000, -20, 0, 20, 1000], where a careless formula gives NaN or 0.
TINY = math.exp(-20)
FAR: dict[str, tuple[Callable[[Tensor], Tensor], list[float]]] = {
    "sigmoid": (Tensor.sigmoid, [0, TINY, 0.25, TINY, 0]),
    "tanh": (Tensor.tanh, [0, 0, 1, 0, 0]),
    "gelu": (Tensor.gelu, [0, 0, 0.5, 1, 1]),
    "relu": (Tensor.relu, [0, 0, 0, 1, 1]),
    "log softmax": (lambda t: t.log_softmax()[:1], [1, 0, 0, 0, -1]),
    "softmax": (lambda t: t.softmax()[-1:], [0, 0, 0, 0, 0]),
    "cross entropy": (
        lambda t: t.reshape(1, 5).cross_entropy(tensor([1], np.int32)),
        [0, -1, 0, 0, 1],
    ),
}


@pytest.mark.parametrize("name", FAR)
def test_gradients_far_from_zero(name: str) -> None:
    function, expected = FAR[name]
    t = tensor([-1000, -20, 0, 20, 1000])
    (g,) = grads(function(t).sum(), t)
    np.testing.assert_allclose(g, expected, rtol=1e-6, atol=1e-16)


def test_a_one_hot_matmul_adds_up_the_gradients_of_equal_tokens() -> None:
    table = tensor(np.arange(8).reshape(4, 2))
    tokens = tensor([1, 3, 1], np.int32)
    weights = np.array([[1, 10], [2, 20], [3, 30]], F32)
    (g,) = grads(((tokens.one_hot(4) @ table) * Tensor(weights)).sum(), table)
    assert g.tolist() == [[0, 0], [4, 40], [0, 0], [2, 20]]


def test_the_two_gradients_of_a_matmul() -> None:
    rng = np.random.default_rng(2)
    x, w, g = (rng.standard_normal(s).astype(F32) for s in ((5, 3), (3, 4), (5, 4)))
    tx, tw = tensor(x), tensor(w)
    gx, gw = grads(((tx @ tw) * Tensor(g)).sum(), tx, tw)
    np.testing.assert_allclose(gx, g @ w.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gw, x.T @ g, rtol=1e-5, atol=1e-6)

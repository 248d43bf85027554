"""Tensor's functions beside `jax.numpy` and `jax.nn`, to order 2, in f64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from uopc.autodiff import gradient
from uopc.autodiff.forward import tangents
from uopc.dtype import f64
from uopc.interp import evaluate
from uopc.nn import scaled_dot_product_attention
from uopc.runtime import buffer_data
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, toposort

jax.config.update("jax_enable_x64", True)

Pair = tuple[Callable[..., Any], Callable[..., Any]]
LABELS = np.array([2, 0, 4], np.int32)
PLACES = np.array([[4, 0], [1, 1], [3, 0]], np.int32)
MASK = np.array([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 1, 0]], bool)
FAR = -1e3
jnn = jax.nn


def same(name: str) -> Pair:
    """A function of one name on both sides."""
    other = getattr(jnp, name, None) or getattr(jnn, name)
    return lambda x: getattr(x, name)(), other


def over(name: str, **options: Any) -> Pair:
    """A function of the last axis."""
    other = getattr(jnp, name, None) or getattr(jnn, name)
    keep = {"keepdims" if k == "keepdim" else k: v for k, v in options.items()}
    ours = lambda x: getattr(x, name)(axis=-1, **options)  # noqa: E731
    return ours, lambda x: other(x, axis=-1, **keep)


def chosen(x: Any) -> Any:
    """Minus the logarithm of softmax at the labels."""
    return -jnn.log_softmax(x)[jnp.arange(3), LABELS].mean()


def attention(q: Any, k: Any, v: Any) -> Any:
    return jnn.softmax(q @ k.T / np.sqrt(q.shape[-1]), axis=-1) @ v


# Functions of a (3, 5) array, some of two: ours, JAX's.
ONE: dict[str, Pair] = {
    **{name: same(name) for name in (
        "exp", "exp2", "sin", "cos", "tanh", "sigmoid", "softplus", "relu", "silu",
        "gelu", "abs", "square", "reciprocal",
    )},
    "logsigmoid": (lambda x: x.logsigmoid(), jnn.log_sigmoid),
    **{name: over(name) for name in (
        "sum", "prod", "max", "min", "mean", "var", "std", "softmax", "log_softmax",
        "cumsum", "cumprod", "sort",
    )},
    "var of a sample": (lambda x: x.var(-1, correction=1), lambda x: x.var(-1, ddof=1)),
    "std of all": (lambda x: x.std(), jnp.std),
    "norm": (lambda x: x.norm(axis=-1), lambda x: jnp.linalg.norm(x, axis=-1)),
    "1-norm": (lambda x: x.norm(1, -1), lambda x: jnp.linalg.norm(x, 1, -1)),
    "inf-norm": (
        lambda x: x.norm(float("inf"), -1),
        lambda x: jnp.linalg.norm(x, jnp.inf, -1),
    ),
    "logsumexp": (
        lambda x: x.logsumexp(-1),
        lambda x: jax.scipy.special.logsumexp(x, axis=-1),
    ),
    "cross entropy": (lambda x: x.cross_entropy(Tensor(LABELS)), chosen),
    "smoothed cross entropy": (
        lambda x: x.cross_entropy(Tensor(LABELS), label_smoothing=0.1),
        lambda x: 0.9 * chosen(x) - 0.1 * jnn.log_softmax(x).mean(),
    ),
    "sort downwards": (
        lambda x: x.sort(descending=True),
        lambda x: jnp.sort(x, descending=True),
    ),
    "topk": (lambda x: x.topk(2)[0], lambda x: jax.lax.top_k(x, 2)[0]),
    "take": (lambda x: x.take(PLACES, 1), lambda x: jnp.take(x, PLACES, 1)),
    "gather": (
        lambda x: x.gather(1, PLACES),
        lambda x: jnp.take_along_axis(x, PLACES, 1),
    ),
    "cube": (lambda x: x**3, lambda x: x**3),
    "power of two": (lambda x: 2**x, lambda x: 2.0**x),
    "% 0.7": (lambda x: x % 0.7, lambda x: x % 0.7),
    "pad": (lambda x: x.pad([(1, 0), (0, 2)]), lambda x: jnp.pad(x, ((1, 0), (0, 2)))),
    "masked softmax": (
        lambda x: Tensor(MASK).where(x, FAR).softmax(-1),
        lambda x: jnn.softmax(jnp.where(MASK, x, FAR), -1),
    ),
}  # fmt: skip
POSITIVE: dict[str, Pair] = {
    **{name: same(name) for name in ("log", "log2", "log1p", "sqrt")},
    "1.5th power": (lambda x: x**1.5, lambda x: x**1.5),
    "-0.5th power": (lambda x: x**-0.5, lambda x: x**-0.5),
    "inverse square": (lambda x: x**-2, lambda x: x**-2),
}
TWO: dict[str, Pair] = {
    "product": (lambda x, y: x * y, lambda x, y: x * y),
    "quotient": (lambda x, y: x / y, lambda x, y: x / y),
    "maximum": (lambda x, y: x.maximum(y), jnp.maximum),
    "minimum": (lambda x, y: x.minimum(y), jnp.minimum),
    "power": (lambda x, y: x.exp() ** y, lambda x, y: jnp.exp(x) ** y),
    "matmul": (lambda x, y: x @ y.T, lambda x, y: x @ y.T),
    "where": (lambda x, y: (x > 0).where(x, y), lambda x, y: jnp.where(x > 0, x, y)),
    "scatter add": (
        lambda x, y: x.scatter_add(1, PLACES, y),
        lambda x, y: x.at[np.arange(3)[:, None], PLACES].add(y[:, :2]),
    ),
    "attention": (
        lambda x, y: scaled_dot_product_attention(x, y, x * y),
        lambda x, y: attention(x, y, x * y),
    ),
    "cat": (
        lambda x, y: Tensor.cat([x, y], 1),
        lambda x, y: jnp.concatenate([x, y], 1),
    ),
}
CASES = [
    *((f"{name}", pair, 1, False) for name, pair in ONE.items()),
    *((f"{name}", pair, 1, True) for name, pair in POSITIVE.items()),
    *((f"{name}", pair, 2, False) for name, pair in TWO.items()),
]


def points(seed: int, count: int, positive: bool) -> list[np.ndarray]:
    """Distinct numbers, clear of ties and kinks."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        x = rng.permutation(np.linspace(-2, 2, 15).round(3) + 0.01).reshape(3, 5)
        x += rng.uniform(-0.005, 0.005, x.shape)
        found.append(np.abs(x) + 0.1 if positive else x * 10.0 ** rng.integers(-1, 2))
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_value_and_derivatives(case: Any, seed: int) -> None:
    _, (ours, theirs), count, positive = case
    xs = points(seed, count, positive)
    rng = np.random.default_rng(100 + seed)
    ways = [rng.standard_normal(x.shape) for x in xs]
    value = np.asarray(theirs(*map(jnp.asarray, xs)))
    weights = rng.standard_normal(value.shape)

    leaves = [UOp.param(i, f64, x.shape) for i, x in enumerate(xs)]
    moving = [UOp.param(9 + i, f64, x.shape) for i, x in enumerate(xs)]
    factor = UOp.param(99, f64, value.shape)
    root = ours(*(Tensor(u) for u in leaves)).uop
    first = gradient(root, leaves, factor)
    slope = UOp.const(0.0, f64)
    for g, v in zip(first, moving, strict=True):
        slope = slope + (g * v).reduce(Ops.ADD, 2)
    second = gradient(slope, leaves)
    moved = tangents([root], leaves, moving)
    data = dict(zip([*leaves, *moving, factor], [*xs, *ways, weights], strict=True))
    nodes = [root, *first, *second, *moved]
    held = {u: buffer_data(u) for u in toposort(nodes) if u.op is Ops.BUFFER}
    got = evaluate(nodes, data | {u: u.dtype.load(x) for u, x in held.items()})

    pull = jax.grad(lambda *a: (theirs(*a) * weights).sum(), tuple(range(count)))
    in_jax, hessian = jax.jvp(pull, tuple(xs), tuple(ways))
    push = jax.jvp(theirs, tuple(xs), tuple(ways))[1]
    for k, (a, b) in enumerate(zip(got, [value, *in_jax, *hessian, push], strict=True)):
        size = max(1.0, float(np.abs(b).max(initial=0)))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11 * size, err_msg=f"{k}")

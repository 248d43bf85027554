"""The workloads in JAX, jitted, with donated parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from peers import formulas
from peers.workloads import BETAS, DECAY, EPSILON, LEARNING_RATE, Array, Workload


def version() -> str:
    """Of JAX."""
    return str(jax.__version__)


def make(workload: Workload, threads: int) -> Callable[[], Any]:
    """A call that computes the workload once and returns its array or its loss."""
    given, kind = workload.inputs(), workload.kind
    if kind == "deep":
        return _deep(*given)
    losses = {
        "mlp": partial(formulas.mlp_loss, jnp),
        "cnn": partial(formulas.cnn_loss, jnp, _conv),
        "gpt": partial(formulas.gpt_loss, jnp),
    }
    if kind in losses:
        return _train(losses[kind], *given)
    function: Callable[..., Any]
    if kind == "logits":
        function, given = partial(formulas.gpt_logits, jnp), given[:2]
    elif kind == "conv":
        function = partial(_conv, padding=1)
    elif kind == "softmax":
        function = partial(jax.nn.softmax, axis=-1)
    elif kind == "attention":
        function = _attention
    elif kind == "scatter":
        function = _scatter
    else:
        function = formulas.operation(jnp, kind)
    jitted = jax.jit(function)
    arrays = jax.tree.map(jnp.array, given)
    return lambda: jax.block_until_ready(jitted(*arrays))


def as_numpy(result: Any) -> Array:
    """The array of what such a call returned, or all of its arrays in a row."""
    if isinstance(result, tuple):
        return np.concatenate([np.asarray(r) for r in result])
    return np.asarray(result)


def _attention(q: Any, k: Any, v: Any, g: Any) -> Any:
    return jax.vjp(partial(formulas.attention, jnp), q, k, v)[1](g)


def _scatter(table: Any, at: Any, g: Any) -> Any:
    return jax.vjp(lambda table: table[at], table)[1](g)[0]


def _conv(x: Any, w: Any, padding: int) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), [(padding, padding)] * 2)


def _train(
    loss: Callable[..., Any], p: Any, x: Any, labels: Any
) -> Callable[[], float]:
    p, x, labels = jax.tree.map(jnp.array, (p, x, labels))

    @partial(jax.jit, donate_argnums=0)
    def step(state: Any, x: Any, labels: Any) -> Any:
        p, m, v, t = state
        (beta1, beta2), t = BETAS, t + 1
        value, grads = jax.value_and_grad(loss)(p, x, labels)
        m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, m, grads)
        v = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, v, grads)

        def moved(p: Any, m: Any, v: Any) -> Any:
            size = jnp.sqrt(v / (1 - beta2**t)) + EPSILON
            decayed = p * (1 - LEARNING_RATE * DECAY)
            return decayed - LEARNING_RATE * (m / (1 - beta1**t)) / size

        return value, (jax.tree.map(moved, p, m, v), m, v, t)

    zeros = partial(jax.tree.map, jnp.zeros_like, p)
    state = [(p, zeros(), zeros(), jnp.zeros((), jnp.float32))]

    def call() -> float:
        value, state[0] = step(state[0], x, labels)
        jax.block_until_ready(state[0])
        return float(value)

    return call


def _deep(ps: Any, x: Any) -> Callable[[], None]:
    """The graph of the gradient, traced anew each time and not compiled."""
    ps, x = jax.tree.map(jnp.asarray, ps), jnp.asarray(x)

    def call() -> None:
        # A new function, for which nothing is remembered.
        jax.make_jaxpr(jax.grad(lambda ps: formulas.deep_loss(jnp, ps, x)))(ps)

    return call

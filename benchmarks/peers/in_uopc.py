"""The workloads in uopc: jitted functions, and models of `uopc.nn`'s parts."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version as version_of
from typing import Any

import numpy as np

from peers.workloads import (
    BETAS,
    DECAY,
    EPSILON,
    HEADS,
    LEARNING_RATE,
    Array,
    Parameters,
    Workload,
)
from uopc.autodiff import vjp
from uopc.nn import AdamW, parameters, scaled_dot_product_attention
from uopc.runtime import jit
from uopc.tensor import Tensor

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "matmul": lambda a, b: a @ b,
    # As the others write it; `x.gelu()` computes it in f64, to within half an ulp.
    "gelu": lambda x: x * 0.5 * (1 + (0.79788456 * (x + 0.044715 * x * x * x)).tanh()),
    "sum": lambda x: x.sum(),
    "sum0": lambda x: x.sum(0),
    "max1": lambda x: x.max(1),
    "softmax": lambda x: x.softmax(),
    "layernorm": lambda x: _layernorm(x),
    "conv": lambda x, w: x.conv2d(w, padding=1),
    "gather": lambda table, at: table[at],
    "scatter": lambda table, at, g: vjp(lambda t: t[at], table)[1](g),
    "attention": lambda q, k, v, g: vjp(_attention, q, k, v)[1](g),
}


def version() -> str:
    """Of uopc."""
    return version_of("uopc-core")


def make(workload: Workload, threads: int) -> Callable[[], Any]:
    """A call that computes the workload once and returns its tensor or its loss."""
    given, kind = workload.inputs(), workload.kind
    if kind == "deep":
        return _deep(*given)
    if kind in _MODELS:
        return _train(_MODELS[kind](given[0]), Tensor(given[1]), Tensor(given[2]))
    if kind == "logits":
        function = jit(Gpt(given[0]).logits)
        given = given[1:2]
    else:
        function = jit(_OPERATIONS[kind])
    tensors = [Tensor(a).realize() for a in given]
    return lambda: _realized(function(*tensors))


def _realized(result: Any) -> Any:
    """A result whose values are there, or all of them."""
    return (
        tuple(map(_realized, result)) if isinstance(result, tuple) else result.realize()
    )


def as_numpy(result: Any) -> Array:
    """The array of what such a call returned, or all of its arrays in a row."""
    if isinstance(result, tuple):
        return np.concatenate([r.numpy() for r in result])
    return np.asarray(result.numpy())


def _parameter(a: Array) -> Tensor:
    return Tensor(a, requires_grad=True).realize()


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, causal=True)


def _layernorm(x: Tensor) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return d / (d.square().mean(-1, keepdim=True) + 1e-5).sqrt()


class Mlp:
    """Dense layers with relu between them."""

    def __init__(self, p: Parameters) -> None:
        self.layers = [
            (_parameter(p[f"w{i}"]), _parameter(p[f"b{i}"])) for i in range(len(p) // 2)
        ]

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy."""
        for i, (w, b) in enumerate(self.layers):
            x = (x if i == 0 else x.relu()) @ w + b
        return x.cross_entropy(labels)


class Cnn:
    """Two convolutions, max over 2x2 and two dense layers."""

    def __init__(self, p: Parameters) -> None:
        self.p = {k: _parameter(a) for k, a in p.items()}

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy."""
        p: Any = self.p
        for i in range(2):
            x = x.conv2d(p[f"c{i}"], p[f"cb{i}"]).relu()
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5)).flatten(1)
        x = (x @ p["w0"] + p["b0"]).relu()
        logits: Tensor = x @ p["w1"] + p["b1"]
        return logits.cross_entropy(labels)


class Gpt:
    """A transformer with causal attention, a tied head and no biases."""

    def __init__(self, p: Parameters) -> None:
        self.p = {k: _parameter(a) for k, a in p.items()}

    def logits(self, tokens: Tensor) -> Tensor:
        """(batch, length) to (batch, length, vocabulary)."""
        p: Any = self.p
        batch, length = tokens.shape
        width = p["wte"].shape[1]

        def heads(t: Tensor) -> Tensor:
            return t.reshape(batch, length, HEADS, width // HEADS).transpose(1, 2)

        x = p["wte"].take(tokens, 0) + p["wpe"]
        for i in range((len(p) - 3) // 6):
            qkv = (_layernorm(x) * p[f"ln1_{i}"]) @ p[f"qkv_{i}"]
            q, k, v = (heads(qkv[:, :, j * width : (j + 1) * width]) for j in range(3))
            a = scaled_dot_product_attention(q, k, v, causal=True).transpose(1, 2)
            x = x + a.reshape(batch, length, width) @ p[f"proj_{i}"]
            hidden = (_layernorm(x) * p[f"ln2_{i}"]) @ p[f"fc_{i}"]
            x = x + hidden.gelu() @ p[f"fc2_{i}"]
        logits: Tensor = (_layernorm(x) * p["lnf"]) @ p["wte"].T
        return logits

    def loss(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy over all positions."""
        return self.logits(tokens).cross_entropy(labels)


_MODELS: dict[str, Callable[[Parameters], Any]] = {"mlp": Mlp, "cnn": Cnn, "gpt": Gpt}


def _train(model: Any, x: Tensor, labels: Tensor) -> Callable[[], float]:
    adam = AdamW(parameters(model), LEARNING_RATE, BETAS, EPSILON, DECAY)

    @jit
    def step(x: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = model.loss(x, labels)
        adam.zero_grad()
        loss.backward(adam.params)
        adam.step(loss)
        return loss

    return lambda: float(step(x, labels).item())


def _deep(ps: list[tuple[Array, Array]], x: Array) -> Callable[[], None]:
    """The graph of the gradient, built anew each time and not computed."""
    layers = [(_parameter(w), _parameter(b)) for w, b in ps]
    data, flat = Tensor(x).realize(), [t for pair in layers for t in pair]

    def call() -> None:
        h = data
        for w, b in layers:
            h = (h @ w + b).relu()
        h.sum().backward(flat)
        for t in flat:
            t.grad = None

    return call

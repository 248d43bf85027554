"""The operations and models, against a namespace like NumPy's: ``xp`` is that.

Convolution and the choice of the labels' logits are not in that namespace, or not
spelled alike; whoever calls passes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from peers.workloads import HEADS, Array

f32 = np.float32
Convolution = Callable[[Any, Any, int], Any]


def softmax(xp: Any, x: Any) -> Any:
    """Over the last axis."""
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def layernorm(xp: Any, x: Any) -> Any:
    """Over the last axis, without weight and bias."""
    d = x - xp.mean(x, axis=-1, keepdims=True)
    return d / xp.sqrt(xp.mean(d * d, axis=-1, keepdims=True) + f32(1e-5))


def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    """Causal; (batch, heads, length, width) each."""
    length, width = q.shape[-2:]
    after: Array = np.triu(np.full((length, length), -1e9, f32), 1)
    scores = xp.matmul(q, xp.transpose(k, (0, 1, 3, 2))) * f32(width**-0.5)
    return xp.matmul(softmax(xp, scores + after), v)


def gelu(xp: Any, x: Any) -> Any:
    """In its tanh form."""
    inner = f32(0.79788456) * (x + f32(0.044715) * x * x * x)
    return x * f32(0.5) * (f32(1) + xp.tanh(inner))


def operation(xp: Any, kind: str) -> Callable[..., Any]:
    """What a workload of one operation computes, except for convolutions."""
    functions: dict[str, Callable[..., Any]] = {
        "matmul": lambda a, b: a @ b,
        "gelu": lambda x: gelu(xp, x),
        "sum": lambda x: xp.sum(x),
        "sum0": lambda x: xp.sum(x, axis=0),
        "max1": lambda x: xp.max(x, axis=1),
        "softmax": lambda x: softmax(xp, x),
        "layernorm": lambda x: layernorm(xp, x),
        "gather": lambda table, at: table[at],
    }
    return functions[kind]


def cross_entropy(xp: Any, logits: Any, labels: Any) -> Any:
    """The mean over rows."""
    top = xp.max(logits, axis=-1, keepdims=True)
    total = xp.log(xp.sum(xp.exp(logits - top), axis=-1)) + top[:, 0]
    chosen = xp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return xp.mean(total - chosen)


def mlp_loss(xp: Any, p: dict[str, Any], x: Any, labels: Any) -> Any:
    """Dense layers ``w0, b0, w1, ...`` with relu between them."""
    layers = len(p) // 2
    for i in range(layers):
        x = x @ p[f"w{i}"] + p[f"b{i}"]
        if i < layers - 1:
            x = xp.maximum(x, f32(0))
    return cross_entropy(xp, x, labels)


def cnn_loss(xp: Any, conv: Convolution, p: dict[str, Any], x: Any, labels: Any) -> Any:
    """Two convolutions, max over 2x2 and two dense layers."""
    for i in range(2):
        x = conv(x, p[f"c{i}"], 0) + xp.reshape(p[f"cb{i}"], (1, -1, 1, 1))
        x = xp.maximum(x, f32(0))
    n, c, h, w = x.shape
    x = xp.max(xp.reshape(x, (n, c, h // 2, 2, w // 2, 2)), axis=(3, 5))
    x = xp.maximum(xp.reshape(x, (n, -1)) @ p["w0"] + p["b0"], f32(0))
    return cross_entropy(xp, x @ p["w1"] + p["b1"], labels)


def gpt_logits(xp: Any, p: dict[str, Any], tokens: Any) -> Any:
    """A transformer with causal attention; (batch, length) to (..., vocabulary)."""
    batch, length = tokens.shape
    width = p["wte"].shape[1]
    inner = width // HEADS

    def heads(t: Any) -> Any:
        return xp.transpose(xp.reshape(t, (batch, length, HEADS, inner)), (0, 2, 1, 3))

    x = p["wte"][tokens] + p["wpe"]
    for i in range((len(p) - 3) // 6):
        qkv = (layernorm(xp, x) * p[f"ln1_{i}"]) @ p[f"qkv_{i}"]
        q, k, v = (heads(qkv[:, :, j * width : (j + 1) * width]) for j in range(3))
        mixed = attention(xp, q, k, v)
        rows = xp.reshape(xp.transpose(mixed, (0, 2, 1, 3)), (batch, length, width))
        x = x + rows @ p[f"proj_{i}"]
        hidden = (layernorm(xp, x) * p[f"ln2_{i}"]) @ p[f"fc_{i}"]
        x = x + gelu(xp, hidden) @ p[f"fc2_{i}"]
    return (layernorm(xp, x) * p["lnf"]) @ xp.transpose(p["wte"])


def gpt_loss(xp: Any, p: dict[str, Any], tokens: Any, labels: Any) -> Any:
    """The mean cross-entropy over all positions."""
    logits = gpt_logits(xp, p, tokens)
    flat = xp.reshape(logits, (-1, logits.shape[-1]))
    return cross_entropy(xp, flat, xp.reshape(labels, (-1,)))


def deep_loss(xp: Any, ps: Any, x: Any) -> Any:
    """The sum of a deep network's outputs."""
    for w, b in ps:
        x = xp.maximum(x @ w + b, f32(0))
    return xp.sum(x)

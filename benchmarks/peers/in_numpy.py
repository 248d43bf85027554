"""The workloads in NumPy: no gradients, except for the MLP's by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from peers import formulas
from peers.workloads import (
    BETAS,
    DECAY,
    EPSILON,
    LEARNING_RATE,
    Array,
    Parameters,
    Workload,
)

f32 = np.float32


def version() -> str:
    """Of NumPy."""
    return np.__version__


def make(workload: Workload, threads: int) -> Callable[[], Any]:
    """A call that computes the workload once and returns its array or its loss."""
    given = workload.inputs()
    if workload.kind == "mlp":
        return _mlp(*given)
    if workload.kind == "logits":
        return lambda: formulas.gpt_logits(np, given[0], given[1])
    if workload.kind == "conv":
        return lambda: _conv(*given)
    function = formulas.operation(np, workload.kind)
    return lambda: function(*given)


def as_numpy(result: Any) -> Array:
    """The array of what such a call returned."""
    return np.asarray(result)


def _conv(x: Array, w: Array) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    product = np.tensordot(windows, w, axes=([1, 4, 5], [1, 2, 3]))
    return product.transpose(0, 3, 1, 2)


def _mlp(p: Parameters, x: Array, labels: Array) -> Callable[[], float]:
    adam = _AdamW(p)
    rows, layers = np.arange(len(x)), len(p) // 2

    def step() -> float:
        kept = [x]
        for i in range(layers):
            h = kept[-1] @ p[f"w{i}"] + p[f"b{i}"]
            kept.append(np.maximum(h, f32(0)) if i < layers - 1 else h)
        e = np.exp(kept[-1] - kept[-1].max(1, keepdims=True))
        d = e / e.sum(1, keepdims=True)
        loss = -np.log(d[rows, labels]).mean()
        d[rows, labels] -= f32(1)
        d /= f32(len(x))
        grads = {}
        for i in reversed(range(layers)):
            grads[f"w{i}"], grads[f"b{i}"] = kept[i].T @ d, d.sum(0)
            if i:
                d = (d @ p[f"w{i}"].T) * (kept[i] > 0)
        adam.step(grads)
        return float(loss)

    return step


class _AdamW:
    """Decoupled weight decay; moves the arrays of ``p`` in place."""

    def __init__(self, p: Parameters) -> None:
        self.p, self.t = p, 0
        self.m = {k: np.zeros_like(a) for k, a in p.items()}
        self.v = {k: np.zeros_like(a) for k, a in p.items()}

    def step(self, grads: Parameters) -> None:
        self.t += 1
        (beta1, beta2), t = BETAS, self.t
        scale1, scale2 = f32(1 / (1 - beta1**t)), f32(1 / (1 - beta2**t))
        for k, p in self.p.items():
            m, v, g = self.m[k], self.v[k], grads[k]
            m *= f32(beta1)
            m += f32(1 - beta1) * g
            v *= f32(beta2)
            v += f32(1 - beta2) * g * g
            p *= f32(1 - LEARNING_RATE * DECAY)
            p -= (
                f32(LEARNING_RATE) * (m * scale1) / (np.sqrt(v * scale2) + f32(EPSILON))
            )

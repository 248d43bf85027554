"""The workloads in PyTorch, eager, or compiled if ``PEERS_COMPILED`` is set."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

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

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "matmul": lambda a, b: a @ b,
    "gelu": lambda x: (
        x * 0.5 * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
    ),
    "sum": lambda x: x.sum(),
    "sum0": lambda x: x.sum(0),
    "max1": lambda x: x.amax(1),
    "softmax": lambda x: torch.softmax(x, -1),
    "layernorm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "conv": lambda x, w: F.conv2d(x, w, padding=1),
    "gather": lambda table, at: F.embedding(at, table),
}


def version() -> str:
    """Of PyTorch."""
    return str(torch.__version__)


def make(workload: Workload, threads: int) -> Callable[[], Any]:
    """A call that computes the workload once and returns its array or its loss."""
    torch.set_num_threads(threads)
    given, kind = workload.inputs(), workload.kind
    if kind == "deep":
        return _deep(*given)
    losses = {"mlp": _mlp_loss, "cnn": _cnn_loss, "gpt": _gpt_loss}
    if kind in losses:
        return _train(_compiled(losses[kind]), *given)
    if kind == "logits":
        p, tokens = _parameters(given[0]), torch.from_numpy(given[1]).long()
        logits = _compiled(_gpt_logits)
        return _inferring(lambda: logits(p, tokens))
    arrays = [torch.from_numpy(a) for a in given]
    if kind == "attention":
        return _attention(*arrays)
    if kind == "scatter":
        return _scatter(*arrays)
    function = _compiled(_OPERATIONS[kind])
    return _inferring(lambda: function(*arrays))


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is, or through ``torch.compile``."""
    return torch.compile(function) if "PEERS_COMPILED" in os.environ else function


def _attention(q: Any, k: Any, v: Any, g: Any) -> Callable[[], Any]:
    leaves = [t.requires_grad_() for t in (q, k, v)]
    function = _compiled(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    )
    return lambda: torch.autograd.grad(function(*leaves), leaves, g)


def _scatter(table: Any, at: Any, g: Any) -> Callable[[], Any]:
    table.requires_grad_()
    function = _compiled(lambda table: F.embedding(at, table))
    # Backward is what is wanted; it needs what forward leaves behind.
    return lambda: torch.autograd.grad(function(table), table, g)[0]


def _inferring(function: Callable[[], Any]) -> Callable[[], Any]:
    """A call without a tape."""

    def call() -> Any:
        with torch.inference_mode():
            return function()

    return call


def as_numpy(result: Any) -> Array:
    """The array of what such a call returned, or all of its arrays in a row."""
    if isinstance(result, tuple):
        return np.concatenate([np.asarray(r) for r in result])
    return np.asarray(result)


def _parameters(p: Parameters) -> dict[str, Any]:
    """Leaves; the weights of dense layers as PyTorch has them, (outputs, inputs)."""
    dense = ("w0", "w1", "w2", "qkv", "proj", "fc")
    turned = {k: a.T.copy() if k.startswith(dense) else a for k, a in p.items()}
    return {k: torch.from_numpy(a).requires_grad_() for k, a in turned.items()}


def _mlp_loss(p: dict[str, Any], x: Any, labels: Any) -> Any:
    layers = len(p) // 2
    for i in range(layers):
        x = F.linear(x, p[f"w{i}"], p[f"b{i}"])
        x = F.relu(x) if i < layers - 1 else x
    return F.cross_entropy(x, labels)


def _cnn_loss(p: dict[str, Any], x: Any, labels: Any) -> Any:
    for i in range(2):
        x = F.relu(F.conv2d(x, p[f"c{i}"], p[f"cb{i}"]))
    x = F.max_pool2d(x, 2).flatten(1)
    x = F.relu(F.linear(x, p["w0"], p["b0"]))
    return F.cross_entropy(F.linear(x, p["w1"], p["b1"]), labels)


def _gpt_logits(p: dict[str, Any], tokens: Any) -> Any:
    batch, length = tokens.shape
    width = p["wte"].shape[1]
    x = F.embedding(tokens, p["wte"]) + p["wpe"]
    for i in range((len(p) - 3) // 6):
        normed = F.layer_norm(x, (width,), p[f"ln1_{i}"])
        qkv = F.linear(normed, p[f"qkv_{i}"]).split(width, dim=2)
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in qkv)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        a = a.transpose(1, 2).reshape(batch, length, width)
        x = x + F.linear(a, p[f"proj_{i}"])
        hidden = F.linear(F.layer_norm(x, (width,), p[f"ln2_{i}"]), p[f"fc_{i}"])
        x = x + F.linear(F.gelu(hidden, approximate="tanh"), p[f"fc2_{i}"])
    return F.linear(F.layer_norm(x, (width,), p["lnf"]), p["wte"])


def _gpt_loss(p: dict[str, Any], tokens: Any, labels: Any) -> Any:
    logits = _gpt_logits(p, tokens.long())
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _train(
    loss: Callable[..., Any], p: Parameters, x: Array, labels: Array
) -> Callable[[], float]:
    leaves = _parameters(p)
    data, wanted = torch.from_numpy(x), torch.from_numpy(labels).long()
    options = {"betas": BETAS, "eps": EPSILON, "weight_decay": DECAY}
    adam = torch.optim.AdamW(leaves.values(), lr=LEARNING_RATE, **options)

    def step() -> float:
        adam.zero_grad(set_to_none=True)
        value = loss(leaves, data, wanted)
        value.backward()
        adam.step()
        return float(value.item())

    return step


def _deep(ps: list[tuple[Array, Array]], x: Array) -> Callable[[], None]:
    """Forward and backward: an eager graph is there only when it has run."""
    leaves = [[torch.from_numpy(a).requires_grad_() for a in pair] for pair in ps]
    data, flat = torch.from_numpy(x), [a for pair in leaves for a in pair]

    def call() -> None:
        h = data
        for w, b in leaves:
            h = torch.relu(h @ w + b)
        torch.autograd.grad(h.sum(), flat)

    return call

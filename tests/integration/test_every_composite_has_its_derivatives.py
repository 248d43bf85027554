"""Every function of composite and layer of nn, called directly and with each option
that changes its graph, passes check_vjp to second order on both backends."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from smooth_arrays import ALONG, LABELS, ROWS, Draws

from uopc import composite as c
from uopc import nn
from uopc.autodiff import vjp
from uopc.composite.norms import centered
from uopc.config import overriding
from uopc.nn import scaled_dot_product_attention as attention
from uopc.tensor import Tensor
from uopc.testing import check_vjp
from uopc.uop import Ops

draws = Draws(2)
apart, near_one = draws.apart, draws.near_one
small, chances = draws.small, draws.chances
INF = math.inf

SIGNED = np.array([[-0.7, 0.6, -2.3, 31.0], [1.4, -0.9, 4.0, -30.0]])
ZEROS = np.array([[1.2, 0.0, 0.7, 0.5], [0.0, 0.0, 0.6, -0.8]])
LONG = near_one(20) * np.where(np.arange(20) % 9 == 4, 0.0, 1.0)  # several blocks
MASKED = np.array([[-INF, 0.3, 0.5], [0.1, -INF, -INF], [-INF, -INF, -INF]])

# By name of a function, and what is special: a call on nodes, and its arguments.
Case = tuple[Callable[..., Any], *tuple[np.ndarray, ...]]
ELEMENTS: dict[str, Case] = {
    f.__name__: (f, SIGNED)
    for f in (c.absolute, c.cos, c.logsigmoid, c.relu, c.sigmoid, c.sigmoid_slope,
              c.softplus, c.square, c.tanh)
} | {
    "exp": (c.exp, SIGNED[:, :3]),
    "log": (c.log, near_one(2, 3)),
    "log1p": (c.log1p, small(2, 3) / 2),
    "gelu": (c.gelu, np.append(SIGNED, [-130.0, 130.0])),  # open and closed for good
    "silu": (c.silu, np.append(SIGNED, [-1300.0, 1300.0])),
    "power": (c.power, near_one(2, 3), small(2, 3)),
    "power: square of 0": (lambda x: c.power(x, x.const_like(2.0)), ZEROS),
    "power: 1 / x": (lambda x: c.power(x, x.const_like(-1.0)), SIGNED[:, :3]),
}  # fmt: skip
AXES: dict[str, Case] = {
    "mean": (lambda x: c.mean(x, (0, 2), True), small(2, 3, 2)),
    "logsumexp": (lambda x: c.logsumexp(x, (0, 2), True), SIGNED.reshape(2, 2, 2)),
    "logsumexp: -inf": (lambda x: c.exp(c.logsumexp(x, (1,), False)), MASKED),
    "softmax": (lambda x: c.softmax(x, 1), SIGNED),
    "softmax: -inf": (lambda x: c.softmax(x, 1), MASKED[:2]),
    "log_softmax": (lambda x: c.log_softmax(x, 0), SIGNED),
    "matmul": (c.matmul, small(2, 2, 3), small(2, 3, 1)),
    "norm: p=1": (lambda x: c.norm(x, 1, (0, 1), False), apart(2, 3)),
    "norm: p=2": (lambda x: c.norm(x, 2, (0, 1), True), small(2, 3)),
    "norm: p=inf": (lambda x: c.norm(x, INF, (1,), True), apart(2, 3)),
    "centered": (lambda x: centered(x, (1,)), SIGNED),
    "variance": (lambda x: c.variance(x, (0, 1), True, 0.5), small(2, 3)),
    "variance: same numbers": (lambda x: c.variance(x, (1,), False), np.ones((2, 3))),
    "deviation": (lambda x: c.deviation(x, (0,), True, 1), small(3, 2)),
    "reduce_axes: max": (
        lambda x: c.reduce_axes(x, Ops.MAX, (2, 0), False), apart(2, 3, 2)),
    "reduce_axes: prod": (lambda x: c.reduce_axes(x, Ops.MUL, (1,), False), ZEROS),
    "cumulative: sum": (lambda x: c.cumulative(x, Ops.ADD, 0), LONG),
    "cumulative: product": (lambda x: c.cumulative(x, Ops.MUL, 0), LONG[:9]),
    "product_of_others": (c.product_of_others, ZEROS),
    "product_of_others: long": (c.product_of_others, LONG[:9]),
    "diagonal": (c.diagonal, small(2, 2, 3)),
    "diagonal: tall": (c.diagonal, small(3, 2)),
    "einsum: trace": (lambda x: c.einsum(["ii"], "", [x]), small(3, 3)),
    "einsum: three": (
        lambda *x: c.einsum(["ij", "jk", "kj"], "ki", x),
        small(2, 3), small(3, 2), small(2, 3)),
}  # fmt: skip
PLACES: dict[str, Case] = {
    "broadcast_to": (lambda x: c.broadcast_to(x, (2, 2, 3)), small(2, 1)),
    "sum_to": (lambda x: c.sum_to(c.square(x), (1, 3, 1)), small(2, 3, 2)),
    "spread": (lambda x: c.spread(x, (3, 2, 2)), small(3)),
    "zeros_like": (lambda x: c.zeros_like(x) + c.square(x), small(2, 3)),
    "pad": (lambda x: c.pad(x, [(1, 0), (2, 4)]), small(2, 3)),
    "flip": (lambda x: c.flip(x, (1, 0)), small(2, 3)),
    "stack": (lambda *x: c.stack(x), small(2), small(2), small(2)),
    "stack: last": (lambda *x: c.stack(x, 2), small(2, 3), small(2, 3)),
    "cat": (lambda *x: c.cat(x, 1), small(2, 1), small(2, 3), small(2, 2)),
    "cat: same": (lambda x: c.cat([x, c.square(x)], 0), small(2, 3)),
    "put": (lambda x: c.put(c.square(x), 1, range(1, 4), 5), small(2, 3)),
    "put: every third": (lambda x: c.put(x, 0, range(7, -1, -3), 9), small(3, 2)),
    "along_last": (c.along_last, small(2, 3), ALONG),
    "along_last: from the end": (
        lambda x, i: c.along_last(x, c.from_end(i, 3)), small(2, 3), ALONG - 2),
    "along_last: largest": (
        lambda x: c.square(c.along_last(x, c.argmax(x, 1, True))), apart(2, 3)),
    "along_last: up": (
        lambda x: c.square(c.along_last(x, c.argsort(x, False, 3))), apart(2, 3)),
    "along_last: merged": (
        lambda x: c.along_last(x, c.argsort(x, True, 3)), apart(1, 70)),
    "conv": (
        lambda x, w: c.conv(x, w, [2], [(1, 0)], [1], 2),
        small(1, 2, 4), small(2, 1, 2)),
    "conv: square": (
        lambda x: c.conv(
            x, x.permute((1, 0, 2, 3)), [1, 1], [(0, 1), (1, 1)], [1, 2], 2),
        small(1, 2, 3, 2)),
    "scatter_add": (lambda g, i: c.scatter_add(g, [i], [3]), small(4, 2), ROWS - 1),
    "scatter_add: two axes": (
        lambda g, i: c.scatter_add(c.square(g), c.index_nodes((2, 3), {1: i}), (2, 3)),
        small(2, 4), ROWS),
    "scatter_add: apart": (
        lambda g, i: c.scatter_add(
            g, c.index_nodes((2, 3, 2), {0: i, 2: i}), (2, 3, 2)),
        small(4, 3), ROWS),
}  # fmt: skip
LOSSES: dict[str, Case] = {
    "cross_entropy": (c.cross_entropy, SIGNED, np.array([3, 0], np.uint8)),
    "cross_entropy: ignored class": (
        lambda x, n: c.cross_entropy(x, n, ignored=1), small(3, 4), LABELS),
    "cross_entropy: all ignored": (
        lambda x, n: c.cross_entropy(x, n, ignored=-100), small(1, 4), LABELS[1:2]),
    "cross_entropy: sum": (
        lambda x, n: c.cross_entropy(x, n, smoothing=0.2, reduction="sum"),
        small(3, 4), LABELS),
    "cross_entropy: none": (
        lambda x, n: c.cross_entropy(x, n, reduction="none"), small(3, 4), LABELS),
    "soft_cross_entropy": (c.soft_cross_entropy, SIGNED, chances(2, 4)),
    "soft_cross_entropy: none": (
        lambda x, p: c.soft_cross_entropy(x, p, reduction="none"),
        small(2, 3), np.array([[0.0, 1, 0], [0, 0.5, 0.5]])),
    "soft_cross_entropy: sum": (
        lambda x, p: c.soft_cross_entropy(x, p, 0.1, "sum"),
        small(2, 3), chances(2, 3)),
}  # fmt: skip
COMPOSITES = ELEMENTS | AXES | PLACES | LOSSES
NO_DERIVATIVE = {
    **dict.fromkeys(("argmax", "argsort", "from_end", "index_nodes", "last_writer",
                     "one_hot_index"), "gives positions"),
    **dict.fromkeys(("at_most", "at_position", "inside", "written"), "gives a mask"),
    **dict.fromkeys(("blocks", "broadcast_shape", "count"), "gives Python's integers"),
    **dict.fromkeys(("full", "iota"), "is made of numbers that are known"),
    **dict.fromkeys(("normal", "random_bits", "threefry", "uniform"),
                    "takes random words"),
    **dict.fromkeys(("ceil", "floor", "nearest", "sign", "trunc"),
                    "is constant between its steps: a test below"),
    **dict.fromkeys(("isfinite", "isinf", "isnan"), "gives a mask"),
    "one_hot": "takes an integer, gives a mask",
    "shift": "holds what it subtracts constant, for users in which that cancels",
    **dict.fromkeys(
        ("Optimizer", "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Lion"),
        "assigns, and gives nothing"),
    **dict.fromkeys(("clip_grad_norm", "clip_grad_value"), "changes gradients"),
    **dict.fromkeys(("objects", "parameters"), "finds tensors"),
    **dict.fromkeys(("by_fan_in", "parameter", "uniform"), "draws parameters"),
    "Dropout": "draws numbers of f32: see its own test",
    **dict.fromkeys(("evaluate", "train"), "sets flags"),
}  # fmt: skip


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    layer = nn.Linear(3, 2, bias=bias is not None)
    layer.weight, layer.bias = weight, bias
    return layer(x)


def embedding(i: Tensor, weight: Tensor) -> Tensor:
    layer = nn.Embedding(*weight.shape)
    layer.weight = weight
    return layer(i).square()


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    layer = nn.LayerNorm(weight.shape, eps=0.1)
    layer.weight, layer.bias = weight, bias
    return layer(x)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    layer = nn.RMSNorm(weight.shape, eps=0.1)
    layer.weight = weight
    return layer(x)


def group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    layer = nn.GroupNorm(2, 4, eps=0.1)
    layer.weight, layer.bias = weight, bias
    return layer(x)


def conv(layer: nn.Conv1d | nn.Conv2d) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def call(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        layer.weight, layer.bias = weight, bias
        return layer(x)

    return call


def multi_head(x: Tensor, y: Tensor, *weights: Tensor) -> Tensor:
    layer = nn.MultiHeadAttention(4, 2, 1, causal=True, bias=False)
    parts = layer.query, layer.key, layer.value, layer.out
    for part, w in zip(parts, weights, strict=True):
        part.weight = w
    return layer(x, y)


QKV = small(2, 2), small(3, 2), small(3, 1)
MASK = np.array([[True, False, True], [False, False, False]])
LAYERS: dict[str, Case] = {
    "Linear": (linear, small(2, 2, 3), small(2, 3), small(2)),
    "Linear: no bias": (linear, small(3), small(2, 3)),
    "Embedding": (embedding, np.append(ROWS, -1), small(3, 2)),
    "LayerNorm": (layer_norm, small(2, 2, 3), near_one(2, 3), small(2, 3)),
    "RMSNorm": (rms_norm, small(2, 3), near_one(3)),
    "GroupNorm": (group_norm, small(2, 4, 2), near_one(4), small(4)),
    "Conv1d": (conv(nn.Conv1d(2, 2, 2)), small(1, 2, 4), small(2, 2, 2), small(2)),
    "Conv2d": (
        conv(nn.Conv2d(2, 2, 2, stride=2, padding=1, groups=2)),
        small(1, 2, 3, 2), small(2, 1, 2, 2), small(2)),
    "MultiHeadAttention": (
        multi_head, small(2, 4), small(3, 4),
        small(4, 4), small(2, 4), small(2, 4), small(4, 4)),
    "mse_loss": (nn.mse_loss, small(2, 3), near_one(2, 3)),
    "l1_loss": (nn.l1_loss, small(2, 3), near_one(2, 3) + 2),
    "huber_loss": (nn.huber_loss, np.array([0.1, -0.3, 4, -5]), small(4) / 4),
    "binary_cross_entropy_with_logits": (
        nn.binary_cross_entropy_with_logits, small(2, 3), near_one(2, 3) / 3,
        near_one(3)),
    "nll_loss": (
        lambda x, i: nn.nll_loss(x.log_softmax(), i), small(3, 3), np.arange(3)),
    "kl_div": (nn.kl_div, small(2, 3), near_one(2, 3)),
    "Sequential": (nn.Sequential(Tensor.tanh, Tensor.square), small(3)),
    "scaled_dot_product_attention: mask, scale": (
        lambda q, k, v, m: attention(q, k, v, m, scale=0.3), *QKV, MASK),
    "scaled_dot_product_attention: added mask, causal": (
        lambda q, k, v, m: attention(q, k, v, m, causal=True), *QKV, small(2, 3)),
}  # fmt: skip


def check(case: Case, uops: bool) -> None:
    call, *arrays = case
    with overriding(UOPC_OPT=0):  # the C that compiles fastest
        check_vjp(call, [arrays], backends=("interp", "c"), uops=uops)


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite(name: str) -> None:
    check(COMPOSITES[name], uops=True)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(name: str) -> None:
    check(LAYERS[name], uops=False)


@pytest.mark.parametrize("f", [c.ceil, c.floor, c.nearest, c.sign, c.trunc])
def test_steps_have_the_derivative_0(f: Callable[..., Any]) -> None:
    x = np.append(SIGNED, [0.0, 0.5, 1.0, 2.0**30])
    y, back = vjp(lambda t: t.apply(f), Tensor(x))
    assert not back(Tensor(np.ones_like(x)))[0].numpy().any()
    assert not (y.numpy() == x).all()


def public(package: ModuleType) -> set[str]:
    """What a package exports, and all its modules define for others."""
    names = set(package.__all__)
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        defined = vars(importlib.import_module(found.name)).items()
        names |= {
            name for name, value in defined
            if getattr(value, "__module__", "") == found.name and name[0] != "_"
        }  # fmt: skip
    return names


def test_none_is_forgotten() -> None:
    checked = {key.partition(":")[0] for key in COMPOSITES | LAYERS}
    assert not checked & {*NO_DERIVATIVE}
    assert public(c) | public(nn) == checked | {*NO_DERIVATIVE}

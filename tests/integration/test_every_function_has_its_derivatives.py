"""Every op and every function of Tensor passes check_vjp to second order, on both
backends, and none is forgotten."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from smooth_arrays import ALONG, LABELS, ROWS, Draws

from uopc.dtype import f64
from uopc.nn.functional import scaled_dot_product_attention
from uopc.plugins import registry
from uopc.tensor import Tensor
from uopc.testing import check_vjp, op_samples
from uopc.testing.functions import FUNCTIONS, names_of, parts
from uopc.uop import OpDef

BACKENDS = ("interp", "c")
draws = Draws(0)
apart, near_one = draws.apart, draws.near_one
small, chances = draws.small, draws.chances


def assigned(t: Tensor, i: Tensor, value: Tensor) -> Tensor:
    """Products of elements that stay and of those that are written over."""
    before = t[...]
    t = t * t
    t[i, ::2] = value
    return t * before


# By method: a call, and its arguments. All but the functions of elements.
TABLE: dict[str, tuple[Callable[..., Tensor], tuple[np.ndarray, ...]]] = {
    # Reduction
    "sum": (lambda t: t.sum((0, 2)), (small(2, 3, 2),)),
    "prod": (lambda t: t.prod(1), (near_one(2, 3),)),
    "max": (lambda t: t.max(1), (apart(2, 3),)),
    "min": (lambda t: t.min(0, keepdim=True), (apart(2, 3),)),
    "mean": (lambda t: t.mean(-1), (small(2, 3),)),
    "var": (lambda t: t.var(1, correction=1), (small(2, 3),)),
    "std": (lambda t: t.std(1), (small(2, 3),)),
    "norm": (lambda t: t.norm(2, 1), (small(2, 3),)),
    "logsumexp": (lambda t: t.logsumexp(1), (small(2, 3),)),
    "softmax": (lambda t: t.softmax(), (small(2, 3),)),
    "log_softmax": (lambda t: t.log_softmax(0), (small(2, 3),)),
    "cumsum": (lambda t: t.cumsum(1), (small(2, 3),)),
    "cumprod": (lambda t: t.cumprod(0), (near_one(4, 2),)),
    "cross_entropy": (
        lambda t, n: t.cross_entropy(n, label_smoothing=0.1), (small(3, 4), LABELS)),
    "__matmul__": (lambda a, b: a @ b, (small(2, 2, 3), small(3, 2))),
    "__imatmul__": (
        lambda a, b: operator.imatmul(a, b), (small(2, 3), small(3, 2))),
    "dot": (lambda a, b: a.dot(b), (small(2, 3), small(3))),
    "matmul": (lambda a, b: a.matmul(b), (small(3), small(3, 2))),
    # Einsum and Order
    "einsum": (
        lambda a, b: Tensor.einsum("iij,jk->ki", a, b), (small(2, 2, 3), small(3, 2))),
    "diagonal": (lambda t: t.diagonal(), (small(3, 3),)),
    "sort": (lambda t: t.sort(1)[0], (apart(2, 3),)),
    "topk": (lambda t: t.topk(2)[0], (apart(2, 4),)),
    # Convolution
    "conv1d": (
        lambda x, w, b: x.conv1d(w, b, stride=2, padding=1, groups=2),
        (small(2, 4, 5), small(2, 2, 3), small(2))),
    "conv2d": (
        lambda x, w: x.conv2d(w, dilation=(1, 2), padding=[(0, 2), (1, 0)]),
        (small(1, 2, 3, 4), small(2, 2, 2, 2))),
    "conv3d": (
        lambda x, w: x.conv3d(w, padding="same"),
        (small(1, 2, 1, 3), small(1, 1, 2, 1, 2))),
    # Elements and Pieces
    "clamp": (lambda t, low: t.clamp(low, 0.4), (apart(2, 3), small(3) - 2.0)),
    "clip": (lambda t, high: t.clip(max=high), (apart(2, 3), small(3) + 2.0)),
    "masked_fill": (
        lambda t, v: t.masked_fill(t > 0, v), (apart(2, 3), small(3))),
    "split": (lambda t: t.split([1, 2], 1)[1], (small(2, 3),)),
    "chunk": (lambda t: t.chunk(2)[0], (small(3, 2),)),
    "unbind": (lambda t: t.unbind(1)[2], (small(2, 3),)),
    "roll": (lambda t: t.roll((1, 2), (0, 1)), (small(2, 3),)),
    "tile": (lambda t: t.tile(2, 1, 2), (small(2, 2),)),
    "repeat": (lambda t: t.repeat(2), (small(2),)),
    "repeat_interleave": (lambda t: t.repeat_interleave(2, 1), (small(2, 2),)),
    "tril": (lambda t: t.tril(), (small(3, 3),)),
    "triu": (lambda t: t.triu(1), (small(2, 3),)),
    "diag": (lambda t: t.diag(1).diag(-1), (small(3, 4),)),
    "diff": (lambda t: t.diff(2), (small(2, 4),)),
    "unfold": (lambda t: t.unfold(1, 3), (small(2, 4),)),
    "movedim": (lambda t: t.movedim(0, 2), (small(2, 1, 3),)),
    "ravel": (lambda t: t.ravel(), (small(2, 2),)),
    # Movement
    "reshape": (lambda t: t.reshape(3, 2), (small(2, 3),)),
    "flatten": (lambda t: t.flatten(), (small(2, 3),)),
    "expand": (lambda t: t.expand(4, 2, 3), (small(2, 1),)),
    "permute": (lambda t: t.permute(2, 0, 1), (small(2, 3, 2),)),
    "transpose": (lambda t: t.transpose(0, 1), (small(2, 3, 2),)),
    "T": (lambda t: t.T, (small(2, 3),)),
    "unsqueeze": (lambda t: t.unsqueeze(1), (small(2, 3),)),
    "squeeze": (lambda t: t.squeeze(1), (small(2, 1, 3),)),
    "flip": (lambda t: t.flip(0), (small(2, 3),)),
    "shrink": (lambda t: t.shrink([(0, 2), (1, 3)]), (small(2, 3),)),
    "pad": (lambda t: t.pad([(1, 0), (0, 2)]), (small(2, 3),)),
    "cat": (lambda a, b: Tensor.cat([a, b], 1), (small(2, 3), small(2, 2))),
    "stack": (lambda a, b: Tensor.stack([a, b], 1), (small(2, 3), small(2, 3))),
    "stack_with": (lambda a, b: a.stack_with(b), (small(2, 3), small(2, 3))),
    "__iter__": (lambda t: [*t][1], (small(2, 3),)),
    # Gather
    "__getitem__": (lambda t, i: t[i, ::2], (small(3, 4), ROWS)),
    "__setitem__": (assigned, (small(3, 4), ROWS, small(4, 2))),
    "take": (lambda t, i: t.take(i, 1), (small(2, 3), ROWS)),
    "index_select": (lambda t, i: t.index_select(0, i), (small(2, 3), ROWS)),
    "gather": (lambda t, i: t.gather(0, i), (small(2, 3), ALONG)),
    "take_along_axis": (lambda t, i: t.take_along_axis(i, 0), (small(2, 3), ALONG)),
    "take_along_dim": (lambda t, i: t.take_along_dim(i, 0), (small(2, 3), ALONG)),
    "scatter_add": (
        lambda t, i, s: t.scatter_add(0, i, s), (small(2, 3), ALONG, small(2, 3))),
}  # fmt: skip
NO_DERIVATIVE = {
    "one_hot": "its argument is an integer",
    "argmax": "its result is an integer",
    "argmin": "its result is an integer",
    "argsort": "its result is an integer",
    **dict.fromkeys(("all", "any", "isfinite", "isinf", "isnan"), "gives bools"),
    **dict.fromkeys(("floor", "ceil", "trunc", "round", "sign", "__floor__", "__ceil__",
                     "__trunc__"), "is constant between its steps"),
}  # fmt: skip
CONSTANT = {"x ** 0", "x // y"}  # nothing moves but at jumps
POSITIVE = {  # of elements, where the others take both signs
    "log", "log2", "log1p", "sqrt", "x ** y", "x ** 0.5", "x ** -0.5", "x ** 1.5",
    "x ** 0.333333", "x ** 2.4",
}  # fmt: skip
BESIDE: dict[str, tuple[Callable[..., Tensor], tuple[np.ndarray, ...]]] = {
    "where": (lambda a, b: (a > 0.1).where(a * b, b), (apart(2, 3), small(2, 3))),
    "cast": (lambda a: a.cast(f64) * a, (small(2, 3),)),
    "norm 1": (lambda a: a.norm(1, 1), (apart(2, 3),)),
    "norm inf": (lambda a: a.norm(math.inf, 1), (apart(2, 3),)),
    "product with zeros": (lambda a: a.prod(), (np.array([1.5, 0.0, 2.0, 0.0]),)),
    "cumprod with a zero": (lambda a: a.cumprod(0), (np.array([1.5, 0.0, 2.0]),)),
    "sorted down": (lambda a: a.sort(1, descending=True)[0], (apart(2, 3),)),
    "probabilities": (
        lambda a, p: a.cross_entropy(p), (small(3, 4), chances(3, 4))),
    "linear": (
        lambda x, w, b: x @ w.T + b, (small(2, 3), small(4, 3), small(4))),
    "attention": (
        scaled_dot_product_attention, (small(2, 3, 2), small(2, 4, 2), small(2, 4, 2))),
    "causal attention": (
        lambda q, k, v: scaled_dot_product_attention(q, k, v, causal=True),
        (small(3, 2), small(3, 2), small(3, 2))),
}  # fmt: skip

ROWS_WITH_GRADIENTS = [
    op for op in registry().ops.values()
    if op.kind != "loop" and op.differentiable
    and any(s.dtype.is_float for u in op_samples(op, f64) for s in u.src)
]  # fmt: skip


@pytest.mark.parametrize("op", ROWS_WITH_GRADIENTS, ids=str)
def test_an_op(op: OpDef) -> None:
    """On the samples of its row, and on one node as all its sources."""
    assert check_vjp(op, backends=BACKENDS).comparisons


@pytest.mark.parametrize("name", [*TABLE, *BESIDE])
def test_a_function_of_arrays(name: str) -> None:
    call, arrays = {**TABLE, **BESIDE}[name]
    assert check_vjp(call, [arrays], backends=BACKENDS).comparisons


@pytest.mark.parametrize(
    "function", [f for f in FUNCTIONS if f.name not in CONSTANT], ids=lambda f: f.name
)
def test_a_function_of_elements(function: Any) -> None:
    positive = [near_one(2, 3) for _ in range(function.arity)]
    samples = [tuple(positive)]
    if function.name not in POSITIVE:
        samples.append((-positive[0], *positive[1:]))
    assert check_vjp(function.call, samples, backends=BACKENDS).comparisons


def test_none_is_forgotten() -> None:
    kinds = (
        "Elements", "Reduction", "Einsum", "Order", "Movement", "Pieces", "Gather",
        "SetItem", "Convolution",
    )  # fmt: skip
    names = {name for kind in kinds for name in names_of(parts()[kind])}
    assert names == {*TABLE, *NO_DERIVATIVE}
    assert {op for op in registry().vjps if op.kind != "loop"} <= {*ROWS_WITH_GRADIENTS}

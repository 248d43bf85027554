"""What is computed, on which inputs, and the least work that it takes.

All arrays are float32, drawn once from a fixed seed. A workload's ``kind`` says what a
framework has to do with them, so that the same code runs at any size.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Parameters = dict[str, Array]

LEARNING_RATE, BETAS, EPSILON, DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01
"""AdamW's, with the decay on every parameter."""

HEADS = 4
"""Of the transformer's attention; its other sizes are those of its parameters."""

WIDTHS = (784, 512, 256, 10)
LARGE = 1 << 24


@dataclass(frozen=True)
class Workload:
    """One row of the table.

    Attributes:
        name: what the command line calls it.
        title: what the table calls it.
        kind: what a framework does: "matmul", "gelu", "mlp", ...
        inputs: makes its arrays: of an operation, the operands; of a model, its
            parameters by name, the data and the labels; of the deep network, a list
            of weights and biases, and the data.
        flops: multiplications and additions that it cannot do without; 0 if they are
            not what bounds it.
        read, written: bytes that must come from and go to memory; 0 if the same.
        beside: the name of a workload that this one's time is divided by, and what
            the quotient is called.
        share: this workload's amount of work, in units of the other one's.
        contended: whether another process holds a processor meanwhile.
    """

    name: str
    title: str
    kind: str
    inputs: Callable[[], tuple[Any, ...]]
    flops: float = 0
    read: float = 0
    written: float = 0
    beside: tuple[str, str] | None = None
    share: float = 1
    contended: bool = False


class Draw:
    """Normally distributed arrays and integers from a fixed seed."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def floats(self, *shape: int, scale: float = 1.0) -> Array:
        """Of standard deviation ``scale``."""
        return (self._rng.standard_normal(shape) * scale).astype(np.float32)

    def integers(self, end: int, *shape: int) -> Array:
        """From 0 up to ``end``, without it."""
        return self._rng.integers(0, end, shape).astype(np.int32)


def matmul(name: str, m: int, k: int, n: int, **more: Any) -> Workload:
    """(m, k) times (k, n)."""

    def inputs() -> tuple[Any, ...]:
        draw = Draw()
        return draw.floats(m, k), draw.floats(k, n)

    size = f"{m}" if m == k == n else f"{m}x{k} @ {k}x{n}"
    return Workload(name, f"matmul {size}", "matmul", inputs, 2 * m * k * n, **more)


def over_array(kind: str, title: str, *shape: int, name: str = "") -> Workload:
    """A function of one array, elementwise, over rows, or a reduction."""
    size = int(np.prod(shape))
    kept = {"sum": 0, "sum0": 0, "max1": 0}.get(kind, size)
    return Workload(
        name or kind,
        title,
        kind,
        lambda: (Draw().floats(*shape),),
        read=4 * size,
        written=4 * kept,
    )


def conv(name: str, n: int, c: int, h: int, w: int, o: int, **more: Any) -> Workload:
    """Convolution of (n, c, h, w) with ``o`` filters of 3x3, padded by 1."""

    def inputs() -> tuple[Any, ...]:
        draw = Draw()
        x = draw.floats(n, c, h, w)
        return x, draw.floats(o, c, 3, 3, scale=(1 / (9 * c)) ** 0.5)

    flops = 2 * n * o * h * w * c * 9
    title = f"conv {n}x{c}x{h}x{w}, {o} of 3x3"
    return Workload(name, title, "conv", inputs, flops, **more)


def attention(name: str, title: str, heads: int, length: int, width: int) -> Workload:
    """The gradients of causal attention by queries, keys and values."""
    shape = (1, heads, length, width)

    def inputs() -> tuple[Any, ...]:
        draw = Draw()
        return tuple([draw.floats(*shape) for _ in range(4)])

    # Two products forward and five backward, of which half would do.
    return Workload(name, title, "attention", inputs, 7 * heads * length**2 * width)


def embedding(name: str, title: str, kind: str, rows: int, tokens: int) -> Workload:
    """Rows of 256 chosen from a table; or the gradient of the table, all of it."""
    width = 256

    def inputs() -> tuple[Any, ...]:
        draw = Draw()
        table, at = draw.floats(rows, width), draw.integers(rows, tokens)
        return (
            (table, at)
            if kind == "gather"
            else (table, at, draw.floats(*at.shape, width))
        )

    chosen = 4.0 * tokens * width
    written = chosen if kind == "gather" else 4.0 * rows * width
    return Workload(name, title, kind, inputs, read=chosen, written=written)


def mlp(
    name: str, title: str, batch: int, widths: tuple[int, ...] = WIDTHS, **more: Any
) -> Workload:
    """A training step of a perceptron: relu between layers, cross-entropy, AdamW."""
    layers = list(itertools.pairwise(widths))

    def inputs() -> tuple[Any, ...]:
        draw, p = Draw(), {}
        for i, (a, b) in enumerate(layers):
            p[f"w{i}"] = draw.floats(a, b, scale=(2 / a) ** 0.5)
            p[f"b{i}"] = np.zeros(b, np.float32)
        return p, draw.floats(batch, widths[0]), draw.integers(widths[-1], batch)

    # Forward, and the gradients of weights and inputs; none of the data's.
    products = [2 * batch * a * b for a, b in layers]
    flops = 3 * sum(products) - products[0]
    return Workload(name, title, "mlp", inputs, flops, **more)


def cnn(name: str, title: str, batch: int, side: int = 28, c: int = 32) -> Workload:
    """A training step: two convolutions, max over 2x2, two dense layers, AdamW."""
    pooled = 2 * c * ((side - 4) // 2) ** 2

    def inputs() -> tuple[Any, ...]:
        draw = Draw()

        def zeros(n: int) -> Array:
            return np.zeros(n, np.float32)

        p = {
            "c0": draw.floats(c, 1, 3, 3, scale=0.33),
            "cb0": zeros(c),
            "c1": draw.floats(2 * c, c, 3, 3, scale=(2 / (9 * c)) ** 0.5),
            "cb1": zeros(2 * c),
            "w0": draw.floats(pooled, 4 * c, scale=(2 / pooled) ** 0.5),
            "b0": zeros(4 * c),
            "w1": draw.floats(4 * c, 10, scale=(1 / (4 * c)) ** 0.5),
            "b1": zeros(10),
        }
        return p, draw.floats(batch, 1, side, side), draw.integers(10, batch)

    first = 2 * batch * (side - 2) ** 2 * c * 9
    others = 2 * batch * (side - 4) ** 2 * 2 * c * c * 9
    others += 2 * batch * (pooled * 4 * c + 40 * c)
    return Workload(name, title, "cnn", inputs, 2 * first + 3 * others)


@dataclass(frozen=True)
class Gpt:
    """Sizes of a transformer; the defaults are those of nanoGPT for a CPU."""

    layers: int = 4
    width: int = 128
    length: int = 64
    vocabulary: int = 65


def gpt(
    name: str,
    title: str,
    batch: int,
    train: bool,
    size: Gpt | None = None,
    **more: Any,
) -> Workload:
    """A training step, or the logits: no biases, tied head, tanh-gelu."""
    s = size or Gpt()
    d, length, vocabulary = s.width, s.length, s.vocabulary

    def inputs() -> tuple[Any, ...]:
        draw, ones = Draw(), np.ones(d, np.float32)
        p = {
            "wte": draw.floats(vocabulary, d, scale=0.02),
            "wpe": draw.floats(length, d, scale=0.02),
            "lnf": ones.copy(),
        }
        for i in range(s.layers):
            p[f"ln1_{i}"] = ones.copy()
            p[f"qkv_{i}"] = draw.floats(d, 3 * d, scale=0.02)
            p[f"proj_{i}"] = draw.floats(d, d, scale=0.007)
            p[f"ln2_{i}"] = ones.copy()
            p[f"fc_{i}"] = draw.floats(d, 4 * d, scale=0.02)
            p[f"fc2_{i}"] = draw.floats(4 * d, d, scale=0.007)
        x = draw.integers(vocabulary, batch, length)
        return p, x, draw.integers(vocabulary, batch, length)

    weights = 12 * s.layers * d * d + vocabulary * d
    flops = 2 * batch * length * (weights + 2 * s.layers * length * d)
    kind = "gpt" if train else "logits"
    flops *= 3 if train else 1
    return Workload(name, title, kind, inputs, flops, **more)


def deep(name: str, title: str, layers: int, width: int) -> Workload:
    """The gradient of a deep perceptron's sum, of all weights and biases."""

    def inputs() -> tuple[Any, ...]:
        draw, scale = Draw(), (2 / width) ** 0.5
        zeros = np.zeros(width, np.float32)
        ps = [
            (draw.floats(width, width, scale=scale), zeros.copy())
            for _ in range(layers)
        ]
        return ps, draw.floats(width, width)

    return Workload(name, title, "deep", inputs)


def process(kind: str, title: str) -> Workload:
    """Something that takes a process of its own each time."""
    return Workload(kind, title, kind, tuple)


_PER_OPERATION = "time per operation"
_ODD_MATMUL, _MATMUL = 1000 * 1003 * 997, 1024**3
_ODD_CONV, _CONV = 31 * 61 * 17 * 15 * 67, 32 * 64 * 16 * 16 * 64

WORKLOADS: tuple[Workload, ...] = (
    matmul("matmul512", 512, 512, 512),
    matmul("matmul1024", 1024, 1024, 1024),
    matmul("matmul2048", 2048, 2048, 2048),
    matmul(
        "matmul_odd",
        *(1000, 1003, 997),
        beside=("matmul1024", _PER_OPERATION),
        share=_ODD_MATMUL / _MATMUL,
    ),
    matmul("matmul_skinny", 64, 784, 128),
    over_array("gelu", "gelu (tanh form), 16M", LARGE),
    over_array("sum", "sum, 16M", LARGE),
    over_array("sum0", "sum over axis 0, 4096x4096", 4096, 4096),
    over_array("max1", "max over axis 1, 4096x4096", 4096, 4096),
    over_array("softmax", "softmax 4096x1024", 4096, 1024),
    over_array("softmax", "softmax 4096x1001", 4096, 1001, name="softmax_odd"),
    over_array("layernorm", "layer norm 4096x1024", 4096, 1024),
    conv("conv_small", 32, 3, 32, 32, 16),
    conv("conv_large", 32, 64, 16, 16, 64),
    conv(
        "conv_odd",
        *(31, 61, 17, 15, 67),
        beside=("conv_large", _PER_OPERATION),
        share=_ODD_CONV / _CONV,
    ),
    attention("attention", "attention and its gradients, 4 x 2048 x 64", 4, 2048, 64),
    embedding("gather", "embedding, 4,096 of 50,000 x 256", "gather", 50_000, 4096),
    embedding("scatter", "its gradient", "scatter", 50_000, 4096),
    mlp("mlp", "MLP train step, batch 128", 128),
    mlp(
        "mlp_odd",
        "MLP train step, batch 127",
        127,
        beside=("mlp", "time per row"),
        share=127 / 128,
    ),
    mlp(
        "mlp_contended",
        "MLP train step, one core taken",
        128,
        beside=("mlp", "time"),
        contended=True,
    ),
    cnn("cnn", "CNN train step", 64),
    gpt("gpt", "GPT train step", 12, train=True),
    gpt(
        "gpt_contended",
        "GPT train step, one core taken",
        12,
        train=True,
        beside=("gpt", "time"),
        contended=True,
    ),
    gpt("gpt_forward", "GPT forward, 1x64", 1, train=False),
    deep("gradient_graph", "gradient graph, 100-layer MLP", 100, 32),
    process("import", "import"),
    process("hello", "add two 3-vectors, fresh process"),
)

BY_NAME = {w.name: w for w in WORKLOADS}

"""How far Tensor's functions over an axis are from their definitions, in f32.

The reference is the definition in f64. Rounding errors of a sum are as large as its
terms make them, not as its value: where terms cancel, no f32 number of terms gives the
value its own last digit. So each function says in ulp of what it is measured.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from uopc.config import overriding
from uopc.tensor import Tensor
from uopc.testing.accuracy import Array, ulps

LENGTHS: tuple[tuple[int, ...], ...] = ((1, 3, 64), (1000,), (100_000,))
"""How long the rows are that are measured, in groups that are shown together."""

Draft = Callable[[tuple[int, ...]], Array]
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]


def _mixed(share: float, value: float, around: float = 0, spread: float = 1) -> Draw:
    """Normal numbers, of which some, at least one, are replaced by a value."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        x = around + spread * rng.standard_normal(shape)
        chosen = rng.random(shape) < share
        chosen[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = True
        return np.where(chosen, value, x)

    return draw


def _size(rng: np.random.Generator, shape: tuple[int, int], reach: float) -> Array:
    """Magnitudes from exp(-reach) to exp(3)."""
    return np.asarray(np.exp(rng.uniform(-reach, 3, shape)))


KINDS: dict[str, Draw] = {
    "normal": lambda rng, s: rng.standard_normal(s),
    "positive": lambda rng, s: rng.uniform(0, 1, s),
    "around 100": lambda rng, s: rng.standard_normal(s) + 100,
    "of all sizes": lambda rng, s: rng.standard_normal(s) * _size(rng, s, 20),
    "constant": lambda rng, s: np.full(s, 0.1) * np.arange(1, s[0] + 1)[:, None],
    "zeros": lambda rng, s: np.zeros(s),
    "huge": lambda rng, s: rng.uniform(-3e37, 3e37, s) / s[1],
    "tiny": lambda rng, s: rng.uniform(-2e-38, 2e-38, s),
    "half -inf": _mixed(0.5, -np.inf),
    "all -inf": lambda rng, s: np.full(s, -np.inf),
    "one inf": _mixed(0, np.inf),
    "one NaN": _mixed(0, np.nan),
}
"""The kinds of rows, by name."""

FACTORS: dict[str, Draw] = {
    "next to 1": lambda rng, s: 1 + rng.standard_normal(s) * 1e-6,
    "mixed signs": lambda rng, s: _sign(rng, s) * (1 + rng.standard_normal(s) / s[1]),
    "of all sizes": lambda rng, s: np.exp(rng.standard_normal(s) * 9 / np.sqrt(s[1])),
    "half zeros": _mixed(0.5, 0.0),
    "one inf": _mixed(0, np.inf, 1, 1e-6),
    **{kind: KINDS[kind] for kind in ("constant", "huge", "tiny", "one NaN")},
}
"""The kinds of rows for products: of random factors most would be 0 or infinite."""


def _sign(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.choice([-1.0, 1.0], shape)


@dataclass(frozen=True)
class Unit:
    """What the ulp of an error is taken of.

    Attributes:
        name: as the page calls it.
        size: from the rows and the true values, numbers of which it is the ulp.
    """

    name: str
    size: Callable[[Array, Array], Array]


def _largest(rows: Array, exact: Array) -> Array:
    finite = np.where(np.isfinite(exact), np.abs(exact), 0.0)
    return np.broadcast_to(finite.max(-1, keepdims=True), exact.shape)


VALUE = Unit("value", lambda rows, exact: exact)
LARGEST = Unit("largest", _largest)


def _terms(total: Callable[[Array], Array]) -> Unit:
    return Unit("terms", lambda rows, exact: total(rows))


@dataclass(frozen=True)
class RowFunction:
    """A function of rows: a number or a row for each, and what is measured of it.

    Attributes:
        name: how it is written, with ``x`` for the rows.
        methods: the names of Tensor that it stands for.
        call: the function of a tensor (kinds, rows, length).
        exact: its definition on an f64 array of that shape.
        unit: what the ulp is taken of.
        kinds: the kinds of rows it gets.
    """

    name: str
    methods: tuple[str, ...]
    call: Callable[[Tensor], Tensor]
    exact: Callable[[Array], Array]
    unit: Unit = VALUE
    kinds: Mapping[str, Draw] = field(default_factory=lambda: KINDS)


@dataclass(frozen=True)
class RowMeasurement:
    """The largest error over rows, the kind of row that makes it, and how many numbers
    were compared."""

    error: float
    kind: str
    numbers: int


def measure_rows(
    functions: Sequence[RowFunction],
    backend: str,
    lengths: Sequence[int],
    count: int = 100_000,
) -> list[RowMeasurement]:
    """Compute functions of rows of each length, and compare.

    Of each kind there are 1 to 32 rows, as many as have about ``count`` elements in all
    kinds together. The largest error of all lengths is kept.
    """
    found = [RowMeasurement(-1.0, "", 0)] * len(functions)
    for n in lengths:
        number = min(max(count // (len(KINDS) * n), 1), 32)
        inputs = [rows_of(f.kinds, number, n) for f in functions]
        pairs = zip(functions, inputs, strict=True)
        with overriding(UOPC_BACKEND=backend):
            tensors = [f.call(Tensor(x)) for f, x in pairs]
            Tensor.realize_all(tensors)
            values = [t.numpy() for t in tensors]
        for i, f in enumerate(functions):
            found[i] = _worse(found[i], _compared(f, values[i], inputs[i]))
    return found


def rows_of(kinds: Mapping[str, Draw], number: int, n: int) -> Array:
    """Rows of ``n`` numbers, f32 (kinds, number, n), the same each time."""
    rng = np.random.default_rng(n)
    with np.errstate(over="ignore"):
        return np.stack([draw(rng, (number, n)).astype(np.float32)
                         for draw in kinds.values()])  # fmt: skip


def _compared(function: RowFunction, got: Array, rows: Array) -> RowMeasurement:
    wide = rows.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = np.asarray(function.exact(wide))
        size = np.abs(function.unit.size(wide, exact))
    if got.shape != exact.shape:
        raise ValueError(f"{function.name}: {got.shape} instead of {exact.shape}")
    errors = ulps(got, exact, signed=False, size=size)
    worst = errors.reshape(len(rows), -1).max(-1)
    at = int(np.argmax(worst))
    return RowMeasurement(float(worst[at]), list(function.kinds)[at], errors.size)


def _worse(before: RowMeasurement, new: RowMeasurement) -> RowMeasurement:
    worst = new if new.error > before.error else before
    return RowMeasurement(worst.error, worst.kind, before.numbers + new.numbers)


# -- the functions ------------------------------------------------------------


def _sum(x: Array) -> Array:
    return np.asarray(x.sum(-1))


def _shifted(x: Array) -> tuple[Array, Array]:
    """The largest element of each row, and what its logsumexp has above that."""
    top = x.max(-1)
    finite = np.where(np.isinf(top), 0, top)
    return top, np.log(_sum(np.exp(x - finite[..., None])))


def _logsumexp(x: Array) -> Array:
    top, rest = _shifted(x)
    return np.where(np.isinf(top), top, top + rest)


def _logsumexp_terms(x: Array) -> Array:
    """Those of ``_logsumexp``, for each row."""
    top, rest = _shifted(x)
    return np.asarray(np.abs(top) + rest)


def _log_softmax(x: Array) -> Array:
    y = x - x.max(-1, keepdims=True)
    return np.asarray(y - np.log(np.exp(y).sum(-1, keepdims=True)))


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _variance(x: Array) -> Array:
    # From the first element: then the variance of equal numbers is 0 in f64 as well.
    return np.asarray((x - x[..., :1]).var(-1))


@functools.cache
def _columns(n: int) -> Array:
    """Two columns to multiply rows with, of mixed signs and of one."""
    y = np.random.default_rng(n + 1).standard_normal((n, 2)).astype(np.float32)
    y[:, 1] = np.abs(y[:, 1])
    return y


def _product(x: Array) -> Array:
    return np.asarray(x @ _columns(x.shape[-1]).astype(np.float64))


def _product_terms(x: Array) -> Array:
    return np.asarray(np.abs(x) @ np.abs(_columns(x.shape[-1]).astype(np.float64)))


def _einsum(t: Tensor) -> Tensor:
    return Tensor.einsum("abk,kc->abc", t, Tensor(_columns(t.shape[-1])))


def _scatter_add(t: Tensor) -> Tensor:
    start = Tensor.zeros(*t.shape[:-1], 1)
    return start.scatter_add(-1, Tensor(np.zeros(t.shape, np.int32)), t).squeeze(-1)


@functools.cache
def _labels(kinds: int, number: int, n: int) -> Array:
    """A label for each row; every third is ignored."""
    labels = np.random.default_rng(n + 2).integers(0, n, (kinds, number))
    labels[:, 2::3] = -100
    return labels.astype(np.int32)


def _probabilities(shape: tuple[int, ...]) -> Array:
    """Of the classes, the same for each row; of several the last is impossible."""
    p = np.arange(shape[-1], 0, -1)
    p[1:][-1:] = 0
    return np.broadcast_to((p / p.sum()).astype(np.float32), shape)


def _target(shape: tuple[int, ...], smoothing: float) -> Array:
    """The labels as probabilities; nothing for those that are ignored."""
    labels = _labels(*shape)[..., None]
    hot = labels == np.arange(shape[-1])
    return np.where(labels < 0, 0.0, hot * (1 - smoothing) + smoothing / shape[-1])


def _entropy(name: str, labels: Draft, target: Draft, smoothing: float) -> RowFunction:
    def call(t: Tensor) -> Tensor:
        given = Tensor(labels(t.shape))
        return t.cross_entropy(given, label_smoothing=smoothing, reduction="none")

    def exact(x: Array) -> Array:
        p = target(x.shape)
        return _sum(np.where(p == 0, 0.0, -p * _log_softmax(x)))

    def terms(x: Array) -> Array:
        """The loss is what the logits lack to their logsumexp."""
        p, rest = target(x.shape), _logsumexp_terms(x)[..., None]
        return _sum(np.where(p == 0, 0.0, p * (np.abs(x) + rest)))

    return RowFunction(name, ("cross_entropy",), call, exact, _terms(terms))


SUM = _terms(lambda x: _sum(np.abs(x)))
PRODUCT = _terms(_product_terms)

ROW_FUNCTIONS: tuple[RowFunction, ...] = (
    RowFunction("sum", ("sum",), lambda t: t.sum(-1), _sum, SUM),
    RowFunction("mean", ("mean",), lambda t: t.mean(-1), lambda x: x.mean(-1),
                _terms(lambda x: np.abs(x).mean(-1))),
    RowFunction("scatter_add", ("scatter_add",), _scatter_add, _sum, SUM),
    RowFunction("x @ y", ("__matmul__", "__imatmul__", "matmul", "dot"),
                lambda t: t @ Tensor(_columns(t.shape[-1])), _product, PRODUCT),
    RowFunction("einsum", ("einsum",), _einsum, _product, PRODUCT),
    RowFunction("cumsum", ("cumsum",), Tensor.cumsum, lambda x: x.cumsum(-1),
                _terms(lambda x: np.abs(x).cumsum(-1))),
    RowFunction("prod", ("prod",), lambda t: t.prod(-1), lambda x: x.prod(-1),
                kinds=FACTORS),
    RowFunction("cumprod", ("cumprod",), Tensor.cumprod, lambda x: x.cumprod(-1),
                kinds=FACTORS),
    RowFunction("norm", ("norm",), lambda t: t.norm(2, -1),
                lambda x: np.sqrt(_sum(x * x))),
    RowFunction("norm(1)", ("norm",), lambda t: t.norm(1, -1),
                lambda x: _sum(np.abs(x))),
    RowFunction("norm(inf)", ("norm",), lambda t: t.norm(float("inf"), -1),
                lambda x: np.abs(x).max(-1)),
    RowFunction("var", ("var",), lambda t: t.var(-1), _variance),
    RowFunction("std", ("std",), lambda t: t.std(-1), lambda x: np.sqrt(_variance(x))),
    RowFunction("logsumexp", ("logsumexp",), lambda t: t.logsumexp(-1), _logsumexp,
                _terms(_logsumexp_terms)),
    RowFunction("softmax", ("softmax",), Tensor.softmax, _softmax, LARGEST),
    RowFunction("softmax, each", ("softmax",), Tensor.softmax, _softmax),
    RowFunction("log_softmax", ("log_softmax",), Tensor.log_softmax, _log_softmax,
                LARGEST),
    _entropy("cross_entropy", lambda s: _labels(*s), lambda s: _target(s, 0), 0),
    _entropy("cross_entropy, smoothed", lambda s: _labels(*s),
             lambda s: _target(s, 0.1), 0.1),
    _entropy("cross_entropy, soft", _probabilities,
             lambda s: _probabilities(s).astype(np.float64), 0),
    RowFunction("x.softmax() @ y", ("softmax", "__matmul__"),
                lambda t: t.softmax() @ Tensor(_columns(t.shape[-1])),
                lambda x: _product(_softmax(x)),
                _terms(lambda x: _product_terms(_softmax(x)))),
)  # fmt: skip
"""What is measured. The last is attention, of scores ``x`` and values ``y``."""

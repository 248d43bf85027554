"""How far Tensor's functions over axes are from their definitions, in f32.

An error is in units in the last place of the largest true value of the row: where
numbers cancel, no order of additions gives each of them its own last digit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.config import overriding
from uopc.tensor import Tensor
from uopc.testing.accuracy import Array

LENGTHS = (3, 64, 1000, 100_000)
"""How long the rows are that are measured."""


@dataclass(frozen=True)
class RowFunction:
    """A function of rows: a number or a row for each, and its definition in f64."""

    name: str
    call: Callable[[Tensor], Tensor]
    exact: Callable[[Array], Array]


def _lse(x: Array) -> Array:
    top = x.max(-1, keepdims=True)
    return np.asarray(top + np.log(np.exp(x - top).sum(-1, keepdims=True)))


def _near_one(x: Any) -> Any:
    return x * np.float32(1e-6) + np.float32(1)


ROW_FUNCTIONS: tuple[RowFunction, ...] = (
    RowFunction("norm", lambda t: t.norm(2, -1), lambda x: np.sqrt((x * x).sum(-1))),
    RowFunction("norm(1)", lambda t: t.norm(1, -1), lambda x: np.abs(x).sum(-1)),
    RowFunction("var", lambda t: t.var(-1), lambda x: x.var(-1)),
    RowFunction("std", lambda t: t.std(-1), lambda x: x.std(-1)),
    RowFunction("logsumexp", lambda t: t.logsumexp(-1), lambda x: _lse(x)[..., 0]),
    RowFunction("softmax", Tensor.softmax, lambda x: np.exp(x - _lse(x))),
    RowFunction("log_softmax", Tensor.log_softmax, lambda x: x - _lse(x)),
    RowFunction("cumsum", Tensor.cumsum, lambda x: x.cumsum(-1)),
    RowFunction("cumprod", lambda t: _near_one(t).cumprod(),
                lambda x: _near_one(x.astype(np.float32)).astype(float).cumprod(-1)),
)  # fmt: skip
"""What is measured; cumprod of numbers near 1, whose product stays in range."""


def measure_rows(
    function: RowFunction, backend: str, lengths: Sequence[int] = LENGTHS
) -> list[float]:
    """The largest error for each length, over rows of three kinds.

    Normal numbers; such numbers far from 0, of which 100 is the mean; and numbers of
    very different sizes.
    """
    return [_error(function, backend, n) for n in lengths]


def _error(function: RowFunction, backend: str, n: int) -> float:
    normal = np.random.default_rng(n).standard_normal((3, n))
    normal[1] += 100
    normal[2] *= np.exp(np.linspace(-20, 3, n))
    x = normal.astype(np.float32)
    exact = function.exact(x.astype(np.float64)).reshape(3, -1)
    with overriding(UOPC_BACKEND=backend):
        got = function.call(Tensor(x)).numpy().reshape(3, -1).astype(np.float64)
    largest = np.abs(exact).max(-1)
    digit = np.ldexp(1.0, np.frexp(largest)[1] - 24)
    return float((np.abs(got - exact).max(-1) / digit).max())

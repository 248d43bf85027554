"""What tests of vmap share: functions of one example, and a loop over a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.runtime.tree import flatten, mapped
from uopc.tensor import Tensor

RNG = np.random.default_rng(11)
N = 3
X = RNG.standard_normal((N, 4))
Y = RNG.standard_normal((N, 4))
V = RNG.standard_normal((N, 4))
W = RNG.standard_normal((4, 5))
AT = np.array([2, -1, 7], np.int32)  # the last one is out of range


def T(data: Any) -> Tensor:
    return Tensor(np.asarray(data, np.float64))


def near(found: Any, wanted: Any, rtol: float = 1e-12) -> None:
    """Two nested structures of tensors or arrays are equal but for rounding."""
    (a, ours), (b, theirs) = flatten(found), flatten(wanted)
    assert ours == theirs
    for x, y in zip(a, b, strict=True):
        x, y = (t.numpy() if isinstance(t, Tensor) else np.asarray(t) for t in (x, y))
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-13)


def loop(f: Callable[..., Any], *args: Any) -> Any:
    """f on each element by itself, the results stacked."""
    each = [f(*mapped(lambda t, b=b: t[b], args)) for b in range(N)]
    leaves = [flatten(value)[0] for value in each]
    structure = flatten(each[0])[1]
    stacked = [
        Tensor(np.stack([t.numpy() for t in ts])) for ts in zip(*leaves, strict=True)
    ]
    return structure.filled(stacked)


# -- functions of one example ---------------------------------------------------------


def wave(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


def layer(x: Tensor) -> Tensor:
    return (x @ T(W)).tanh()


def attention(x: Tensor) -> Tensor:
    return ((x.reshape(4, 1) * x.reshape(1, 4)).softmax(1) @ x.reshape(4, 1)).sum()


def loss(x: Tensor) -> Tensor:
    return -(x @ T(W)).log_softmax(0)[1]


def chosen(x: Tensor) -> Tensor:
    return (x > 0).where(x.abs().sqrt() * x, x.exp()).sum()


def maximum(x: Tensor) -> Tensor:
    return x.max() * x.min() + x.prod()


def normal(x: Tensor) -> Tensor:
    return ((x - x.mean()) / (x.var() + 1e-3).sqrt() * x).sum()


def ragged(x: Tensor) -> Tensor:
    parts = Tensor.cat([x[1:], x[:1].flip(0), x * x])
    return (parts.cumsum(0) * parts).sum()


def looked_up(x: Tensor) -> Tensor:
    return (x.take(np.int32([0, 3, 3, 9])) * x).sum()


SCALAR = [wave, attention, loss, chosen, maximum, normal, ragged, looked_up]
scalar = pytest.mark.parametrize("f", SCALAR, ids=lambda f: f.__name__)

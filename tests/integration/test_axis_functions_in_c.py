"""Functions over axes, and their gradients, on the C backend against the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from uopc.config import overriding
from uopc.nn import scaled_dot_product_attention
from uopc.tensor import Tensor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 70)).astype(np.float32)
SPECIAL = np.array(
    [[np.nan, 1, np.inf, -np.inf, 1] * 14, [-0.0, 0, 0, 1e30, 1e-30] * 14], np.float32
)
MASK = np.array([[True, False, True], [False] * 3, [True] * 3])


def spreads(x: Tensor) -> list[Tensor]:
    return [x.norm(p, 1) for p in (1, 2, np.inf)] + [
        x.std(1), x.var(1, correction=1), x.logsumexp(1), x.softmax(1).max(1)
    ]  # fmt: skip


def scans(x: Tensor) -> list[Tensor]:
    return [x.cumsum(1), x.cumprod(1), x.cumsum(0), (x + 1).prod(1)]


def ordered(x: Tensor) -> list[Tensor]:
    values, places = x.topk(3)
    return [x.sort(), x.argsort(descending=True), values, places, x.argmax(1),
            x.argmin(0), x.sort(0)]  # fmt: skip


def contracted(x: Tensor) -> list[Tensor]:
    square = x[:, :3]
    return [
        Tensor.einsum("ab,cb->ac", x, x), Tensor.einsum("aa,ab->b", square, x),
        square.diagonal(),
        scaled_dot_product_attention(x, x, x, Tensor(MASK), causal=True),
        x.cross_entropy(Tensor([4, -100, 80]), label_smoothing=0.1),
        x.cross_entropy(x.softmax(), reduction="none"),
    ]  # fmt: skip


def results(
    function: Callable[[Tensor], Sequence[Tensor]], x: np.ndarray, backend: str
) -> list[np.ndarray]:
    """The values, and the gradient of the sum of squares of all that are finite."""
    with overriding(UOPC_BACKEND=backend):
        t = Tensor(x, requires_grad=True)
        found = list(function(t))
        if np.isfinite(x).all():
            parts = [y.square().sum() for y in found if y.dtype.is_float]
            sum(parts[1:], parts[0]).backward([t])
            found.append(t.grad)
        Tensor.realize_all(found)
        return [y.numpy() for y in found]


@pytest.fixture(autouse=True)
def cache(kernel_cache: object) -> Iterator[None]:
    with overriding(UOPC_CACHE_DIR=kernel_cache):
        yield


@pytest.mark.parametrize("function", [spreads, scans, ordered, contracted])
def test_as_the_reference(function: Callable[[Tensor], Sequence[Tensor]]) -> None:
    for x in (X, SPECIAL) if function is not contracted else (X,):
        pairs = zip(*(results(function, x, b) for b in ("c", "interp")), strict=True)
        for got, right in pairs:
            if right.dtype.kind == "i" or function is ordered:
                np.testing.assert_array_equal(got, right)
            else:
                np.testing.assert_allclose(got, right, rtol=2e-5, atol=2e-6)

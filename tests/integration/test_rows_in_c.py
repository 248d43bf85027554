"""Functions of rows and attention, as native code: values, threads and memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import vjp
from uopc.backend_c import set_threads
from uopc.config import overriding
from uopc.kernelize import joining
from uopc.nn import scaled_dot_product_attention
from uopc.tensor import Tensor

Array = np.ndarray[Any, Any]


def centred(x: Tensor) -> Tensor:
    return x - x.mean(axis=-1, keepdim=True)


def nameless(x: Tensor) -> Tensor:
    """Less the median of three means, over the largest square."""
    n = x.shape[-1] // 3
    a, b, c = (x[..., i * n : i * n + n].mean(axis=-1, keepdim=True) for i in range(3))
    rest = x - a.maximum(b).minimum(a.minimum(b).maximum(c))
    return rest / rest.square().max(axis=-1, keepdim=True)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(),
    "log_softmax": lambda x: x.log_softmax(),
    "layer norm": lambda x: centred(x) / centred(x).square().mean(-1, True).sqrt(),
    "RMS norm": lambda x: x / (x.square().mean(axis=-1, keepdim=True) + 1e-5).sqrt(),
    "no name": nameless,
}


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def with_gradient(f: Callable[..., Tensor], *arrays: Array) -> list[Array]:
    """The value, and the gradients for a cotangent that is made up."""
    y, back = vjp(f, *map(Tensor, arrays))
    found = back(Tensor(draw(*y.shape, seed=9)))
    gradients = found if isinstance(found, tuple) else (found,)
    return [y.numpy(), *(g.numpy() for g in gradients)]


def assert_right(f: Callable[..., Tensor], *arrays: Array) -> None:
    """As the reference backend has it, and the same bits for any number of threads."""
    with overriding(UOPC_BACKEND="interp"):
        expected = with_gradient(f, *arrays)
    try:
        set_threads(1)
        one = with_gradient(f, *arrays)
        set_threads(2)
        two = with_gradient(f, *arrays)
    finally:
        set_threads()
    for a, b, right in zip(one, two, expected, strict=True):
        assert a.tobytes() == b.tobytes()
        scale = max(1.0, float(np.abs(right).max()))
        np.testing.assert_allclose(a, right, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(300, 200), (5, 7, 33), (64, 1000)])
def test_functions_of_rows(name: str, shape: tuple[int, ...]) -> None:
    assert_right(FUNCTIONS[name], draw(*shape))


def test_a_row_without_a_finite_number_spoils_no_other() -> None:
    x = draw(40, 100)
    x[3], x[7, 5], x[9] = np.inf, np.nan, -np.inf
    got = Tensor(x).softmax().numpy()
    with np.errstate(invalid="ignore"):
        right = np.exp(x - x.max(axis=-1, keepdims=True))
        right /= right.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(got, right, rtol=1e-5)
    assert np.isnan(got[[3, 7, 9]]).all()
    assert np.isfinite(np.delete(got, [3, 7, 9], axis=0)).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 64, 16), (5, 64, 16), (2, 3, 96, 8), (2, 40, 5)])
def test_attention_by_blocks_of_queries(
    causal: bool, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of shapes so small that it would not be worth it."""
    monkeypatch.setattr(joining, "FAR_BYTES", 1 << 10)
    q, k, v = (draw(*shape, seed=i) for i in range(3))

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, causal=causal)

    assert_right(attention, q, k, v)


@pytest.mark.parametrize("shape", [(64, 31), (8,), (3, 16)])
def test_a_shared_value_of_what_is_written_over(shape: tuple[int, ...]) -> None:
    x = draw(*shape)
    t = Tensor(x).realize()
    e = (t.sin().cos() * t.tanh()).exp()
    y, z = e + 1, e * e - 2
    t.assign(e * 2)
    del e
    Tensor.realize_all([t, y, z])
    right = np.exp(np.cos(np.sin(x)) * np.tanh(x))
    for got, expected in ((t, right * 2), (y, right + 1), (z, right * right - 2)):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_short_sums_of_what_a_row_made() -> None:
    x = draw(100, 100)
    high = x.max(axis=-1, keepdims=True)
    for f in (lambda t: t.reshape(100, 50, 2).max(-1), lambda t: t[:, :99:3].sum(-1)):
        t = Tensor(x).realize()
        got = f(t * 2 - t.max(axis=-1, keepdim=True)).numpy()
        with overriding(UOPC_OPT=0):
            right = f(Tensor(x * 2 - high)).numpy()
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-4)


SCORES = """
import resource
import numpy as np
from uopc.nn import scaled_dot_product_attention
from uopc.tensor import Tensor

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

q, k, v = (Tensor(np.ones((4, 2048, 16), np.float32)) for _ in range(3))
scaled_dot_product_attention(q[:, :64], k[:, :64], v[:, :64]).numpy()
before = peak()
{call}
print(peak() - before)
"""


GRADIENTS = """
from uopc.autodiff import vjp
def f(q, *kv):
    for i in range({layers}):
        {layer}
    return q
kv = [k + i for i in range(2 * {layers})]
y, back = vjp(f, q, *kv)
Tensor.realize_all([y, *back(v)])
"""
ALONE = "q = scaled_dot_product_attention(q, kv[2 * i], kv[2 * i + 1])"
SHARED = "q = scaled_dot_product_attention(q, kv[0], kv[1])"
# All rows of a layer have to be known before the next one begins.
OF_ITSELF = "q = q + scaled_dot_product_attention(q * kv[2 * i], q, q * kv[2 * i + 1])"


@pytest.mark.parametrize(
    "call",
    [
        "scaled_dot_product_attention(q, k, v, causal=True).numpy()",
        GRADIENTS.format(layers=1, layer=ALONE),
        GRADIENTS.format(layers=2, layer=ALONE),
        GRADIENTS.format(layers=2, layer=SHARED),
        GRADIENTS.format(layers=1, layer=OF_ITSELF),
        GRADIENTS.format(layers=3, layer=OF_ITSELF),
    ],
    ids=["forward", "gradients", "two layers", "shared keys", "of itself", "three"],
)
def test_no_memory_for_all_scores(call: str) -> None:
    """Which are 64 MB, for each layer."""
    command = [sys.executable, "-c", SCORES.format(call=call)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40 << 20


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [2, 4])
def test_layers_of_attention(
    causal: bool, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their weights are made again for the gradients."""
    monkeypatch.setattr(joining, "FAR_BYTES", 1 << 10)

    def layers(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        for w in (a, b):
            q, k, v = (x @ w[i] for i in range(3))
            x = x + scaled_dot_product_attention(q, k, v, causal=causal)
        return x

    x = draw(heads, 48, 8)
    a, b = (draw(3, 8, 8, seed=s) / 3 for s in (1, 2))
    assert_right(layers, x, a, b)


def test_two_products_into_which_one_array_goes() -> None:
    """Its gradient is two contractions, and their sum."""
    a, b, c = (draw(70, 70, seed=i) for i in range(3))
    assert_right(lambda x, w, v: (x @ w).tanh() + (x @ v).sin(), a, b / 9, c / 9)

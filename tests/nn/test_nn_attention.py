"""Scaled dot-product attention against NumPy, and rows that may attend to nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from uopc.dtype import f16, f32
from uopc.nn import Linear, MultiHeadAttention, parameters
from uopc.nn import scaled_dot_product_attention as attention
from uopc.tensor import Tensor

RNG = np.random.default_rng(0)
Q, K, V = (RNG.standard_normal(s) for s in ((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 7)))
ALLOWED = RNG.random((2, 1, 5, 6)) < 0.6
ALLOWED[:, :, 2] = False
ALLOWED[:, :, :2, 0] = True


def expected(scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Rows of -inf give 0."""
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v


SCORES = Q @ K.transpose(0, 1, 3, 2) / 2
TRIANGLE = np.tri(5, 6, dtype=bool)
BIAS = np.where(ALLOWED, RNG.standard_normal(ALLOWED.shape), -np.inf)


@pytest.mark.parametrize("backend", ["interp"])
def test_values(backend: str) -> None:
    q, k, v = map(Tensor, (Q, K, V))
    cases = [
        (attention(q, k, v), SCORES),
        (attention(q, k, v, scale=0.3), SCORES * 0.6),
        (attention(q, k, v, causal=True), np.where(TRIANGLE, SCORES, -np.inf)),
        (attention(q, k, v, Tensor(ALLOWED)), np.where(ALLOWED, SCORES, -np.inf)),
        (attention(q, k, v, Tensor(BIAS)), SCORES + BIAS),
        (
            attention(q, k, v, Tensor(ALLOWED), causal=True),
            np.where(ALLOWED & TRIANGLE, SCORES, -np.inf),
        ),
    ]
    for got, scores in cases:
        np.testing.assert_allclose(got.numpy(), expected(scores, V), rtol=1e-12)


@pytest.mark.parametrize("mask", [ALLOWED, BIAS], ids=["bool", "float"])
def test_a_query_without_keys_gives_zero_and_moves_nothing(mask: np.ndarray) -> None:
    q, k, v = (Tensor(x, requires_grad=True) for x in (Q, K, V))
    out = attention(q, k, v, Tensor(mask))
    assert (out.numpy()[:, :, 2] == 0).all()
    weights = Tensor(RNG.standard_normal(out.shape))
    (out * weights).sum().backward([q, k, v])
    grads = [t.grad.numpy() for t in (q, k, v)]
    assert all(np.isfinite(g).all() for g in grads)
    assert (grads[0][:, :, 2] == 0).all() and (grads[0][:, :, 0] != 0).any()
    # The others get what they would get without that query.
    kept = [0, 1, 3, 4]
    q2, k2, v2 = (Tensor(x, requires_grad=True) for x in (Q[:, :, kept], K, V))
    out = attention(q2, k2, v2, Tensor(mask[:, :, kept]))
    right = Tensor(weights.numpy()[:, :, kept])
    (out * right).sum().backward([q2, k2, v2])
    np.testing.assert_allclose(grads[0][:, :, kept], q2.grad.numpy(), rtol=1e-9)
    for got, other in zip(grads[1:], (k2, v2), strict=True):
        np.testing.assert_allclose(got, other.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_a_nan_shows_in_its_own_row_only() -> None:
    q = Q.copy()
    q[0, 0, 1] = np.nan
    for mask in (None, Tensor(ALLOWED)):
        out = attention(Tensor(q), Tensor(K), Tensor(V), mask).numpy()
        assert np.isnan(out[0, 0, 1]).all()
        assert np.isnan(out).sum() == 7


def test_half_types_are_rounded_once() -> None:
    q, k, v = (Tensor(x, dtype=f16) for x in (Q, K, V))
    out = attention(q, k, v)
    assert out.dtype is f16
    right = attention(q.cast(f32), k.cast(f32), v.cast(f32)).numpy()
    np.testing.assert_array_equal(out.numpy(), right.astype(np.float16))


BAD = [
    ((Q, K, V[:, :, :5]), None, ValueError, r"expected q .*v f64\[2, 3, 5, 7\]"),
    ((Q[..., :3], K, V), None, ValueError, r"expected q .*got q f64\[2, 3, 5, 3\]"),
    ((Q[0, 0, 0], K, V), None, ValueError, r"expected q"),
    ((Q, K[:, :, :0], V[:, :, :0]), None, ValueError, "S > 0"),
    ((Q.astype(int), K, V), None, TypeError, r"q must be float, got q i64"),
    ((Q, K, V), ALLOWED.astype(int), TypeError, "mask must be float or bool"),
]


@pytest.mark.parametrize(("arrays", "mask", "kind", "words"), BAD)
def test_what_does_not_fit_is_said(arrays, mask, kind, words) -> None:
    with pytest.raises(kind, match=words):
        attention(*map(Tensor, arrays), None if mask is None else Tensor(mask))
    with pytest.raises(TypeError, match="k must be a Tensor, not ndarray"):
        attention(Tensor(Q), K, Tensor(V))


def test_the_default_scale() -> None:
    one = Tensor(np.ones((1, 9)))
    out = attention(one, Tensor(np.eye(9)[:2]), Tensor([[0.0], [1.0]]))
    assert math.isclose(out.item(), 0.5)


def by_hand(
    layer: MultiHeadAttention, x: np.ndarray, y: np.ndarray, allowed: np.ndarray
) -> np.ndarray:
    """Head by head, in f64."""

    def projected(part: Linear, a: np.ndarray) -> np.ndarray:
        assert part.bias is not None
        w, b = part.weight.numpy().astype(float), part.bias.numpy()
        return np.asarray(a.astype(float) @ w.T + b)

    q = projected(layer.query, x)
    k, v = projected(layer.key, y), projected(layer.value, y)
    one = layer.width // layer.heads
    found = []
    for h in range(layer.heads):
        g = h // (layer.heads // layer.key_heads)
        mine, theirs = slice(h * one, h * one + one), slice(g * one, g * one + one)
        scores = q[..., mine] @ np.swapaxes(k[..., theirs], -1, -2) / np.sqrt(one)
        scores = np.where(allowed, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        found.append(weights @ v[..., theirs])
    return projected(layer.out, np.concatenate(found, -1))


@pytest.mark.parametrize("key_heads", [None, 2, 1])
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "masks", "context"])
def test_multi_head_attention(key_heads: int | None, kind: str) -> None:
    Tensor.manual_seed(3)
    layer = MultiHeadAttention(12, 4, key_heads, causal=kind == "causal")
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 5, 12)).astype(np.float32)
    y = x
    allowed = np.ones((5, 5), bool)
    given: dict[str, Tensor] = {}
    if kind == "causal":
        allowed = np.tri(5, dtype=bool)
    elif kind in ("mask", "masks"):
        shape = (5, 5) if kind == "mask" else (2, 5, 5)
        allowed = (rng.random(shape) < 0.5) | np.eye(5, dtype=bool)
        given["mask"] = Tensor(allowed)
    elif kind == "context":
        y = rng.standard_normal((2, 7, 12)).astype(np.float32)
        allowed = np.ones((5, 7), bool)
        given["context"] = Tensor(y)
    got = layer(Tensor(x), **given).numpy()
    right = by_hand(layer, x, y, allowed)
    np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


def test_multi_head_attention_learns_and_says_what_is_wrong() -> None:
    Tensor.manual_seed(0)
    layer = MultiHeadAttention(8, 2, bias=False)
    assert [p.shape for p in parameters(layer)] == [(8, 8)] * 4
    layer(Tensor(np.ones((3, 8), np.float32)))  # no batch
    loss = layer(Tensor.randn(2, 3, 8)).square().sum()
    loss.backward()
    assert all(p.grad is not None for p in parameters(layer))
    with pytest.raises(ValueError, match="3 heads do not divide a width of 8"):
        MultiHeadAttention(8, 3)
    with pytest.raises(ValueError, match="3 heads of keys do not divide 4 heads"):
        MultiHeadAttention(8, 4, 3)
    with pytest.raises(
        ValueError, match=r"expected x \(..., length, 8\), got f32\[3\]"
    ):
        layer(Tensor(np.ones(3, np.float32)))
    with pytest.raises(ValueError, match=r"expected context .* got f32\[3, 4\]"):
        layer(Tensor(np.ones((3, 8), np.float32)), Tensor(np.ones((3, 4), np.float32)))

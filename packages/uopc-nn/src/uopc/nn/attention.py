"""Attention as a layer."""

from __future__ import annotations

from uopc.nn.functional import scaled_dot_product_attention
from uopc.nn.layers import Linear
from uopc.tensor import Tensor


class MultiHeadAttention:
    """Several attentions side by side, each of a part of the width, then a projection.

    Vaswani et al., Attention Is All You Need, 2017; with fewer heads of keys than of
    queries, Ainslie et al., GQA, 2023. Differences from PyTorch's MultiheadAttention:
    the batch comes first, True in a mask means that a query may attend to a key, and
    projections are three layers of their own, which start as `Linear` does.

    Args:
        width: length of the last axis, a multiple of ``heads``.
        heads: how many attentions.
        key_heads: how many heads of keys and values; each serves heads / key_heads of
            queries. ``heads`` by default.
        causal: whether query i attends to keys 0 to i only.
        bias: whether the projections have one.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        key_heads: int | None = None,
        causal: bool = False,
        bias: bool = True,
    ) -> None:
        key_heads = heads if key_heads is None else key_heads
        if heads < 1 or width < 1 or width % heads:
            raise ValueError(
                f"MultiHeadAttention: {heads} heads do not divide a width of {width}"
            )
        if key_heads < 1 or heads % key_heads:
            raise ValueError(
                f"MultiHeadAttention: {key_heads} heads of keys do not divide {heads} "
                "heads"
            )
        self.width, self.heads, self.key_heads = width, heads, key_heads
        self.causal = causal
        inner = width // heads * key_heads
        self.query = Linear(width, width, bias)
        self.key = Linear(width, inner, bias)
        self.value = Linear(width, inner, bias)
        self.out = Linear(width, width, bias)

    def __call__(
        self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """(..., L, width) -> (..., L, width).

        Args:
            x: what asks.
            context: (..., S, width), what is asked; ``x`` itself by default.
            mask: bool, True where a query may attend to a key, or float, added to the
                scores; broadcast to (..., L, S), the same for all heads.
        """
        context = x if context is None else context
        for name, t in (("x", x), ("context", context)):
            if t.ndim < 2 or t.shape[-1] != self.width:
                raise ValueError(
                    f"MultiHeadAttention: expected {name} (..., length, {self.width}), "
                    f"got {t.dtype}{list(t.shape)}"
                )
        q = self._heads(self.query(x), self.heads // self.key_heads)
        k, v = (self._heads(layer(context), 1) for layer in (self.key, self.value))
        if mask is not None and mask.ndim > 2:
            mask = mask.unsqueeze(-3).unsqueeze(-3)
        y = scaled_dot_product_attention(q, k, v, mask, self.causal)
        y = y.movedim(-2, -4)
        return self.out(y.reshape(*y.shape[:-3], self.width))

    def _heads(self, t: Tensor, group: int) -> Tensor:
        """(..., length, width) -> (..., heads of keys, group, length, width of one)."""
        one = self.width // self.heads
        return t.reshape(*t.shape[:-1], -1, group, one).movedim(-4, -2)

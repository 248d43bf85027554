"""Functions of tensors that models are made of."""

from __future__ import annotations

import functools
import math

from uopc.dtype import boolean, promote
from uopc.tensor import Tensor


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``softmax(q @ k.T * scale) @ v``: every query's average of the values.

    Args:
        q: queries, float, (..., L, E).
        k: keys, (..., S, E). Leading axes broadcast among q, k, v and the mask.
        v: values, (..., S, D).
        mask: bool, True where a query may attend to a key, or float, added to the
            scores; broadcast to (..., L, S).
        causal: query i attends to keys 0 to i only, counted from the first of both,
            as in PyTorch. Together with a mask, both hold.
        scale: 1 / sqrt(E) by default.

    Returns (..., L, D), of the promoted type. Half types are computed in f32 and the
    result is rounded once.

    A query that may attend to no key, because its row of the mask is all False or
    -inf, has the result 0, and no gradient flows through it. (A bare softmax of such a
    row is NaN; JAX's attention gives the mean of the values.) q, k and v have to be
    finite where they are masked, too: 0 times infinity is NaN in a matrix product.

    Scores, (..., L, S), that are too large for the caches are computed for some queries
    at a time and never all in memory. Gradients with four heads or more, batches
    included, keep none either: where other layers follow, scores are computed again.
    With fewer heads they keep some. Raises TypeError for arguments of other types,
    ValueError for shapes that do not fit.
    """
    _require_fitting(q, k, v, mask)
    dtype = functools.reduce(promote, (t.dtype for t in (q, k, v)))
    q, k, v = (t.cast(dtype.wide) for t in (q, k, v))
    length, width = q.shape[-2:]
    if scale is None:
        scale = 1 / math.sqrt(width) if width else 1.0
    scores = (q * scale) @ k.transpose()
    if causal:
        before = Tensor.arange(length).unsqueeze(1) >= Tensor.arange(k.shape[-2])
        scores = before.where(scores, -math.inf)
    if mask is None:
        return (scores.softmax() @ v).cast(dtype)  # every query has the first key
    if mask.dtype is boolean:
        scores = mask.where(scores, -math.inf)
    else:
        scores = scores + mask.cast(dtype.wide)
    # A NaN is no sign of a row without keys, and shows in the result.
    alive = scores.detach().max(-1, keepdim=True).ne(-math.inf)
    weights = alive.where(scores, 0.0).softmax()
    return alive.where(weights @ v, 0.0).cast(dtype)


def _require_fitting(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    """Raise an error that names all operands unless they fit together."""
    given = {"q": q, "k": k, "v": v, **({} if mask is None else {"mask": mask})}
    for name, t in given.items():
        if not isinstance(t, Tensor):
            raise TypeError(
                f"scaled_dot_product_attention: {name} must be a Tensor, not "
                f"{type(t).__name__}"
            )
    got = ", ".join(f"{name} {t.dtype}{list(t.shape)}" for name, t in given.items())
    for name, t in given.items():
        if not (t.dtype.is_float or (name == "mask" and t.dtype is boolean)):
            raise TypeError(
                f"scaled_dot_product_attention: {name} must be float"
                f"{' or bool' if name == 'mask' else ''}, got {got}"
            )
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1]:
        fits = False
    else:
        fits = k.shape[-2] == v.shape[-2] > 0
    if not fits:
        raise ValueError(
            "scaled_dot_product_attention: expected q (..., L, E), k (..., S, E) and "
            f"v (..., S, D) with S > 0, got {got}"
        )

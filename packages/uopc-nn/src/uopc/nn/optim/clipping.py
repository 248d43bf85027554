"""Gradients that are too large, cut down."""

from __future__ import annotations

from collections.abc import Iterable

from uopc.tensor import Tensor

EPSILON = 1e-6  # added to a norm that is divided by, as in PyTorch


def clip_grad_norm(params: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients together so that their norm is at most ``max_norm``.

    Between ``backward`` and ``step``; nothing is computed yet. The norm is that of all
    elements of all gradients as one vector. Parameters without a gradient are left out.

    Returns the norm before, f32 or f64, (). Where it is NaN so are the gradients
    afterwards, and 0 or NaN where it is infinite.
    """
    if not max_norm > 0:
        raise ValueError(f"clip_grad_norm: expected a norm above 0, got {max_norm}")
    found = [(p, p.grad) for p in params if p.grad is not None]
    if not found:
        return Tensor(0.0)
    squares = [g.detach().cast(g.dtype.wide).square().sum() for _, g in found]
    norm = sum(squares[1:], squares[0]).sqrt()
    scale = (max_norm / (norm + EPSILON)).minimum(1.0)
    for p, g in found:
        p.grad = (g.detach() * scale).cast(g.dtype)
    return norm


def clip_grad_value(params: Iterable[Tensor], limit: float) -> None:
    """Have all elements of all gradients lie between -limit and limit."""
    if not limit > 0:
        raise ValueError(f"clip_grad_value: expected a limit above 0, got {limit}")
    for p in params:
        if p.grad is not None:
            p.grad = p.grad.detach().clamp(-limit, limit)

"""Normalisation over axes of each example."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uopc.nn.initialisers import parameter
from uopc.tensor import Tensor


def _shape(what: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    found = (shape,) if isinstance(shape, int) else tuple(shape)
    if not found or any(n < 1 for n in found):
        raise ValueError(f"{what}: expected lengths from 1, got {shape}")
    return found


def _require_last(what: str, x: Tensor, shape: tuple[int, ...]) -> None:
    if x.shape[-len(shape) :] != shape:
        raise ValueError(
            f"{what}: expected the last axes to be {shape}, got {x.dtype}"
            f"{list(x.shape)}"
        )


def _normed(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    """Mean 0 and variance 1 over some axes."""
    centred = x - x.mean(axes, keepdim=True)
    return centred / (centred.square().mean(axes, keepdim=True) + eps).sqrt()


class LayerNorm:
    """Mean 0 and variance 1 over the last axes, then scaled and shifted.

    ``(x - mean) / sqrt(var + eps) * weight + bias``, with the variance of the
    population (Ba, Kiros and Hinton, Layer Normalization, 2016). The defaults are
    PyTorch's: eps 1e-5, weight 1, bias 0.

    Args:
        shape: the lengths of the last axes, or that of the last one.
        eps: added to the variance.
        affine: whether there are weight and bias.
        bias: whether there is a bias.
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
    ) -> None:
        self.shape, self.eps = _shape("LayerNorm", shape), eps
        self.weight = parameter(Tensor.ones(self.shape)) if affine else None
        self.bias = parameter(Tensor.zeros(self.shape)) if affine and bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(..., shape) -> (..., shape)."""
        _require_last("LayerNorm", x, self.shape)
        axes = tuple(range(-len(self.shape), 0))
        y = _normed(x, axes, self.eps)
        y = y if self.weight is None else y * self.weight
        return y if self.bias is None else y + self.bias


class RMSNorm:
    """Root mean square 1 over the last axes, then scaled.

    ``x / sqrt(mean(x * x) + eps) * weight`` (Zhang and Sennrich, Root Mean Square Layer
    Normalization, 2019). As in PyTorch, eps is f32's rounding unit by default.

    Args:
        shape: the lengths of the last axes, or that of the last one.
        eps: added to the mean square.
        affine: whether there is a weight.
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        eps: float = float(np.finfo(np.float32).eps),
        affine: bool = True,
    ) -> None:
        self.shape, self.eps = _shape("RMSNorm", shape), eps
        self.weight = parameter(Tensor.ones(self.shape)) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """(..., shape) -> (..., shape)."""
        _require_last("RMSNorm", x, self.shape)
        axes = tuple(range(-len(self.shape), 0))
        y = x / (x.square().mean(axes, keepdim=True) + self.eps).sqrt()
        return y if self.weight is None else y * self.weight


class GroupNorm:
    """Mean 0 and variance 1 over groups of channels, then scaled and shifted.

    Of (N, channels, ...), over the channels of a group and all axes after them (Wu and
    He, Group Normalization, 2018). The defaults are PyTorch's.

    Args:
        groups: how many there are; one is a layer norm, as many as channels are an
            instance norm.
        channels: the length of the second axis, a multiple of ``groups``.
        eps: added to the variance.
        affine: whether each channel has a weight and a bias.
    """

    def __init__(
        self, groups: int, channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if groups < 1 or channels % groups:
            raise ValueError(
                f"GroupNorm: {groups} groups do not divide {channels} channels"
            )
        self.groups, self.channels, self.eps = groups, channels, eps
        self.weight = parameter(Tensor.ones(channels)) if affine else None
        self.bias = parameter(Tensor.zeros(channels)) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """(N, channels, ...) -> (N, channels, ...)."""
        if x.ndim < 2 or x.shape[1] != self.channels:
            raise ValueError(
                f"GroupNorm: expected (N, {self.channels}, ...), got {x.dtype}"
                f"{list(x.shape)}"
            )
        together = x.reshape(x.shape[0], self.groups, -1) if x.numel() else x
        y = _normed(together, (-1,), self.eps).reshape(x.shape)
        each = (self.channels, *[1] * (x.ndim - 2))
        y = y if self.weight is None else y * self.weight.reshape(each)
        return y if self.bias is None else y + self.bias.reshape(each)

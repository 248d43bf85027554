"""Tensor's convolutions, in PyTorch's conventions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from uopc import composite
from uopc.dtype import boolean, i32, promote
from uopc.tensor.base import Base
from uopc.tensor.order import Order

Lengths = int | Sequence[int]
Padding = int | str | Sequence[int] | Sequence[tuple[int, int]]


class Convolution(Order):
    """Sums of products of a kernel and the windows of a tensor.

    A tensor is (N, C, *lengths), or one (C, *lengths) without a batch; a weight is
    (O, C / groups, *kernel). Types are promoted; half types are multiplied and summed
    in f32, and the result is rounded once. As in PyTorch the kernel is not flipped.
    """

    __slots__ = ()

    def conv1d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Lengths = 1,
        padding: Padding = 0,
        dilation: Lengths = 1,
        groups: int = 1,
    ) -> Self:
        """Convolution over the last axis; see ``conv2d``."""
        return self._conv(1, weight, bias, stride, padding, dilation, groups)

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Lengths = 1,
        padding: Padding = 0,
        dilation: Lengths = 1,
        groups: int = 1,
    ) -> Self:
        """Convolution over the last two axes, like ``torch.nn.functional.conv2d``.

        Args:
            weight: (O, C / groups, height, width).
            bias: (O,), added to every element of a channel.
            stride: from one window to the next; one number, or one per axis.
            padding: zeros around each axis; one number, one per axis, or one
                (before, after) pair per axis; ``"valid"`` is none, ``"same"`` as many
                as keep the lengths, which needs a stride of 1.
            dilation: from one element of a window to the next.
            groups: how many parts the channels are in; each part of the result sees
                one of the input.

        Returns (N, O, ...), with ``(length + padding - dilation * (kernel - 1) - 1) //
        stride + 1`` for each length. Raises ValueError where shapes do not fit.
        """
        return self._conv(2, weight, bias, stride, padding, dilation, groups)

    def conv3d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Lengths = 1,
        padding: Padding = 0,
        dilation: Lengths = 1,
        groups: int = 1,
    ) -> Self:
        """Convolution over the last three axes; see ``conv2d``."""
        return self._conv(3, weight, bias, stride, padding, dilation, groups)

    def _conv(
        self,
        n: int,
        weight: Self,
        bias: Self | None,
        stride: Lengths,
        padding: Padding,
        dilation: Lengths,
        groups: int,
    ) -> Self:
        what = f"conv{n}d"
        operands = [weight] if bias is None else [weight, bias]
        for t in operands:
            if not isinstance(t, Base):
                got = type(t).__name__
                raise TypeError(f"{what}: expected a Tensor, got {got}; wrap it in one")
        shown = " with weight ".join(
            f"{t.dtype}{list(t.shape)}" for t in (self, weight)
        )
        try:
            dtype = self.dtype
            for t in operands:
                dtype = promote(dtype, t.dtype)
            steps = _lengths("stride", stride, n)
            gaps = _lengths("dilation", dilation, n)
            _require_shapes(n, self.shape, weight.shape, groups)
            around = _padding(padding, weight.shape[2:], steps, gaps)
            _require_room(self.shape[-n:], weight.shape[2:], around, gaps)
            if bias is not None and bias.shape != weight.shape[:1]:
                raise ValueError(
                    f"bias has shape {bias.shape}; expected {weight.shape[:1]}, one "
                    "number per channel of the result"
                )
        except (TypeError, ValueError) as error:
            raise type(error)(f"{what}: {shown}: {error}") from None
        dtype = i32 if dtype is boolean else dtype
        x, w = self.uop.cast(dtype.wide), weight.uop.cast(dtype.wide)
        batch = self.shape[: self.ndim - n - 1] or (1,)
        x = x.reshape((*batch, *self.shape[-n - 1 :]))
        out = composite.conv(x, w, steps, around, gaps, groups)
        if bias is not None:
            column = bias.uop.cast(dtype.wide).reshape((1, out.shape[1], *(1,) * n))
            out = out + column.expand(out.shape)
        out = out if self.ndim == n + 2 else out.reshape(out.shape[1:])
        return self._new(out.cast(dtype), *operands)


def _lengths(name: str, value: Lengths, n: int) -> tuple[int, ...]:
    """One number per axis, from 1."""
    each: tuple[Any, ...]
    each = (value,) * n if isinstance(value, int) else tuple(value)
    if len(each) != n or any(not isinstance(k, int) or k < 1 for k in each):
        raise ValueError(
            f"{name} is {value!r}; expected a number from 1, or {n} of them"
        )
    return each


def _padding(
    value: Padding, kernel: Sequence[int], stride: Sequence[int], gaps: Sequence[int]
) -> list[tuple[int, int]]:
    """A (before, after) pair per axis."""
    n = len(kernel)
    if value == "valid":
        return [(0, 0)] * n
    if value == "same":
        if set(stride) != {1}:
            raise ValueError("padding='same' needs a stride of 1; give the numbers")
        spare = [d * (k - 1) for d, k in zip(gaps, kernel, strict=True)]
        return [(m // 2, m - m // 2) for m in spare]
    each: list[Any] = [value] * n if isinstance(value, (int, str)) else list(value)
    pairs = [tuple(p) if isinstance(p, Sequence) else (p, p) for p in each]
    if len(pairs) != n or not all(map(_is_pair, pairs)):
        raise ValueError(
            f"padding is {value!r}; expected 'valid', 'same', a number from 0, or one "
            f"or a (before, after) pair for each of {n} axes"
        )
    return pairs


def _is_pair(p: tuple[Any, ...]) -> bool:
    return len(p) == 2 and all(isinstance(m, int) and m >= 0 for m in p)


def _require_shapes(
    n: int, x: Sequence[int], weight: Sequence[int], groups: Any
) -> None:
    if len(weight) != n + 2 or len(x) not in (n + 1, n + 2):
        axes = "L" if n == 1 else ", ".join("DHW"[3 - n :])
        raise ValueError(
            f"expected (N, C, {axes}) or (C, {axes}), and a weight of {n + 2} axes, "
            "(O, C / groups, *kernel); reshape them"
        )
    if not isinstance(groups, int) or groups < 1:
        raise ValueError(f"groups is {groups!r}; expected a number from 1")
    channels, (out, expected) = x[-n - 1], weight[:2]
    if channels != expected * groups:
        raise ValueError(
            f"the input has {channels} channels, where the weight and groups={groups} "
            f"are for {expected} * {groups}"
        )
    if out % groups:
        raise ValueError(f"{out} channels of the result are not {groups} equal groups")
    if 0 in weight[2:]:
        raise ValueError("the kernel has no elements")


def _require_room(
    lengths: Sequence[int],
    kernel: Sequence[int],
    padding: Sequence[tuple[int, int]],
    gaps: Sequence[int],
) -> None:
    padded = tuple(m + sum(p) for m, p in zip(lengths, padding, strict=True))
    window = tuple(d * (k - 1) + 1 for d, k in zip(gaps, kernel, strict=True))
    if any(m < k for m, k in zip(padded, window, strict=True)):
        raise ValueError(
            f"a window of {window} does not fit into the padded input, {padded}; pad "
            "more, or use a smaller kernel or dilation"
        )

"""Convolutions as layers, with torch's arguments and initial values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.nn.initialisers import by_fan_in
from uopc.tensor import Tensor

Lengths = int | Sequence[int]
Padding = Lengths | str


class _Convolution:
    """What one, two and three axes have in common."""

    axes = 0

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Lengths,
        stride: Lengths = 1,
        padding: Padding = 0,
        dilation: Lengths = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        what = type(self).__name__
        if inputs % groups or outputs % groups:
            raise ValueError(
                f"{what}: {groups} groups do not divide {inputs} input and {outputs} "
                "output channels"
            )
        size = (kernel,) * self.axes if isinstance(kernel, int) else tuple(kernel)
        if len(size) != self.axes:
            raise ValueError(
                f"{what}: expected one length of the kernel, or {self.axes}; got {size}"
            )
        self.stride, self.padding = stride, padding
        self.dilation, self.groups = dilation, groups
        fan_in = inputs // groups * math.prod(size)
        self.weight = by_fan_in(fan_in, outputs, inputs // groups, *size)
        self.bias = by_fan_in(fan_in, outputs) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(N, inputs, ...) -> (N, outputs, ...)."""
        convolve = getattr(x, f"conv{self.axes}d")
        y: Tensor = convolve(
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
        )
        return y


class Conv1d(_Convolution):
    """Convolution over the last axis of (N, channels, length).

    Args:
        inputs: channels of what comes in.
        outputs: channels of the result.
        kernel: length of the window, of each axis or of all.
        stride: from one window to the next.
        padding: zeros around; a number, one per axis, (before, after) pairs, "valid"
            or "same".
        dilation: from one element of a window to the next.
        groups: parts of the channels that do not see each other.
        bias: whether to add one to each channel.

    The weight, (outputs, inputs / groups, kernel), and the bias are drawn uniformly
    from +-1/sqrt(inputs / groups * kernel), as in PyTorch.
    """

    axes = 1


class Conv2d(_Convolution):
    """Convolution over the last two axes of (N, channels, height, width).

    The arguments are those of `Conv1d`.
    """

    axes = 2

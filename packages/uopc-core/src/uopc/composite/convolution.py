"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.uop import ConvArg, Ops, UOp


def conv(
    x: UOp,
    weight: UOp,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int = 1,
) -> UOp:
    """The sum of products of a kernel and each window of ``x``, as PyTorch has it.

    Args:
        x: (N, C, *lengths), with any number of spatial axes.
        weight: (O, C / groups, *kernel), of the same dtype.
        stride: from one window to the next, per axis.
        padding: zeros (before, after) each axis. They are not stored anywhere.
        dilation: from one element of a window to the next.
        groups: the first O / groups channels of the result see the first C / groups
            of ``x``, and so on.

    Returns (N, O, *((length + padding - dilation * (kernel - 1) - 1) // stride + 1)).
    It is one CONV, whose gradients are CONVs: no windows are stored, here or there.
    """
    n, channels, *lengths = x.shape
    out, per_group, *kernel = weight.shape
    outputs = tuple(
        (m + sum(p) - d * (k - 1) - 1) // s + 1
        for m, k, s, p, d in zip(
            lengths, kernel, stride, padding, dilation, strict=True
        )
    )
    # Output j and tap t meet the input at stride * j + dilation * t - padding.
    meet = ConvArg(
        lengths=outputs,
        a=(1,) * len(outputs),
        b=tuple(dilation),
        c=tuple(stride),
        e=tuple(-before for before, _ in padding),
        second=0,
    )
    xs = x.reshape((n, groups, channels // groups, *lengths))
    ws = weight.reshape((groups, out // groups, per_group, *kernel))
    return UOp(Ops.CONV, (xs, ws), meet).reshape((n, out, *outputs))

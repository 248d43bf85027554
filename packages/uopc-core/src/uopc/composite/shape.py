"""Composite functions that move elements, or fill new ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.dtype import DType, boolean
from uopc.uop import Ops, Scalar, UOp


def full(shape: Sequence[int], value: Scalar, dtype: DType) -> UOp:
    """An array of one value."""
    return UOp.const(value, dtype).broadcast_scalar(tuple(shape))


def zeros_like(u: UOp) -> UOp:
    """Zeros of ``u``'s shape and dtype."""
    return u.const_like(0)


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape by NumPy's rule; ValueError if there is none."""
    rank = max(map(len, shapes), default=0)
    result = []
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    for lengths in zip(*padded, strict=True):
        longer = {n for n in lengths if n != 1}
        if len(longer) > 1:
            text = " and ".join(map(str, shapes))
            raise ValueError(
                f"shapes {text} do not broadcast: an axis has lengths {lengths}; "
                "each must be equal or 1"
            )
        result.append(longer.pop() if longer else 1)
    return tuple(result)


def broadcast_to(u: UOp, shape: Sequence[int]) -> UOp:
    """``u`` under a larger shape, by NumPy's rule."""
    shape = tuple(shape)
    if u.shape == shape:
        return u
    ones = (1,) * (len(shape) - len(u.shape)) + u.shape
    return (u if ones == u.shape else u.reshape(ones)).expand(shape)


def sum_to(g: UOp, shape: Sequence[int]) -> UOp:
    """The reverse of EXPAND: sum the axes where ``shape`` has 1 and ``g`` not.

    Of a bool node, "any" over them.
    """
    shape = tuple(shape)
    axes = [i for i, (n, m) in enumerate(zip(g.shape, shape, strict=True)) if n != m]
    if not axes:
        return g
    keep = [i for i in range(len(shape)) if i not in axes]
    if g.dtype is boolean and 0 in g.shape:
        return full(shape, False, boolean)  # a maximum over nothing has no value
    combine = Ops.MAX if g.dtype is boolean else Ops.ADD
    return g.permute(keep + axes).reduce(combine, len(axes)).reshape(shape)


def spread(v: UOp, shape: Sequence[int]) -> UOp:
    """``v`` repeated over the axes that ``shape`` has after its own."""
    ones = (1,) * (len(shape) - len(v.shape))
    return v.reshape(v.shape + ones).expand(shape)


def pad(u: UOp, widths: Sequence[tuple[int, int]]) -> UOp:
    """Zeros before and after each axis, as (before, after) pairs.

    Built from doubled blocks of zeros, a reshape and a window, so that every
    element stays a copy of some element and nothing reads out of bounds.
    """
    for axis, (before, after) in enumerate(widths):
        if before or after:
            u = _pad_axis(u, axis, before, after)
    return u


def _pad_axis(u: UOp, axis: int, before: int, after: int) -> UOp:
    n = u.shape[axis]
    if n == 0:
        shape = list(u.shape)
        shape[axis] = before + after
        return full(shape, 0, u.dtype)
    ahead, behind = 0, 0
    while behind < after:
        behind += u.shape[axis]
        u = _join([u, zeros_like(u)], axis)
    while ahead < before:
        ahead += u.shape[axis]
        u = _join([zeros_like(u), u], axis)
    window = [(0, m) for m in u.shape]
    window[axis] = (ahead - before, ahead + n + after)
    return u.shrink(window)


def _join(parts: Sequence[UOp], axis: int) -> UOp:
    """Arrays of one shape, one after the other along ``axis``."""
    shape = list(parts[0].shape)
    shape[axis] *= len(parts)
    return stack(parts, axis).reshape(shape)


def flip(u: UOp, axes: Sequence[int]) -> UOp:
    """The elements in reverse order along ``axes``."""
    return UOp(Ops.FLIP, (u,), tuple(sorted(axes))) if axes else u


def stack(parts: Sequence[UOp], axis: int = 0) -> UOp:
    """Join arrays of one shape along a new axis."""
    joined = UOp.stack(parts)
    if axis == 0:
        return joined
    rank = len(joined.shape)
    return joined.permute([*range(1, axis + 1), 0, *range(axis + 1, rank)])


def cat(parts: Sequence[UOp], axis: int) -> UOp:
    """Join arrays along an existing axis.

    Parts of one length are stacked; others are padded to the whole length, and a
    WHERE chooses between them.
    """
    parts = [p for p in parts if p.shape[axis]] or list(parts[:1])
    if len({p.shape[axis] for p in parts}) == 1:
        return _join(parts, axis)
    total = sum(p.shape[axis] for p in parts)
    first, *rest = parts
    shape = list(first.shape)
    shape[axis] = total
    widths = [(0, 0)] * len(shape)
    place = (
        iota(total)
        .reshape([total if i == axis else 1 for i in range(len(shape))])
        .expand(shape)
    )
    end = first.shape[axis]
    widths[axis] = (0, total - end)
    result = pad(first, widths)
    for p in rest:
        begin, end = end, end + p.shape[axis]
        widths[axis] = (begin, total - end)
        result = (place < begin).where(result, pad(p, widths))
    return result


def iota(n: int) -> UOp:
    """0, 1, ..., n - 1 as i32."""
    return UOp(Ops.IOTA, (), n)


def reduce_axes(u: UOp, op: object, axes: Sequence[int], keepdim: bool) -> UOp:
    """REDUCE over any axes."""
    axes = sorted(axes)
    kept = [i for i in range(len(u.shape)) if i not in axes]
    shape = [1 if i in axes else n for i, n in enumerate(u.shape)]
    if axes:
        order = kept + axes
        moved = u if order == list(range(len(order))) else u.permute(order)
        u = UOp(Ops.REDUCE, (moved,), (op, len(axes)))
    return u.reshape(shape) if keepdim else u


def count(u: UOp, axes: Sequence[int]) -> int:
    """How many elements a reduction over ``axes`` combines."""
    return math.prod(u.shape[a] for a in axes)

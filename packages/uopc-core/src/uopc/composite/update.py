"""What an assignment to some elements is made of: where they are, who wrote last."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.composite.gather import scatter_add
from uopc.composite.shape import flip, iota, pad
from uopc.dtype import i32, i64
from uopc.uop import Ops, UOp

# How many digits there are: `last_writer` finds one with each scatter.
CASES = 16


def inside(picks: range, n: int) -> UOp:
    """Which of ``n`` places a range names, as a bool node of shape (n,)."""
    place = iota(n)
    low, high, step = _ascending(picks)
    if low == high:
        return place.eq(low)
    mask = (place < high + 1) if low == 0 else (place > low - 1)
    if low > 0 and high < n - 1:
        mask = mask & (place < high + 1)
    return mask if step == 1 else mask & (place % step).eq(low % step)


def put(v: UOp, axis: int, picks: range, n: int) -> UOp:
    """Zeros of length ``n`` along ``axis``, with ``v`` at the places of a range.

    The reverse of a slice: ``v`` has the length of the range on that axis.
    """
    low, high, step = _ascending(picks)
    if picks.step < 0:
        v = flip(v, [axis])
    if step > 1 and len(picks) > 1:
        head, count, tail = v.shape[:axis], len(picks), v.shape[axis + 1 :]
        spaced = _padded(v.reshape((*head, count, 1, *tail)), axis + 1, 0, step - 1)
        v = spaced.reshape((*head, count * step, *tail))
        v = v.shrink([(0, m) for m in (*head, high - low + 1, *tail)])
    return _padded(v, axis, low, n - 1 - high)


def at_position(idx: UOp, n: int) -> UOp:
    """Which of ``n`` places the index of shape () names, as a bool node (n,)."""
    if idx.dtype.max < n:
        idx = idx.cast(i64)
    return iota(n).cast(idx.dtype).eq(idx.broadcast_scalar((n,)))


def written(idx: Sequence[UOp], lengths: Sequence[int]) -> UOp:
    """Which elements of shape ``lengths`` some index names, as a bool node.

    Args:
        idx: integer nodes of one shape, one for each axis; out of range names nothing.
        lengths: the axes.
    """
    ones = UOp.const(1, i32).broadcast_scalar(idx[0].shape)
    return scatter_add(ones, idx, lengths).ne(0)


def last_writer(idx: Sequence[UOp], lengths: Sequence[int]) -> UOp:
    """For each element, the last position in the index that names it, i32; else -1.

    The position is found digit by digit, to the base 16, from the highest: a scatter
    counts, for each element and each digit, the positions that name this element, have
    this digit, and agree with the digits found before. So it takes a scatter for every
    four bits of the number of positions, and 16 counts for each element. It is exact,
    whatever the order in which a backend adds.

    Args:
        idx: integer nodes of one shape, one for each axis; out of range names nothing.
        lengths: the axes.
    """
    shape = idx[0].shape
    total = math.prod(shape)
    place = iota(total).reshape(shape)
    cases = min(CASES, total)
    unit = 1
    while unit * cases < total:
        unit *= cases
    found = None
    agrees = place.const_like(1)
    while True:
        digit = place if unit == 1 else place // unit
        digit = digit if unit * cases >= total else digit % cases
        counts = scatter_add(agrees, [*idx, digit], (*lengths, cases))
        digits = iota(cases).reshape((1,) * len(lengths) + (cases,))
        named = counts.ne(0).where(digits.expand(counts.shape), counts.const_like(-1))
        best = named.reduce(Ops.MAX, 1)
        found = best if found is None else found * cases + best
        if unit == 1:
            return found.maximum(-1)
        agrees = agrees * best.index(*idx).eq(digit).cast(i32)
        unit //= cases


def _ascending(picks: range) -> tuple[int, int, int]:
    """The lowest and the highest number of a range that has some, and the step."""
    low, high = sorted((picks[0], picks[-1]))
    return low, high, abs(picks.step)


def _padded(v: UOp, axis: int, before: int, after: int) -> UOp:
    widths = [(0, 0)] * len(v.shape)
    widths[axis] = (before, after)
    return pad(v, widths)

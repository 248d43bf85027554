"""Positions of extremes, and sorting: comparisons, counts and gathers.

NaN counts as larger than every number, as in NumPy, and equal elements keep the order
of their positions.
"""

from __future__ import annotations

import math

from uopc.composite.shape import broadcast_to, cat, full, iota, reduce_axes
from uopc.dtype import boolean, i32, i64, u32
from uopc.uop import Ops, UOp

# Runs up to this length are sorted by counting, which is quadratic; longer ones merge.
RUN = 64


def argmax(x: UOp, axis: int, keepdim: bool) -> UOp:
    """The first position of the largest element along ``axis``, as i32.

    Of a NaN, if there is one.
    """
    n = x.shape[axis]
    top = reduce_axes(x, Ops.MAX, [axis], keepdim=True)
    hit = x.eq(top.expand(x.shape))
    if x.dtype.is_float:
        hit = hit | x.ne(x)
    ones = [n if i == axis else 1 for i in range(len(x.shape))]
    # Counted from the end, so that the largest is the first.
    left = (n - 1 - iota(n)).reshape(ones).expand(x.shape)
    left = hit.where(left, left.const_like(0))
    return n - 1 - reduce_axes(left, Ops.MAX, [axis], keepdim)


def argsort(x: UOp, descending: bool, keep: int) -> UOp:
    """The positions of the first ``keep`` elements of the sorted last axis, as i32.

    Runs of up to 64 elements are sorted by counting who comes before whom. Pairs of
    runs are then merged, of which no more than ``keep`` elements stay: every place of
    the result finds its element by bisection (Green, McColl and Bader, "GPU merge path:
    a GPU merging algorithm", ICS 2012). Some 100 n operations, and log n times log n
    for each that stays.
    """
    *lead, n = x.shape
    if n <= RUN:
        return _first(_counted(x, descending), keep)
    levels = math.ceil(math.log2(n / RUN))
    length = -(-n // 2**levels)
    rows = math.prod(lead)
    runs = _filled(x, length << levels, descending).reshape((rows << levels, length))
    places = _first(_counted(runs, descending), keep)
    keys = along_last(runs, places)
    start = broadcast_to(iota(1 << levels) * length, (rows, 1 << levels))
    places = places + start.reshape((rows << levels, 1)).expand(places.shape)
    for _ in range(levels):
        at = _merged(keys, descending, keep)
        pairs = (at.shape[0], 2 * keys.shape[1])
        keys, places = (along_last(u.reshape(pairs), at) for u in (keys, places))
    return places.reshape((*lead, keep))


def _merged(keys: UOp, descending: bool, keep: int) -> UOp:
    """Where the elements of two sorted rows stand in their sorted union, as u32.

    ``keys`` holds rows in pairs; positions count through both rows of a pair, and of
    each union come the first ``keep``.
    """
    count, length = keys.shape
    shape = (count // 2, min(2 * length, keep))
    pairs = keys.reshape((count // 2, 2 * length))
    place = broadcast_to(iota(shape[1]).cast(u32), shape)
    # How many of the elements before this place come from the first row.
    short = place < length
    low = short.where(place.const_like(0), place - length)
    high = short.where(place, place.const_like(length))
    for _ in range(length.bit_length()):
        middle = (low + high) >> 1
        first = along_last(pairs, middle)
        second = along_last(pairs, place - 1 - middle + length)
        more = (low < high) & _before(second, first, descending).logical_not()
        low, high = more.where(middle + 1, low), more.where(high, middle)
    other = place - low
    first, second = (along_last(pairs, at) for at in (low, other + length))
    swapped = _before(second, first, descending).logical_not()
    from_first = (low < length) & ((other < length).logical_not() | swapped)
    return from_first.where(low, other + length)


def _counted(x: UOp, descending: bool) -> UOp:
    """The sorted order of a short last axis, by counting for each pair."""
    *lead, n = x.shape
    shape = (*lead, n, n)
    mine = x.reshape((*lead, n, 1)).expand(shape)
    theirs = x.reshape((*lead, 1, n)).expand(shape)
    row = broadcast_to(iota(n).reshape((n, 1)), shape)
    column = broadcast_to(iota(n), shape)
    # Of equal elements the earlier one comes first.
    ahead = (column < row).where(
        _before(mine, theirs, descending).logical_not(),
        _before(theirs, mine, descending),
    )
    rank = ahead.cast(i32).reduce(Ops.ADD, 1)
    ranks = rank.reshape((*lead, 1, n)).expand(shape)
    return ranks.eq(row).where(column, column.const_like(0)).reduce(Ops.ADD, 1)


def _before(a: UOp, b: UOp, descending: bool) -> UOp:
    """Whether ``a`` comes before ``b`` whatever their positions are."""
    if descending:
        a, b = b, a
    less = a < b
    return less | (a.eq(a) & b.ne(b)) if a.dtype.is_float else less


def _filled(x: UOp, n: int, descending: bool) -> UOp:
    """The last axis up to a length of ``n``, with what is sorted to the end."""
    *lead, have = x.shape
    if have == n:
        return x
    last: float
    if x.dtype.is_float:
        last = -math.inf if descending else math.nan
    elif x.dtype is boolean:
        last = not descending
    else:
        last = x.dtype.min if descending else x.dtype.max
    fill = full((*lead, n - have), last, x.dtype)
    return cat([x, fill], len(lead))


def _first(x: UOp, keep: int) -> UOp:
    *lead, n = x.shape
    return x if keep >= n else x.shrink([*((0, m) for m in lead), (0, keep)])


def along_last(x: UOp, at: UOp) -> UOp:
    """The elements of the last axis of ``x`` at the positions ``at``, row by row."""
    *lead, n = x.shape
    rows = math.prod(lead)
    wide = i64 if rows * n > i32.max else at.dtype
    start = (iota(rows).cast(wide) * n).reshape((*lead, 1)).expand(at.shape)
    return x.reshape((rows * n,)).index(start + at.cast(wide))

"""Gather and scatter: elements chosen by data, and added up where data says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uopc.composite.shape import broadcast_to, iota
from uopc.dtype import boolean, i32, i64
from uopc.uop import Ops, UOp


def from_end(idx: UOp, n: int) -> UOp:
    """Positions on an axis of length ``n``, of which negative ones count back."""
    if idx.dtype.kind == "uint":
        return idx
    if n > idx.dtype.max:
        idx = idx.cast(i32 if n <= i32.max else i64)
    return (idx < 0).where(idx + n, idx)


def index_nodes(
    shape: Sequence[int], chosen: Mapping[int, UOp], in_place: bool = True
) -> list[UOp]:
    """What to give INDEX or SCATTER_ADD to choose along some axes of ``shape``.

    Args:
        shape: that of the array.
        chosen: integer nodes of one shape L, by the axis that they choose from.
        in_place: whether L takes the place of chosen axes that lie side by side;
            else, and where they do not, it comes first.

    Returns one index per axis up to the last chosen one, of one shape: that of L and
    of the axes before that are kept.
    """
    last = max(chosen)
    kept = [axis for axis in range(last + 1) if axis not in chosen]
    lengths = tuple(shape[axis] for axis in kept)
    at = chosen[last].shape
    ones = (1,) * len(kept)
    beside = in_place and max(kept, default=-1) < min(chosen)
    whole = lengths + at if beside else at + lengths
    first = 0 if beside else len(at)  # of the kept axes in the whole
    found = []
    for axis in range(last + 1):
        if axis in chosen:
            u, new = chosen[axis], ones + at if beside else at + ones
        else:
            u, place = iota(shape[axis]), first + kept.index(axis)
            new = tuple(n if k == place else 1 for k, n in enumerate(whole))
        found.append(broadcast_to(u if u.shape == new else u.reshape(new), whole))
    return found


def scatter_add(g: UOp, idx: Sequence[UOp], lengths: Sequence[int]) -> UOp:
    """The reverse of a gather: what it hands to the array that it reads.

    Args:
        g: the elements or slices, of the shape L of the indices and any further axes.
        idx: integer nodes of one shape L, one for each leading axis of the result.
        lengths: those axes.

    Returns zeros of shape ``lengths`` and the further axes of ``g``, to which the
    slices of ``g`` are added, in the order of the indices (row-major). An index out of
    range adds nothing. Of a bool node, "any" of the slices.
    """
    if g.dtype is boolean:
        return scatter_add(g.cast(i32), idx, lengths).ne(0)
    return UOp(Ops.SCATTER_ADD, (g, *idx), tuple(lengths))


def one_hot_index(u: UOp) -> UOp | None:
    """The index that ``u`` is a one-hot matrix of along its last axis, if it is one.

    Known are ``one_hot`` and comparisons with 0, 1, ..., n - 1 that look like it, as a
    choice between 1 and 0 or cast to numbers. Times ``u`` is then a gather.
    """
    while u.op is Ops.CAST:
        u = u.src[0]
    if u.op is Ops.WHERE and _is_all(u.src[1], 1) and _is_all(u.src[2], 0):
        u = u.src[0]
    if u.op is not Ops.CMPNE or u.dtype is not boolean or not _is_all(u.src[1], True):
        return None
    u = u.src[0]
    if u.op is not Ops.CMPNE or not u.shape or not u.src[0].dtype.is_int:
        return None
    for i, places in (u.src, u.src[::-1]):
        if _counts_last_axis(places):
            return _without_last_axis(i)
    return None


def _is_all(u: UOp, value: bool | int) -> bool:
    """Whether every element is this constant."""
    while u.op in (Ops.EXPAND, Ops.RESHAPE):
        u = u.src[0]
    return u.op is Ops.CONST and u.value == value


def _counts_last_axis(u: UOp) -> bool:
    """Whether the elements are their positions on the last axis."""
    n, fits = u.shape[-1], u.dtype.max
    for op in (Ops.EXPAND, Ops.RESHAPE):
        if u.op is op:
            u = u.src[0]
            if u.shape != (1,) * (len(u.shape) - 1) + (n,):
                return False
    if u.op is Ops.CAST:
        u = u.src[0]
    return u.op is Ops.IOTA and n - 1 <= fits


def _without_last_axis(u: UOp) -> UOp | None:
    """What is repeated along the last axis, if something is."""
    *lead, n = u.shape
    if u.op is Ops.EXPAND:
        u = u.src[0]
    elif n != 1:
        return None
    if u.shape != (*lead, 1):
        return None
    if u.op is Ops.RESHAPE and u.src[0].shape == tuple(lead):
        return u.src[0]
    return u.reshape(lead)

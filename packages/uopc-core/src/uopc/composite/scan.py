"""Cumulative sums and products, and products of all others, in blocks."""

from __future__ import annotations

from uopc.composite.shape import cat, full, iota
from uopc.uop import OpDef, Ops, UOp

# Work per element. The gradient of a product multiplies out the rest of its block.
BLOCK = {Ops.ADD: 16, Ops.MUL: 8}
NOTHING = {Ops.ADD: 0, Ops.MUL: 1}


def cumulative(x: UOp, op: OpDef, axis: int) -> UOp:
    """Element k combines elements 0 to k along ``axis``, with ADD or MUL.

    Takes some 16 n additions or 8 n products in about log n kernels, and memory
    in proportion to n. The rounding error of a sum grows with log n.
    """
    order = [i for i in range(len(x.shape)) if i != axis] + [axis]
    back = [order.index(i) for i in range(len(order))]
    return _scanned(x.permute(order), op, inclusive=True).permute(back)


def _scanned(x: UOp, op: OpDef, inclusive: bool) -> UOp:
    """The scan of the last axis, with or without each element itself.

    Within a block each element combines those before it; what comes before the
    block is the scan of the blocks' totals.
    """
    if x.shape[-1] <= BLOCK[op]:
        return _triangle(x, op, inclusive)
    blocks = _in_blocks(x, op)
    before = _scanned(blocks.reduce(op, 1), op, inclusive=False)
    within = _triangle(blocks, op, inclusive)
    return _rejoined(UOp(op, (_each(before, blocks), within)), x)


def _triangle(x: UOp, op: OpDef, inclusive: bool) -> UOp:
    """The same for a short axis, from all pairs of positions."""
    *lead, n = x.shape
    rows, columns = _pairs(x)
    kept = columns < (rows + 1 if inclusive else rows)
    return _selected(x, kept, (*lead, n, n), op).reduce(op, 1)


def product_of_others(x: UOp) -> UOp:
    """For each element of the last axis, the product of the rest.

    Multiplied out within blocks, because dividing the whole product by the element
    fails at zeros; then times the product of the other blocks. Some 8 n products.
    """
    *lead, n = x.shape
    if n <= BLOCK[Ops.MUL]:
        rows, columns = _pairs(x)
        other = rows.ne(columns)
        return _selected(x, other, (*lead, n, n), Ops.MUL).reduce(Ops.MUL, 1)
    blocks = _in_blocks(x, Ops.MUL)
    outside = product_of_others(blocks.reduce(Ops.MUL, 1))
    return _rejoined(product_of_others(blocks) * _each(outside, blocks), x)


def _in_blocks(x: UOp, op: OpDef) -> UOp:
    """The last axis as (blocks, elements), filled up with what changes nothing."""
    *lead, n = x.shape
    size = BLOCK[op]
    if missing := -n % size:
        x = cat([x, full((*lead, missing), NOTHING[op], x.dtype)], len(lead))
    return x.reshape((*lead, x.shape[-1] // size, size))


def _rejoined(blocks: UOp, like: UOp) -> UOp:
    """Blocks as one axis again, without what filled them up."""
    *lead, count, size = blocks.shape
    joined = blocks.reshape((*lead, count * size))
    if joined.shape == like.shape:
        return joined
    return joined.shrink([(0, n) for n in like.shape])


def _each(v: UOp, blocks: UOp) -> UOp:
    """A value per block at each of its elements."""
    return v.reshape((*v.shape, 1)).expand(blocks.shape)


def _pairs(x: UOp) -> tuple[UOp, UOp]:
    """The positions of all pairs on the last axis, as rows and columns."""
    *lead, n = x.shape
    shape = (*lead, n, n)
    ones = (1,) * len(lead)
    rows = iota(n).reshape((*ones, n, 1)).expand(shape)
    return rows, iota(n).reshape((*ones, 1, n)).expand(shape)


def _selected(x: UOp, kept: UOp, shape: tuple[int, ...], op: OpDef) -> UOp:
    """A copy of the last axis per row, where ``kept``; elsewhere the identity.

    Chosen, not multiplied by a mask: a NaN reaches those alone that combine it.
    """
    *lead, n = x.shape
    copies = x.reshape((*lead, 1, n)).expand(shape)
    return kept.where(copies, copies.const_like(NOTHING[op]))

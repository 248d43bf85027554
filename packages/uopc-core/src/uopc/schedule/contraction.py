"""Contractions: matrix products, convolutions and their gradients, by one scheme.

A round computes one block of the result by itself. It packs a block of the right
factor, panel by panel, whatever expression that is; then, for a few rows at a time, a
strip of the left one, unless that can be read where it is. A tile keeps its sums in
registers while it runs over the terms. What is done with the sums follows while they
are in the nearest cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from uopc.dtype import DType
from uopc.schedule.contraction_blocks import Blocks, Size, ceil, choose_blocks
from uopc.schedule.contraction_build import Builder, Layout
from uopc.schedule.contraction_pattern import Contraction, find_contraction
from uopc.schedule.contraction_reads import extent, lane_loops, moves
from uopc.schedule.step import Step
from uopc.schedule.target import Target
from uopc.simplify import Simplifier
from uopc.uop import Ops, UOp

SMALL = 8192
"""Contractions of fewer products are left to the schedules of reductions."""
WASTE = 3
"""As are those of which most lanes would be empty."""

# Cycles to pack an element: as vectors, or one by one; and to fetch it without that.
VECTOR_COST = 0.3
DIRECT_COST = 0.25
SINGLE_COST = 1.5


@dataclass(frozen=True)
class Contract:
    """The loops of a contraction become blocks of tiles; see the module.

    Attributes:
        blocks: the sizes.
        joined: how many of the innermost loops over columns share vectors.
        direct: whether the left factor is read where it is.
        across: whether neighbouring columns are packed as vectors.
        fma: whether a product is added with one rounding.
        parallel: whether the rounds may run at once.
    """

    blocks: Blocks
    joined: int
    direct: bool
    across: bool
    fma: bool
    parallel: bool

    def __str__(self) -> str:
        b = self.blocks
        where = ", left in place" if self.direct else ""
        return (
            f"contract(tile {b.rows}x{b.vectors * b.lanes}, "
            f"block {b.high * b.rows}x{b.wide * b.vectors * b.lanes}x{b.depth}{where})"
        )

    def apply(self, sink: UOp) -> UOp:
        """See `Step`. Raises ValueError for a program that is no contraction."""
        found = find_contraction(sink)
        if found is None:
            raise ValueError(f"{sink.arg} is no contraction")
        layout = Layout(found, self.blocks, self.joined)
        builder = Builder(sink, layout, self.direct, self.across, self.fma)
        kind = "parallel" if self.parallel else "serial"
        return Simplifier()(UOp(Ops.SINK, tuple(builder.statements(kind)), sink.arg))


def contraction(sink: UOp, target: Target) -> list[Step] | None:
    """The steps for a contraction; None if the program is none, or a small one."""
    found = find_contraction(sink)
    if found is None:
        return None
    dtype = found.accumulator.dtype
    size, joined, direct, across = _measured(found, dtype, target)
    if size.rows * size.depth * extent(found.columns) < SMALL:
        return None
    blocks, cycles = choose_blocks(size, dtype, target)
    padded = size.vectors * blocks.lanes * ceil(size.rows, blocks.rows) * blocks.rows
    if padded > WASTE * size.rows * extent(found.columns):
        return None
    rounds = size.batch * ceil(ceil(size.rows, blocks.rows), blocks.high)
    rounds *= ceil(ceil(size.vectors, blocks.vectors), blocks.wide)
    parallel = rounds > 1 and cycles >= PAYS_CYCLES
    return [Contract(blocks, joined, direct, across, target.fma, parallel)]


PAYS_CYCLES = 20_000
"""Less work than that, in cycles, is not split."""


def _measured(
    c: Contraction, dtype: DType, target: Target
) -> tuple[Size, int, bool, bool]:
    """A contraction in numbers; loops that share vectors; what needs no packing."""
    lanes = target.lanes(dtype)
    joined = lane_loops([r.arg.extent for r in c.columns], lanes)
    inner = extent(c.columns[len(c.columns) - joined :])
    vectors = extent(c.columns) // inner * ceil(inner, lanes)
    across = joined == 1 and moves(c.right, c.columns[-1]) in (0, 1)
    direct = c.left.op is Ops.INDEX and len(c.left.src) == 2
    direct = direct and c.left.dtype is dtype
    direct = direct and moves(c.left, c.reduced[-1]) in (0, 1)
    size = Size(
        extent(c.batch),
        extent(c.rows),
        vectors,
        tuple(r.arg.extent for r in c.reduced),
        DIRECT_COST if direct else SINGLE_COST,
        VECTOR_COST if across else SINGLE_COST,
    )
    return size, joined, direct, across

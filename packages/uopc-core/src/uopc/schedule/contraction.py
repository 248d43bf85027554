"""Contractions: matrix products, convolutions and their gradients, by one scheme.

A round computes one block of the result by itself. It packs a block of the right
factor, panel by panel, whatever expression that is; then, for a few rows at a time, a
strip of the left one, unless that can be read where it is, or all of its strips at once
where neighbouring rows are neighbours in memory. A tile keeps its sums in registers
while it runs over the terms. What is done with the sums follows while they are in the
nearest cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from uopc.schedule.axes import Narrow, Split
from uopc.schedule.contraction_blocks import (
    PAYS_CYCLES,
    Blocks,
    Size,
    block_depth,
    block_depths,
    ceil,
    ranked_blocks,
    varied,
)
from uopc.schedule.contraction_build import Builder, Layout, LeftKind
from uopc.schedule.contraction_pattern import Contraction, find_contraction
from uopc.schedule.contraction_reads import (
    extent,
    lane_loops,
    moves,
    rows_are_near,
    turns,
)
from uopc.schedule.contraction_right import RightKind
from uopc.schedule.contraction_window import Window, find_window
from uopc.schedule.nest import Addresses, fresh_number, output_loops, read
from uopc.schedule.step import Simplify, Step
from uopc.schedule.target import Target
from uopc.uop import Ops, UOp, substitute, toposort

SMALL = 4096
"""Contractions of fewer products are left to the schedules of reductions."""
WASTE = 3
"""As are those of which most lanes would be empty."""

# Cycles for an element: to pack it as vectors, or one by one; to fetch it where it is,
# of the left factor and of the right one; to copy it with its border.
VECTOR_COST = 0.5
TURNED_COST = 0.6
SINGLE_COST = 1.5
DIRECT_COST = 0.15
FETCH_COST = 0.05
COPY_COST = 0.4

FEW_ROWS = 24
"""So few use an element of the right factor too seldom for packing it."""
FEW_TERMS = 16
"""Of so many at a time, all columns are read one after the other."""
TYPICAL_ROWS = 6
"""Of a tile."""
REACH = 50 << 12
"""Bytes that the terms of a block are apart at most, to be read in place: a tile walks
through all of them, and a core finds some 64 pages of memory at once."""
CLOSE = 1024
"""Bytes: elements that are a multiple of it apart share few lines of a cache."""

MANY_WAYS = 24
"""So many are told to those who measure them."""

WINDOW_BYTES = 128 << 10
"""Of what is copied whole; more is packed instead,"""
FEW = 8
"""if not even so many rounds of the terms fit."""


@dataclass(frozen=True)
class Contract:
    """The loops of a contraction become blocks of tiles; see the module.

    Attributes:
        blocks: the sizes.
        joined: how many of the innermost loops over columns share vectors.
        left: how the left factor is packed, or not.
        right: how the right factor is packed, or not.
        fma: whether a product is added with one rounding.
        parallel: whether the rounds may run at once.
        turned: whether rows and columns change places.
    """

    blocks: Blocks
    joined: int
    left: LeftKind
    right: RightKind
    fma: bool
    parallel: bool
    turned: bool = False

    def __str__(self) -> str:
        b = self.blocks
        where = "" if self.left == "by strips" else f", left {self.left}"
        where += "" if self.right.startswith("by") else f", right {self.right}"
        where += ", turned" if self.turned else ""
        return (
            f"contract(tile {b.rows}x{b.vectors * b.lanes}, "
            f"block {b.high * b.rows}x{b.wide * b.vectors * b.lanes}x{b.depth}{where})"
        )

    def apply(self, sink: UOp) -> UOp:
        """See `Step`. Raises ValueError for a program that is no contraction."""
        found = find_contraction(sink)
        if found is None:
            raise ValueError(f"{sink.arg} is no contraction")
        if self.turned:
            found = found.turned()
        window = find_window(found) if self.right == "whole" else None
        if window is not None:
            found = _by_window(found, window)
        layout = Layout(found, self.blocks, self.joined)
        make = Builder(sink, layout, self.left, self.right, window, self.fma)
        kind = "parallel" if self.parallel else "serial"
        return UOp(Ops.SINK, tuple(make.statements(kind)), sink.arg)


def _by_window(c: Contraction, window: Window) -> Contraction:
    """The contraction with a batch for each window."""
    columns = c.columns[len(window.batch) :]
    return replace(c, batch=(*c.batch, *window.batch), columns=columns)


def contraction(sink: UOp, target: Target, way: int = 0) -> list[Step] | None:
    """The steps for a contraction; None if the program is none, or a small one.

    ``way`` 0 is what the estimate likes best of what is usually done; from 1 on it is
    the place among `contraction_ways`, and None as well if there are no more.
    """
    splits, sink, found = _found(sink)
    if found is None:
        return None
    ways = _ranked(found, target, many=way > 0)
    place = max(way - 1, 0)
    if place >= len(ways):
        return None
    step, _ = ways[place]
    return [*splits, step, *_narrowed(sink, found, target)]


def contraction_ways(sink: UOp, target: Target) -> int:
    """How many ways to do a contraction are worth a measurement; 0 if it is none."""
    _, _, found = _found(sink)
    return 0 if found is None else len(_ranked(found, target, many=True))


def _found(sink: UOp) -> tuple[list[Step], UOp, Contraction | None]:
    """Splits that come first, the program after them, and the contraction that it is.

    A small one is none.
    """
    splits = _digits(sink)
    for split in splits:
        sink = split.apply(sink)
    found = find_contraction(sink)
    if found is None or extent(found.columns) * extent(found.rows) == 0:
        return splits, sink, None
    if extent((*found.rows, *found.columns, *found.reduced)) < SMALL:
        return splits, sink, None
    return splits, sink, found


def _ranked(c: Contraction, target: Target, many: bool) -> list[Way]:
    """The ways, that of the best estimate first."""
    ways = _ways(c, target, many)
    for step, cycles in _ways(c.turned(), target, many):
        stored = SINGLE_COST * extent((*c.batch, *c.rows, *c.columns))
        ways.append((replace(step, turned=True), cycles + stored))
    return sorted(ways, key=lambda way: way[1])[:MANY_WAYS]


def _ways(c: Contraction, target: Target, many: bool = False) -> list[Way]:
    """With the right factor copied as a window, and packed, as far as that will do.

    ``many``: also with other blocks than the estimate likes best, and with factors that
    are packed although they could be read in place.
    """
    window = find_window(c)
    ways = [] if window is None else _copied(c, window, target, many)
    left = _left(c, target.lanes(c.accumulator.dtype))
    lefts: dict[LeftKind, None] = {left: None}
    if many:
        lefts |= {"by strips": None}
        lefts |= {"by blocks": None} if rows_are_near(c) else {}
    for left in lefts:
        ways += _packed(c, target, left, False, many)
        if many:
            ways += _packed(c, target, left, True, many)
    return ways


def _narrowed(sink: UOp, c: Contraction, target: Target) -> list[Step]:
    """Vectors are as long as suits the sums. What follows may be wider, as f64 is."""
    column = c.columns[-1]
    sums = {
        read(c.accumulator, UOp.const(0, column.dtype)): read(c.accumulator, column)
    }
    # There is a sum for each column, though the program keeps but one at a time.
    follows = Addresses([*sink.src, *substitute(c.stores, sums)])
    wide = follows.widest() > c.accumulator.dtype.itemsize
    return [Narrow(target.vector_bytes)] if wide else []


def _digits(sink: UOp) -> list[Step]:
    """Splits of output loops of which a factor counts a digit only, as of groups."""
    loops, _ = output_loops(sink)
    number = fresh_number(sink)
    found: dict[UOp, Split] = {}
    for u in toposort([sink]):
        if u.op not in (Ops.FLOORDIV, Ops.FLOORMOD) or u.src[1].op is not Ops.CONST:
            continue
        r = u.src[0]
        if r in loops and r not in found:
            size = int(u.src[1].value)
            if size > 1 and r.arg.extent % size == 0:
                found[r] = Split(r.arg.number, size, number + len(found))
    return [*found.values(), Simplify()] if found else []


Way = tuple["Contract", float]
"""A step, and about how many cycles its contraction takes."""


def _copied(c: Contraction, window: Window, target: Target, many: bool) -> list[Way]:
    """By windows, if they are small."""
    c = _by_window(c, window)
    dtype = c.accumulator.dtype
    lanes = target.lanes(dtype)
    *_, last = c.columns
    along = ceil(last.arg.extent, lanes)
    free = extent(window.free)
    most = WINDOW_BYTES // (window.area * dtype.itemsize)
    depth = block_depth(
        [r.arg.extent for r in c.reduced], most * extent(c.reduced) // free
    )
    inner = [r for r in c.reduced if r not in window.free]
    if most < min(free, FEW) or depth % extent(inner):
        return []
    if len(window.free) > 1 and depth < extent(c.reduced):
        return []  # passes might end at different loops
    if c.reduced[len(c.reduced) - len(inner) :] != tuple(inner):
        return []
    left = _left(c, lanes)
    left = "by strips" if left == "by blocks" else left
    size = Size(
        extent(c.batch),
        extent(c.rows),
        extent(c.columns[:-1]) * along,
        tuple(r.arg.extent for r in c.reduced),
        *_cost_of_left(c, left),
        FETCH_COST,
        (depth,),
        window.area * free * COPY_COST,
        panels=False,
        # Both factors' addresses take registers: gcc spills sums if none is left.
        spare=int(left == "in place"),
    )
    return _steps(c, size, 1, left, "whole", target, many)


def _packed(
    c: Contraction, target: Target, left: LeftKind, always: bool, many: bool
) -> list[Way]:
    """With the right factor packed, unless it should stay; or ``always``."""
    dtype = c.accumulator.dtype
    lanes = target.lanes(dtype)
    joined = lane_loops([r.arg.extent for r in c.columns], lanes)
    inner = extent(c.columns[len(c.columns) - joined :])
    across = joined == 1 and moves(c.right, c.columns[-1]) in (0, 1)
    reduced = tuple(r.arg.extent for r in c.reduced)
    right: RightKind = "by columns" if across else "by terms"
    depths, cost = block_depths(reduced), VECTOR_COST if across else SINGLE_COST
    if not across and joined == 1 and turns(c, lanes):
        cost = TURNED_COST
    stays = across and inner % lanes == 0 and _stays(c, target)
    if always and not stays:
        return []  # so it is without asking
    if stays and not always:
        right, cost = "in place", FETCH_COST * ceil(extent(c.rows), TYPICAL_ROWS)
        if _bytes_of_right(c) > target.l2:
            depths = (min(FEW_TERMS, extent(c.reduced)),)
    size = Size(
        extent(c.batch),
        extent(c.rows),
        extent(c.columns) // inner * ceil(inner, lanes),
        reduced,
        *_cost_of_left(c, left),
        cost,
        depths,
        panels=right != "in place",
        ahead=left == "by blocks",
    )
    most = WASTE * size.rows * extent(c.columns)

    def wasteful(b: Blocks) -> bool:
        return size.vectors * lanes * ceil(size.rows, b.rows) * b.rows > most

    ways = _steps(c, size, joined, left, right, target, many)
    return [way for way in ways if not wasteful(way[0].blocks)]


def _stays(c: Contraction, target: Target) -> bool:
    """Whether tiles read the right factor where it is, of which vectors can be read.

    It is too seldom used for packing, or near enough anyway. But terms that are a
    power of two apart drive each other out of the caches.
    """
    plain = c.right.op is Ops.INDEX and len(c.right.src) == 2
    if not plain or c.right.dtype is not c.accumulator.dtype:
        return False
    if extent(c.rows) <= FEW_ROWS:
        return True
    step = moves(c.right, c.reduced[-1])
    near = _bytes_of_right(c)
    if near <= target.l1 // 2:
        return True
    apart = 0 if step is None else step * c.right.dtype.itemsize
    reach = abs(apart) * min(block_depths([r.arg.extent for r in c.reduced]))
    return apart % CLOSE != 0 and reach <= REACH and near <= target.l2


def _bytes_of_right(c: Contraction) -> int:
    return extent((*c.columns, *c.reduced)) * c.right.dtype.itemsize


def _direct(c: Contraction) -> bool:
    """Whether the left factor can be read where it is."""
    if c.left.op is not Ops.INDEX or len(c.left.src) != 2:
        return False
    if c.left.dtype is not c.accumulator.dtype:
        return False
    step = moves(c.left, c.reduced[-1])
    if step in (0, 1):
        return True
    apart = step is not None and step * c.left.dtype.itemsize % CLOSE != 0
    return apart and rows_are_near(c)


def _left(c: Contraction, lanes: int) -> LeftKind:
    """How tiles get the left factor."""
    if _direct(c):
        return "in place"
    if rows_are_near(c):
        return "by blocks"
    *_, last = c.reduced
    along = moves(c.left, last) in (0, 1) and last.arg.extent >= lanes
    return "by rows" if along else "by strips"


def _cost_of_left(c: Contraction, left: LeftKind) -> tuple[float, float]:
    """Of an element; and where a vector may hold several rows."""
    if left == "in place":
        return DIRECT_COST, DIRECT_COST
    if left == "by rows":
        return VECTOR_COST, VECTOR_COST
    return SINGLE_COST, 2 * VECTOR_COST if rows_are_near(c) else SINGLE_COST


def _steps(
    c: Contraction,
    size: Size,
    joined: int,
    left: LeftKind,
    right: RightKind,
    target: Target,
    many: bool,
) -> list[Way]:
    ranked = ranked_blocks(size, c.accumulator.dtype, target)
    ways: list[Way] = []
    for blocks, cycles in varied(ranked) if many else ranked[:1]:
        rounds = size.batch * ceil(ceil(size.rows, blocks.rows), blocks.high)
        rounds *= ceil(ceil(size.vectors, blocks.vectors), blocks.wide)
        parallel = rounds > 1 and cycles >= PAYS_CYCLES / 2
        step = Contract(blocks, joined, left, right, target.fma, parallel)
        ways.append((step, cycles))
    return ways

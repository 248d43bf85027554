"""Kernels in one loop nest, if that does: what they pass on stays in the caches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from uopc.schedule.carry import find_carried
from uopc.schedule.fuse import fuse, stretch, without_stores
from uopc.schedule.nest import (
    fresh_number,
    output_loops,
    places_of,
    stores,
)
from uopc.schedule.scratch import in_scratch, near_enough
from uopc.schedule.target import Target
from uopc.uop import UOp

FEWEST_ROWS = 8
"""Of a block: with fewer, a contraction would read its other factor too often."""

SCRATCH_BYTES = 2 << 20
"""Of a round at most: it is on the stack of whichever thread runs it."""


def one_nest(sink: UOp, passing: Collection[int], target: Target) -> UOp | None:
    """The nests of a program as one, or None.

    Their common outer loops run once, in whose rounds all of them follow one another. A
    contraction needs several rows at a time: with one of them a round is a block of
    rows, as many as have room in the second cache.

    ``passing`` are the numbers of the buffers that only these nests read.
    """
    carried = find_carried(sink)
    products = any(carried.products)
    fused = fuse(carried.apply(sink), carried.depth if products else None)
    if fused is None:
        return None
    if not products:
        return fused if near_enough(fused, _room(target) // 2) else None
    loops, _ = output_loops(fused)
    *_, last = loops
    if carried.sums and len(loops) != carried.depth:
        return None
    rows = _rows(fused, _room(target))
    size = max((n for n in _divisors(last.arg.extent) if n <= rows), default=0)
    if size < FEWEST_ROWS:
        return None
    if size == last.arg.extent:
        return fuse(sink, len(loops) - 1) if len(loops) > 1 else None
    blocks = replace(carried, depth=len(loops)).split(sink, size, fresh_number(sink))
    return fuse(blocks, len(loops))


def to_scratch(nest: UOp, passing: Collection[int], target: Target) -> UOp:
    """A nest that stores nothing for itself alone but in scratch of its rounds."""
    return in_scratch(without_stores(nest, passing), passing, _room(target) // 2)


def _room(target: Target) -> int:
    return min(target.l2, SCRATCH_BYTES)


def _rows(fused: UOp, room: int) -> int:
    """How many rounds' data, of what is made, have room."""
    loops, body = output_loops(fused)
    made = {s.src[0] for s in stores(body)}
    total = 0
    for b, at in places_of(body).items():
        found = stretch(at, loops) if b in made else None
        total += found.size * b.dtype.itemsize if found else 0
    return round(room / total) if total else 0


def _divisors(n: int) -> list[int]:
    """Of a number of rows, up to the most that are of use."""
    return [d for d in range(1, min(n, 1 << 12) + 1) if n % d == 0]

"""Positions along several loops at once, and reads that stay inside them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.schedule.contraction_pattern import Contraction
from uopc.simplify import Bounds
from uopc.simplify.linear import decompose
from uopc.uop import Ops, UOp, substitute, toposort

PADDING = 1.15
"""Vectors may be so much longer than the loop whose elements they hold."""

TURNED = (4, 8)
"""Bytes of elements that backends transpose in registers."""


def extent(loops: Sequence[UOp]) -> int:
    """How often the innermost of some nested loops runs."""
    return math.prod(r.arg.extent for r in loops)


def positions(flat: UOp, loops: Sequence[UOp]) -> dict[UOp, UOp]:
    """The variables of nested loops in the round number ``flat`` of all of them."""
    found: dict[UOp, UOp] = {}
    rest = flat
    for r in reversed(loops):
        size = flat.const_like(r.arg.extent)
        found[r] = rest if r is loops[0] else rest % size
        rest = rest // size
    return found


def lane_loops(extents: Sequence[int], lanes: int) -> int:
    """How many inner loops share vectors, so that few lanes are empty."""
    best, least = 1, math.inf
    for n in range(1, len(extents) + 1):
        inner = math.prod(extents[-n:])
        padded = -(-inner // lanes) * lanes / inner
        if padded <= PADDING:
            return n
        if padded < least:
            best, least = n, padded
    return best


def moves(value: UOp, r: UOp) -> int | None:
    """The stride of all reads in a value that move with ``r``; None if it differs.

    It is 0 where nothing is read, and None where the position counts otherwise.
    """
    bounds = Bounds()
    strides: set[int | None] = set()
    for u in toposort([value]):
        if u.op is Ops.INDEX and r in toposort([u.src[1]]):
            terms, _ = decompose(u.src[1], bounds)
            rest = [t for t in terms if t is not r]
            strides.add(None if r in toposort(rest) else terms.get(r, 0))
    if len(strides) > 1:
        return None
    return strides.pop() if strides else 0


def rows_are_near(c: Contraction) -> bool:
    """Whether neighbouring rows of the left factor are neighbours in memory."""
    return len(c.rows) == 1 and moves(c.left, c.rows[0]) == 1


def turns(c: Contraction, lanes: int) -> bool:
    """Whether vectors of columns are vectors of terms, transposed.

    So it is if terms are neighbours in memory, and columns are not.
    """
    reads = [u for u in toposort([c.right]) if u.op is Ops.INDEX]
    if any(len(u.src) != 2 or u.dtype.itemsize not in TURNED for u in reads):
        return False
    if min(c.columns[-1].arg.extent, c.reduced[-1].arg.extent) < lanes:
        return False
    apart, beside = moves(c.right, c.columns[-1]), moves(c.right, c.reduced[-1])
    return beside == 1 and apart is not None and abs(apart) > 1


def moved(value: UOp, changes: dict[UOp, UOp]) -> UOp:
    """A value at other positions."""
    return substitute([value], changes)[0]


def put(value: UOp, changes: dict[UOp, UOp], condition: UOp | None) -> UOp:
    """A value at other positions; it reads only where ``condition`` holds."""
    (value,) = substitute([value], changes)
    if condition is None:
        return value
    gated: dict[UOp, UOp] = {}
    for u in toposort([value]):
        new = u.with_src(tuple([gated[s] for s in u.src]))
        if u.op is Ops.INDEX:
            buffer, at, *gate = new.src
            both = condition & gate[0] if gate else condition
            new = UOp(Ops.INDEX, (buffer, at, both))
        gated[u] = new
    return gated[value]

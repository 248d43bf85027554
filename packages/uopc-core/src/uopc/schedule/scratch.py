"""What is passed on between the nests of a round, in scratch of the round's own."""

from __future__ import annotations

from collections.abc import Collection

from uopc.schedule.fuse import stretch
from uopc.schedule.nest import fresh_slot, output_loops, places_of
from uopc.simplify import Bounds
from uopc.simplify.linear import Terms, compose, decompose
from uopc.uop import Ops, UOp, toposort


def in_scratch(sink: UOp, slots: Collection[int], most: int) -> UOp:
    """The program with some of its buffers local to each round of its outer loops.

    Those numbered in ``slots``, of which a round touches ``most`` bytes or less, and
    no other round the same.
    """
    loops, body = output_loops(sink)
    if all(s.op is Ops.STORE for s in body):
        return sink  # its loops become vectors, and one place is not enough for these
    slot = fresh_slot(sink)
    own: dict[UOp, UOp] = {}
    moved: dict[tuple[UOp, UOp], UOp] = {}
    for b, places in places_of([sink]).items():
        found = stretch(places, loops) if b.arg.slot in slots else None
        if found is None or found.size * b.dtype.itemsize > most:
            continue
        own[b] = UOp.buffer(found.size, b.dtype, slot + len(own), space="local")
        for at in places:
            moved[b, at] = _within_round(at, loops, found.low)
    new: dict[UOp, UOp] = {}
    for u in toposort([sink]):
        src = tuple([new[s] for s in u.src])
        if u.op in (Ops.INDEX, Ops.STORE) and u.src[0] in own:
            src = (own[u.src[0]], moved[u.src[0], u.src[1]], *src[2:])
        new[u] = u if src == u.src else UOp(u.op, src, u.arg)
    return new[sink]


def near_enough(sink: UOp, most: int) -> bool:
    """Whether what a round of the outer loops touches is ``most`` bytes or less.

    Else its nests would find nothing in the nearer caches that another one left there.
    Where all of them have the same loops, each element is passed on by itself.
    """
    loops, body = output_loops(sink)
    if all(s.op is Ops.STORE for s in body):
        return True
    total = 0
    for b, at in places_of(body).items():
        found = stretch(at, loops)
        size = b.arg.size if found is None else min(found.size, b.arg.size)
        total += size * b.dtype.itemsize
    return total <= most


def _within_round(at: UOp, loops: Collection[UOp], low: int) -> UOp:
    """An address, counted from where the round's stretch begins."""
    bounds = Bounds()
    terms, constant = decompose(at, bounds)
    rest: Terms = {u: k for u, k in terms.items() if u not in loops}
    found = compose((rest, constant - low), at, bounds)
    assert found is not None, "a part of a sum that fits does not"
    return found

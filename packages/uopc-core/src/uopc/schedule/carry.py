"""Sums over the rows of a nest: each block of rows adds its part to what is stored.

A gradient of attention sums over the queries, whose blocks are the rounds in which the
weights are known. Its terms are added up there, round by round, and nothing but sums
stays in memory. The rounds of that loop follow one another then; those around it may
run at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from uopc.schedule.axes import Split
from uopc.schedule.fuse import contracts, stretch
from uopc.schedule.nest import (
    Accumulation,
    accumulation,
    loops_of,
    nested,
    places_of,
    read,
    store,
    stores,
)
from uopc.uop import Ops, UOp, substitute, toposort

Strides = tuple[int, ...]

FEWEST_ROUNDS = 4
"""As many rounds have to be around the loop of the rows: these may run at once."""


@dataclass(frozen=True)
class Carried:
    """The nests of a program that sum over the rows of the others.

    Attributes:
        products: whether each nest is a contraction.
        depth: how many loops the rows have.
        sums: by position of a nest, the loop of its sum that runs over rows.
    """

    products: tuple[bool, ...]
    depth: int
    sums: dict[int, UOp]

    def apply(self, sink: UOp) -> UOp:
        """The program with the rows' loop around each of these sums."""
        parts = [
            _outside(s, self.sums[i], self.depth) if i in self.sums else s
            for i, s in enumerate(sink.src)
        ]
        return UOp(Ops.SINK, tuple(parts), sink.arg)

    def split(self, sink: UOp, size: int, number: int) -> UOp:
        """The same where rows are blocks of ``size``, with loop ``number`` inside."""
        parts: list[UOp] = []
        for i, s in enumerate(sink.src):
            r = self.sums[i] if i in self.sums else loops_of(s)[0][self.depth - 1]
            alone = UOp(Ops.SINK, (s,), sink.arg)
            (part,) = Split(r.arg.number, size, number).apply(alone).src
            if i in self.sums:
                blocks = (u for u in toposort([part]) if u.op is Ops.RANGE)
                outer = next(u for u in blocks if u.arg.number == r.arg.number)
                part = _outside(part, outer, self.depth)
            parts.append(part)
        return UOp(Ops.SINK, tuple(parts), sink.arg)


def find_carried(sink: UOp) -> Carried:
    """Which nests sum over the rows in which earlier ones make what they read."""
    nests = [loops_of(s) for s in sink.src]
    products = tuple([contracts([s]) for s in sink.src])
    pairs = zip(nests, products, strict=True)
    depth = min(len(loops) - product for (loops, _), product in pairs)
    sums: dict[int, UOp] = {}
    rounds = math.prod(r.arg.extent for r in nests[0][0][: max(depth - 1, 0)])
    if not any(products) or rounds < FEWEST_ROUNDS:
        return Carried(products, depth, sums)
    homes: dict[UOp, Strides | None] = {}
    for i, (loops, body) in enumerate(nests):
        around = loops[:depth]
        reads = places_of(body, (Ops.INDEX,)).items()
        passed = {b: at for b, at in reads if b in homes}
        apart = any(_strides(at, around) != homes[b] for b, at in passed.items())
        sum_ = accumulation(body) if products[i] and apart else None
        for r in sum_.loops if sum_ and _can_be_carried(sum_, body) else ():
            rows = (*around[:-1], r)
            if all(_strides(at, rows) == homes[b] for b, at in passed.items()):
                sums[i] = r
                break
        for b, at in places_of(body, (Ops.STORE,)).items():
            homes[b] = _strides(at, around)
    return Carried(products, depth, sums)


def _strides(addresses: Collection[UOp], loops: Sequence[UOp]) -> Strides | None:
    """How far the rounds of loops, which touch different elements, are apart."""
    found = stretch(addresses, loops)
    return None if found is None else found.strides


def _can_be_carried(found: Accumulation, body: Sequence[UOp]) -> bool:
    """Whether what is stored has room for the sum while there is but a part of it."""
    made = list(stores(body[2:]))
    out = made[0].src[0]
    reads = {u.src[0] for u in toposort(body) if u.op is Ops.INDEX}
    return len(made) == 1 and out.dtype is found.buffer.dtype and out not in reads


def _outside(nest: UOp, r: UOp, depth: int) -> UOp:
    """A nest with a loop of its sum outside of the rest, as the ``depth``-th one."""
    loops, body = loops_of(nest)
    found = accumulation(body)
    assert found is not None
    (last,) = body[2:]
    out, at, value = last.src
    sum_ = read(found.buffer, found.start.src[1])
    zero, second = UOp.const(0, out.dtype), UOp.const(1, r.dtype)
    inner = [u for u in found.loops if u is not r]
    before = (r < second).where(zero, read(out, at))
    total = before + (sum_ if inner else found.value)
    final = substitute([value], {sum_: total})[0]
    if final is not total:
        ends = r < UOp.const(r.arg.extent - 1, r.dtype)
        final = ends.where(total, final)
    new = [store(out, at, final)]
    if inner:
        new = [found.start, *nested(inner, [found.step]), *new]
    (made,) = nested((*loops[: depth - 1], r, *loops[depth - 1 :]), new)
    return made

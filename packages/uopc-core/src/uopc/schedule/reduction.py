"""Steps that change how a reduction adds up.

Each keeps the set of terms. Where the order of a float sum changes, it depends on the
extents of the loops and on the numbers in the step alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from uopc.schedule.axes import split
from uopc.schedule.nest import (
    Accumulation,
    accumulation,
    end,
    fresh_slot,
    is_accumulator,
    is_local,
    loop,
    nested,
    output_loops,
    read,
    rewritten,
    store,
    stores,
    with_own,
    within,
)
from uopc.uop import OpDef, Ops, UOp, substitute, toposort


def tree(op: OpDef, terms: Sequence[UOp]) -> UOp:
    """Terms combined as a balanced tree, neighbours first."""
    terms = list(terms)
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        odd = terms[len(terms) & ~1 :]
        terms = [*(UOp(op, pair) for pair in pairs), *odd]
    return terms[0]


def _in_bodies(
    sink: UOp, change: Callable[[Accumulation], Sequence[UOp] | None]
) -> UOp:
    """The program with the reductions rewritten that some body begins with."""

    def of(body: Sequence[UOp]) -> list[UOp]:
        found = accumulation(body)
        new = change(found) if found else None
        return list(body) if new is None else [*new, *body[2:]]

    def inside(u: UOp) -> Sequence[UOp] | None:
        return [end(u.src[0], *of(u.src[1:]))]

    sink = rewritten(sink, inside)
    return UOp(Ops.SINK, tuple(of(sink.src)), sink.arg)


@dataclass(frozen=True)
class Lanes:
    """A reduction by ``groups`` vectors of ``lanes`` accumulators.

    The innermost loop of the reduction, ``number``, runs over vectors; the
    accumulators are combined after it as a balanced tree, and what is left over comes
    last. Lane i has the terms i, i + groups * lanes, and so on.
    """

    number: int
    lanes: int
    groups: int
    inner: int

    def __str__(self) -> str:
        return f"lanes(ridx{self.number}, {self.groups}x{self.lanes})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""
        # Each has two buffers. A parallel loop must not share them with what is left
        # over of it, for its rounds would share them as well.
        slots = itertools.count(fresh_slot(sink), 2)

        def change(a: Accumulation) -> Sequence[UOp] | None:
            if a.loops[-1].arg.number != self.number:
                return None
            return self._apply(a, next(slots))

        return _in_bodies(sink, change)

    def _apply(self, a: Accumulation, slot: int) -> list[UOp]:
        r = a.loops[-1]
        dtype, width = r.dtype, self.groups * self.lanes
        wide = UOp.buffer(width, a.buffer.dtype, slot, space="local")
        lane = loop(self.inner, self.lanes, dtype, "vector")

        def const(n: int) -> UOp:
            return UOp.const(n, dtype)

        places = self._places(lane)

        def steps(position: UOp, groups: int) -> list[UOp]:
            return [
                end(lane, store(wide, at, UOp(a.op, (read(wide, at), value))))
                for at in places[:groups]
                for value in within([a.value], r, position + at)
            ]

        rounds, rest = divmod(r.arg.extent, width)
        vectors, odd = divmod(rest, self.lanes)
        inner: list[UOp] = []
        if rounds:
            k = loop(r.arg.number, rounds, dtype)
            inner.append(end(k, *steps(k * const(width), self.groups)))
        if vectors:
            k = loop(r.arg.number, vectors, dtype)
            first = const(rounds * width)
            inner.append(end(k, *steps(k * const(self.lanes) + first, 1)))
        if odd:
            k = loop(r.arg.number, odd, dtype)
            at = k + const(r.arg.extent - odd)
            inner.append(end(k, *within([a.step], r, at)))
        start = [end(lane, store(wide, at, a.start.src[2])) for at in places]
        nest = nested(a.loops[:-1], inner)
        return [a.start, *start, *nest, *self._gather(a, wide, lane)]

    def _places(self, lane: UOp) -> list[UOp]:
        """Where the lanes of each group are."""
        firsts = [UOp.const(g * self.lanes, lane.dtype) for g in range(self.groups)]
        return [lane, *(lane + first for first in firsts[1:])]

    def _gather(self, a: Accumulation, wide: UOp, lane: UOp) -> list[UOp]:
        """All accumulators into the one there was."""
        groups = [read(wide, at) for at in self._places(lane)]
        last = UOp.buffer(self.lanes, wide.dtype, wide.arg.slot + 1, space="local")
        each = [read(last, UOp.const(i, lane.dtype)) for i in range(self.lanes)]
        before = read(a.buffer, a.start.src[1])
        total = tree(a.op, [before, tree(a.op, each)])
        return [
            end(lane, store(last, lane, tree(a.op, groups))),
            store(a.buffer, a.start.src[1], total),
        ]


@dataclass(frozen=True)
class Blocks:
    """A loop of a reduction, ``number``, in rounds of ``size`` with sums of their own.

    The sum of each round is added to the accumulators after it, so that no chain of
    additions is long. The loop may have any number of accumulators in it.
    """

    number: int
    size: int
    inner: int

    def __str__(self) -> str:
        return f"blocks(ridx{self.number}, {self.size})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""
        slots = itertools.count(fresh_slot(sink))

        def change(u: UOp) -> Sequence[UOp] | None:
            r, *body = u.src
            if r.arg.number != self.number or r.arg.extent <= self.size:
                return None
            own: dict[UOp, UOp] = {}
            for s in stores(body):
                buffer = s.src[0]
                if is_local(buffer) and buffer not in own:
                    size, dtype = buffer.arg.size, buffer.dtype
                    own[buffer] = UOp.buffer(size, dtype, next(slots), space="local")
            return _in_blocks(split(r, body, self.size, self.inner), self.inner, own)

        return rewritten(sink, change)


def _in_blocks(parts: Sequence[UOp], inner: int, own: dict[UOp, UOp]) -> list[UOp]:
    """The two parts of a split loop, each with accumulators of its own per round."""
    new: list[UOp] = []
    for part in parts:
        r, *body = part.src
        nest = part if r.arg.number == inner else body[0]
        lanes = _laned(nest.src[1:])
        start, finish = [], []
        for loops, s in lanes:
            buffer, at, value = s.src
            identity = value.op.identity
            assert identity is not None
            zero, mine = UOp.const(identity(buffer.dtype), buffer.dtype), own[buffer]
            start += nested(loops, [store(mine, at, zero)])
            total = UOp(value.op, (read(buffer, at), read(mine, at)))
            finish += nested(loops, [store(buffer, at, total)])
        (summed,) = substitute([nest], own)
        block = [*start, summed, *finish]
        new += [end(r, *block)] if nest is not part else block
    return new


def _laned(body: Sequence[UOp]) -> list[tuple[list[UOp], UOp]]:
    """Each accumulator's STORE once, with the loops around it that choose the place."""
    found: dict[tuple[UOp, UOp], tuple[list[UOp], UOp]] = {}
    pending = [([], s) for s in reversed(body)]  # type: list[tuple[list[UOp], UOp]]
    while pending:
        loops, s = pending.pop()
        if s.op is Ops.END:
            pending += [([*loops, s.src[0]], t) for t in reversed(s.src[1:])]
        else:
            buffer, at, _ = s.src
            place = toposort([at])
            found.setdefault((buffer, at), ([r for r in loops if r in place], s))
    return list(found.values())


@dataclass(frozen=True)
class Outputs:
    """``width`` neighbouring outputs of a reduction at once.

    The output loop ``number`` is split by ``width``, and the inner part, numbered
    ``inner``, moves into every statement of its body, so that it becomes the innermost
    loop of the reduction, over one accumulator per output. Each output still adds its
    terms in the same order: no result changes.
    """

    number: int
    width: int
    inner: int

    def __str__(self) -> str:
        return f"outputs(ridx{self.number}, {self.width})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""
        slots = itertools.count(fresh_slot(sink))

        def change(u: UOp) -> Sequence[UOp] | None:
            r, *body = u.src
            if r.arg.number != self.number:
                return None
            new: list[UOp] = []
            for part in split(r, body, self.width, self.inner):
                inner, nest = part.src[0], part
                if inner.arg.number != self.inner:
                    (nest,) = part.src[1:]
                spread = _spread(nest.src[0], nest.src[1:], slots)
                new += spread if nest is part else [end(inner, *spread)]
            return new

        return rewritten(sink, change)


def _spread(r: UOp, body: Sequence[UOp], slots: Iterator[int]) -> list[UOp]:
    """A loop moved into each of the statements in it, with an accumulator per round."""
    changes: dict[UOp, UOp] = {}
    # Not those of others, which are only read here.
    for u in dict.fromkeys(s.src[0] for s in stores(body)):
        if is_accumulator(u):
            wide = UOp.buffer(r.arg.extent, u.dtype, next(slots), space="local")
            changes[u] = wide
            changes[read(u, UOp.const(0, r.dtype))] = read(wide, r)

    def spread(s: UOp) -> UOp:
        if s.op is Ops.END:
            return end(s.src[0], *map(spread, s.src[1:]))
        target, at, value = s.src
        at, value = substitute([at, value], changes)
        if target in changes:
            target, at = changes[target], r
        return end(r, store(target, at, value))

    return [spread(s) for s in body]


@dataclass(frozen=True)
class Parts:
    """A reduction whose outermost loop, ``number``, is cut into ``count`` parts.

    Each part, a round of the parallel loop ``inner``, leaves its sum in a table; the
    sums are combined afterwards, by a loop of the next number, with what is left over.
    """

    number: int
    count: int
    inner: int

    def __str__(self) -> str:
        return f"parts(ridx{self.number}, {self.count})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""
        outer, body = output_loops(sink)
        found = accumulation(body)
        if found is None or found.loops[0].arg.number != self.number:
            return sink
        return UOp(Ops.SINK, tuple(self._apply(sink, outer, body, found)), sink.arg)

    def _apply(
        self, sink: UOp, outer: Sequence[UOp], body: Sequence[UOp], a: Accumulation
    ) -> list[UOp]:
        r = a.loops[0]
        dtype, zero = r.dtype, UOp.const(0, r.dtype)
        size = r.arg.extent // self.count
        rest = r.arg.extent - size * self.count
        outputs, at = 1, zero
        for o in outer:
            at = at * UOp.const(o.arg.extent, dtype) + o
            outputs *= o.arg.extent
        table = UOp.buffer(
            outputs * self.count, a.buffer.dtype, fresh_slot(sink), space="local"
        )
        part = loop(self.inner, self.count, dtype, "parallel")
        k = loop(r.arg.number, size, dtype)
        total = read(a.buffer, zero)
        row = part * UOp.const(outputs, dtype) + at
        inner = within(a.nest.src[1:], r, part * UOp.const(size, dtype) + k)
        first = [a.start, end(k, *inner), store(table, row, total)]
        # In the same order for every number of threads: part after part.
        one = loop(self.inner + 1, self.count, dtype)
        row = one * UOp.const(outputs, dtype) + at
        sums = end(one, store(a.buffer, zero, UOp(a.op, (total, read(table, row)))))
        last = [a.start, sums]
        if rest:
            k = loop(r.arg.number, rest, dtype)
            position = k + UOp.const(size * self.count, dtype)
            last.append(end(k, *within(a.nest.src[1:], r, position)))
        parallel = end(part, *nested(outer, first))
        free = table.arg.slot + 1
        return [
            *with_own([parallel], free, [table]),
            *nested(outer, [*last, *body[2:]]),
        ]

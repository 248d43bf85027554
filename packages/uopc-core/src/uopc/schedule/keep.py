"""What several nests of a round compute alike: kept in scratch, if that pays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uopc.schedule.model import NEAR_BYTE_NS, OPERATION_NS
from uopc.schedule.nest import (
    Statements,
    accumulation,
    fresh_number,
    fresh_slot,
    loop,
    loops_of,
    nested,
    output_loops,
    read,
    store,
    stores,
)
from uopc.schedule.rows import parts_of
from uopc.uop import Ops, UOp, substitute, toposort

MAX_KEPT = 4  # values of a program


@dataclass(frozen=True)
class Keep:
    """Values that parts in the rounds of outer loops compute alike are computed once.

    For each there is a part before the first that needs it, which stores it in an array
    of the round. It pays if to compute it again takes longer than to store and to load
    it: ``lanes`` elements at a time, and with no more than ``most`` bytes in all.
    """

    lanes: int
    most: int

    def __str__(self) -> str:
        return f"keep({self.lanes} lanes, {self.most} bytes)"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""
        loops, body = output_loops(sink)
        parts, room = [tuple(part) for part in parts_of(body)], self.most
        for _ in range(MAX_KEPT):
            pays = (g for g in self._gains(parts) if g.gain > 0 and g.nbytes <= room)
            best = max(pays, default=None, key=lambda g: g.gain)
            if best is None:
                break
            room -= best.nbytes
            now = UOp(Ops.SINK, tuple(s for part in parts for s in part), sink.arg)
            parts = best.kept(parts, fresh_slot(now), fresh_number(sink))
            sink = UOp(
                Ops.SINK,
                tuple(nested(loops, [s for part in parts for s in part])),
                sink.arg,
            )
        return sink

    def gains(self, sink: UOp) -> list[Gain]:
        """What is computed several times, the most to gain first: the model's terms."""
        _, body = output_loops(sink)
        found = self._gains([tuple(part) for part in parts_of(body)])
        return sorted(found, key=lambda g: -g.gain)

    def _gains(self, parts: Sequence[Statements]) -> Iterator[Gain]:
        """What there is to gain, value by value."""
        by_loops: dict[tuple[int, ...], list[_Part]] = {}
        for i, statements in enumerate(parts):
            if part := _Part.of(i, statements, by_loops):
                by_loops.setdefault(part.extents, []).append(part)
        for alike in by_loops.values():
            times: dict[UOp, list[_Part]] = {}
            for part in alike:
                for u in part.values:
                    times.setdefault(u, []).append(part)
            for u, users in times.items():
                if len(users) < 2 or not u.dtype.is_float:
                    continue
                found = Gain(u, tuple(users), self.lanes)
                if found.work and found.lasts(parts):
                    yield found


@dataclass(frozen=True)
class _Part:
    """A part whose innermost loops have nothing but stores in them.

    Attributes:
        at: its place among the parts.
        loops: its loops.
        like: those of the first part with the same extents, in which values are told.
        values: what is computed for each element, addresses left out.
    """

    at: int
    loops: tuple[UOp, ...]
    like: tuple[UOp, ...]
    values: tuple[UOp, ...]

    @staticmethod
    def of(
        at: int,
        statements: Statements,
        known: dict[tuple[int, ...], list[_Part]],
    ) -> _Part | None:
        """The part that some statements are, if it is of that kind."""
        found = accumulation(statements)
        loops, body = loops_of(found.nest if found else statements[0])
        if not loops or any(s.op is not Ops.STORE for s in body):
            return None
        first = known.get(tuple(r.arg.extent for r in loops))
        like = first[0].loops if first else tuple(loops)
        same = dict(zip(loops, like, strict=True))
        values = substitute([s.src[2] for s in body], same)
        order = toposort(values, _values)
        return _Part(
            at,
            tuple(loops),
            like,
            tuple(u for u in order if u.op.kind == "elementwise"),
        )

    @property
    def extents(self) -> tuple[int, ...]:
        """How far its loops go."""
        return tuple(r.arg.extent for r in self.loops)


@dataclass(frozen=True)
class Gain:
    """What it would bring to keep a value.

    Attributes:
        value: the value, over the loops of the first part that computes it.
        users: the parts that compute it.
        lanes: how many elements are computed at a time.
    """

    value: UOp
    users: tuple[_Part, ...]
    lanes: int

    @property
    def nbytes(self) -> int:
        """Bytes that a round needs for it."""
        return math.prod(self.users[0].extents) * self.value.dtype.itemsize

    @property
    def work(self) -> float:
        """Nanoseconds an element that computing it again takes."""
        loops = set(self.users[0].like)
        inside = {u: _loops_in(u) & loops for u in toposort([self.value], _values)}
        if inside[self.value] != loops:
            return 0.0
        cost = sum(u.op.cost for u, r in inside.items() if r and u.op.kind != "select")
        return (len(self.users) - 1) * cost * OPERATION_NS / self.lanes

    @property
    def traffic(self) -> float:
        """Nanoseconds an element that storing it once and loading it take."""
        return (len(self.users) + 1) * self.value.dtype.itemsize * NEAR_BYTE_NS

    @property
    def gain(self) -> float:
        """What is won, or lost if it is negative."""
        return self.work - self.traffic

    def __str__(self) -> str:
        return (
            f"{self.value.op.name} for {len(self.users)} parts: "
            f"{self.work:.2f} ns of work, {self.traffic:.2f} ns of traffic, "
            f"{self.nbytes} bytes"
        )

    def lasts(self, parts: Sequence[Statements]) -> bool:
        """Whether it is the same from the first to the last part that computes it."""
        reads = {u.src[0] for u in toposort([self.value]) if u.op is Ops.INDEX}
        first, last = self.users[0].at, self.users[-1].at
        between = (s for part in parts[first : last + 1] for s in part)
        return reads.isdisjoint(s.src[0] for s in stores(between))

    def kept(
        self, parts: Sequence[Statements], slot: int, number: int
    ) -> list[Statements]:
        """The parts, where it is computed once."""
        n = math.prod(self.users[0].extents)
        own = UOp.buffer(n, self.value.dtype, slot, space="local")
        new = list(parts)
        for user in self.users:
            (value,) = substitute(
                [self.value], dict(zip(user.like, user.loops, strict=True))
            )
            again = {value: read(own, _place(user.loops))}
            new[user.at] = tuple(substitute(new[user.at], again))
        like = self.users[0].like
        fresh = [
            loop(number + i, r.arg.extent, r.dtype, r.arg.kind)
            for i, r in enumerate(like)
        ]
        (value,) = substitute([self.value], dict(zip(like, fresh, strict=True)))
        made = nested(fresh, [store(own, _place(fresh), value)])
        new.insert(self.users[0].at, tuple(made))
        return new


def _place(loops: Sequence[UOp]) -> UOp:
    """The address of an element in an array over some loops."""
    at = loops[0]
    for r in loops[1:]:
        at = at * UOp.const(r.arg.extent, r.dtype) + r
    return at


def _loops_in(u: UOp) -> set[UOp]:
    return {n for n in toposort([u]) if n.op is Ops.RANGE}


def _values(u: UOp) -> tuple[UOp, ...]:
    """The sources of a value but for addresses."""
    return () if u.op is Ops.INDEX else u.src

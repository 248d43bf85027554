"""Steps that regroup loops: merge, split, interchange, unroll, jam, run in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uopc.schedule.nest import (
    Addresses,
    end,
    fresh_slot,
    is_loop,
    loop,
    rewritten,
    with_own,
    within,
)
from uopc.uop import Ops, UOp


def _are_nested(u: UOp, outer: int, inner: int) -> bool:
    """Whether a loop is numbered ``outer`` and has but the loop ``inner`` in it."""
    if u.src[0].arg.number != outer or len(u.src) != 2 or not is_loop(u.src[1]):
        return False
    return bool(u.src[1].src[0].arg.number == inner)


def _each_round(r: UOp, body: Sequence[UOp]) -> list[UOp]:
    """The statements of every round of a loop."""
    places = (UOp.const(i, r.dtype) for i in range(r.arg.extent))
    return [s for place in places for s in within(body, r, place)]


@dataclass(frozen=True)
class Merge:
    """Two loops, one right inside the other, become one, numbered as the outer one."""

    outer: int
    inner: int

    def __str__(self) -> str:
        return f"merge(ridx{self.outer}, ridx{self.inner})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""

        def change(u: UOp) -> Sequence[UOp] | None:
            if not _are_nested(u, self.outer, self.inner):
                return None
            outer, (inner, *body) = u.src[0], u.src[1].src
            n = inner.arg.extent
            both = loop(self.outer, outer.arg.extent * n, outer.dtype, outer.arg.kind)
            size = UOp.const(n, outer.dtype)
            body = within(body, outer, both // size)
            return [end(both, *within(body, inner, both % size))]

        return rewritten(sink, change)


@dataclass(frozen=True)
class Split:
    """A loop becomes two: rounds of ``size``, numbered ``inner`` within.

    What is left over is a loop of its own after them, with the number of the inner
    one.
    """

    number: int
    size: int
    inner: int

    def __str__(self) -> str:
        return f"split(ridx{self.number}, {self.size})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""

        def change(u: UOp) -> Sequence[UOp] | None:
            r, *body = u.src
            if r.arg.number != self.number:
                return None
            return split(r, body, self.size, self.inner)

        return rewritten(sink, change)


def split(
    r: UOp, body: Sequence[UOp], size: int, inner: int, kind: str = "serial"
) -> list[UOp]:
    """The statements that a loop becomes; ``kind`` is that of the outer loop."""
    number, extent, dtype, _ = r.arg
    rounds, rest = divmod(extent, size)
    new: list[UOp] = []
    if rounds == 1 and kind == "serial":
        part = loop(inner, size, dtype, r.arg.kind)
        new.append(end(part, *within(body, r, part)))
    elif rounds:
        outer = loop(number, rounds, dtype, kind)
        position: UOp = outer * UOp.const(size, dtype)
        if size == 1:
            new.append(end(outer, *within(body, r, outer)))
        else:
            part = loop(inner, size, dtype, r.arg.kind)
            new.append(end(outer, end(part, *within(body, r, position + part))))
    if rest:
        part = loop(inner, rest, dtype, r.arg.kind)
        position = part + UOp.const(rounds * size, dtype)
        new.append(end(part, *within(body, r, position)))
    return new


@dataclass(frozen=True)
class Reorder:
    """Two loops, one right inside the other, change places."""

    outer: int
    inner: int

    def __str__(self) -> str:
        return f"reorder(ridx{self.outer}, ridx{self.inner})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""

        def change(u: UOp) -> Sequence[UOp] | None:
            if not _are_nested(u, self.outer, self.inner):
                return None
            inner, *body = u.src[1].src
            return [end(inner, end(u.src[0], *body))]

        return rewritten(sink, change)


@dataclass(frozen=True)
class Unroll:
    """The body of a loop once for each of its rounds."""

    number: int

    def __str__(self) -> str:
        return f"unroll(ridx{self.number})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""

        def change(u: UOp) -> Sequence[UOp] | None:
            r, *body = u.src
            if r.arg.number != self.number:
                return None
            return _each_round(r, body)

        return rewritten(sink, change)


@dataclass(frozen=True)
class Vectorize:
    """The rounds of an innermost loop in lockstep, ``lanes`` at a time.

    What is left over are fewer lanes. ``stream`` has what is stored bypass the cache.
    """

    number: int
    lanes: int
    inner: int
    stream: bool = False

    def __str__(self) -> str:
        stream = ", stream" if self.stream else ""
        return f"vectorize(ridx{self.number}, {self.lanes}{stream})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""
        kind = "stream" if self.stream else "vector"

        def change(u: UOp) -> Sequence[UOp] | None:
            r, *body = u.src
            if r.arg.number != self.number:
                return None
            lanes = loop(self.number, r.arg.extent, r.dtype, kind)
            parts = split(lanes, within(body, r, lanes), self.lanes, self.inner)
            if r.arg.extent % self.lanes == 1:  # that one is no vector
                parts[-1:] = within(body, r, UOp.const(r.arg.extent - 1, r.dtype))
            return parts

        return rewritten(sink, change)


@dataclass(frozen=True)
class Narrow:
    """Vectors of values too wide for a register become several, one after the other.

    A compiler would do so as well, but gcc 12 then compares lane by lane, and fails
    with an internal error where a conversion is masked twice.
    """

    vector_bytes: int

    def __str__(self) -> str:
        return f"narrow({self.vector_bytes} bytes)"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""

        def change(u: UOp) -> Sequence[UOp] | None:
            r, *body = u.src
            if r.arg.kind not in ("vector", "stream"):
                return None
            width = Addresses(body).widest([r])
            if r.arg.extent * width <= self.vector_bytes:
                return None
            return list(_narrowed(r, body, max(1, self.vector_bytes // width)))

        return rewritten(sink, change)


def _narrowed(r: UOp, body: Sequence[UOp], lanes: int) -> Iterator[UOp]:
    for start in range(0, r.arg.extent, lanes):
        count = min(lanes, r.arg.extent - start)
        if count == 1:
            yield from within(body, r, UOp.const(start, r.dtype))
        else:
            part = loop(r.arg.number, count, r.dtype, r.arg.kind)
            yield end(part, *within(body, r, part + start if start else part))


@dataclass(frozen=True)
class Jam:
    """The rounds of a loop become stores of the vector loop inside it.

    Only where it has as many rounds as that one has lanes: of what is left over from
    such blocks, the loop stays.
    """

    number: int

    def __str__(self) -> str:
        return f"jam(ridx{self.number})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""

        def change(u: UOp) -> Sequence[UOp] | None:
            r, *body = u.src
            if r.arg.number != self.number or len(body) != 1:
                return None
            if not is_loop(body[0]):
                return None
            lanes, *stores = body[0].src
            if lanes.arg.kind == "serial" or lanes.arg.extent != r.arg.extent:
                return None
            return [end(lanes, *_each_round(r, stores))]

        return rewritten(sink, change)


@dataclass(frozen=True)
class Parallel:
    """Rounds of ``size`` of an outermost loop may run at the same time.

    They are numbered ``inner``. What is left over runs after them.
    """

    number: int
    size: int
    inner: int

    def __str__(self) -> str:
        return f"parallel(ridx{self.number}, {self.size})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""
        new: list[UOp] = []
        for s in sink.src:
            if is_loop(s) and s.src[0].arg.number == self.number:
                r, *body = s.src
                rounds, *rest = split(r, body, self.size, self.inner, "parallel")
                # What rounds share with other statements they would share at once.
                new += [*with_own([rounds], fresh_slot(sink)), *rest]
            else:
                new.append(s)
        return UOp(Ops.SINK, tuple(new), sink.arg)

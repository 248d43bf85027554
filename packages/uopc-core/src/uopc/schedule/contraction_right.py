"""The right factor of a contraction, where tiles read it: packed, or copied whole."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, Protocol

from uopc.schedule.contraction_reads import extent, moved, put, turns
from uopc.schedule.contraction_window import Coordinate, Window
from uopc.schedule.nest import end, nested, read, store
from uopc.uop import UOp

if TYPE_CHECKING:
    from uopc.schedule.contraction_build import Builder

Where = dict[UOp, UOp]
RightKind = Literal["by columns", "by terms", "whole", "in place"]
"""Packed, with neighbouring columns or terms one after the other; or not packed."""
UNROLLED = 4
"""An innermost loop of a tile that has no more rounds is written out."""


class Right(Protocol):
    """Attributes:
    size: elements of the local buffer.
    apart: whether each tile is a function call.
    """

    size: int
    apart: bool

    def fill(self, depth: int) -> list[UOp]:
        """Statements that fill the buffer for the next ``depth`` terms."""

    def terms(self, depth: int) -> tuple[list[UOp], list[tuple[UOp, Where]]]:
        """Loops over the terms; each one's number and place, in one round of these."""

    def vector(self, panel: UOp, v: int, k: UOp, where: Where) -> UOp:
        """The lanes of vector ``v`` of a panel, for a term."""


class Packed:
    """By panel, by term, by column: in the order in which tiles read it.

    With ``across``, neighbouring columns are packed as vectors; else neighbouring terms
    come one after the other.
    """

    apart = False

    def __init__(self, make: Builder, across: bool) -> None:
        self.make, self.across = make, across
        self.turned = len(make.at.inner) == 1 and turns(make.c, make.b.lanes)
        self.size = make.b.wide * make.b.depth * make.at.width

    def fill(self, depth: int) -> list[UOp]:
        """See `Right`."""
        make, b = self.make, self.make.b
        panel, v = make.loop(b.wide), make.loop(b.vectors)
        loops, k, where = make.terms(depth, True)
        if self.across:
            element = end(make.lane, self._element(panel, v, make.lane, k, where))
            rows = not make.at.outer  # of memory, from one end to the other
            around = [*loops, panel, v] if rows else [panel, v, *loops]
            return nested(around, [element])
        exists = self._column(panel, v, make.at.const(b.lanes - 1))[1]
        if not (self.turned and loops[-1].arg.extent >= b.lanes):
            body = self._by_terms(panel, v, loops, k, where)
        elif exists is None:
            body = self._by_blocks(panel, v, loops, k, where)
        else:
            edge = end(exists.logical_not(), *self._by_terms(panel, v, loops, k, where))
            body = [end(exists, *self._by_blocks(panel, v, loops, k, where)), edge]
        return nested([panel, v], body)

    def _by_blocks(
        self, panel: UOp, v: UOp, loops: list[UOp], k: UOp, where: Where
    ) -> list[UOp]:
        """As many terms as columns at a time, for a backend to transpose.

        All columns exist. What is left of the terms are vectors.
        """
        make, lanes = self.make, self.make.b.lanes
        *outer, last = loops
        whole, rest = divmod(last.arg.extent, lanes)
        step = make.loop(whole)
        stores = [
            self._element(panel, v, make.lane, *at, whole=True)
            for at in (_at(k, where, {last: step * lanes + n}) for n in range(lanes))
        ]
        body = nested([*outer, step], [end(make.lane, *stores)])
        if rest:
            lane, term = make.loop(lanes), make.loop(rest, "vector")
            at = _at(k, where, {last: term + whole * lanes})
            element = self._element(panel, v, lane, *at, whole=True)
            body += nested([lane, *outer, term], [element])
        return body

    def _by_terms(
        self, panel: UOp, v: UOp, loops: list[UOp], k: UOp, where: Where
    ) -> list[UOp]:
        """Vectors of terms."""
        make, body = self.make, []
        lane = make.loop(make.b.lanes)
        for inner, spot in make.vectors_of(loops[-1]):
            element = self._element(panel, v, lane, *_at(k, where, spot))
            body += nested([*loops[:-1], *inner], [element])
        return [end(lane, *body)]

    def _element(
        self, panel: UOp, v: UOp, lane: UOp, k: UOp, where: Where, whole: bool = False
    ) -> UOp:
        """The store of an element; 0 for a column that might not exist and does not."""
        make, at, b = self.make, self.make.at, self.make.b
        columns, exists = self._column(panel, v, lane)
        place = at.number(panel, b.depth, k, b.vectors, v, b.lanes, lane)
        changes = {**columns, **where}
        value = make.factor(make.c.right, changes, None if whole else exists)
        return store(make.right_buffer, place, value)

    def _column(self, panel: UOp, v: UOp, lane: UOp) -> tuple[Where, UOp | None]:
        make = self.make
        return make.at.column((make.first + panel) * make.b.vectors + v, lane)

    def terms(self, depth: int) -> tuple[list[UOp], list[tuple[UOp, Where]]]:
        """See `Right`."""
        loops, k, where = self.make.terms(depth, False)
        return loops, [(k, where)]

    def vector(self, panel: UOp, v: int, k: UOp, where: Where) -> UOp:
        """See `Right`."""
        make, b = self.make, self.make.b
        place = make.at.number(panel, b.depth, k, b.vectors, v, b.lanes, make.lane)
        return read(make.right_buffer, place)


class InPlace:
    """In its own memory, of which whole vectors are read."""

    apart = True
    size = 1  # not used

    def __init__(self, make: Builder) -> None:
        self.make = make

    def fill(self, depth: int) -> list[UOp]:
        """See `Right`."""
        return []

    def terms(self, depth: int) -> tuple[list[UOp], list[tuple[UOp, Where]]]:
        """See `Right`."""
        loops, k, where = self.make.terms(depth, True)
        return loops, [(k, where)]

    def vector(self, panel: UOp, v: int, k: UOp, where: Where) -> UOp:
        """See `Right`."""
        make, b = self.make, self.make.b
        columns = make.at.existing_column(
            (make.first + panel) * b.vectors + v, make.lane
        )
        return make.factor(make.c.right, {**columns, **where}, None)


class Copied:
    """As it is, with its border: see `Window`."""

    apart = True

    def __init__(self, make: Builder, window: Window) -> None:
        self.make, self.window = make, window
        self.free = self._free(make.b.depth)
        # The last lanes of the last row may not exist. Whole vectors are set to 0.
        lanes = make.b.lanes
        self.size = (math.prod(self.free) * window.area // lanes + 2) * lanes

    def _free(self, depth: int) -> list[int]:
        """Sizes of the first axes: the terms that no coordinate has."""
        loops = self.make.c.reduced
        cut = self.make.cut(depth)
        outer = [depth // extent(loops[cut:])] if cut else []
        return outer + [t.arg.extent for t in loops[cut:] if t in self.window.free]

    def fill(self, depth: int) -> list[UOp]:
        """See `Right`. The border is written with the rest, then what is inside."""
        make, lanes = self.make, self.make.b.lanes
        statements = self._zeros()
        loops, _, where = make.terms(depth, True)
        cut = make.cut(depth)
        outer, inner = (
            loops[: bool(cut)],
            dict(zip(make.c.reduced[cut:], loops[bool(cut) :], strict=True)),
        )
        free = [inner[t] for t in inner if t in self.window.free]
        *rows, last = self.window.coordinates
        at = [make.loop(c.last - c.first) for c in rows]
        for first, count in self._pieces(last):
            lane = make.lane if count == lanes else make.loop(count, "vector")
            whole = (last.last - last.first) // lanes
            step = make.loop(whole) if count == lanes else None
            x = lane + first if step is None else step * lanes + lane
            spots = [*at, x]
            changes = dict(where)
            for c, spot in zip(self.window.coordinates, spots, strict=True):
                changes[c.loop] = spot + c.first
                changes |= {t: make.at.const(0) for t, _ in c.terms}
            digits = [
                spot + (c.first - c.low)
                for c, spot in zip(self.window.coordinates, spots, strict=True)
            ]
            value = put(make.c.right, {**make.base, **changes}, None)
            place = self._place([*outer, *free], digits)
            body = [end(lane, store(make.right_buffer, place, value))]
            around = [*outer, *free, *at, *([] if step is None else [step])]
            statements += nested(around, body)
        return statements

    def _pieces(self, c: Coordinate) -> list[tuple[int, int]]:
        """Where vectors begin and how long they are: whole ones, and the rest."""
        lanes = self.make.b.lanes
        whole, rest = divmod(c.last - c.first, lanes)
        pieces = [(0, lanes)] if whole else []
        return [*pieces, (whole * lanes, rest)] if rest else pieces

    def _zeros(self) -> list[UOp]:
        """The border, and all else."""
        make, lanes = self.make, self.make.b.lanes
        r = make.loop(self.size // lanes)
        zero = UOp.const(0, make.right_buffer.dtype)
        place = r * lanes + make.lane
        return [end(r, end(make.lane, store(make.right_buffer, place, zero)))]

    def _place(self, free: list[UOp], digits: list[UOp]) -> UOp:
        """The element at some position."""
        total = self.make.at.const(0)
        for size, digit in zip(self.free, free, strict=True):
            total = total * size + digit
        for c, digit in zip(self.window.coordinates, digits, strict=True):
            total = total * c.size + digit
        return total

    def terms(self, depth: int) -> tuple[list[UOp], list[tuple[UOp, Where]]]:
        """See `Right`. The innermost loop is written out if it is short."""
        make = self.make
        loops, k, where = make.terms(depth, True)
        last = loops[-1]
        if last.arg.extent > UNROLLED or len(loops) == 1:
            return loops, [(k, where)]
        steps = []
        for n in range(last.arg.extent):
            new = {last: make.at.const(n)}
            spot = {r: moved(w, new) for r, w in where.items()}
            steps.append((moved(k, new), spot))
        return loops[:-1], steps

    def vector(self, panel: UOp, v: int, k: UOp, where: Where) -> UOp:
        """See `Right`."""
        make, b = self.make, self.make.b
        columns = make.at.existing_column(
            (make.first + panel) * b.vectors + v, make.lane
        )
        digits = []
        for c in self.window.coordinates:
            digit = columns[c.loop] - c.low
            for t, a in c.terms:
                digit = digit + where[t] * a
            digits.append(digit)
        cut = make.cut(b.depth)
        # With rounds of terms cut off, the first axis counts those of this pass.
        inner = make.c.reduced[cut:]
        free = [where[t] for t in inner if t in self.window.free]
        outer = [k // extent(inner)] if cut else []
        return read(make.right_buffer, self._place([*outer, *free], digits))


def _at(k: UOp, where: Where, spot: Where) -> tuple[UOp, Where]:
    """A term's number and place, with loops replaced."""
    return moved(k, spot), {r: moved(w, spot) for r, w in where.items()}


def right_factor(make: Builder, kind: RightKind, window: Window | None) -> Right:
    """What fills it and reads it. ``window`` belongs to "whole"."""
    if kind == "whole" and window is not None:
        return Copied(make, window)
    return InPlace(make) if kind == "in place" else Packed(make, kind == "by columns")

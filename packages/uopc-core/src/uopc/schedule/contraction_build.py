"""The loops of a blocked contraction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from uopc.dtype import DType
from uopc.schedule.contraction_blocks import WHOLE_ROWS, Blocks, ceil
from uopc.schedule.contraction_pattern import Contraction
from uopc.schedule.contraction_reads import extent, positions, put, rows_are_near
from uopc.schedule.contraction_right import Right, RightKind, right_factor
from uopc.schedule.contraction_window import Window
from uopc.schedule.nest import end, fresh_number, fresh_slot, loop, nested, read, store
from uopc.uop import Ops, UOp, substitute

LeftKind = Literal["in place", "by rows", "by strips", "by blocks"]
"""Read where it is; or packed for each row of tiles, as rows or with neighbouring rows
side by side; or so for all of a block before."""


class Layout:
    """Where rows, columns and terms of a contraction are, once it is in blocks.

    Columns are counted in vectors: the innermost ``joined`` loops over columns fill
    ``along`` of them, of which the last may have empty lanes; the other loops have
    rows of these.
    """

    def __init__(self, c: Contraction, b: Blocks, joined: int) -> None:
        self.c, self.b = c, b
        self.dtype: DType = c.columns[0].dtype
        cut = len(c.columns) - joined
        self.outer, self.inner = c.columns[:cut], c.columns[cut:]
        self.lanes = extent(self.inner)
        self.along = ceil(self.lanes, b.lanes)
        self.rows, self.depth = extent(c.rows), extent(c.reduced)
        self.vectors = extent(self.outer) * self.along
        self.down = ceil(ceil(self.rows, b.rows), b.high)
        self.across = ceil(ceil(self.vectors, b.vectors), b.wide)
        self.width = b.vectors * b.lanes
        self.passes = ceil(self.depth, b.depth)
        # The sums of all tiles of a block are kept only if they are added to again.
        self.kept = b.high if self.passes > 1 else 1

    def const(self, n: int) -> UOp:
        """A position."""
        return UOp.const(n, self.dtype)

    def number(self, *digits: UOp | int) -> UOp:
        """``a, n, b, m, c`` are ``(a * n + b) * m + c``."""
        total: UOp | None = None
        constant, stride = 0, 1
        for i in range(len(digits) - 1, -1, -2):
            digit = digits[i]
            if isinstance(digit, int):
                constant += digit * stride
            else:
                term = digit * stride if stride > 1 else digit
                total = term if total is None else term + total
            if i:
                size = digits[i - 1]
                assert isinstance(size, int)
                stride *= size
        if total is None:
            return self.const(constant)
        return total + constant if constant else total

    def first_row(self, tile: UOp) -> UOp:
        """The first row of a tile. The last one has its rows in common with others."""
        row = tile * self.b.rows
        last = self.rows - self.b.rows
        if self.rows % self.b.rows == 0:
            return row
        return (row < last).where(row, self.const(last))

    def column(self, vector: UOp, lane: UOp) -> tuple[dict[UOp, UOp], UOp | None]:
        """The loops over columns, and whether that column exists if it might not."""
        outer = positions(vector // self.along, self.outer)
        place = vector % self.along if self.outer else vector
        at = place * self.b.lanes + lane
        found = {**outer, **positions(at, self.inner)}
        if not self.outer:
            padded = self.across * self.b.wide * self.width > self.lanes
            return found, at < self.lanes if padded else None
        conditions = []
        if self.along * self.b.lanes > self.lanes:
            conditions.append(at < self.lanes)
        if self.across * self.b.wide * self.b.vectors > self.vectors:
            conditions.append(vector < self.vectors)
        if not conditions:
            return found, None
        return found, conditions[0] & conditions[-1]

    def existing_column(self, vector: UOp, lane: UOp) -> dict[UOp, UOp]:
        """The loops over columns; of a vector too many, those of the last one."""
        if self.across * self.b.wide * self.b.vectors > self.vectors:
            vector = (vector < self.vectors).where(vector, self.const(self.vectors - 1))
        place = vector % self.along if self.outer else vector
        outer = positions(vector // self.along, self.outer)
        return {**outer, **positions(place * self.b.lanes + lane, self.inner)}


class Builder:
    """Makes the statements. Names of loop variables: see `Blocks`."""

    def __init__(
        self,
        sink: UOp,
        layout: Layout,
        left: LeftKind,
        right: RightKind,
        window: Window | None,
        fma: bool,
    ) -> None:
        self.at, self.b, self.c = layout, layout.b, layout.c
        self.left_kind, self.fma = left, fma
        self.numbers = fresh_number(sink)
        b, at = self.b, layout
        self.lane = self.loop(b.lanes, "vector")
        self.right: Right = right_factor(self, right, window)
        slot, dtype = fresh_slot(sink), self.c.accumulator.dtype
        self.slot = slot + 3
        sizes = (
            b.wide * at.kept * b.rows * at.width,
            self.right.size,
            b.rows * b.depth * (b.high if left == "by blocks" else 1),
        )
        self.sums, self.right_buffer, self.left = (
            UOp.buffer(n, dtype, slot + i, space="local") for i, n in enumerate(sizes)
        )
        self.base: dict[UOp, UOp] = {}  # the position in the batch
        self.first = self.top = self.start = at.const(0)

    def loop(self, rounds: int, kind: str = "serial") -> UOp:
        """A new loop."""
        self.numbers += 1
        return loop(self.numbers - 1, rounds, self.at.dtype, kind)

    def statements(self, kind: str) -> list[UOp]:
        """All of it; ``kind`` is that of the loop over blocks."""
        at, c = self.at, self.c
        blocks = at.down * at.across
        rounds = self.loop(extent(c.batch) * blocks, kind)
        self.base = positions(rounds // blocks, c.batch)
        self.top = rounds // at.across % at.down * self.b.high  # in tiles
        self.first = rounds % at.across * self.b.wide
        if at.passes == 1:
            return [end(rounds, *self.fill(at.depth), self.strips(at.depth))]
        full, rest = divmod(at.depth, self.b.depth)
        number = self.loop(full)
        self.start = number * self.b.depth
        body = [*self.fill(self.b.depth), self.strips(self.b.depth)]
        statements = [*self.zeros(), end(number, *body)]
        if rest:
            self.start = at.const(full * self.b.depth)
            statements += [*self.fill(rest), self.strips(rest)]
        tile = self.loop(self.b.high)
        finish = end(tile, *self.existing(tile, [self.finish(tile)]))
        return [end(rounds, *statements, finish)]

    def zeros(self) -> list[UOp]:
        """The sums, before anything is added."""
        r = self.loop(self.sums.arg.size // self.b.lanes)
        at = r * self.b.lanes + self.lane
        zero = UOp.const(0, self.sums.dtype)
        return [end(r, end(self.lane, store(self.sums, at, zero)))]

    # -- packing ----------------------------------------------------------------------

    def terms(self, depth: int, split: bool) -> tuple[list[UOp], UOp, dict[UOp, UOp]]:
        """Loops over the terms of a pass, the number of a term, and where it is.

        With ``split``, the inner loops of the sum stay loops, if a pass has whole
        rounds of them, so that positions need no division.
        """
        loops = self.c.reduced
        cut = self.cut(depth) if split else len(loops)
        size = extent(loops[cut:])
        inner = [self.loop(r.arg.extent) for r in loops[cut:]]
        found = dict(zip(loops[cut:], inner, strict=True))
        k: UOp = self.at.const(0)
        made = inner
        if cut:
            k = self.loop(depth // size)
            made = [k, *inner]
            found |= positions(self.start // size + k, loops[:cut])
        for r in inner:
            k = k * r.arg.extent + r
        return made, k, found

    def vectors_of(self, r: UOp) -> Iterator[tuple[list[UOp], dict[UOp, UOp]]]:
        """Loops in place of ``r``, the inner one over lanes, and what it is in there.

        Those for whole vectors, and then for what is left.
        """
        whole, rest = divmod(r.arg.extent, self.b.lanes)
        if whole:
            step = self.loop(whole)
            yield [step, self.lane], {r: step * self.b.lanes + self.lane}
        if rest:
            lane = self.loop(rest, "vector")
            yield [lane], {r: lane + whole * self.b.lanes}

    def cut(self, depth: int) -> int:
        """How many outer loops of the sum have no whole rounds in a pass."""
        loops, whole = self.c.reduced, 0
        while whole < len(loops) and depth % extent(loops[-whole - 1 :]) == 0:
            whole += 1
        return len(loops) - whole

    def factor(self, value: UOp, changes: dict[UOp, UOp], condition: UOp | None) -> UOp:
        """A factor at some position."""
        new = put(value, {**self.base, **changes}, condition)
        return new if new.dtype is self.sums.dtype else new.cast(self.sums.dtype)

    def fill(self, depth: int) -> list[UOp]:
        """The factors of a pass, as far as they are packed before its tiles."""
        blocks = self.left_kind == "by blocks"
        return [*self.right.fill(depth), *(self.pack_block(depth) if blocks else ())]

    def pack_block(self, depth: int) -> list[UOp]:
        """The left factor of a block: where rows are near, by whole lines of memory."""
        tile, i = self.loop(self.b.high), self.rows_of_tile()
        loops, k, where = self.terms(depth, True)
        body = end(i, self.pack(tile, k, i, where))
        return nested([*loops, tile], self.existing(tile, [body]))

    def pack_strip(self, tile: UOp, depth: int) -> list[UOp]:
        """The left factor of a row of tiles."""
        i, (loops, k, where) = self.rows_of_tile(), self.terms(depth, True)
        if self.left_kind == "by rows":
            one = self.pack(tile, k, i, where)
            vectors = [
                s
                for made, place in self.vectors_of(loops[-1])
                for s in nested(made, substitute([one], place))
            ]
            return nested([i, *loops[:-1]], vectors)
        around = [*loops, i] if rows_are_near(self.c) else [i, *loops]
        return nested(around, [self.pack(tile, k, i, where)])

    def rows_of_tile(self) -> UOp:
        """A loop over them: over lanes, if they are near in memory and fill vectors."""
        whole = self.b.rows in WHOLE_ROWS and rows_are_near(self.c)
        return self.loop(self.b.rows, "vector" if whole else "serial")

    def pack(self, tile: UOp, k: UOp, i: UOp, where: dict[UOp, UOp]) -> UOp:
        """The store of an element of the left factor."""
        return store(self.left, self.place(tile, k, i), self.left_at(tile, i, where))

    def place(self, tile: UOp, k: UOp, i: UOp | int) -> UOp:
        """Where the packed left factor has a term of a row."""
        if self.left_kind == "by blocks":
            return self.at.number(tile, self.b.depth, k, self.b.rows, i)
        if self.left_kind == "by rows":
            return self.at.number(i, self.b.depth, k)
        return self.at.number(k, self.b.rows, i)

    def left_at(self, tile: UOp, i: UOp | int, where: dict[UOp, UOp]) -> UOp:
        """The left factor in row ``i`` of a tile of the block."""
        row = self.at.first_row(self.top + tile) + i
        return self.factor(self.c.left, {**positions(row, self.c.rows), **where}, None)

    # -- tiles ------------------------------------------------------------------------

    def strips(self, depth: int) -> UOp:
        """Some rows of a block at a time."""
        tile = self.loop(self.b.high)
        strips = self.left_kind in ("by rows", "by strips")
        body = self.pack_strip(tile, depth) if strips else []
        body.append(self.tiles(tile, depth))
        if self.at.passes == 1:
            body.append(self.finish(tile))
        return end(tile, *self.existing(tile, body))

    def existing(self, tile: UOp, body: list[UOp]) -> list[UOp]:
        """Statements about a tile of the block, if there is such a tile."""
        tiles = ceil(self.at.rows, self.b.rows)
        if self.at.down * self.b.high == tiles:
            return body
        return [end(self.top + tile < tiles, *body)]

    def tiles(self, tile: UOp, depth: int) -> UOp:
        """A row of tiles. Their sums are in registers: a buffer for nothing else."""
        b, lane = self.b, self.lane
        size, dtype = b.rows * self.at.width, self.sums.dtype
        registers = UOp.buffer(size, dtype, self.slot, space="local")
        self.slot += 1
        apart = self.right.apart
        panel = self.loop(b.wide, "serial" if apart else "tile")
        loops, terms = self.right.terms(depth)
        places = [(i, v) for i in range(b.rows) for v in range(b.vectors)]
        acc = [lane + n * b.lanes for n in range(len(places))]
        kept = [self.sum_at(panel, tile, i, v) for i, v in places]
        zero = UOp.const(0, self.sums.dtype)
        again = self.at.passes > 1
        load = [
            store(registers, a, read(self.sums, s) if again else zero)
            for a, s in zip(acc, kept, strict=True)
        ]
        add = [
            store(registers, a, self.term(panel, tile, i, v, term, read(registers, a)))
            for term in terms
            for a, (i, v) in zip(acc, places, strict=True)
        ]
        keep = [
            store(self.sums, s, read(registers, a))
            for a, s in zip(acc, kept, strict=True)
        ]
        adding = nested(loops, [end(lane, *add)])
        body = [end(lane, *load), *adding, end(lane, *keep)]
        return end(panel, *([end(self.loop(1, "tile"), *body)] if apart else body))

    def sum_at(
        self, panel: UOp, tile: UOp, i: int | UOp, v: int | UOp, lane: UOp | None = None
    ) -> UOp:
        """Where the sums of row ``i`` of a tile, vector ``v`` of a panel, are kept."""
        at, b = self.at, self.b
        lane = self.lane if lane is None else lane
        rest = (b.rows, i, b.vectors, v, b.lanes, lane)
        if at.passes == 1:
            return at.number(panel, *rest)
        return at.number(panel, b.high, tile, *rest)

    def term(
        self,
        panel: UOp,
        tile: UOp,
        i: int,
        v: int,
        term: tuple[UOp, dict[UOp, UOp]],
        acc: UOp,
    ) -> UOp:
        """A product added to a sum."""
        k, where = term
        left = (
            self.left_at(tile, i, where)
            if self.left_kind == "in place"
            else read(self.left, self.place(tile, k, i))
        )
        right = self.right.vector(panel, v, k, where)
        if self.fma:
            return UOp(Ops.FMA, (left, right, acc))
        return acc + left * right

    # -- what follows -----------------------------------------------------------------

    def finish(self, tile: UOp) -> UOp:
        """The stores of the rows of one tile, and of those beside it in the block."""
        at, b = self.at, self.b
        i, panel, v = self.loop(b.rows), self.loop(b.wide), self.loop(b.vectors)
        vector = at.number(self.first + panel, b.vectors, v)
        row = at.first_row(self.top + tile) + i
        body = [*self.vectors(vector, (panel, tile, i, v), row)]
        if at.across * b.wide * b.vectors > at.vectors:
            body = [end(vector < at.vectors, *body)]
        inner = nested([panel, v], body)
        if at.rows % b.rows:
            inner = [end((self.top + tile) * b.rows - 1 < row, *inner)]
        return end(i, *inner)

    def vectors(
        self, vector: UOp, kept: tuple[UOp, UOp, UOp, UOp], row: UOp
    ) -> Iterator[UOp]:
        """The stores of one vector: of all lanes, or of those that exist."""
        at, b = self.at, self.b
        full, rest = divmod(at.lanes, b.lanes)
        for lanes, exists in ((b.lanes, full), (rest, rest)):
            if not exists:
                continue
            lane = self.lane if lanes == b.lanes else self.loop(lanes, "vector")
            columns, _ = at.column(vector, lane)
            changes = {
                **self.base,
                **positions(row, self.c.rows),
                **columns,
                read(self.c.accumulator, at.const(0)): read(
                    self.sums, self.sum_at(*kept, lane)
                ),
            }
            body = [
                store(s.src[0], *substitute(s.src[1:], changes)) for s in self.c.stores
            ]
            whole = vector % at.along < full
            which = whole if lanes == b.lanes else whole.logical_not()
            yield end(which, end(lane, *body)) if full and rest else end(lane, *body)

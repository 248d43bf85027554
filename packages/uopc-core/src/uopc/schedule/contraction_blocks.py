"""Which tile and which blocks a contraction gets: an estimate in cycles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uopc.dtype import DType
from uopc.schedule.target import Target

PANEL_BYTES = 256 << 10
"""At most so much of the right factor is packed at a time, and of the sums kept; and
no more than a good quarter of the second cache, where both are to stay."""
MAX_DEPTH = 512
"""At most so many terms are added up between loading and storing a tile."""
WHOLE_ROWS = (4, 8)
"""Tiles of so many rows are packed as vectors of them, if these are near in memory."""
ROUND_CYCLES = 3000  # what starting a round takes
PAYS_CYCLES = 40_000  # less than that is not worth a second thread


def ceil(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


@dataclass(frozen=True)
class Size:
    """A contraction in numbers.

    Attributes:
        batch: how many of them there are.
        rows: of the result.
        vectors: vectors that its columns take.
        reduced: rounds of the loops whose terms are added up.
        left: cycles to pack, or fetch, an element of the left factor.
        left_by_rows: the same where a vector holds one term's elements of a tile.
        right: cycles to pack, or fetch, an element of the right factor.
        window: cycles to copy the right factor as a whole, for each block.
        depths: terms of a block: what there is to choose from.
        panels: whether the right factor is packed.
        ahead: whether the left factor is, for all tiles of a block at once.
        spare: registers for vectors that no tile should take.
    """

    batch: int
    rows: int
    vectors: int
    reduced: tuple[int, ...]
    left: float
    left_by_rows: float
    right: float
    depths: tuple[int, ...]
    window: float = 0
    panels: bool = True
    ahead: bool = False
    spare: int = 0

    @property
    def depth(self) -> int:
        """How many terms a sum has."""
        return math.prod(self.reduced)


@dataclass(frozen=True)
class Blocks:
    """How a contraction is divided.

    Attributes:
        rows: of a tile.
        vectors: of a tile, side by side.
        lanes: of a vector.
        depth: terms of a block.
        high: tiles of a block, one below the other.
        wide: tiles of a block, side by side.
    """

    rows: int
    vectors: int
    lanes: int
    depth: int
    high: int
    wide: int


def choose_blocks(size: Size, dtype: DType, target: Target) -> tuple[Blocks, float]:
    """The division that the estimate likes best, and that estimate in cycles."""
    return ranked_blocks(size, dtype, target)[0]


def ranked_blocks(
    size: Size, dtype: DType, target: Target
) -> list[tuple[Blocks, float]]:
    """All divisions with their estimates, the best first."""
    lanes = target.lanes(dtype)
    most = min(PANEL_BYTES, target.l2 * 5 // 16)
    found: list[Blocks] = []
    for rows, vectors in _tiles(size, target.registers - size.spare):
        tiles = ceil(size.rows, rows), ceil(size.vectors, vectors)
        for (high, wide), depth in itertools.product(_shapes(*tiles), size.depths):
            found.append(Blocks(rows, vectors, lanes, depth, high, wide))
    # In a cache too small for any, one tile at a time.
    fitting = [b for b in found if _fits(size, b, dtype.itemsize, most)]
    cycles = {b: _cycles(size, b) for b in fitting or [min(found, key=_terms)]}
    return sorted(cycles.items(), key=lambda choice: choice[1])


def varied(ranked: Sequence[tuple[Blocks, float]]) -> list[tuple[Blocks, float]]:
    """The best division, and the best ones with a tile, a depth or a side of their own.

    These are the ones to measure: others differ little from them.
    """
    seen: set[tuple[object, ...]] = set()
    found: list[tuple[Blocks, float]] = []
    for b, cycles in ranked:
        tile = b.rows, b.vectors
        facts = {("tile", tile), ("depth", b.depth), ("high", b.high), ("wide", b.wide)}
        if not facts <= seen:
            found.append((b, cycles))
        seen |= facts
    return found


def _terms(b: Blocks) -> int:
    """How many products a block has."""
    return b.rows * b.vectors * b.depth * b.high * b.wide


def block_depths(reduced: Sequence[int]) -> tuple[int, ...]:
    """Sensible numbers of terms for a block."""
    halves = (MAX_DEPTH, MAX_DEPTH // 2, MAX_DEPTH // 4)
    return tuple(dict.fromkeys(block_depth(reduced, n) for n in halves))


def block_depth(reduced: Sequence[int], most_terms: int) -> int:
    """Terms of a block: all, or about equal parts; whole rounds of inner loops."""
    depth = math.prod(reduced)
    if depth <= most_terms * 5 // 4:
        return depth
    inner = 1
    for n in reversed(reduced):
        if inner * n > most_terms:
            break
        inner *= n
    rounds = depth // inner
    most = ceil(rounds, ceil(depth, most_terms))
    parts = range(most, most * 3 // 4, -1)
    return inner * next((n for n in parts if rounds % n == 0), most)


def _tiles(size: Size, registers: int) -> Iterator[tuple[int, int]]:
    """Tiles whose sums, operands and one more value fit the registers."""
    usual = ((6, 4), (14, 2), (8, 3)) if registers > 16 else ((6, 2), (4, 3))
    for rows, vectors in usual:
        fits = (rows + 1) * vectors < registers
        if fits and size.rows >= rows and size.vectors >= vectors:
            yield rows, vectors
    # What is narrower than these gets a tile of its own.
    # No more than eight rows: often as many lines as there may be of one kind in the
    # first cache.
    for rows in {min(size.rows, n) for n in range(1, 9)}:
        room = (registers - 1) // (rows + 1)
        vectors = min(room, size.vectors)
        if vectors and (rows == size.rows or vectors == size.vectors):
            yield rows, vectors


def _shapes(high: int, wide: int) -> Iterator[tuple[int, int]]:
    """Blocks of tiles, such that all are about equal."""
    for i in {ceil(high, n) for n in _parts(high)}:
        for j in {ceil(wide, n) for n in _parts(wide)}:
            yield i, j


def _parts(most: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, ... up to ``most``."""
    n = 1
    while n <= most:
        yield n
        if n > 1 and n * 3 // 2 <= most:
            yield n * 3 // 2
        n *= 2
    yield most


def _fits(size: Size, b: Blocks, itemsize: int, most: int) -> bool:
    wide = b.wide * b.vectors * b.lanes * itemsize
    smallest = b.wide == 1
    if size.panels and wide * b.depth > most and not smallest:
        return False
    if size.ahead and b.high > 1 and b.high * b.rows * b.depth * itemsize > most:
        return False
    high = b.high if b.depth < size.depth else 1
    return wide * high * b.rows <= most


def _cycles(size: Size, b: Blocks) -> float:
    """About how long two cores take."""
    down = ceil(ceil(size.rows, b.rows), b.high)
    across = ceil(ceil(size.vectors, b.vectors), b.wide)
    tiles = ceil(size.rows, b.rows) * across * b.wide
    # Two operations and two loads in a cycle; a sum is ready after four.
    tile = max(b.rows * b.vectors / 2, (b.rows + b.vectors) / 2, 4.0) + 0.01
    passes = ceil(size.depth, b.depth)
    moved = (passes + 1) * b.rows * b.vectors  # sums loaded and stored
    work = tiles * (tile * size.depth + moved)
    left = size.left_by_rows if b.rows in WHOLE_ROWS else size.left
    work += left * across * size.rows * size.depth
    work += size.right * down * across * b.wide * b.vectors * b.lanes * size.depth
    work += size.window * down * across
    rounds = size.batch * down * across
    each = work * size.batch / rounds
    if work * size.batch < PAYS_CYCLES:
        return work * size.batch + ROUND_CYCLES * (rounds - 1)
    # With more rounds it matters less if one core is slower than the other.
    return math.ceil(rounds / 2) * (each + ROUND_CYCLES) * (1 + 0.2 / rounds)

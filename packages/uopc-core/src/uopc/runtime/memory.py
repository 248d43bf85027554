"""Where a plan's temporaries live: one arena, shared by lifetime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.kernelize import Plan
from uopc.kernelize.joining import nest_numbers

Array = np.ndarray[Any, Any]

ALIGNMENT = 64
# How often the blocks that end highest are placed anew before all others; the work
# grows with the square of the number of blocks, so that many get fewer tries.
ROUNDS = 8
MAX_TRIES = 1000
ENOUGH = 1.02  # of the lower bound


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets of the temporaries, by plan buffer, in one arena.

    Every temporary takes whole cache lines, and is counted so below.

    Attributes:
        offsets: where each one begins.
        arena_bytes: the size of the arena: the planned peak.
        live_bytes: the most that is alive at once; no arena is smaller than that.
        sum_bytes: what they would take without sharing.
    """

    offsets: dict[int, int]
    arena_bytes: int
    live_bytes: int
    sum_bytes: int


@dataclass(frozen=True)
class _Blocks:
    """The temporaries as arrays, a plan may have many thousand: sizes and lifetimes."""

    size: Array
    born: Array  # the step that writes it
    dies: Array  # the last step that reads it

    def live_bytes(self) -> int:
        """The most that is alive at once."""
        if not len(self.size):
            return 0
        change = np.zeros(self.dies.max() + 2, np.int64)
        np.add.at(change, self.born, self.size)
        np.add.at(change, self.dies + 1, -self.size)
        return int(np.cumsum(change).max())

    def placed(self, order: Array) -> Array:
        """Where each begins, if in this order each goes to the lowest place free."""
        born, dies = self.born[order], self.dies[order]
        begin, end = np.zeros((2, len(order)), np.int64)
        for n, size in enumerate(self.size[order].tolist()):
            rivals = (born[:n] <= dies[n]) & (born[n] <= dies[:n])
            begin[n] = _lowest_gap(begin[:n][rivals], end[:n][rivals], size)
            end[n] = begin[n] + size
        found = np.empty_like(begin)
        found[order] = begin
        return found


def plan_memory(plan: Plan) -> MemoryPlan:
    """Place every temporary so that no two alive at once overlap.

    Finding the smallest arena is NP-hard: a few orders of placing are tried.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    # What one loop nest touches is alive at once.
    for k, step in zip(plan.kernels, nest_numbers(plan.kernels), strict=True):
        first[k.out] = step
        for i in (k.out, *k.args):
            last[i] = step
    temporaries = [
        i for i, b in enumerate(plan.buffers) if b.role == "temporary" and i in first
    ]
    blocks = _Blocks(
        np.array([_padded(plan.buffers[i].nbytes) for i in temporaries], np.int64),
        np.array([first[i] for i in temporaries], np.int64),
        np.array([last[i] for i in temporaries], np.int64),
    )
    live = blocks.live_bytes()
    begin = _best_placed(blocks, live)
    offsets = dict(zip(temporaries, begin.tolist(), strict=True))
    arena = int((begin + blocks.size).max(initial=0))
    return MemoryPlan(offsets, arena, live, int(blocks.size.sum()))


def _best_placed(blocks: _Blocks, live: int) -> Array:
    """Where each block begins: the tightest of some placings.

    Largest first, last to die first, first born first; and each of those again with
    the blocks that stick out at the top before all others.
    """
    size, born, dies = blocks.size, blocks.born, blocks.dies
    rounds = max(1, min(ROUNDS, MAX_TRIES // (len(size) + 1)))
    best, least = size, -1
    for keys in ((born, -size), (-size, -dies), (-size, born)):
        order = np.lexsort(keys)
        for _ in range(rounds):
            begin = blocks.placed(order)
            end = begin + size
            arena = int(end.max(initial=0))
            if least < 0 or arena < least:
                best, least = begin, arena
            if least <= ENOUGH * live:
                return best
            high = end[order] == arena
            order = np.concatenate([order[high], order[~high]])
    return best


def _lowest_gap(begin: Array, end: Array, size: int) -> int:
    """The lowest offset at which ``size`` bytes lie in none of the intervals."""
    by_begin = np.argsort(begin)
    # Below each interval, and above all of them: free from the highest end so far.
    free = np.maximum.accumulate(np.concatenate([[0], end[by_begin]]))
    fits = free[:-1] + size <= begin[by_begin]
    return int(free[np.argmax(fits)] if fits.any() else free[-1])


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT

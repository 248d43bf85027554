"""Where a plan's temporaries live: one arena, shared by lifetime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.kernelize import Plan

Array = np.ndarray[Any, Any]

ALIGNMENT = 64


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets of the temporaries, by plan buffer, in one arena."""

    offsets: dict[int, int]
    arena_bytes: int
    sum_bytes: int  # what they would take without sharing


def plan_memory(plan: Plan) -> MemoryPlan:
    """Place every temporary so that no two alive at once overlap.

    Largest first, each at the lowest offset free during its lifetime.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, k in enumerate(plan.kernels):
        first[k.out] = step
        for i in (k.out, *k.args):
            last[i] = step
    temporaries = [
        i for i, b in enumerate(plan.buffers) if b.role == "temporary" and i in first
    ]
    order = sorted(temporaries, key=lambda i: -plan.buffers[i].nbytes)
    sizes = [_padded(plan.buffers[i].nbytes) for i in order]
    # In arrays, by place in ``order``: a plan may have many thousand temporaries.
    born = np.array([first[i] for i in order], np.int64)
    dies = np.array([last[i] for i in order], np.int64)
    begin = np.zeros(len(order), np.int64)
    end = np.zeros(len(order), np.int64)
    for n, size in enumerate(sizes):
        rivals = (born[:n] <= dies[n]) & (born[n] <= dies[:n])
        begin[n] = _lowest_gap(begin[:n][rivals], end[:n][rivals], size)
        end[n] = begin[n] + size
    offsets = dict(zip(order, begin.tolist(), strict=True))
    return MemoryPlan(offsets, int(end.max(initial=0)), sum(sizes))


def _lowest_gap(begin: Array, end: Array, size: int) -> int:
    """The lowest offset at which ``size`` bytes lie in none of the intervals."""
    by_begin = np.argsort(begin)
    # Below each interval, and above all of them: free from the highest end so far.
    free = np.maximum.accumulate(np.concatenate([[0], end[by_begin]]))
    fits = free[:-1] + size <= begin[by_begin]
    return int(free[np.argmax(fits)] if fits.any() else free[-1])


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT

"""Where a plan's temporaries live: one arena, shared by lifetime."""

from __future__ import annotations

from dataclasses import dataclass

from uopc.kernelize import Plan

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
    placed: list[tuple[int, int, int]] = []  # (buffer, begin, end)
    offsets: dict[int, int] = {}
    for i in sorted(temporaries, key=lambda i: -plan.buffers[i].nbytes):
        rival = sorted(
            (begin, end)
            for j, begin, end in placed
            if first[j] <= last[i] and first[i] <= last[j]
        )
        size, at = _padded(plan.buffers[i].nbytes), 0
        for begin, end in rival:
            if at + size <= begin:
                break
            at = max(at, end)
        offsets[i] = at
        placed.append((i, at, at + size))
    total = sum(_padded(plan.buffers[i].nbytes) for i in temporaries)
    return MemoryPlan(offsets, max((e for *_, e in placed), default=0), total)


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT

"""Schedules of rounds with several nests in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from uopc.schedule.axes import Merge, Parallel
from uopc.schedule.choose_elementwise import round_size
from uopc.schedule.fuse import stretch
from uopc.schedule.keep import Keep
from uopc.schedule.knobs import AS_ESTIMATED, Knobs
from uopc.schedule.model import Axis, Model, Numbers, merged, model, rounds_of
from uopc.schedule.nest import (
    Addresses,
    fresh_number,
    is_local,
    output_loops,
    stores,
)
from uopc.schedule.rows import Rows, as_programs, parts_of
from uopc.schedule.step import Step
from uopc.schedule.target import Target
from uopc.uop import Ops, UOp


def rows(
    sink: UOp,
    target: Target,
    numbers: Numbers,
    choose: Callable[[Model], Sequence[Step]],
    knobs: Knobs = AS_ESTIMATED,
) -> list[Step] | None:
    """Each part by its kind, the rounds in parallel; None if there is but one part.

    ``choose`` says the steps of a part alone.
    """
    loops, body = output_loops(sink)
    if not loops or all(s.op is Ops.STORE for s in body) or len(parts_of(body)) < 2:
        return None
    keep = Keep(max(1, target.vector_bytes // 4), target.l1)
    kept = keep.apply(sink) if knobs.keep else sink
    found: list[Step] = [] if kept is sink else [keep]
    loops, body = output_loops(kept)
    programs = as_programs(kept)
    numbers.last = max(numbers.last, fresh_number(kept) - 1)
    models = [
        model(p, target, numbers, inside=True, knobs=knobs.of(i))
        for i, p in enumerate(programs)
    ]
    steps = [tuple(choose(m)) if m else () for m in models]
    axes, pairs = merged(_axes(loops, body))
    found += [Merge(outer, inner) for outer, inner in pairs]
    found.append(Rows(tuple(steps)))
    times = math.prod(r.arg.extent for r in loops)
    work = sum(m.nanoseconds for m in models if m) * times
    count = rounds_of(work, knobs.rounds)
    if count > 1 and _apart(loops, body):
        first, inner = axes[0], numbers.new()
        size = round_size(first.extent, count, 1)
        found.append(Parallel(first.number, size, inner))
    return found


def _axes(loops: Sequence[UOp], body: Sequence[UOp]) -> list[Axis]:
    addresses = Addresses(body)
    accesses = [a for a in addresses.accesses if not is_local(a.src[0])]
    return [
        Axis(
            r.arg.number,
            r.arg.extent,
            tuple(addresses.stride(a, r) for a in accesses),
            r not in addresses.outside,
        )
        for r in loops
    ]


def _apart(loops: Sequence[UOp], body: Sequence[UOp]) -> bool:
    """Whether no two rounds write the same element of an array."""
    places: dict[UOp, set[UOp]] = {}
    for s in stores(body):
        if not is_local(s.src[0]):
            places.setdefault(s.src[0], set()).add(s.src[1])
    return all(stretch(at, loops) is not None for at in places.values())

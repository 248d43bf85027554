"""Schedules of rounds with several nests in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from uopc.schedule.axes import Merge, Parallel
from uopc.schedule.choose_elementwise import round_size
from uopc.schedule.fuse import stretch
from uopc.schedule.keep import Keep
from uopc.schedule.knobs import Knobs
from uopc.schedule.model import Axis, Numbers, axes_of, merged, rounds_of
from uopc.schedule.nest import (
    Addresses,
    fresh_number,
    is_local,
    output_loops,
    places_of,
)
from uopc.schedule.rows import Rows, as_programs, parts_of
from uopc.schedule.step import Step
from uopc.schedule.target import Target
from uopc.uop import Ops, UOp

Choose = Callable[[UOp, bool, Knobs], tuple[list[Step], float]]


def rows(
    sink: UOp,
    target: Target,
    numbers: Numbers,
    choose: Choose,
    inside: bool,
    knobs: Knobs,
) -> tuple[list[Step], float] | None:
    """Each part by its kind, the rounds in parallel; None if there is but one part.

    ``choose`` says the steps of a part alone, and how many nanoseconds it takes.
    """
    loops, body = output_loops(sink)
    if not loops or all(s.op is Ops.STORE for s in body) or len(parts_of(body)) < 2:
        return None
    keep = Keep(max(1, target.vector_bytes // 4), target.l1)
    kept = keep.apply(sink) if knobs.keep else sink
    found: list[Step] = [] if kept is sink else [keep]
    loops, body = output_loops(kept)
    numbers.last = max(numbers.last, fresh_number(kept) - 1)
    programs = as_programs(kept)
    parts = [choose(p, True, knobs.of(i)) for i, p in enumerate(programs)]
    nanoseconds = sum(each for _, each in parts)
    nanoseconds *= math.prod(r.arg.extent for r in loops)
    apart = loops[: _apart(loops, body)]
    alone = inside or not apart
    count = 1 if alone else rounds_of(nanoseconds, knobs.rounds)
    axes, pairs = merged(_axes(apart, body))
    found += [Merge(outer, inner) for outer, inner in pairs]
    while len(axes) > 1 and axes[0].extent < count:
        outer, inner, *rest = axes
        found.append(Merge(outer.number, inner.number))
        axes = [replace(outer, extent=outer.extent * inner.extent), *rest]
    within = numbers.new()
    steps = tuple(tuple(steps) for steps, _ in parts)
    found.append(Rows(steps, numbers.last + 1))
    if count > 1:
        size = round_size(axes[0].extent, count, 1)
        found.append(Parallel(axes[0].number, size, within))
    return found, nanoseconds


def _axes(loops: Sequence[UOp], body: Sequence[UOp]) -> list[Axis]:
    addresses = Addresses(body)
    accesses = [a for a in addresses.accesses if not is_local(a.src[0])]
    return list(axes_of(loops, addresses, accesses))


def _apart(loops: Sequence[UOp], body: Sequence[UOp]) -> int:
    """How many of the outer loops have rounds that write different elements.

    Those of the loops inside of these follow one another.
    """
    written = places_of(body, (Ops.STORE,)).values()
    for n in range(len(loops), 0, -1):
        if all(stretch(at, loops[:n]) is not None for at in written):
            return n
    return 0

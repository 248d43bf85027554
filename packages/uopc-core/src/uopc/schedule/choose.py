"""Which steps a kernel gets."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.schedule.choose_elementwise import elementwise
from uopc.schedule.choose_reduction import reduction
from uopc.schedule.choose_rows import rows
from uopc.schedule.contraction import contraction
from uopc.schedule.knobs import AS_ESTIMATED, Knobs
from uopc.schedule.model import Model, Numbers, model
from uopc.schedule.nest import fresh_number, is_local
from uopc.schedule.step import Simplify, Step
from uopc.schedule.target import PLAIN, Target
from uopc.uop import Ops, UOp, toposort

SMALL = 16
"""Fewer iterations than that are left as they are."""


def choose_schedule(
    sink: UOp, target: Target = PLAIN, knobs: Knobs = AS_ESTIMATED
) -> tuple[Step, ...]:
    """The steps for one loop program; none where nothing is to be gained.

    There are three kinds: contractions, reductions, and what reduces nothing. Several
    nests that share no accumulator are looked at one by one, and so are those in the
    rounds of common loops. ``knobs`` is what to do otherwise than estimates say.
    """
    steps: Sequence[Step] | None = None
    if knobs.way != -1:
        steps = contraction(sink, target, knobs.way or 0)
    if steps is None:
        numbers = Numbers(fresh_number(sink) - 1)
        steps = rows(sink, target, numbers, _by_kind, knobs)
    if steps is None:
        parts = independent_parts(sink)
        steps = [
            step
            for i, part in enumerate(parts)
            for step in _chosen(
                part, target, numbers, knobs.of(i) if len(parts) > 1 else knobs
            )
        ]
    return (*steps, Simplify()) if steps else ()


def independent_parts(sink: UOp) -> list[UOp]:
    """Nests that have nothing to do with each other's loops, as programs."""
    nests = all(s.op is Ops.END for s in sink.src)
    if len(sink.src) < 2 or not nests or any(map(is_local, toposort([sink]))):
        return [sink]
    return [UOp(Ops.SINK, (s,), sink.arg) for s in sink.src]


def _chosen(
    sink: UOp, target: Target, numbers: Numbers, knobs: Knobs
) -> Sequence[Step]:
    m = model(sink, target, numbers, knobs=knobs)
    return () if m is None or m.iterations < SMALL else _by_kind(m)


def _by_kind(m: Model) -> Sequence[Step]:
    return reduction(m) if m.reduced else elementwise(m)

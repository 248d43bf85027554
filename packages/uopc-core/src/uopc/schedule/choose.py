"""Which steps a kernel gets."""

from __future__ import annotations

import math
from dataclasses import replace

from uopc.schedule.choose_elementwise import elementwise
from uopc.schedule.choose_reduction import reduction
from uopc.schedule.choose_rows import rows
from uopc.schedule.contraction import Contract, contraction
from uopc.schedule.knobs import AS_ESTIMATED, Knobs
from uopc.schedule.model import OPERATION_NS, Numbers, model
from uopc.schedule.nest import fresh_number, is_local, is_loop
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
    choice = _Choice(target, Numbers(fresh_number(sink) - 1))
    steps, _ = choice.program(sink, False, knobs)
    return (*steps, Simplify()) if steps else ()


class _Choice:
    def __init__(self, target: Target, numbers: Numbers) -> None:
        self.target, self.numbers = target, numbers

    def program(
        self, sink: UOp, inside: bool, knobs: Knobs
    ) -> tuple[list[Step], float]:
        """The steps, and about how many nanoseconds it takes.

        ``inside``: other loops are around it, which may run in parallel.
        """
        found = None
        if knobs.way != -1:
            found = contraction(sink, self.target, knobs.way or 0)
        if found is not None:
            lanes = max(1, self.target.vector_bytes // 4)
            steps = [_serial(s) if inside else s for s in found]
            return steps, _iterations(sink) * OPERATION_NS / lanes
        several = rows(sink, self.target, self.numbers, self.program, inside, knobs)
        if several is not None:
            return several
        steps, nanoseconds = [], 0.0
        parts = independent_parts(sink)
        for i, part in enumerate(parts):
            own = knobs.of(i) if len(parts) > 1 else knobs
            m = model(part, self.target, self.numbers, inside, own)
            if m is not None and (inside or m.iterations >= SMALL):
                steps += reduction(m) if m.reduced else elementwise(m)
                nanoseconds += m.nanoseconds
        return steps, nanoseconds


def _serial(step: Step) -> Step:
    return replace(step, parallel=False) if isinstance(step, Contract) else step


def _iterations(sink: UOp) -> int:
    """How often the innermost statements run."""
    nodes = toposort([sink])
    return math.prod(u.src[0].arg.extent for u in nodes if is_loop(u))


def independent_parts(sink: UOp) -> list[UOp]:
    """Nests that have nothing to do with each other's loops, as programs."""
    nests = all(s.op is Ops.END for s in sink.src)
    if len(sink.src) < 2 or not nests or any(map(is_local, toposort([sink]))):
        return [sink]
    return [UOp(Ops.SINK, (s,), sink.arg) for s in sink.src]

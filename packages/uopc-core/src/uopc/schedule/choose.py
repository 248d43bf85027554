"""Which steps a kernel gets."""

from __future__ import annotations

from uopc.schedule.choose_elementwise import elementwise
from uopc.schedule.choose_reduction import reduction
from uopc.schedule.model import model
from uopc.schedule.step import Simplify, Step
from uopc.schedule.target import PLAIN, Target
from uopc.uop import UOp


def choose_schedule(sink: UOp, target: Target = PLAIN) -> tuple[Step, ...]:
    """The steps for one loop program; none where nothing is to be gained."""
    found = model(sink, target)
    if found is None or found.iterations < SMALL:
        return ()
    steps = reduction(found) if found.reduced else elementwise(found)
    return (*steps, Simplify()) if steps else ()


SMALL = 16
"""Fewer rounds than that are left as they are."""

"""From loops to better loops. A schedule is a list of named steps."""

from typing import TYPE_CHECKING

from uopc.exports import on_demand
from uopc.schedule.target import PLAIN, Target

if TYPE_CHECKING:
    from uopc.schedule.axes import (
        Jam,
        Merge,
        Narrow,
        Parallel,
        Reorder,
        Split,
        Unroll,
        Vectorize,
    )
    from uopc.schedule.choose import choose_schedule
    from uopc.schedule.reduction import Blocks, Lanes, Outputs, Parts
    from uopc.schedule.step import Simplify, Step, apply_schedule

__all__ = [
    "PLAIN",
    "Blocks",
    "Jam",
    "Lanes",
    "Merge",
    "Narrow",
    "Outputs",
    "Parallel",
    "Parts",
    "Reorder",
    "Simplify",
    "Split",
    "Step",
    "Target",
    "Unroll",
    "Vectorize",
    "apply_schedule",
    "choose_schedule",
]

if not TYPE_CHECKING:
    # A backend says its target at start-up; a plan that is found again needs no steps.
    __getattr__ = on_demand(
        __name__,
        {
            "axes": "Jam Merge Narrow Parallel Reorder Split Unroll Vectorize",
            "choose": "choose_schedule",
            "reduction": "Blocks Lanes Outputs Parts",
            "step": "Simplify Step apply_schedule",
        },
    )

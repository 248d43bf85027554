"""From loops to better loops. A schedule is a list of named steps."""

from uopc.schedule.axes import Merge, Parallel, Reorder, Split, Unroll, Vectorize
from uopc.schedule.choose import choose_schedule
from uopc.schedule.reduction import Blocks, Lanes, Outputs, Parts
from uopc.schedule.step import Simplify, Step, apply_schedule
from uopc.schedule.target import PLAIN, Target

__all__ = [
    "PLAIN",
    "Blocks",
    "Lanes",
    "Merge",
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

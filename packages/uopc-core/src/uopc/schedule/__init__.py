"""From loops to better loops. A schedule is a list of named steps."""

from uopc.schedule.choose import choose_schedule
from uopc.schedule.steps import Blocked, Step, apply_schedule

__all__ = ["Blocked", "Step", "apply_schedule", "choose_schedule"]

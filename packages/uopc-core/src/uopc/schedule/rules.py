"""Who chooses a schedule: rules of plugins, what was measured, the built-in choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from uopc.plugins import note_owner, registry
from uopc.schedule.candidates import applied
from uopc.schedule.choose import choose_schedule
from uopc.schedule.step import Step
from uopc.schedule.target import Target
from uopc.uop import Ops, UOp

Known = Callable[[UOp, Target], Sequence[Step] | None]
"""Says the steps for a loop program that somebody has found to be the best; or None."""


@dataclass(frozen=True)
class Schedule:
    """The steps for one kernel, and the rule of a plugin that chose them, if any."""

    steps: tuple[Step, ...]
    rule: Any = None

    def __str__(self) -> str:
        return ", ".join(map(str, self.steps))

    def apply(self, step: Step, sink: UOp) -> UOp:
        """The loop program after one of the steps, which is anybody's code.

        Raises TypeError for a step that gives no loop program.
        """
        after: Any = step.apply(sink)
        if isinstance(after, UOp) and after.op is Ops.SINK:
            return after
        raise TypeError(f"step {step} gave {after!r}, expected a loop program")

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Errors in here name the plugin whose rule chose the steps."""
        try:
            yield
        except Exception as error:
            if self.rule is not None:
                what = f"schedule rule {_name(self.rule)!r}"
                note_owner(error, what, "rewrites", self.rule)
            raise


def find_schedule(sink: UOp, target: Target, known: Known | None = None) -> Schedule:
    """What the first rule for stage "schedule" that has an answer says, else our own.

    Our own is what is ``known`` of the program, if anything that does for it, and else
    what the choosers say.

    A rule is called as ``rule(sink, target)``. None means that it has no answer, no
    steps that the loops stay as they are. Raises TypeError for anything else that is
    not a sequence of steps; that and a rule's own errors name its plugin.
    """
    for rule in registry().rewrites.get("schedule", ()):
        with Schedule((), rule).blamed():
            steps = rule(sink, target)
            if steps is not None:
                return Schedule(_steps(steps), rule)
    steps = known(sink, target) if known else None
    if steps is not None and applied(sink, steps) is not None:
        return Schedule(tuple(steps))
    return Schedule(tuple(choose_schedule(sink, target)))


def _steps(found: Any) -> tuple[Step, ...]:
    if not isinstance(found, (list, tuple)):
        raise TypeError(f"a schedule is a list of steps, or None, not {found!r}")
    for step in found:
        if not callable(getattr(step, "apply", None)):
            raise TypeError(f"a step has a method apply(sink); got {step!r}")
    return tuple(found)


def _name(rule: Any) -> str:
    return str(getattr(rule, "__name__", None) or type(rule).__name__)

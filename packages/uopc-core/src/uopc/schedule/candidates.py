"""Schedules that could be measured: the choosers' own, with other knobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uopc.schedule.choose import choose_schedule, independent_parts
from uopc.schedule.contraction import contraction_ways
from uopc.schedule.knobs import AS_ESTIMATED, Knobs, neighbours
from uopc.schedule.nest import output_loops
from uopc.schedule.rows import parts_of
from uopc.schedule.step import Step, apply_schedule
from uopc.schedule.target import Target
from uopc.spec import check
from uopc.uop import UOp, toposort

MANY_PARTS = 8
"""Programs of more nests are changed as a whole only."""


@dataclass(frozen=True)
class Candidate:
    """One schedule of a loop program.

    Attributes:
        steps: the schedule.
        sink: the program after it.
        knobs: what chose it; None if somebody else did.
    """

    steps: tuple[Step, ...]
    sink: UOp
    knobs: Knobs | None = None

    def __str__(self) -> str:
        return ", ".join(map(str, self.steps)) or "as it is"


def candidates(
    sink: UOp, target: Target, around: Knobs = AS_ESTIMATED
) -> Iterator[Candidate]:
    """What some knobs choose, and then what their neighbours do.

    Each gives another program than all before, which is legal for its stage; whatever
    steps do not get as far as that is left out.
    """
    ways = contraction_ways(sink, target)
    parts = _count(sink)
    many = 0 if parts > MANY_PARTS else parts
    seen: set[UOp] = set()
    for knobs in (around, *neighbours(around, ways, many)):
        try:
            steps = choose_schedule(sink, target, knobs)
        except (ValueError, AssertionError):
            continue
        after = applied(sink, steps)
        if after is not None and after not in seen:
            seen.add(after)
            yield Candidate(steps, after, knobs)


def applied(sink: UOp, steps: Sequence[Step]) -> UOp | None:
    """The program after some steps, if they can be applied and it is legal then.

    Of steps that nobody chose for this program, anything may come.
    """
    try:
        after = apply_schedule(sink, steps)
        check(toposort([after]), "loops")
    except Exception:
        return None
    return after


def _count(sink: UOp) -> int:
    """How many nests get steps of their own."""
    _, body = output_loops(sink)
    return max(len(parts_of(body)), len(independent_parts(sink)))

"""What a step is, and how a list of them is applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from uopc.simplify import Simplifier
from uopc.uop import UOp


class Step(Protocol):
    """One change of the loops; it never changes what they mean.

    ``str`` of a step names it and its numbers, as in ``split(ridx0, 8)``.
    """

    def apply(self, sink: UOp) -> UOp:
        """The loop program after the step."""


@dataclass(frozen=True)
class Simplify:
    """Shorter expressions: the last step, as others put some for loop variables."""

    def __str__(self) -> str:
        return "simplify"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""
        return Simplifier()(sink)


def apply_schedule(sink: UOp, steps: Sequence[Step]) -> UOp:
    """The loop program after all steps."""
    for step in steps:
        sink = step.apply(sink)
    return sink

"""Rounds of outer loops in each of which several nests run, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uopc.schedule.nest import (
    accumulation,
    fresh_number,
    fresh_slot,
    is_local,
    loop,
    nested,
    output_loops,
    with_own,
)
from uopc.schedule.step import Step, apply_schedule
from uopc.uop import Ops, UOp, substitute, toposort


def parts_of(body: Sequence[UOp]) -> list[list[UOp]]:
    """The nests in a body: loops, reductions with what is stored of them, stores."""
    found: list[list[UOp]] = []
    open_ended = False
    i = 0
    while i < len(body):
        length = 1 if accumulation(body[i:]) is None else 2
        single = length == 1 and body[i].op is Ops.STORE
        if single and open_ended:
            found[-1].append(body[i])
        else:
            found.append(list(body[i : i + length]))
            open_ended = length == 2 or single
        i += length
    return found


def as_programs(sink: UOp) -> list[UOp]:
    """The parts in the rounds of a program's outer loops, each as one of its own."""
    _, body = output_loops(sink)
    return [UOp(Ops.SINK, tuple(part), sink.arg) for part in parts_of(body)]


@dataclass(frozen=True)
class Rows:
    """Each part in a round of the outer loops gets steps of its own.

    Loops that these make are numbered from ``number`` on: what is below may be promised
    to steps that follow.
    """

    parts: tuple[tuple[Step, ...], ...]
    number: int = 0

    def __str__(self) -> str:
        parts = ("; ".join(map(str, steps)) or "as it is" for steps in self.parts)
        return f"rows({' | '.join(parts)})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""
        loops, _ = output_loops(sink)
        programs = as_programs(sink)
        if len(programs) != len(self.parts):
            return sink
        slot, number = fresh_slot(sink), max(self.number, fresh_number(sink))
        body: list[UOp] = []
        for program, steps in zip(programs, self.parts, strict=True):
            # What a step adds may look like what other parts have.
            kept = {u for u in toposort([program]) if is_local(u)}
            made = with_own(apply_schedule(program, steps).src, slot, kept)
            made = _with_own_loops(made, program, number)
            now = UOp(Ops.SINK, tuple(made), sink.arg)
            slot, number = max(slot, fresh_slot(now)), max(number, fresh_number(now))
            body += made
        return UOp(Ops.SINK, tuple(nested(loops, body)), sink.arg)


def _with_own_loops(made: Sequence[UOp], program: UOp, number: int) -> list[UOp]:
    """Statements whose loops that are not the program's are numbered anew."""
    before = {u.arg.number for u in toposort([program]) if u.op is Ops.RANGE}
    own: dict[int, int] = {}
    changes: dict[UOp, UOp] = {}
    for u in toposort(made):
        if u.op is Ops.RANGE and u.arg.number not in before:
            to = own.setdefault(u.arg.number, number + len(own))
            changes[u] = loop(to, u.arg.extent, u.dtype, u.arg.kind)
    return substitute(made, changes)

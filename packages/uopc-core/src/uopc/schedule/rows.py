"""Rounds of outer loops in each of which several nests run, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uopc.schedule.nest import (
    accumulation,
    fresh_slot,
    is_local,
    nested,
    output_loops,
    with_own,
)
from uopc.schedule.step import Step, apply_schedule
from uopc.uop import Ops, UOp, toposort


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
    """Each part in a round of the outer loops gets steps of its own."""

    parts: tuple[tuple[Step, ...], ...]

    def __str__(self) -> str:
        parts = ("; ".join(map(str, steps)) or "as it is" for steps in self.parts)
        return f"rows({' | '.join(parts)})"

    def apply(self, sink: UOp) -> UOp:
        """See `Step`."""
        loops, _ = output_loops(sink)
        programs = as_programs(sink)
        if len(programs) != len(self.parts):
            return sink
        shared = _shared(programs)
        slot = fresh_slot(sink)
        body: list[UOp] = []
        for program, steps in zip(programs, self.parts, strict=True):
            # What a step adds may look like what only other parts share.
            kept = {u for u in toposort([program]) if u in shared}
            made = with_own(apply_schedule(program, steps).src, slot, kept)
            slot = max(slot, fresh_slot(UOp(Ops.SINK, tuple(made), sink.arg)))
            body += made
        return UOp(Ops.SINK, tuple(nested(loops, body)), sink.arg)


def _shared(programs: Sequence[UOp]) -> set[UOp]:
    """The local buffers that several of some programs touch."""
    seen: set[UOp] = set()
    shared: set[UOp] = set()
    for program in programs:
        own = {u for u in toposort([program]) if is_local(u)}
        shared |= own & seen
        seen |= own
    return shared

"""All passes that a kernel goes through, by name, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uopc.config import get
from uopc.plugins import current
from uopc.runtime.debug import dump
from uopc.runtime.validate import require_text_form, same_meaning
from uopc.runtime.values import importing
from uopc.spec import SpecError, check
from uopc.uir import to_uir
from uopc.uop import Ops, UOp, collector_paused, substitute, toposort, warn_caller

if TYPE_CHECKING:
    from uopc.schedule import Target
    from uopc.schedule.rules import Known


@dataclass(frozen=True)
class Lowered:
    """A kernel's loop program, and the steps that made it of plain loops, as text.

    ``plain`` are these loops, where there was something to choose.
    """

    sink: UOp
    schedule: str
    plain: UOp | None = None


def lower(
    ast: UOp, name: str, over: int | None = None, target: Target | None = None
) -> UOp:
    """One kernel, from a graph over whole arrays to a scheduled loop program.

    The result depends on ``target``, the machine as schedules see it (None: what can be
    relied on everywhere), and on UOPC_OPT: at 0 the loops stay as rangeify makes them.
    ``over`` is the number of the buffer that is written in place: input and output are
    one then.
    """
    return lower_kernel(ast, name, over, target).sink


@collector_paused()
def lower_kernel(
    ast: UOp,
    name: str,
    over: int | None = None,
    target: Target | None = None,
    known: Known | None = None,
) -> Lowered:
    """As `lower`, but it tells the schedule, too.

    ``known`` says a schedule that is to be used in place of the built-in choice.
    """
    return schedule(make_loops(ast, name, over), target, known)


@collector_paused()
def make_loops(ast: UOp, name: str, over: int | None = None) -> UOp:
    """One kernel as plain loops: the passes that a schedule starts from."""
    # Imported when a kernel is lowered, for start-up's sake.
    with importing:
        from uopc.rangeify import rangeify

    sink = _Passes(ast)("rangeify", lambda u: rangeify([u], name))
    if over is not None:
        sink = _Passes(sink)("in_place", lambda u: _written_over(u, over))
    return sink


@collector_paused()
def schedule(
    sink: UOp, target: Target | None = None, known: Known | None = None
) -> Lowered:
    """A loop program with its schedule applied, step by step, unless UOPC_OPT is 0.

    Each step is a pass of its own, ``schedule.1.merge``; all of them together are the
    pass ``schedule``.
    """
    if not get("UOPC_OPT"):
        return Lowered(sink, "")
    with importing:
        from uopc.schedule import PLAIN
        from uopc.schedule.rules import find_schedule

    chosen = find_schedule(sink, target or PLAIN, known)
    if get("UOPC_DEBUG") >= 2 and chosen.steps:
        print(f"schedule of {sink.arg}: {chosen}")

    passes = _Passes(sink)

    def run(sink: UOp) -> UOp:
        steps = _Passes(sink, passes.legal)
        for i, step in enumerate(chosen.steps, 1):
            name = f"schedule.{i}.{str(step).partition('(')[0]}"
            steps(name, lambda u: chosen.apply(step, u))  # noqa: B023
        return steps.sink

    with chosen.blamed():
        return Lowered(passes("schedule", run), str(chosen), sink)


def one_nest(
    parts: Sequence[UOp],
    name: str,
    passing: Collection[int],
    target: Target | None = None,
) -> UOp | None:
    """Programs, one after the other, as one loop nest; None if that does not do.

    ``passing`` are the numbers of buffers that need not be stored but for themselves.
    """
    with importing:
        from uopc.schedule import PLAIN
        from uopc.schedule import one_nest as nest

    target = target or PLAIN
    sink = UOp(Ops.SINK, tuple(s for part in parts for s in part.src), name)
    fused = nest.one_nest(sink, passing, target)
    if fused is None:
        return None
    one: UOp = fused
    return nest.to_scratch(_Passes(sink)("fuse", lambda _: one), passing, target)


def _written_over(sink: UOp, slot: int) -> UOp:
    """The program with its output in the buffer numbered ``slot``, if it reads that."""
    nodes = toposort([sink])
    stores = (u.src[0] for u in nodes if u.op is Ops.STORE)
    (out,) = {b for b in stores if b.arg.space == "global"}
    for u in nodes:
        read = u.src[0] if u.op is Ops.INDEX else out
        if read is not out and (read.arg.slot, read.arg.space) == (slot, "global"):
            return substitute([sink], {out: read})[0]
    return sink


class _Passes:
    """Passes over one kernel, each from what the one before has made of it.

    ``legal`` are nodes that were checked, and need not be again.
    """

    def __init__(self, start: UOp, legal: set[UOp] | None = None) -> None:
        self.sink = start
        self.legal: set[UOp] = set() if legal is None else legal

    def __call__(self, name: str, run: Callable[[UOp], UOp]) -> UOp:
        """Run a pass, check what it made, show it to those who watch."""
        before, start = self.sink, time.perf_counter()
        after = self.sink = run(before)
        seconds = time.perf_counter() - start
        self._check(name, before)
        if folder := get("UOPC_DUMP"):
            dump(folder, f"{after.arg}.{name}.uir", to_uir(after) + "\n")
        _tell_observers(name, before, after, seconds)
        return after

    def _check(self, name: str, before: UOp) -> None:
        """What UOPC_CHECK asks for after the pass ``name``."""
        level, after = get("UOPC_CHECK"), self.sink
        if level >= 1:
            legal = self.legal  # and so is all that a node in it depends on
            found = toposort([after], lambda u: () if u in legal else u.src)
            new = [u for u in found if u not in legal]
            check(new, "loops")
            legal.update(new)
        if level >= 2:
            require_text_form(after, name)
        if level >= 3 and after is not before and not same_meaning(before, after):
            raise SpecError(
                f"{name} changed what the kernel computes, from\n{to_uir(before)}\n"
                f"to\n{to_uir(after)}"
            )


def _tell_observers(name: str, before: UOp, after: UOp, seconds: float) -> None:
    outcomes = current().call_each(
        "uopc_after_pass", name=name, before=before, after=after, seconds=seconds
    )
    for plugin, _, error in outcomes:
        if error is not None:
            warn_caller(f"plugin {plugin!r} failed in uopc_after_pass: {error!r}")

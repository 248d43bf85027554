"""All passes that a kernel goes through, by name, in order."""

from __future__ import annotations

import time
from collections.abc import Callable

from uopc.config import get
from uopc.plugins import current
from uopc.runtime.debug import dump
from uopc.runtime.validate import require_text_form, same_meaning
from uopc.runtime.values import importing
from uopc.spec import SpecError, check
from uopc.uir import to_uir
from uopc.uop import Ops, UOp, collector_paused, substitute, toposort, warn_caller


@collector_paused()
def lower(ast: UOp, name: str, over: int | None = None) -> UOp:
    """One kernel, from a graph over whole arrays to a scheduled loop program.

    The result depends on UOPC_OPT: at 0 the loops stay as rangeify makes them. ``over``
    is the number of the buffer that is written in place: input and output are one then.
    """
    # Imported when a kernel is lowered, for start-up's sake.
    with importing:
        from uopc.rangeify import rangeify
        from uopc.schedule import apply_schedule, choose_schedule

    sink = _run_pass("rangeify", ast, lambda u: rangeify([u], name))
    if get("UOPC_OPT") > 0:
        steps = choose_schedule(sink)
        if get("UOPC_DEBUG") >= 2 and steps:
            print(f"schedule of {name}: {', '.join(map(str, steps))}")
        sink = _run_pass("schedule", sink, lambda u: apply_schedule(u, steps))
    if over is not None:
        sink = _run_pass("in_place", sink, lambda u: _written_over(u, over))
    return sink


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


def _run_pass(name: str, before: UOp, run: Callable[[UOp], UOp]) -> UOp:
    start = time.perf_counter()
    after = run(before)
    seconds = time.perf_counter() - start
    _check(name, before, after)
    if folder := get("UOPC_DUMP"):
        dump(folder, f"{after.arg}.{name}.uir", to_uir(after) + "\n")
    _tell_observers(name, before, after, seconds)
    return after


def _check(name: str, before: UOp, after: UOp) -> None:
    """What UOPC_CHECK asks for after the pass ``name``."""
    level = get("UOPC_CHECK")
    if level >= 1:
        check(toposort([after]), "loops")
    if level >= 2:
        require_text_form(after, name)
    if level >= 3 and not same_meaning(before, after):
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

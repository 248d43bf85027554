"""All passes that a kernel goes through, by name, in order."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable

from uopc.config import get
from uopc.plugins import current
from uopc.rangeify import rangeify
from uopc.schedule import apply_schedule, choose_schedule
from uopc.spec import check
from uopc.uir import to_uir
from uopc.uop import UOp, toposort


def lower(ast: UOp, name: str) -> UOp:
    """One kernel, from a graph over whole arrays to a scheduled loop program.

    The result depends on UOPC_OPT: at 0 the loops stay as rangeify makes them.
    """
    sink = _run_pass("rangeify", ast, lambda u: rangeify([u], name))
    if get("UOPC_OPT") > 0:
        steps = choose_schedule(sink)
        if get("UOPC_DEBUG") >= 2 and steps:
            print(f"schedule of {name}: {', '.join(map(str, steps))}")
        sink = _run_pass("schedule", sink, lambda u: apply_schedule(u, steps))
    return sink


def _run_pass(name: str, before: UOp, run: Callable[[UOp], UOp]) -> UOp:
    start = time.perf_counter()
    after = run(before)
    seconds = time.perf_counter() - start
    if get("UOPC_CHECK"):
        check(toposort([after]), "loops")
    if folder := get("UOPC_DUMP"):
        path = pathlib.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{after.arg}.{name}.uir").write_text(to_uir(after) + "\n")
    current().call_each(
        "uopc_after_pass", name=name, before=before, after=after, seconds=seconds
    )
    return after

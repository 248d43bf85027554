"""Programs on disk by plan, so that a warm start lowers and prints nothing.

A record, ``<key>.plan``, names the shared object that a plan was compiled to. The key
is a hash of all that decides the C of the plan and what the compiler makes of it.
"""

from __future__ import annotations

import re
from pathlib import Path

from uopc.backend_c import cache, cpu, room, tuned
from uopc.backend_c.fingerprint import code_fingerprint
from uopc.backend_c.toolchain import stats
from uopc.config import get
from uopc.kernelize import Plan
from uopc.runtime import count
from uopc.uir import to_uir
from uopc.uop import Ops, UOp

_RECORD = re.compile(r"uopc plan ([0-9a-f]{64}) ([0-9a-f]{64})\n")


def plan_key(plan: Plan, opt: int) -> str | None:
    """The name of a plan's record.

    None where every pass has to run, because somebody wants to see or to check it, or
    where the code of a plugin cannot be told from another state of it.
    """
    if get("UOPC_DEBUG") or get("UOPC_DUMP") or get("UOPC_CHECK") > 1:
        return None
    code = code_fingerprint()
    if code is None:
        return None
    machine = f"{cache.target(opt)} {cpu.caches()} {cpu.cores()}"
    found = tuned.stamp() if opt else ""
    return cache.digest([code, machine, str(opt), found, _structure(plan)])


def _structure(plan: Plan) -> str:
    """All that the C of a plan depends on, as text."""
    number: dict[UOp, int] = {}
    rows = [
        f"{k.name} {number.setdefault(k.ast, len(number))} {k.out} {k.args} {k.over} "
        f"{k.joined} {k.passing}"
        for k in plan.kernels
    ]
    return "\n".join([*rows, to_uir(UOp(Ops.SINK, tuple(number), "kernels"))])


def find(key: str) -> Path | None:
    """The shared object of a record, if both are there and whole."""
    try:
        with cache.open_own(_file(key)) as stream:
            text = stream.read(1000).decode(errors="replace")
    except OSError:
        return None
    fields = _RECORD.fullmatch(text)
    if fields is None or fields[2] != cache.digest([key, fields[1]]):
        return None
    entry = cache.cache_dir() / f"{fields[1]}.so"
    room.in_use |= {key, entry.stem}
    cache.touch(_file(key))
    cache.touch(entry)
    if not cache.intact(entry):
        return None
    stats.plan_hits += 1
    count(cache_hits=1)
    return entry


def remember(key: str, entry: Path) -> None:
    """Write the record of a plan; a folder that takes no file is no error."""
    text = f"uopc plan {entry.stem} {cache.digest([key, entry.stem])}\n"
    cache.write(_file(key), text.encode())


def _file(key: str) -> Path:
    return cache.cache_dir() / f"{key}.plan"

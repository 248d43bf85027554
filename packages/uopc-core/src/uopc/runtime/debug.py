"""What UOPC_DEBUG prints and UOPC_DUMP writes of a plan.

UOPC_DEBUG, each level with those below: 1 plans as they are made, 2 schedules,
3 the generated source, 4 every rewrite. From 1 on each kernel is timed as well: see
`uopc.runtime.profiling`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from uopc.config import ConfigError, get
from uopc.kernelize import Plan, plan_graph
from uopc.runtime.memory import MemoryPlan
from uopc.uop import Ops, UOp

_numbers = itertools.count()


def show_plan(
    roots: Sequence[UOp], plan: Plan, memory: MemoryPlan, backend: str, program: object
) -> None:
    """Print and write what was asked for of a newly compiled plan of ``roots``."""
    level, folder = get("UOPC_DEBUG"), get("UOPC_DUMP")
    if not level and not folder:
        return
    from uopc.uir import to_uir  # not at import, for start-up's sake

    number = next(_numbers)
    # Asking for it may take printing it, where the program came from a cache.
    source = getattr(program, "source", "") if folder or level >= 3 else ""
    if level >= 1:
        print(_summary(plan, memory, backend, number))
    if level >= 3 and source:
        print(source)
    if folder:
        graph = UOp(Ops.SINK, tuple(roots), "roots")
        dump(folder, f"graph{number}.uir", to_uir(graph) + "\n")
        dump(folder, f"plan{number}.uir", to_uir(plan_graph(plan)) + "\n")
        if source:
            dump(folder, f"plan{number}.c", source)


def dump(folder: str, name: str, text: str) -> None:
    """Write a file for UOPC_DUMP; raises ConfigError if its folder takes none."""
    import pathlib  # not at import, for start-up's sake

    try:
        path = pathlib.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"UOPC_DUMP={folder!r}: cannot write there: {why}") from error


def _summary(plan: Plan, memory: MemoryPlan, backend: str, number: int) -> str:
    lines = [
        f"plan {number} on {backend}: {len(plan.kernels)} kernels, "
        f"{len(plan.buffers)} buffers, {memory.arena_bytes} bytes of temporaries "
        f"({memory.live_bytes} alive at once, {memory.sum_bytes} without sharing)"
    ]
    for k in plan.kernels:
        out = plan.buffers[k.out]
        reads = ", ".join(map(str, k.args))
        place = f"{k.out}" if k.over is None else f"{k.out} over {k.over}"
        joined = ", joined" if k.joined else ""
        lines.append(f"  {k.name}: {out.dtype}[{out.size}] {place} <- {reads}{joined}")
    lines += [f"  computed again: {r}" for r in plan.recomputed]
    return "\n".join(lines)

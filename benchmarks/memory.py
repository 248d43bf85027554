"""How much memory the plans of training steps need, and what planning it costs.

Run from the root of the project::

    python benchmarks/memory.py

Nothing is computed: the graphs are planned only. Per step of a network, in KiB: the
largest live set in the order in which the graph is walked, the same in the order that
is planned, the arena that holds it, and all temporaries together; the new values of
parameters and moments, and of these what has memory of its own instead of being written
over the old ones; and the time that ordering the kernels and placing the temporaries
takes of that of making the plan.
"""

from __future__ import annotations

import importlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from uopc.autodiff import checkpoint
from uopc.kernelize import make_plan
from uopc.runtime import plan_memory
from uopc.uop import Ops, UOp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "autodiff"))
networks: Any = importlib.import_module("networks")
planning: Any = importlib.import_module("uopc.kernelize.plan")

SIZES: dict[Any, tuple[int, ...]] = {
    networks.mlp: (24, 64, 128),
    networks.transformer: (6, 64, 32),
    networks.cnn: (6, 32, 32),
}
STEPS: list[Any] = [networks.sgd, networks.adam, networks.clipped]
DEEP = 300  # blocks of the last network, about 5,000 kernels

Row = Sequence[object]


def home(u: UOp) -> UOp:
    """The buffer that an update is the new value of: its leftmost one."""
    while u.op is not Ops.BUFFER:
        u = u.src[0]
    return u


def measured(roots: Sequence[UOp]) -> Row:
    """The figures of one plan."""
    homes = {i: home(u) for i, u in enumerate(roots) if i}
    spent: list[float] = []
    ordering = planning.run_order

    def timed(*args: Any) -> Any:
        start = time.process_time()
        order = ordering(*args)
        spent.append(time.process_time() - start)
        return order

    def planned(order: Callable[..., Sequence[int]]) -> tuple[Any, float]:
        planning._plans.clear()
        planning.run_order = order
        start = time.process_time()
        plan, _ = make_plan(roots, homes=homes)
        return plan, time.process_time() - start

    try:
        walked = plan_memory(planned(lambda reads, *_: range(len(reads)))[0])
        plan, whole = planned(timed)
    finally:
        planning.run_order = ordering
    start = time.process_time()
    memory = plan_memory(plan)
    placing = time.process_time() - start
    over = {k.out for k in plan.kernels if k.over is not None}
    updates = [(o, plan.buffers[o].nbytes) for o in plan.outputs[1:]]
    figures = (
        walked.live_bytes,
        memory.live_bytes,
        memory.arena_bytes,
        memory.sum_bytes,
        sum(n for _, n in updates),
        sum(n for o, n in updates if o not in over),
    )
    times = (f"{t * 1e3:.0f}" for t in (whole, spent[0], placing))
    return len(plan.kernels), *(f"{x / 1024:.0f}" for x in figures), *times


def rows() -> Iterator[Row]:
    """All steps, each without checkpoints and with one per block."""
    marks = {"": networks.plain, ", checkpoint": checkpoint}
    for network, sizes in SIZES.items():
        for step in STEPS:
            for name, mark in marks.items():
                title = f"{network.__name__}, {step.__name__}{name}"
                yield title, *measured(step(*network(*sizes, mark)))
    for name, mark in marks.items():
        roots = networks.adam(*networks.mlp(DEEP, 64, 32, mark))
        yield f"mlp of {DEEP} blocks, adam{name}", *measured(roots)


def main() -> None:
    """Print the table as its rows come."""
    head = ["kernels", "walked", "live", "arena", "sum", "updated", "copied"]
    head += ["plan ms", "order", "place"]
    for row in itertools.chain([("training step", *head)], rows()):
        print(f"{row[0]:<36}" + "".join(f"{x!s:>9}" for x in row[1:]), flush=True)


if __name__ == "__main__":
    main()

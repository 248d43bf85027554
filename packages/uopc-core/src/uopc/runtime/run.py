"""Compute nodes: find the plan, bind its buffers, make one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.config import get
from uopc.dtype import u8
from uopc.kernelize import Plan, make_plan, plan_graph
from uopc.runtime.backends import Backend, Program, default_backend
from uopc.runtime.buffers import buffer_data, empty
from uopc.runtime.debug import show_plan
from uopc.runtime.memory import MemoryPlan, plan_memory
from uopc.runtime.nans import require_finite
from uopc.runtime.profile import run_program
from uopc.runtime.stats import count
from uopc.runtime.validate import plan_has_meaning, require_text_form
from uopc.spec import SpecError
from uopc.uir import to_uir
from uopc.uop import Ops, UOp

Array = np.ndarray[Any, Any]


class Runnable:
    """A plan compiled for one backend, with its memory plan and arena."""

    def __init__(self, plan: Plan, backend: Backend, roots: Sequence[UOp]) -> None:
        self.program: Program = backend.compile(plan)
        self.memory: MemoryPlan = plan_memory(plan)
        # What a run allocates: the arena, and what lives outside of it.
        self.nbytes = self.memory.arena_bytes + sum(
            b.nbytes
            for i, b in enumerate(plan.buffers)
            if b.role != "input" and i not in self.memory.offsets
        )
        show_plan(roots, plan, self.memory, backend.name, self.program)


def _check(
    roots: Sequence[UOp], leaves: Mapping[UOp, UOp], plan: Plan, inputs: Sequence[UOp]
) -> None:
    """What UOPC_CHECK asks for after a plan has been made."""
    level = get("UOPC_CHECK")
    if level >= 2:
        for graph in (UOp(Ops.SINK, tuple(roots), "roots"), plan_graph(plan)):
            require_text_form(graph, "kernelize")
    if level >= 3 and not plan_has_meaning(roots, leaves, plan, inputs):
        raise SpecError(
            "kernelize changed what the graph computes, from\n"
            f"{to_uir(UOp(Ops.SINK, tuple(roots), 'roots'))}\n"
            f"to\n{to_uir(plan_graph(plan))}"
        )


@dataclass(frozen=True, eq=False)
class Run:
    """A plan that was run once.

    Attributes:
        plan: the plan.
        inputs: the BUFFER nodes that it read, which are its first buffers.
        arrays: the flat memory of each buffer of the plan.
        backend: where it ran.
        runnable: what ran; None if there was nothing to do.
    """

    plan: Plan
    inputs: Sequence[UOp]
    arrays: Sequence[Array]
    backend: Backend
    runnable: Runnable | None

    @property
    def results(self) -> list[Array]:
        """The flat memory of each root."""
        return [self.arrays[o] for o in self.plan.outputs]


def realize(
    roots: Sequence[UOp],
    leaves: Mapping[UOp, UOp] | None = None,
    backend: Backend | None = None,
) -> list[Array]:
    """The flat memory of ``roots``, computed in one plan by one call.

    ``leaves`` are nodes already computed, with the buffers that hold them. A
    root that is a buffer's reshape gives that buffer's own array. The arrays are
    of the dtype's ``storage``; ``dtype.load`` gives their values.
    """
    return compute(roots, leaves, backend).results


def compute(
    roots: Sequence[UOp],
    leaves: Mapping[UOp, UOp] | None = None,
    backend: Backend | None = None,
) -> Run:
    """As `realize`, but tells what was run, and on which memory."""
    backend = backend or default_backend()
    plan, inputs = make_plan(roots, leaves, backend.supports, backend.name)
    arrays = [buffer_data(b) for b in inputs]
    if not plan.kernels:
        arrays += [empty(b.size, b.dtype) for b in plan.buffers[len(arrays) :]]
        return Run(plan, inputs, arrays, backend, None)
    runnable = plan.programs.get(backend.name)
    if runnable is None:
        _check(roots, leaves or {}, plan, inputs)
        runnable = plan.programs.setdefault(
            backend.name, Runnable(plan, backend, roots)
        )
    # A fresh arena per run: eight threads may run one plan at once.
    arena = empty(runnable.memory.arena_bytes, u8)
    count(native_calls=1, bytes_allocated=runnable.nbytes)
    for i in range(len(arrays), len(plan.buffers)):
        b = plan.buffers[i]
        offset = runnable.memory.offsets.get(i)
        if offset is None:
            arrays.append(empty(b.size, b.dtype))
        else:
            arrays.append(arena[offset : offset + b.nbytes].view(b.dtype.storage))
    before = [a.copy() for a in arrays[: len(inputs)]] if get("UOPC_NANS") else None
    run_program(runnable.program, plan, backend, arrays)
    run = Run(plan, inputs, arrays, backend, runnable)
    if before is not None:
        given = dict(zip(inputs, before, strict=True))
        require_finite(roots, leaves or {}, given, run.results)
    return run

"""Compute nodes: find the plan, bind its buffers, make one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uopc.dtype import u8
from uopc.kernelize import Plan, make_plan
from uopc.runtime.backends import Backend, Program, default_backend
from uopc.runtime.buffers import buffer_data, empty
from uopc.runtime.debug import show_plan
from uopc.runtime.memory import MemoryPlan, plan_memory
from uopc.uop import UOp

Array = np.ndarray[Any, Any]


class _Runnable:
    """A plan compiled for one backend, with its memory plan and arena."""

    def __init__(self, plan: Plan, backend: Backend) -> None:
        self.program: Program = backend.compile(plan)
        self.memory: MemoryPlan = plan_memory(plan)
        show_plan(plan, self.memory, backend.name, self.program)


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
    backend = backend or default_backend()
    plan, inputs = make_plan(roots, leaves, backend.supports, backend.name)
    arrays = [buffer_data(b) for b in inputs]
    if not plan.kernels:
        made = [empty(b.size, b.dtype) for b in plan.buffers[len(arrays) :]]
        arrays += made
        return [arrays[o] for o in plan.outputs]
    runnable = plan.programs.get(backend.name)
    if runnable is None:
        runnable = plan.programs[backend.name] = _Runnable(plan, backend)
    # A fresh arena per run: eight threads may run one plan at once.
    arena = empty(runnable.memory.arena_bytes, u8)
    for i in range(len(arrays), len(plan.buffers)):
        b = plan.buffers[i]
        offset = runnable.memory.offsets.get(i)
        if offset is None:
            arrays.append(empty(b.size, b.dtype))
        else:
            arrays.append(arena[offset : offset + b.nbytes].view(b.dtype.storage))
    runnable.program(arrays)
    return [arrays[o] for o in plan.outputs]

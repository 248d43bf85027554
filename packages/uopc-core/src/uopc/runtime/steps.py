"""A plan run kernel by kernel, for those who watch it.

Normally a plan is one program and one call. Here each distinct kernel is a plan of its
own, so that any backend can do it, with the code that it makes for that kernel.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.kernelize import Kernel, Plan, PlanBuffer
from uopc.runtime.backends import Backend, Program
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]

_steps: weakref.WeakKeyDictionary[Plan, dict[str, Steps]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class KernelWork:
    """What a kernel does, counted on its graph.

    Attributes:
        flops: of every op on floats and every float reduction, the cost per element in
            the op table (1 for an addition, 16 for an exponential) times the elements.
            What is used several times counts once.
        nbytes: what is written, and of each buffer what is read of it, once: all, or
            as many elements as a slice or a gather takes.
    """

    flops: int
    nbytes: int


class Steps:
    """The kernels of a plan as programs; equal ones share one."""

    def __init__(self, plan: Plan, backend: Backend) -> None:
        self._kernels = plan.kernels
        self._programs: dict[UOp, Program] = {}
        self._work: dict[UOp, KernelWork] = {}
        for k in plan.kernels:
            if k.ast not in self._programs:
                self._programs[k.ast] = backend.compile(_alone(k, plan))
                self._work[k.ast] = kernel_work(k.ast)

    def run(self, i: int, arrays: Sequence[Array]) -> None:
        """Run kernel ``i`` on one flat array per buffer of the plan."""
        k = self._kernels[i]
        self._programs[k.ast]([*(arrays[a] for a in k.args), arrays[k.out]])

    def work(self, i: int) -> KernelWork:
        """What kernel ``i`` does in one run."""
        return self._work[self._kernels[i].ast]


def steps_of(plan: Plan, backend: Backend) -> Steps:
    """The steps of a plan, compiled at first need and kept as long as the plan."""
    made = _steps.setdefault(plan, {})
    if backend.name not in made:
        made[backend.name] = Steps(plan, backend)
    return made[backend.name]


def _alone(k: Kernel, plan: Plan) -> Plan:
    """The plan of one kernel: its arguments are the inputs, in order."""
    n = len(k.args)
    given = [plan.buffers[a] for a in k.args]
    out = plan.buffers[k.out]
    buffers = [PlanBuffer(b.size, b.dtype, "input") for b in given]
    buffers.append(PlanBuffer(out.size, out.dtype, "output"))
    kernel = Kernel(k.name, k.ast, tuple(range(n)), n)
    return Plan((kernel,), tuple(buffers), (n,))


def kernel_work(ast: UOp) -> KernelWork:
    """The operations and the bytes of a kernel, as `KernelWork` counts them."""
    order = toposort([ast])
    flops = sum(map(_flops, order))
    reached: dict[UOp, int] = {ast: math.prod(ast.shape)}
    for u in reversed(order):
        for i, s in enumerate(u.src):
            some = u.op.kind == "movement" or (u.op.kind == "select" and i == 0)
            whole = math.prod(s.shape)
            taken = min(whole, reached[u]) if some and u.op is not Ops.STACK else whole
            reached[s] = max(reached.get(s, 0), taken)
    read = (n * u.dtype.itemsize for u, n in reached.items() if u.op is Ops.BUFFER)
    return KernelWork(flops, math.prod(ast.shape) * ast.dtype.itemsize + sum(read))


def _flops(u: UOp) -> int:
    if not any(n.dtype.is_float for n in (u, *u.src)):
        return 0
    if u.op.kind == "reduce":
        each = u.arg.op.cost if u.op is Ops.REDUCE else 1
        return math.prod(u.src[0].shape) * each
    return math.prod(u.shape) * u.op.cost if u.op.kind == "elementwise" else 0

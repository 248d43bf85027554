"""The plan: kernels in order, over numbered buffers.

``make_plan`` finds the plan of a graph among those made before (the key is the
graph's structure, never its data) or makes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from uopc.config import get
from uopc.dtype import DType
from uopc.kernelize.group import choose_buffers, read
from uopc.kernelize.prepare import prepare
from uopc.kernelize.split import cuts
from uopc.plugins import registry
from uopc.spec import SpecError, check
from uopc.uop import OpDef, Ops, UOp, collector_paused, toposort

Key = tuple[Any, ...]
_plans: dict[Key, Plan] = {}


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    Attributes:
        name: kind and output shape: ``r_`` with a reduction, ``s_`` where it scatters,
            else ``e_``.
        ast: what it computes, over BUFFER nodes numbered by first visit, so
            equal kernels have the same object here.
        args: the plan buffer behind each of those numbers.
        out: the plan buffer it writes.
    """

    name: str
    ast: UOp
    args: tuple[int, ...]
    out: int


@dataclass(frozen=True)
class PlanBuffer:
    """One buffer of a plan: elements, dtype, and what it is for."""

    size: int
    dtype: DType
    role: Literal["input", "output", "temporary"]

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        return self.size * self.dtype.itemsize


@dataclass(eq=False)
class Plan:
    """Kernels in the order they run.

    Attributes:
        kernels: the kernels; each reads inputs and earlier outputs.
        buffers: inputs first, then one per kernel.
        outputs: the plan buffer that holds each root.
        programs: what backends compiled from it, by backend name.
    """

    kernels: tuple[Kernel, ...]
    buffers: tuple[PlanBuffer, ...]
    outputs: tuple[int, ...]
    programs: dict[str, Any] = field(default_factory=dict)


def _everything(op: OpDef) -> bool:
    return True


@collector_paused()
def make_plan(
    roots: Sequence[UOp],
    leaves: Mapping[UOp, UOp] | None = None,
    supports: Callable[[OpDef], bool] = _everything,
    backend: str = "",
) -> tuple[Plan, list[UOp]]:
    """The plan that computes ``roots``, and the BUFFER nodes it reads, in order.

    Args:
        roots: nodes over whole arrays.
        leaves: nodes already computed, and the buffers that hold them.
        supports: which ops the backend runs as they are.
        backend: its name, part of the plan's key.

    Structurally equal graphs share one plan, whatever buffers they read.
    """
    leaves = leaves or {}
    order = toposort(roots, lambda u: () if u in leaves else u.src)
    key, buffers = _key(order, roots, leaves)
    key = (*key, backend, get("UOPC_OPT"), registry().stamp)
    plan = _plans.get(key)
    if plan is None:
        _require_values(order)
        if get("UOPC_CHECK"):
            check(order, "graph")
        prepared = prepare(roots, leaves, supports, backend)
        plan = _plans[key] = _build(prepared, buffers)
    return plan, buffers


def _require_values(order: Sequence[UOp]) -> None:
    if any(u.op is Ops.PARAM for u in order):
        raise SpecError(
            "this value depends on a placeholder, which has none: inside a function "
            "that is being transformed (grad, vmap, checkpoint, ...) arguments cannot "
            "be read with item(), numpy() or bool(); read them before or after, or "
            "choose with where()"
        )


def _key(
    order: Sequence[UOp], roots: Sequence[UOp], leaves: Mapping[UOp, UOp]
) -> tuple[Key, list[UOp]]:
    """The graph's structure, and its buffers by first visit."""
    number: dict[UOp, int] = {}
    alias: dict[UOp, int] = {}
    rows: list[Any] = []
    for u in order:
        buf = u if u.op is Ops.BUFFER else leaves.get(u)
        if buf is None:
            rows.append((u.op, u.arg, *(number[s] for s in u.src)))
        else:
            which = alias.setdefault(buf, len(alias))
            rows.append((Ops.BUFFER, which, u.shape, u.dtype))
        number[u] = len(number)
    return (tuple(rows), tuple(number[r] for r in roots)), list(alias)


def _build(roots: Sequence[UOp], inputs: Sequence[UOp]) -> Plan:
    order = toposort(roots)
    computed = [r for r in roots if _view_of_buffer(r) is None]
    stored = choose_buffers(order, computed, ())
    forced: set[UOp] = set()
    while more := {c for u in stored for c in cuts(u, stored)} - forced - stored:
        forced |= more
        stored = choose_buffers(order, computed, forced)
    number = {b: i for i, b in enumerate(inputs)}
    buffers = [PlanBuffer(b.arg.size, b.dtype, "input") for b in inputs]
    kernels: list[Kernel] = []
    for u in order:
        if u not in stored:
            continue
        number[u] = len(buffers)
        size = math.prod(u.shape)
        role: Any = "output" if u in computed else "temporary"
        buffers.append(PlanBuffer(size, u.dtype, role))
        if size:
            kernels.append(_kernel(u, stored, number))
    outputs = [number[u if u in stored else _view_of_buffer(u)] for u in roots]  # type: ignore[index]
    return Plan(tuple(kernels), tuple(buffers), tuple(outputs))


def _view_of_buffer(u: UOp) -> UOp | None:
    """The BUFFER that ``u`` is a mere reshape of, if it is one."""
    while u.op is Ops.RESHAPE:
        u = u.src[0]
    return u if u.op is Ops.BUFFER else None


def _kernel(root: UOp, stored: set[UOp], number: Mapping[UOp, int]) -> Kernel:
    walk = toposort([root], lambda u: read(u) if u is root or u not in stored else ())
    new: dict[UOp, UOp] = {}
    args: dict[int, int] = {}
    kind = "e"
    for u in walk:
        if u.op is Ops.STAGE and u.arg == "after" and (u is root or u not in stored):
            new[u] = new[u.src[0]]  # in a kernel there is nothing to wait for
            continue
        if u is root or (u not in stored and u.op is not Ops.BUFFER):
            new[u] = u.with_src(tuple([new[s] for s in u.src]))
            kind = {Ops.REDUCE: "r", Ops.SCATTER_ADD: "s"}.get(u.op, kind)
            continue
        slot = args.setdefault(number[u], len(args))
        new[u] = UOp.buffer(math.prod(u.shape), u.dtype, slot).reshape(u.shape)
    name = "_".join([kind, *map(str, root.shape)])
    return Kernel(name, new[root], tuple(args), number[root])


def plan_graph(plan: Plan) -> UOp:
    """The plan as one graph: CALLs of kernels, reads ordered by AFTER.

    This is what the text form shows of a plan.
    """
    state = [UOp.buffer(b.size, b.dtype, slot) for slot, b in enumerate(plan.buffers)]
    for k in plan.kernels:
        kernel = UOp(Ops.SINK, (k.ast,), k.name)
        call = UOp(Ops.CALL, (kernel, state[k.out], *(state[a] for a in k.args)))
        state[k.out] = UOp(Ops.AFTER, (state[k.out], call))
    return UOp(Ops.SINK, tuple(state[o] for o in plan.outputs), "plan")

"""The plan: kernels in order, over numbered buffers.

``make_plan`` finds the plan of a graph among those made before (the key is the
graph's structure, never its data) or makes it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from uopc.config import get
from uopc.dtype import DType
from uopc.kernelize.constants import notice_miss
from uopc.kernelize.group import choose_buffers, read
from uopc.kernelize.key import Key, graph_key
from uopc.kernelize.order import run_order
from uopc.kernelize.prepare import prepare
from uopc.kernelize.split import cuts, kernel_nodes
from uopc.plugins import registry
from uopc.spec import SpecError, check
from uopc.uop import OpDef, Ops, UOp, collector_paused, fork_safe, toposort

_plans: dict[Key, Plan] = {}
# Held while the plans are changed or counted, never while one is made.
_lock = fork_safe(threading.Lock())


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
    """Kernels in the order they run, which is one that needs little memory.

    Attributes:
        kernels: the kernels; each reads inputs and earlier outputs.
        buffers: inputs first, then one per kernel.
        outputs: the plan buffer that holds each root.
        programs: what backends compiled from it, by backend name; native code lives as
            long as its plan.
        used: which look-up, counting from 1, found it last.
    """

    kernels: tuple[Kernel, ...]
    buffers: tuple[PlanBuffer, ...]
    outputs: tuple[int, ...]
    programs: dict[str, Any] = field(default_factory=dict)
    used: int = 0

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: no programs, which are made anew at need."""
        return {**self.__dict__, "programs": {}, "used": 0}


@dataclass
class PlanCounts:
    """How often `make_plan` has made a plan, and how often found one, since the start.

    A plan that another thread made first counts as found.
    """

    made: int = 0
    found: int = 0


plan_counts = PlanCounts()


def _everything(op: OpDef) -> bool:
    return True


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

    Structurally equal graphs share one plan, whatever buffers they read. The latest
    UOPC_PLANS plans are remembered. Warns, once, of a constant that keeps changing.
    """
    leaves = leaves or {}
    context = (backend, get("UOPC_OPT"), registry().stamp)
    key, buffers = graph_key(roots, leaves, context)
    plan = _plans.get(key)
    if plan is not None:
        with _lock:
            plan_counts.found += 1
            plan.used = plan_counts.found + plan_counts.made
        return plan, buffers
    with collector_paused():
        order = toposort(roots, lambda u: () if u in leaves else u.src)
        _require_values(order)
        if get("UOPC_CHECK"):
            check(order, "graph")
        prepared = prepare(roots, leaves, supports, backend)
        plan = _remember(key, _build(prepared, buffers))
    notice_miss(key, roots, leaves)
    return plan, buffers


def _remember(key: Key, made: Plan) -> Plan:
    """Keep a new plan, or take that of another thread; let go what was not used."""
    with _lock:
        plan = _plans.setdefault(key, made)
        if plan is made:
            plan_counts.made += 1
        else:
            plan_counts.found += 1
        plan.used = plan_counts.found + plan_counts.made
        surplus = len(_plans) - get("UOPC_PLANS")
        oldest = sorted(_plans.items(), key=lambda kp: kp[1].used)[: max(surplus, 0)]
        for old, _ in oldest:
            del _plans[old]
    # Here the last references go, outside of the lock, but for those of plans that
    # are running: their native code is unloaded when the run is over.
    return plan


def _require_values(order: Sequence[UOp]) -> None:
    if any(u.op is Ops.PARAM for u in order):
        raise SpecError(
            "this value depends on a placeholder, which has none: inside a function "
            "that is being transformed (grad, vmap, checkpoint, ...) arguments cannot "
            "be read with item(), numpy() or bool(); read them before or after, or "
            "choose with where()"
        )


def _build(roots: Sequence[UOp], inputs: Sequence[UOp]) -> Plan:
    order = toposort(roots)
    computed = {r for r in roots if _view_of_buffer(r) is None}
    stored = choose_buffers(order, computed, ())
    forced: set[UOp] = set()
    while more := {c for u in stored for c in cuts(u, stored)} - forced - stored:
        forced |= more
        stored = choose_buffers(order, computed, forced)
    number = {b: i for i, b in enumerate(inputs)}
    buffers = [PlanBuffer(b.arg.size, b.dtype, "input") for b in inputs]
    kernels: dict[UOp, Kernel] = {}
    for u in order:
        if u not in stored:
            continue
        number[u] = len(buffers)
        size = math.prod(u.shape)
        role: Any = "output" if u in computed else "temporary"
        buffers.append(PlanBuffer(size, u.dtype, role))
        if size:
            kernels[u] = _kernel(u, stored, number)
    outputs = [number[u if u in stored else _view_of_buffer(u)] for u in roots]  # type: ignore[index]
    run = _in_order(kernels, buffers, _waits(order, stored))
    return Plan(tuple(run), tuple(buffers), tuple(outputs))


def _in_order(
    kernels: Mapping[UOp, Kernel],
    buffers: Sequence[PlanBuffer],
    waits: Mapping[UOp, Collection[UOp]],
) -> list[Kernel]:
    """The kernels in the order they run."""
    given = list(kernels.values())
    at = {k.out: i for i, k in enumerate(given)}
    node_at = {u: i for i, u in enumerate(kernels)}
    order = run_order(
        [[at[a] for a in k.args if a in at] for k in given],
        [
            sorted([node_at[w] for w in waits.get(u, ()) if w in node_at])
            for u in kernels
        ],
        [
            b.nbytes if b.role == "temporary" else 0
            for k in given
            for b in [buffers[k.out]]
        ],
    )
    return [given[i] for i in order]


def _waits(order: Sequence[UOp], stored: Collection[UOp]) -> dict[UOp, frozenset[UOp]]:
    """By kernel, what its STAGEs "after" wait for: the nearest nodes with buffers."""
    if not any(_is_after(u) for u in order):
        return {}
    nearest: dict[UOp, frozenset[UOp]] = {}
    found: dict[UOp, frozenset[UOp]] = {}
    nothing: frozenset[UOp] = frozenset()
    for u in order:
        if u in stored:
            nearest[u] = frozenset([u])
            stages = [n for n in kernel_nodes(u, stored) if _is_after(n)]
            found[u] = nothing.union(*(nearest[s] for n in stages for s in n.src[1:]))
        else:
            below = {nearest[s] for s in u.src}
            nearest[u] = below.pop() if len(below) == 1 else nothing.union(*below)
    return found


def _is_after(u: UOp) -> bool:
    return u.op is Ops.STAGE and u.arg == "after"


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
        if _is_after(u) and (u is root or u not in stored):
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

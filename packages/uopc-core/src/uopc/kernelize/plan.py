"""The plan: kernels in order, over numbered buffers.

``make_plan`` finds the plan of a graph among those made before (the key is the
graph's structure, never its data) or makes it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from uopc.config import get
from uopc.dtype import DType
from uopc.kernelize.constants import notice_miss
from uopc.kernelize.group import Choice, buffer_choices, choose_buffers, read
from uopc.kernelize.inplace import Pair, written_over
from uopc.kernelize.key import Key, graph_key
from uopc.kernelize.order import possible_order, run_order
from uopc.kernelize.prepare import prepare
from uopc.kernelize.recompute import (
    InOneNest,
    Recomputed,
    arrange,
    sums_apart,
)
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
        over: the input whose memory ``out`` takes, if it is written in place. Of it the
            kernel reads no element but the one that it writes next, and no later kernel
            reads it.
        joined: whether it may run in one loop nest with the kernel before it, each
            element after that one's: see `uopc.kernelize.joining`.
        passing: whether only kernels of that nest read what it writes.
    """

    name: str
    ast: UOp
    args: tuple[int, ...]
    out: int
    over: int | None = None
    joined: bool = False
    passing: bool = False

    @property
    def over_slot(self) -> int | None:
        """The number in ``ast`` of the buffer it writes over, if it reads that."""
        return self.args.index(self.over) if self.over in self.args else None


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
        recomputed: what is computed again so that large arrays need not be stored.
        programs: what backends compiled from it, by backend name; native code lives as
            long as its plan.
        used: which look-up, counting from 1, found it last.
    """

    kernels: tuple[Kernel, ...]
    buffers: tuple[PlanBuffer, ...]
    outputs: tuple[int, ...]
    recomputed: tuple[Recomputed, ...] = ()
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
    homes: Mapping[int, UOp] | None = None,
    in_one_nest: InOneNest | None = None,
) -> tuple[Plan, list[UOp]]:
    """The plan that computes ``roots``, and the BUFFER nodes it reads, in order.

    Args:
        roots: nodes over whole arrays.
        leaves: nodes already computed, and the buffers that hold them.
        supports: which ops the backend runs as they are.
        backend: its name, part of the plan's key.
        homes: by position of a root, a buffer that its value may be written over once
            nothing in the plan has to read that any more. No two are the same one.
        in_one_nest: what the backend says of kernels that might be one loop nest.

    Structurally equal graphs share one plan, whatever buffers they read. The latest
    UOPC_PLANS plans are remembered. Warns, once, of a constant that keeps changing.
    """
    leaves = leaves or {}
    context = (backend, get("UOPC_OPT"), registry().stamp)
    key, buffers = graph_key(roots, leaves, context)
    places: tuple[Pair, ...] = ()
    if homes:
        number = {b: i for i, b in enumerate(buffers)}
        places = tuple([(r, number[b]) for r, b in homes.items() if b in number])
        key += (places,)
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
        plan = _remember(key, _build(prepared, buffers, places, in_one_nest))
    notice_miss(key, roots, leaves)
    return plan, buffers


def explain(roots: Sequence[UOp]) -> list[Choice]:
    """What of a graph is stored and what is computed again, and why: see `Choice`."""
    prepared = prepare(roots, {}, _everything)
    return buffer_choices(toposort(prepared), set(prepared))


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


def _build(
    roots: Sequence[UOp],
    inputs: Sequence[UOp],
    places: Sequence[Pair],
    in_one_nest: InOneNest | None,
) -> Plan:
    order = toposort(roots)
    computed = {r for r in roots if _view_of_buffer(r) is None}
    stored = choose_buffers(order, computed, ())
    forced: set[UOp] = set()
    while more := _also_stored(stored) - forced - stored:
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
    waits = _waits(order, stored)
    at = {u: i for i, u in enumerate(kernels)}
    plan = Plan(tuple(kernels.values()), tuple(buffers), tuple(outputs))
    return _in_order(
        plan,
        [sorted([at[w] for w in waits.get(u, ()) if w in at]) for u in kernels],
        [(outputs[root], old) for root, old in places],
        in_one_nest,
    )


def _also_stored(stored: Collection[UOp]) -> set[UOp]:
    """What kernels are cut at, for their length or for what they run with."""
    return sums_apart(stored).union(*(cuts(u, stored) for u in stored))


def _in_order(
    plan: Plan,
    waits: Sequence[Sequence[int]],
    pairs: Sequence[Pair],
    in_one_nest: InOneNest | None,
) -> Plan:
    """The plan with its kernels in the order they run, in place where they can.

    ``waits`` says by kernel which others it has to wait for besides those it reads.
    """
    at = {k.out: i for i, k in enumerate(plan.kernels)}
    reads = [[at[a] for a in k.args if a in at] for k in plan.kernels]
    needs = [[*r, *w] for r, w in zip(reads, waits, strict=True)]
    over, needs = written_over(plan.kernels, plan.buffers, plan.outputs, pairs, needs)
    first = possible_order(needs)
    place = {i: n for n, i in enumerate(first)}
    sizes = [0 if b.role != "temporary" else b.nbytes for b in plan.buffers]
    order = run_order(
        [[place[j] for j in reads[i]] for i in first],
        [[place[j] for j in needs[i]] for i in first],
        [sizes[plan.kernels[i].out] for i in first],
    )
    last = [first[i] for i in order]
    kernels = [
        replace(plan.kernels[i], over=over[i]) if i in over else plan.kernels[i]
        for i in last
    ]
    if get("UOPC_OPT"):
        place = {i: n for n, i in enumerate(last)}
        waits = [[place[j] for j in needs[i]] for i in last]
        found = arrange(kernels, waits, plan.buffers, in_one_nest)
        return replace(plan, **found._asdict())
    return replace(plan, kernels=tuple(kernels))


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
    """The plan as one graph: CALLs of kernels, reads and writes ordered by AFTER.

    This is what the text form shows of a plan. A kernel that writes over an input is
    called on that, after the others that read it.
    """
    state = [UOp.buffer(b.size, b.dtype, slot) for slot, b in enumerate(plan.buffers)]
    readers: dict[int | None, list[UOp]] = {
        k.over: [] for k in plan.kernels if k.over is not None
    }
    for k in plan.kernels:
        kernel = UOp(Ops.SINK, (k.ast,), k.name)
        target = state[k.out if k.over is None else k.over]
        for reader in readers.get(k.over, ()):
            target = UOp(Ops.AFTER, (target, reader))
        call = UOp(Ops.CALL, (kernel, target, *(state[a] for a in k.args)))
        state[k.out] = UOp(Ops.AFTER, (target, call))
        for a in readers.keys() & set(k.args):
            readers[a].append(call)
    return UOp(Ops.SINK, tuple(state[o] for o in plan.outputs), "plan")

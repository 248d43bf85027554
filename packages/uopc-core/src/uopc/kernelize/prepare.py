"""Before grouping: markers of autodiff vanish, unsupported ops are lowered.

Chains of equal views merge, so that two transposes which cancel are no copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from uopc.dtype import f32, f64
from uopc.plugins import current, endless, lowered, registry
from uopc.uop import OpDef, Ops, UOp, toposort

MAX_LOWERINGS = 32
# A longer STACK becomes a STACK of STACKs, which gives places to cut a kernel.
MAX_STACK = 64


def prepare(
    roots: Sequence[UOp],
    leaves: Mapping[UOp, UOp],
    supports: Callable[[OpDef], bool],
    backend: str = "",
) -> list[UOp]:
    """The roots over ``leaves`` (already computed nodes and their buffers).

    Arithmetic on half types becomes arithmetic in f32. Ops that the backend does
    not support are replaced by their ``lower``, again and again until none is left.
    Raises NotImplementedError for an op with neither a spelling nor a ``lower``, which
    names the ``backend``, and RuntimeError for one whose ``lower`` leads back to it.
    """
    rewritten, changed = _rewrite(roots, leaves, supports, backend)
    for _ in range(MAX_LOWERINGS):
        if changed is None:
            return rewritten
        # What an op is lowered to may have to be lowered in turn.
        rewritten, changed = _rewrite(rewritten, {}, supports, backend)
    assert changed is not None
    raise endless(changed)


def _rewrite(
    roots: Sequence[UOp],
    leaves: Mapping[UOp, UOp],
    supports: Callable[[OpDef], bool],
    backend: str,
) -> tuple[list[UOp], UOp | None]:
    """The roots, and a node that was lowered if any was."""
    order = toposort(roots, lambda n: () if n in leaves else n.src)
    halves = any(dtype.is_half for dtype in {u.dtype for u in order})
    ops = {u.op for u in order}
    unsupported = {op for op in ops if not supports(op)}
    changed: UOp | None = None
    new: dict[UOp, UOp] = {}
    for u in order:
        if u in leaves:
            new[u] = leaves[u].reshape(u.shape)
            continue
        if _is_marker(u) and u.src[0].op is not Ops.CONST:
            new[u] = new[u.src[0]]
            continue  # around a constant it stays: a bare index is checked at once
        v = u.with_src(tuple([new[s] for s in u.src]))
        if halves and _is_half_work(v):
            changed = v if changed is None else changed
            v = _in_f32(v)
        elif v.op in unsupported:
            if v.op.lower is None:
                raise _not_spelled(v.op, backend)
            v, changed = lowered(v), v
        new[u] = _grouped(_merged(v))
    return [new[r] for r in roots], changed


def _not_spelled(op: OpDef, backend: str) -> NotImplementedError:
    """The error about an op that a backend can do nothing with."""
    others = [repr(name) for name, known in registry().spellings if known is op]
    if op.kind == "elementwise":
        advice = "register one with the uopc_register_spellings hook"
    else:
        advice = f"a {op.kind} op needs a 'lower'"
    return NotImplementedError(
        f"{f'backend {backend!r}' if backend else 'the backend'} has no spelling for "
        f"{op.name} (backends that have one: {', '.join(others) or 'none'}) and the op "
        f"has no 'lower'; {advice}, or run it in NumPy with UOPC_BACKEND=interp"
        f"{current().failure_note()}"
    )


def _is_marker(u: UOp) -> bool:
    """A STAGE that means something to autodiff, and nothing from here on."""
    return u.op is Ops.STAGE and u.arg not in ("contiguous", "after")


def _is_half_work(u: UOp) -> bool:
    """Whether a node computes with half values, rather than copy or convert them.

    What is left to backends are the casts between f32 and a half type, and that of
    f64, which through f32 would be rounded twice.
    """
    if u.op.kind not in ("elementwise", "reduce") or u.op is Ops.WHERE:
        return False
    if u.op is Ops.CAST:
        x = u.src[0].dtype
        to_half = u.dtype.is_half and x not in (f32, f64)
        return to_half or (x.is_half and u.dtype is not f32)
    return any(s.dtype.is_half for s in u.src)


def _in_f32(u: UOp) -> UOp:
    """The node with its half sources widened and its half result rounded."""
    src = tuple(s.cast(s.dtype.wide) for s in u.src)
    if u.op is Ops.CAST:
        return src[0].cast(f32).cast(u.dtype)
    wide = UOp(u.op, src, u.arg)
    return wide.cast(u.dtype) if u.dtype.is_half else wide


def _merged(u: UOp) -> UOp:
    """A view of a view as one view, and a view that changes nothing as its source."""
    if u.op is Ops.RESHAPE and u.src[0].op is Ops.RESHAPE:
        u = u.src[0].src[0].reshape(u.shape)
    elif u.op is Ops.PERMUTE and u.src[0].op is Ops.PERMUTE:
        inner = u.src[0]
        u = inner.src[0].permute([inner.arg[p] for p in u.arg])
    same_shape = u.op in (Ops.RESHAPE, Ops.EXPAND) and u.shape == u.src[0].shape
    same_order = u.op is Ops.PERMUTE and u.arg == tuple(range(len(u.arg)))
    return u.src[0] if same_shape or same_order else u


def _grouped(u: UOp) -> UOp:
    """A long STACK in groups; the last one is filled up and cut off again."""
    n = len(u.src)
    if u.op is not Ops.STACK or n <= MAX_STACK:
        return u
    parts = u.src + u.src[-1:] * (-n % MAX_STACK)
    groups = [
        UOp.stack(parts[i : i + MAX_STACK]) for i in range(0, len(parts), MAX_STACK)
    ]
    rows = _grouped(UOp.stack(groups)).reshape((len(parts), *u.shape[1:]))
    return rows.shrink([(0, n), *((0, m) for m in u.shape[1:])])

"""Does a pass keep the meaning? Run both sides and compare.

What it takes to run them is imported when it is needed, for start-up's sake.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from uopc.dtype import DType
from uopc.kernelize import Plan
from uopc.spec import SpecError
from uopc.uop import Ops, UOp, cast_array, toposort

Array = np.ndarray[Any, Any]

# Element by element in Python: larger kernels take too long.
MAX_WORK = 250_000


def same_meaning(before: UOp, after: UOp) -> bool:
    """Whether two forms of a kernel store the same, on made-up inputs.

    Each is a graph over whole arrays or a loop program. Kernels of much work
    are taken on trust.
    """
    if _work(after) > MAX_WORK:
        return True
    # The output of ``after`` may have the slot of a buffer that it reads no more.
    data = {
        u.arg.slot: _made_up(u.shape[0], u.dtype, u.arg.slot)
        for u in toposort([before])
        if u.op is Ops.BUFFER and u.arg.space == "global"
    }
    rough = any(u.dtype.is_half for u in toposort([before]))
    return all_near(_outputs(before, data), _outputs(after, data), rough)


def require_text_form(graph: UOp, after: str) -> None:
    """Raise SpecError unless the text of a graph reads back as the same object."""
    from uopc.uir import parse_uir, to_uir

    if parse_uir(to_uir(graph)) is not graph:
        raise SpecError(f"{after}: the text form does not read back as the same graph")


def plan_has_meaning(
    roots: Sequence[UOp], leaves: Mapping[UOp, UOp], plan: Plan, inputs: Sequence[UOp]
) -> bool:
    """Whether a plan's kernels, interpreted, give the values of the graph.

    ``inputs`` are the buffers that the plan reads, and ``leaves`` nodes whose values
    are in some of them.
    """
    from uopc.interp import ReferenceBackend, evaluate

    memory = [_made_up(b.size, b.dtype, i) for i, b in enumerate(plan.buffers)]
    data = dict(zip(inputs, memory, strict=False))
    known = {u: data[b].reshape(u.shape) for u, b in leaves.items() if b in data}
    order = toposort(roots, lambda u: () if u in known else u.src)
    if sum(math.prod(u.shape) for u in order) > MAX_WORK:
        return True
    expected = evaluate(roots, {**data, **known}, contract=False)
    arrays = [b.dtype.store(x) for b, x in zip(plan.buffers, memory, strict=True)]
    for k in plan.kernels:
        # One at a time: a kernel must not read what another has written over.
        if k.over is not None:
            arrays[k.out] = arrays[k.over]
        alone = replace(plan, kernels=(k,), programs={})
        ReferenceBackend().compile(alone)(arrays)
    values = (plan.buffers[o].dtype.load(arrays[o]) for o in plan.outputs)
    rough = any(u.dtype.is_half for u in order)
    return all_near([x.reshape(-1) for x in expected], list(values), rough)


def all_near(a: Sequence[Array], b: Sequence[Array], rough: bool) -> bool:
    """Whether all are equal, but for rounding: more of it if some was to half types."""
    rtol, atol = (1e-2, 1e-2) if rough else (1e-4, 1e-5)
    return all(
        np.allclose(x, y, rtol=rtol, atol=atol, equal_nan=True)
        if np.issubdtype(x.dtype, np.floating)
        else np.array_equal(x, y)
        for x, y in zip(a, b, strict=True)
    )


def _outputs(form: UOp, data: dict[int, Array]) -> list[Array]:
    from uopc.interp import evaluate, run_loops

    if form.op is Ops.SINK:
        stored = run_loops(form, data)
        return [stored[slot] for slot in sorted(stored)]
    leaves = {u: data[u.arg.slot] for u in toposort([form]) if u.op is Ops.BUFFER}
    return [evaluate([form], leaves, contract=False)[0].reshape(-1)]


def _work(sink: UOp) -> int:
    """About how many operations the loops run."""
    from uopc.schedule.nest import is_loop

    work: dict[UOp, int] = {}
    for u in toposort([sink]):
        inner = sum(work[s] for s in u.src)
        extent = u.src[0].arg.extent if is_loop(u) else 1
        work[u] = min(extent * (inner + 1), MAX_WORK + 1)
    return work[sink]


def _made_up(size: int, dtype: DType, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return cast_array(rng.standard_normal(size) * 2, dtype)
    high = min(dtype.max, 100)
    return rng.integers(max(dtype.min, -100), high + 1, size).astype(dtype.numpy)

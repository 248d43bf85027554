"""Does a pass keep a kernel's meaning? Run both sides and compare."""

from __future__ import annotations

from typing import Any

import numpy as np

from uopc.dtype import DType
from uopc.interp import evaluate, run_loops
from uopc.uop import Ops, UOp, cast_array, toposort

Array = np.ndarray[Any, Any]

# Element by element in Python: larger kernels take too long.
MAX_WORK = 20_000


def same_meaning(before: UOp, after: UOp) -> bool:
    """Whether two forms of a kernel store the same, on made-up inputs.

    Each is a graph over whole arrays or a loop program. Kernels of much work
    are taken on trust.
    """
    if _work(after) > MAX_WORK:
        return True
    # The output of ``after`` may have the slot of a buffer that it reads no more.
    data = {
        u.arg[2]: _made_up(u.shape[0], u.dtype, u.arg[2])
        for u in toposort([before])
        if u.op is Ops.BUFFER and u.arg[4] == "global"
    }
    return all(
        np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
        if np.issubdtype(a.dtype, np.floating)
        else np.array_equal(a, b)
        for a, b in zip(_outputs(before, data), _outputs(after, data), strict=True)
    )


def _outputs(form: UOp, data: dict[int, Array]) -> list[Array]:
    if form.op is Ops.SINK:
        stored = run_loops(form, data)
        return [stored[slot] for slot in sorted(stored)]
    leaves = {u: data[u.arg[2]] for u in toposort([form]) if u.op is Ops.BUFFER}
    return [evaluate([form], leaves, contract=False)[0].reshape(-1)]


def _work(sink: UOp) -> int:
    """About how many operations the loops run."""
    work: dict[UOp, int] = {}
    for u in toposort([sink]):
        inner = sum(work[s] for s in u.src)
        extent = u.src[0].arg[1] if u.op is Ops.END else 1
        work[u] = min(extent * (inner + 1), MAX_WORK + 1)
    return work[sink]


def _made_up(size: int, dtype: DType, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return cast_array(rng.standard_normal(size) * 2, dtype)
    high = min(dtype.max, 100)
    return rng.integers(max(dtype.min, -100), high + 1, size).astype(dtype.numpy)

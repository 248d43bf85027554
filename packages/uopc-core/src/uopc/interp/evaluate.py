"""Run a graph by the NumPy meaning of each op's row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]


def evaluate(roots: Sequence[UOp], data: Mapping[UOp, Array]) -> list[Array]:
    """The values of ``roots``, given the contents of their leaves.

    ``data`` maps BUFFER and PARAM nodes (or any node whose value is known) to
    arrays of the node's shape and dtype. Raises KeyError for a missing leaf.
    """
    order = toposort(roots, lambda u: () if u in data else u.src)
    uses: dict[UOp, int] = {}
    for u in order:
        for s in u.src if u not in data else ():
            uses[s] = uses.get(s, 0) + 1
    keep = set(roots)
    values: dict[UOp, Array] = {}
    with np.errstate(all="ignore"):
        for u in order:
            values[u] = _value(u, values, data)
            for s in u.src if u not in data else ():
                uses[s] -= 1
                if not uses[s] and s not in keep:
                    del values[s]  # memory: only what is still needed stays
    return [values[r] for r in roots]


def _value(u: UOp, values: Mapping[UOp, Array], data: Mapping[UOp, Array]) -> Array:
    if u in data:
        return data[u]
    if u.op.numpy is None:
        if u.op in (Ops.BUFFER, Ops.PARAM):
            raise KeyError(f"no data given for {u!r}")
        raise NotImplementedError(f"{u.op.name} has no NumPy meaning")
    out = np.asarray(u.op.numpy(u, *(values[s] for s in u.src)))
    if out.dtype != u.dtype.numpy or out.shape != u.shape:
        raise TypeError(
            f"the NumPy meaning of {u.op.name} gave {out.dtype}{list(out.shape)}, "
            f"expected {u.dtype}{list(u.shape)}"
        )
    return out

"""Samples of an op, as its row gives them, and inputs for them."""

from __future__ import annotations

import numpy as np

from uopc.dtype import DType
from uopc.testing.bounded import Array
from uopc.uop import OpDef, Ops, UOp, cast_array, toposort

SHAPE = (2, 3)


def op_samples(op: OpDef, dtype: DType) -> list[UOp]:
    """Examples of an op on placeholders of ``dtype``; none if it takes no such type."""
    nodes = op.examples(UOp.param(0, dtype, SHAPE))
    for u in nodes:
        if u.op is not op:
            raise AssertionError(f"{op.name}: a sample of it is {u!r}")
    return nodes


def sample_inputs(root: UOp, seed: int = 0) -> dict[UOp, Array]:
    """Values for the placeholders below a node, drawn from the domain of its op."""
    rng = np.random.default_rng(seed)
    return {
        u: _drawn(u, root.op.domain, rng)
        for u in toposort([root])
        if u.op in (Ops.PARAM, Ops.BUFFER)
    }


def _drawn(u: UOp, domain: str, rng: np.random.Generator) -> Array:
    if not u.dtype.is_float:
        low, high = max(u.dtype.min, -9), min(u.dtype.max, 9)
        return cast_array(rng.integers(low, high, u.shape, endpoint=True), u.dtype)
    match domain:
        case "positive":
            x = rng.uniform(0.5, 2, u.shape)
        case "nonzero":
            x = rng.uniform(0.5, 2, u.shape) * rng.choice([-1, 1], u.shape)
        case "unit":
            x = rng.uniform(-0.9, 0.9, u.shape)
        case "integer":
            x = rng.integers(-9, 9, u.shape).astype(float)
        case _:
            x = rng.standard_normal(u.shape)
    return cast_array(x, u.dtype)

"""The values at which both sides of a rewrite are compared, and the comparison."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uopc.dtype import DType
from uopc.uop import Ops, UOp, cast_array, toposort

Array = np.ndarray[Any, Any]
Interval = tuple[int, int]
Values = Mapping[UOp, Array]


@functools.cache
def float_values(dtype: DType) -> Array:
    """Where float arithmetic has corners, and random bit patterns.

    Zeros, subnormals, the least and the largest number, one, infinity and NaN of both
    signs, and the neighbours of each.
    """
    word = np.dtype(f"u{dtype.itemsize}")
    inf, one, pi = (
        int(dtype.store(np.array([x], dtype.numpy)).view(word)[0])
        for x in (math.inf, 1.0, math.pi if dtype.name != "bf16" else 3.140625)
    )
    normal = inf & -inf  # the smallest normal number
    corners = (0, 1, normal, one, one + normal, pi, inf)
    sizes = {b + d for b in corners for d in (-1, 0, 1) if b + d >= 0}
    sign = 1 << (dtype.bits - 1)
    chosen = np.array(sorted(b | s for b in sizes for s in (0, sign)), word)
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 2**dtype.bits, 24, dtype=word)
    memory = np.concatenate([chosen, noise]).view(dtype.storage)
    return dtype.load(memory)


def values_of(u: UOp, known: Mapping[UOp, Interval], rng: np.random.Generator) -> Array:
    """What a leaf is tried with: all its values if there are at most 256."""
    dtype = u.dtype
    if dtype.is_float:
        return float_values(dtype)
    low, high = (0, max(0, u.arg.extent - 1)) if u.op is Ops.RANGE else known[u]
    if high - low < 256:
        return np.array(range(low, high + 1), dtype.numpy)
    near = {e + d for e in (low, high, 0) for d in range(-8, 9)}
    near |= {
        s * 2**k + d for k in range(dtype.bits) for d in (-1, 0, 1) for s in (-1, 1)
    }
    near |= {low + int(x * (high - low)) for x in rng.random(32)}
    return np.array(sorted(n for n in near if low <= n <= high), dtype.numpy)


def points(
    leaves: Sequence[UOp], known: Mapping[UOp, Interval], limit: int, seed: int = 0
) -> dict[UOp, Array]:
    """All combinations of the leaves' values, or ``limit`` of them by chance."""
    rng = np.random.default_rng(seed)
    columns = [values_of(u, known, rng) for u in leaves]
    total = math.prod(len(c) for c in columns)
    if total <= limit:
        mesh = np.meshgrid(*columns, indexing="ij") if columns else []
        return {u: m.reshape(-1) for u, m in zip(leaves, mesh, strict=True)}
    return {
        u: c[rng.integers(0, len(c), limit)]
        for u, c in zip(leaves, columns, strict=True)
    }


def evaluate_at(roots: Sequence[UOp], values: Values) -> list[Array]:
    """Scalar expressions at many points at once, by the op table's meanings."""
    found: dict[UOp, Array] = dict(values)
    size = next((v.shape for v in values.values()), ())
    with np.errstate(all="ignore"):
        for u in toposort(roots, lambda n: () if n in values else n.src):
            if u.op is Ops.BUFFER:
                found[u] = memory(u)
            elif u not in found:
                found[u] = u.op.compute(u, *(found[s] for s in u.src))
    return [np.broadcast_to(found[r], size) for r in roots]


def memory(u: UOp) -> Array:
    """What a buffer holds: never 0, so that what is not read shows."""
    size = u.shape[0]
    if u.dtype.is_float:
        return np.resize(float_values(u.dtype)[2:], size)
    return cast_array(np.arange(1, size + 1), u.dtype)


def unequal(a: Array, b: Array) -> Array:
    """Where two arrays differ in a bit; any NaN equals any NaN."""
    if a.dtype.kind != "f":
        return np.asarray(a != b)
    same = (a == b) & (np.signbit(a) == np.signbit(b))
    return np.asarray(~(same | (np.isnan(a) & np.isnan(b))))

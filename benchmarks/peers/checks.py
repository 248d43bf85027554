"""Whether the frameworks computed the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from peers.result import Result
from peers.workloads import Array

TOLERANCE = 1e-5
"""Of losses, and of an array's elements relative to the largest one."""

_SAMPLES = 4097


def digest(a: Array) -> list[float]:
    """The first and last element, the mean and the largest magnitude of a sample."""
    flat = np.asarray(a, np.float64).ravel()
    some = flat[:: max(1, flat.size // _SAMPLES)]
    top = float(np.abs(some).max())
    return [float(flat[0]), float(flat[-1]), float(some.mean()), top]


def difference(a: Sequence[float], b: Sequence[float]) -> float:
    """The largest difference, relative to the largest number if that is above 1."""
    if len(a) != len(b):
        return float("inf")
    if not np.isfinite([*a, *b]).all():
        return float("inf")
    scale = max(1.0, *(abs(x) for x in (*a, *b)))
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) / scale


def disagreements(results: Iterable[Result]) -> list[str]:
    """A sentence for each that does not agree with the first one of its workload.

    Every process of every framework counts, with any number of threads.
    """
    first: dict[str, Result] = {}
    found: dict[str, None] = {}
    for r in results:
        if r.error or not r.values:
            continue
        base = first.setdefault(r.workload, r)
        if difference(base.values, r.values) > TOLERANCE:
            found[
                f"{r.workload}: {r.column} has {r.values}, {base.column} {base.values}"
            ] = None
    return list(found)

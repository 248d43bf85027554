"""Random graphs on a backend, against what they are expected to give."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence

from uopc.config import overriding
from uopc.runtime import backend_named, realize
from uopc.testing.bounded import Array, differences
from uopc.testing.graphs import RandomGraph, random_graph
from uopc.uop import Ops, UOp, toposort

Levels = Sequence[int]


def compare(
    graphs: Sequence[RandomGraph], backend: str, levels: Levels = (0, 1)
) -> list[str]:
    """What is wrong with each graph on a backend; "" where nothing is.

    Every value must be within its bounds at each level of UOPC_OPT, and the levels
    must agree to the bit, but for the order of sums. All graphs run in one plan, which
    a backend compiles at once; where that raises an error, each in one of its own, to
    find out whose it is.
    """
    try:
        results = [run(graphs, backend, level) for level in levels]
    except Exception:
        if len(graphs) > 1:
            return [r for g in graphs for r in compare([g], backend, levels)]
        problem = traceback.format_exc(limit=-3, chain=False)
        return [_report(graphs[0], backend, [problem])]
    reports = []
    for g, *arrays in zip(graphs, *results, strict=True):
        problems = [
            f"UOPC_OPT={level}: {problem}"
            for level, values in zip(levels, arrays, strict=True)
            for problem in complaints(g, values)
        ]
        for level, values in zip(levels[1:], arrays[1:], strict=True):
            problems += _disagreements(g, arrays[0], values, f"UOPC_OPT={level}")
        reports.append(_report(g, backend, problems) if problems else "")
    return reports


def compare_seeds(
    seeds: Iterable[int], backend: str, levels: Levels = (0, 1)
) -> dict[int, str]:
    """The reports of those of these random graphs with which something is wrong."""
    seeds = list(seeds)
    reports = compare([random_graph(seed) for seed in seeds], backend, levels)
    return {s: text for s, text in zip(seeds, reports, strict=True) if text}


def run(
    graphs: Sequence[RandomGraph], backend: str, level: int = 1
) -> list[list[Array]]:
    """The values of each graph's roots, all computed in one plan."""
    bound = [g.bound() for g in graphs]
    roots = [r for b in bound for r in b]
    with overriding(UOPC_OPT=level):
        memory = realize(roots, None, backend_named(backend))
    values = iter(
        [r.dtype.load(m).reshape(r.shape) for r, m in zip(roots, memory, strict=True)]
    )
    return [[next(values) for _ in b] for b in bound]


def complaints(g: RandomGraph, values: Sequence[Array]) -> list[str]:
    """What is wrong with these values of a graph's roots."""
    found = []
    for k, (got, want) in enumerate(zip(values, g.expected, strict=True)):
        bad = differences(got, want)
        if bad.any():
            found.append(
                f"root {k} is wrong in {bad.sum()} of {bad.size} elements: got "
                f"{got[bad][:4]}, expected {want.value[bad][:4]} within "
                f"{want.error[bad][:4]}"
            )
    return found


def _disagreements(
    g: RandomGraph, first: Sequence[Array], other: Sequence[Array], what: str
) -> list[str]:
    """Levels agree to the bit, but for float sums, whose order schedules change.

    Products are left out with them, and functions: of an argument that turns out
    constant, a C compiler computes them itself, correctly rounded, and sees more
    constants when it unrolls.
    """
    found = []
    for root, a, b in zip(g.roots, first, other, strict=True):
        same = (a == b) | (a != a) & (b != b)
        if not same.all() and all(map(_is_exact, toposort([root]))):
            found.append(f"{what}: {b} instead of {a}")
    return found


def _is_exact(u: UOp) -> bool:
    if u.op is Ops.REDUCE or u.op is Ops.CONV:
        return not u.dtype.is_float or (u.op is Ops.REDUCE and u.arg[0] is Ops.MAX)
    return u.op.exact or u.op is Ops.MAX or u.op.kind != "elementwise"


def _report(g: RandomGraph, backend: str, problems: Sequence[str]) -> str:
    again = f"from uopc.testing import *; print(*compare([{g.origin}], {backend!r}))"
    return "\n".join([*problems, g.text(), again])

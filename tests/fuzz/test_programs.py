"""Random programs: every backend against the meanings in the op table.

A failure prints the seed and the graph; ``--fuzz SEED:1`` runs that one alone.
"""

import functools
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uopc.backend_c.toolchain import BASE_FLAGS, find_compiler
from uopc.config import overriding
from uopc.dtype import DTYPES
from uopc.kernelize import make_plan
from uopc.runtime import backend_named, lower, realize
from uopc.testing import RandomGraph, differences, random_graph
from uopc.uir import parse_uir, to_uir
from uopc.uop import BUILTIN_OPS, Ops, UOp, toposort

Array = np.ndarray[Any, Any]
CHECKED = range(1000, 1040)  # programs whose every pass is interpreted

# Not functions: these are copies, sums and choices.
EXACT = {
    op for op in BUILTIN_OPS if op.kind in ("leaf", "movement", "reduce", "select")
} | {Ops.MAX}

graph = functools.lru_cache(maxsize=None)(random_graph)


def graphs(batch: range) -> list[RandomGraph]:
    return [graph(seed) for seed in batch]


def computed(batch: range, backend: str, opt: int) -> list[list[Array]]:
    """The roots of every program of a batch, from one plan."""
    bound = [g.bound() for g in graphs(batch)]
    with overriding(UOPC_OPT=opt):
        flat = iter(
            realize([r for b in bound for r in b], None, backend_named(backend))
        )
    return [[next(flat).reshape(r.shape) for r in roots] for roots in bound]


def complaint(g: RandomGraph, k: int, got: Array, what: str) -> str:
    """Empty if root ``k`` of a program is right; else all that helps to find out."""
    value, error = wanted = g.expected[k]
    bad = differences(got, wanted)
    if not bad.any():
        return ""
    return (
        f"{what}: root {k} of random_graph({g.seed}) is wrong in {bad.sum()} of "
        f"{bad.size} elements: got {got[bad][:4]}, expected {value[bad][:4]} within "
        f"{error[bad][:4]}\n{g.text()}"
    )


@pytest.mark.parametrize("level", [0, 1])
def test_c_is_right(batch: range, level: int, results: "Results"):
    problems = [
        complaint(g, k, got, f"C, UOPC_OPT={level}")
        for g, roots in zip(graphs(batch), results(batch)[level], strict=True)
        for k, got in enumerate(roots)
    ]
    assert not any(problems), "\n".join(filter(None, problems))


def test_levels_agree_to_the_bit(batch: range, results: "Results"):
    """No schedule of today reorders a sum.

    Functions are left out: of an argument that turns out constant, the C compiler
    computes them itself, correctly rounded, and sees more constants when it unrolls.
    """
    compared = 0
    for g, *both in zip(graphs(batch), *results(batch), strict=True):
        for root, a, b in zip(g.roots, *both, strict=True):
            if all(u.op.exact or u.op in EXACT for u in toposort([root])):
                compared += 1
                same = np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
                assert same, f"a root of random_graph({g.seed}): {a} {b}\n{g.text()}"
    assert compared > len(batch) / 2


class Results:
    """Both levels of a batch, compiled at once and remembered."""

    def __init__(self) -> None:
        self._known: dict[range, list[list[list[Array]]]] = {}

    def __call__(self, batch: range) -> list[list[list[Array]]]:
        if batch not in self._known:
            graphs(batch)
            with ThreadPoolExecutor(2) as pool:
                jobs = [pool.submit(computed, batch, "c", opt) for opt in (0, 1)]
                self._known[batch] = [job.result() for job in jobs]
        return self._known[batch]


@pytest.fixture(scope="module")
def results() -> Results:
    return Results()


def test_plans_are_right_on_the_reference_backend(batch: range):
    problems = [
        complaint(g, k, got, "interp")
        for g, roots in zip(graphs(batch), computed(batch, "interp", 1), strict=True)
        for k, got in enumerate(roots)
    ]
    assert not any(problems), "\n".join(filter(None, problems))


def test_the_text_form_reads_back(batch: range):
    for g in graphs(batch):
        for root in g.roots:
            assert parse_uir(to_uir(root)) is root


@pytest.mark.parametrize("opt", [0, 1])
def test_the_c_is_clean(batch: range, opt: int, results: "Results", tmp_path: Path):
    results(batch)
    roots = [r for g in graphs(batch) for r in g.bound()]
    with overriding(UOPC_OPT=opt):
        plan, _ = make_plan(roots, None, backend_named("c").supports, "c")
    file = tmp_path / "plan.c"
    file.write_text(plan.programs["c"].program.source)
    strict = ("-fsyntax-only", "-Wall", "-Wextra", "-Werror")
    command = [*find_compiler().argv, *BASE_FLAGS, *strict, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.parametrize("opt", [0, 1])
def test_every_pass_keeps_the_meaning(opt: int):
    for seed in CHECKED:
        g = graph(seed)
        plan, _ = make_plan(g.roots, None, backend_named("c").supports, "c")
        with overriding(UOPC_OPT=opt, UOPC_CHECK=3):
            for kernel in plan.kernels:
                lower(kernel.ast, kernel.name)


# The programs themselves: that they show something.


def nodes(g: RandomGraph) -> list[UOp]:
    return toposort(g.roots)


@pytest.fixture(scope="module")
def sample() -> list[RandomGraph]:
    return graphs(range(300))


def test_every_op_of_the_graph_stage_occurs(sample: list[RandomGraph]):
    count = Counter(u.op for g in sample for u in set(nodes(g)))
    graph_stage = [
        op for op in BUILTIN_OPS if op.kind != "loop" and op is not Ops.PARAM
    ]
    assert {op.name: count[op] for op in graph_stage if count[op] < 10} == {}
    reductions = Counter(
        (u.arg[0].name, u.dtype.is_float)
        for g in sample
        for u in nodes(g)
        if u.op is Ops.REDUCE
    )
    assert len(reductions) == 6
    assert min(reductions.values()) > 20


def test_every_type_occurs_in_many_ops(sample: list[RandomGraph]):
    ops: dict[str, set[str]] = {name: set() for name in DTYPES}
    casts = set()
    for u in (u for g in sample for u in nodes(g) if u.src):
        ops[u.src[0].dtype.name].add(u.op.name)
        if u.op is Ops.CAST:
            casts.add((u.src[0].dtype, u.dtype))
    assert {name: len(used) for name, used in ops.items() if len(used) < 15} == {}
    assert len(casts) > 70


def test_shapes_sharing_and_indices_vary(sample: list[RandomGraph]):
    every = [u for g in sample for u in nodes(g)]
    ranks = Counter(len(u.shape) for u in every)
    assert all(ranks[k] > 100 for k in range(5))
    assert sum(0 in u.shape for u in every) > 50
    gathers = [u for u in every if u.op is Ops.INDEX]
    constant = [u for u in gathers if u.src[1].op is Ops.CONST]
    assert len(constant) > 20 < len(gathers) - len(constant)
    assert sum(len(u.src) > 2 for u in gathers) > 20
    nested = [u for u in every if u.op is Ops.REDUCE and _reduces_below(u)]
    assert len(nested) > 50
    uses = Counter(
        (g.seed, s) for g in sample for u in nodes(g) for s in u.src if s.src
    )
    assert sum(n > 1 for n in uses.values()) > 500
    assert np.mean([len(g.roots) for g in sample]) > 2


def _reduces_below(u: UOp) -> bool:
    return any(s.op is Ops.REDUCE for s in toposort(u.src))


def test_values_are_worth_comparing(sample: list[RandomGraph]):
    total = open_ = exact = finite = floats = constant = arrays = 0
    for g in sample:
        for value, error in g.expected:
            total += value.size
            open_ += int(np.isinf(error).sum())
            exact += int((error == 0).sum())
            if value.dtype.kind == "f":
                floats += value.size
                finite += int(np.isfinite(value).sum())
            if value.size > 1:
                arrays += 1
                constant += len(np.unique(value)) == 1
    assert open_ < 0.01 * total
    assert exact > 0.5 * total
    assert finite > 0.9 * floats
    assert floats > 0.2 * total
    assert constant < 0.2 * arrays


def test_a_failure_shows_the_seed_and_the_graph():
    g = graph(2)
    got = g.expected[0].value.copy()
    assert complaint(g, 0, got, "C") == ""
    sure = g.expected[0].error == 0
    assert sure.any()
    got[sure] = got[sure] == 0 if got.dtype == bool else got[sure] + 1
    text = complaint(g, 0, got, "C, UOPC_OPT=1")
    assert "C, UOPC_OPT=1: root 0 of random_graph(2) is wrong in" in text
    assert "# random_graph(2)\n%0 = " in text
    assert "= sink " in text

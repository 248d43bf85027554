"""Random programs: every backend against the meanings in the op table.

A failure prints the program that hypothesis shrank it to, and the line that runs it;
``--fuzz SEED:1`` runs the whole one alone.
"""

import functools
import math
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from uopc.backend_c.toolchain import BASE_FLAGS, find_compiler
from uopc.config import overriding
from uopc.dtype import DTYPES
from uopc.kernelize import make_plan
from uopc.runtime import backend_named, lower
from uopc.testing import RandomGraph, compare, compare_seeds, random_graph
from uopc.testing.strategies import shrunk
from uopc.uir import parse_uir, to_uir
from uopc.uop import BUILTIN_OPS, Ops, UOp, toposort

CHECKED = range(5000, 5040)  # programs whose every pass is interpreted

SHRUNK: list[int] = []

graph = functools.lru_cache(maxsize=None)(random_graph)


def graphs(batch: range) -> list[RandomGraph]:
    return [graph(seed) for seed in batch]


def told(reports: dict[int, str], backend: str) -> str:
    """What is wrong with the smallest of these programs, and who else is wrong.

    One program of a run is shrunk: it takes a minute, and the cause may be common.
    """
    seed = min(reports, key=lambda s: len(graph(s).choices))
    if SHRUNK:
        return f"{reports[seed]}\nWrong: {[*reports]}; {SHRUNK} has been shrunk."
    SHRUNK.append(seed)
    small = shrunk(random_graph(seed), lambda g: bool(compare([g], backend)[0]))
    report = compare([small], backend)[0] or f"not wrong again; was {reports[seed]}"
    return f"random_graph({seed}) is wrong, one of {[*reports]}. Shrunk:\n{report}"


def test_c_is_right_at_every_level(batch: range):
    wrong = compare_seeds(batch, "c")
    assert not wrong, told(wrong, "c")


def test_plans_are_right_on_the_reference_backend(early: range):
    wrong = compare_seeds(early, "interp", [1])
    assert not wrong, told(wrong, "interp")


def test_the_text_form_reads_back(early: range):
    for g in graphs(early):
        for root in g.roots:
            assert parse_uir(to_uir(root)) is root


@pytest.mark.parametrize("opt", [0, 1])
def test_the_c_is_clean(early: range, opt: int, tmp_path: Path):
    roots = [r for g in graphs(early) for r in g.bound()]
    with overriding(UOPC_OPT=opt):
        plan, _ = make_plan(roots, None, backend_named("c").supports, "c")
        source = backend_named("c").compile(plan).source
    file = tmp_path / "plan.c"
    file.write_text(source)
    strict = ("-fsyntax-only", "-Wall", "-Wextra", "-Werror")
    # clang warns of an option of the linker, which does not run.
    plain = [flag for flag in BASE_FLAGS if flag != "-shared"]
    command = [*find_compiler().argv, *plain, *strict, str(file)]
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
    return graphs(range(1000))


def test_every_op_of_the_graph_stage_occurs(sample: list[RandomGraph]):
    count = Counter(u.op for g in sample for u in set(nodes(g)))
    graph_stage = [
        op for op in BUILTIN_OPS if op.kind != "loop" and op is not Ops.PARAM
    ]
    assert {op.name: count[op] for op in graph_stage if count[op] < 15} == {}
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
    assert len(casts) > 0.6 * len(DTYPES) ** 2


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
        (g.origin, s) for g in sample for u in nodes(g) for s in u.src if s.src
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


def test_special_values_and_long_chains_occur(sample: list[RandomGraph]):
    floats = [u.value for g in sample for u in nodes(g)
              if u.op is Ops.CONST and u.dtype.is_float]  # fmt: skip
    assert sum(map(math.isnan, floats)) > 1
    assert sum(map(math.isinf, floats)) > 1
    assert sum(x == 0 and math.copysign(1, x) < 0 for x in floats) > 2
    kinds: set[tuple[str, str]] = set()
    for g in sample:
        for u, data in g.inputs.items():
            if u.dtype.is_float:
                kinds |= {("nan", u.dtype.name)} if np.isnan(data).any() else set()
                kinds |= {("inf", u.dtype.name)} if np.isinf(data).any() else set()
            elif u.dtype.is_int:
                ends = [e for e in ("min", "max") if getattr(u.dtype, e) in data]
                kinds |= {(e, u.dtype.name) for e in ends}
    types = [d for d in DTYPES.values() if d.is_float or d.is_int]
    assert len(kinds) == 2 * len(types)
    assert sum(depth(g.roots[0]) > 20 for g in sample) > 10


def depth(root: UOp) -> int:
    found: dict[UOp, int] = {}
    for u in toposort([root]):
        found[u] = 1 + max((found[s] for s in u.src), default=0)
    return found[root]


def test_a_failure_is_told_with_the_small_program_and_its_line():
    g = graph(4)
    assert compare([g], "interp", [1]) == [""]
    value = g.expected[0].value
    off = value ^ True if value.dtype == bool else value + 1
    wrong = replace(g, expected=(g.expected[0]._replace(value=off), *g.expected[1:]))
    (text,) = compare([wrong], "interp", [1])
    assert text.startswith("UOPC_OPT=1: root 0 is wrong in ")
    assert "# random_graph(4)\n%0 = " in text
    assert text.endswith("print(*compare([random_graph(4)], 'interp'))")

"""What each stage allows, and that a check says which rule is broken and where."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import f32, i32
from uopc.kernelize import make_plan
from uopc.rangeify import rangeify
from uopc.runtime import lower, new_buffer, realize
from uopc.spec import STAGES, SpecError, check
from uopc.testing.graphs import random_graph
from uopc.uir import parse_uir, to_uir
from uopc.uop import Ops, UOp, substitute, toposort

BUF = UOp.buffer(6, f32, 0)
OUT = UOp.buffer(6, f32, 1)
LOOP = UOp(Ops.RANGE, (), (0, 6, i32))
ZERO = UOp.const(0, i32)
ONE = UOp.const(1.0, f32)
STORE = UOp(Ops.STORE, (OUT, LOOP, UOp(Ops.INDEX, (BUF, LOOP)) * 2.0))

# Stage, a graph that breaks a rule, and that rule's name.
BROKEN: list[tuple[str, Callable[[], UOp], str]] = [
    ("graph", lambda: STORE, "no loop ops in a graph"),
    ("graph", lambda: LOOP + 1, "no loop ops in a graph"),
    ("graph", lambda: UOp.buffer(3, f32, 0, space="local") + 1.0, "a buffer is global"),
    ("graph", lambda: UOp.param(0, f32) + 1.0, "no unbound param"),
    ("graph", lambda: UOp(Ops.INDEX, (BUF, ZERO, ZERO < 1)), "reads have no gate"),
    ("loops", lambda: BUF.reshape((2, 3)), "only scalar ops, reads, loops and stores"),
    ("loops", lambda: BUF.reduce(Ops.ADD, 1), "only scalar ops"),
    ("loops", lambda: UOp.stack([ONE, ONE]), "only scalar ops"),
    ("loops", lambda: BUF + BUF, "elementwise ops are scalar"),
    ("loops", lambda: BUF.reshape((2, 3)).index(0, 0), "only scalar ops"),
    ("loops", lambda: BUF.index(UOp(Ops.IOTA, (), 3)), "read"),
    ("loops", lambda: UOp(Ops.END, (LOOP, BUF.index(0))), "a body holds statements"),
    ("loops", lambda: UOp(Ops.END, (STORE, STORE)), "a body holds statements"),
    ("loops", lambda: UOp(Ops.SINK, (LOOP,), "k"), "a body holds statements"),
    ("loops", lambda: STORE.cast(f32), "a statement is no operand"),
    ("loops", lambda: UOp.param(0, f32) + 1.0, "no param"),
]


@pytest.mark.parametrize(("stage", "build", "rule"), BROKEN)
def test_a_broken_rule_is_named(stage: str, build, rule: str) -> None:
    with pytest.raises(SpecError, match=f"breaks the {stage} rule") as error:
        check(toposort([build()]), stage)
    assert rule in str(error.value)
    assert "%0 = " in str(error.value)


def test_every_rule_is_broken_by_one_of_these() -> None:
    for stage, requirements in STAGES.items():
        broken = [(build, rule) for s, build, rule in BROKEN if s == stage]
        for r in requirements:
            hit = [b for b, _ in broken if not all(map(r.holds, toposort([b()])))]
            assert hit, r.name


def test_the_neighbourhood_is_ten_lines() -> None:
    value = BUF.reduce(Ops.ADD, 1)
    for _ in range(30):
        value = value + value
    bad = UOp(Ops.STORE, (OUT, ZERO, value))
    with pytest.raises(SpecError) as error:
        check(toposort([bad]), "graph")
    shown = str(error.value).splitlines()[1:]
    assert shown == to_uir(bad).splitlines()[-10:]


def test_legal_programs_pass() -> None:
    check(toposort([UOp(Ops.SINK, (UOp(Ops.END, (LOOP, STORE)),), "k")]), "loops")
    check(toposort([BUF.reshape((2, 3)).reduce(Ops.ADD, 1)]), "graph")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("opt", [0, 1])
def test_lowering_stands_the_strictest_checks(seed: int, opt: int) -> None:
    graph = random_graph(seed, steps=8, max_elements=32)
    with overriding(UOPC_OPT=opt, UOPC_CHECK=3):
        for root in graph.roots:
            sink = lower(root, "k")
            assert sink.arg == "k"
            assert parse_uir(to_uir(sink)) is sink


def test_level_zero_lowers_as_rangeify_does() -> None:
    u = (BUF.reshape((2, 3)) * 2.0).reduce(Ops.ADD, 1)
    with overriding(UOPC_OPT=0):
        assert lower(u, "r_2") is rangeify([u], "r_2")


def test_stages_are_dumped(tmp_path) -> None:
    with overriding(UOPC_DUMP=tmp_path, UOPC_OPT=1):
        sink = lower(BUF.reduce(Ops.ADD, 1), "r")
    files = {p.name: p.read_text() for p in tmp_path.iterdir()}
    assert set(files) == {"r.rangeify.uir", "r.schedule.uir"}
    assert parse_uir(files["r.schedule.uir"]) is sink


def test_a_pass_that_changes_a_meaning_is_noticed(monkeypatch) -> None:
    def forgets_one(roots, name):
        """The loop ends one element early."""
        sink = rangeify(roots, name)
        (loop,) = {u for u in toposort([sink]) if u.op is Ops.RANGE}
        number, extent, dtype, _ = loop.arg
        shorter = UOp(Ops.RANGE, (), (number, extent - 1, dtype))
        return substitute([sink], {loop: shorter})[0]

    monkeypatch.setattr(sys.modules["uopc.rangeify"], "rangeify", forgets_one)
    with overriding(UOPC_CHECK=2, UOPC_OPT=0):
        lower(BUF + 1.0, "e_6")  # a legal program, if a wrong one
    with (
        overriding(UOPC_CHECK=3, UOPC_OPT=0),
        pytest.raises(SpecError, match="rangeify changed what the kernel computes"),
    ):
        lower(BUF + 1.0, "e_6")


def test_a_plan_that_changes_a_meaning_is_noticed(monkeypatch) -> None:
    def swapped(*args):
        """The arguments of every kernel in the wrong order."""
        plan, inputs = make_plan(*args)
        kernels = tuple(replace(k, args=k.args[::-1]) for k in plan.kernels)
        return replace(plan, kernels=kernels, programs={}), inputs

    a, b = (new_buffer(np.arange(3, dtype=np.float32) + i) for i in (0, 7))
    monkeypatch.setattr(sys.modules["uopc.runtime.run"], "make_plan", swapped)
    with overriding(UOPC_CHECK=2):
        assert realize([a + b * 2.0])[0].tolist() == [7, 10, 13]  # 2 * a + b
    with (
        overriding(UOPC_CHECK=3),
        pytest.raises(SpecError, match="kernelize changed what the graph computes"),
    ):
        realize([a + b * 2.0])


def test_plans_of_random_graphs_stand_the_strictest_checks() -> None:
    for seed in range(40):
        graph = random_graph(seed)
        with overriding(UOPC_CHECK=3):
            realize(graph.bound())


def test_a_folder_that_takes_no_dump_is_named(tmp_path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with (
        overriding(UOPC_DUMP=file),
        pytest.raises(ValueError, match=r"UOPC_DUMP='.*file': cannot write there: "),
    ):
        lower(BUF + 1.0, "e_6")

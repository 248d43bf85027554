"""Schedules to measure: all compute the same, and the chosen one comes first."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from uopc.composite import matmul
from uopc.dtype import DType, f32, i32
from uopc.interp import run_loops
from uopc.kernelize import make_plan
from uopc.plugins import PluginHost, hookimpl, use
from uopc.rangeify import rangeify
from uopc.runtime import lower_nest, nests_of
from uopc.schedule import (
    PLAIN,
    Merge,
    Split,
    Target,
    Unroll,
    choose_elementwise,
    choose_schedule,
    contraction,
    contraction_blocks,
    model,
)
from uopc.schedule.candidates import Candidate, applied, candidates
from uopc.schedule.knobs import AS_ESTIMATED, VALUES, Knobs, neighbours
from uopc.schedule.rules import find_schedule
from uopc.schedule.step import Step
from uopc.schedule.text import from_text, to_text
from uopc.spec import check
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, toposort

TARGETS = [
    PLAIN,
    Target(32, 16, True, 32 << 10, 1 << 10, 1 << 11, 2),
    Target(64, 32, True, 1 << 10, 1 << 12, 1 << 13, 2),
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Little data gets what much data does."""
    monkeypatch.setattr(model, "PAYS_NS", 50)
    monkeypatch.setattr(model, "ROUND_NS", 20)
    monkeypatch.setattr(contraction, "SMALL", 0)
    monkeypatch.setattr(contraction, "WASTE", 100)
    monkeypatch.setattr(contraction, "MANY_WAYS", 6)
    monkeypatch.setattr(contraction_blocks, "MAX_DEPTH", 4)
    monkeypatch.setattr(choose_elementwise, "STRIP", 8)
    yield


def array(slot: int, *shape: int, dtype: DType = f32) -> UOp:
    return UOp.buffer(math.prod(shape), dtype, slot).reshape(shape)


def row_nest() -> UOp:
    """Several nests in the rounds of one loop."""
    rows = Tensor(np.ones((5, 20), np.float32)).softmax(1)
    plan, _ = make_plan([rows.uop])
    lowered = lower_nest(nests_of(plan.kernels)[0], "k")
    assert lowered is not None
    assert lowered.plain is not None
    return lowered.plain


PROGRAMS = {
    "copy": lambda: rangeify([array(0, 4, 6, 9).permute((2, 1, 0)) * 2.0], "k"),
    "sum": lambda: rangeify([array(0, 5, 40).reduce(Ops.ADD, 1)], "k"),
    "middle": lambda: rangeify(
        [array(0, 3, 8, 20).permute((0, 2, 1)).reduce(Ops.ADD, 1)], "k"
    ),
    "integers": lambda: rangeify([array(0, 40, 9, dtype=i32).reduce(Ops.MAX, 1)], "k"),
    "product": lambda: rangeify([matmul(array(0, 7, 6), array(1, 6, 20))], "k"),
    "batch": lambda: rangeify([matmul(array(0, 2, 3, 5), array(1, 2, 5, 9))], "k"),
    "rows": row_nest,
}


def made_up(sink: UOp) -> dict[int, np.ndarray]:
    data = {}
    for u in toposort([sink]):
        if u.op is Ops.BUFFER and u.arg.space == "global":
            rng = np.random.default_rng(u.arg.slot)
            x = rng.standard_normal(u.shape) * 4
            data[u.arg.slot] = x.astype(u.dtype.numpy)
    return data


def require_same(sink: UOp, found: list[Candidate]) -> None:
    data = made_up(sink)
    expected = run_loops(sink, data)
    for candidate in found:
        check(toposort([candidate.sink]), "loops")
        for slot, stored in run_loops(candidate.sink, data).items():
            np.testing.assert_allclose(stored, expected[slot], 1e-4, 1e-4)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_all_keep_the_meaning(name: str, target: Target) -> None:
    sink = PROGRAMS[name]()
    found = list(candidates(sink, target))
    first, *others = found
    assert first.steps == choose_schedule(sink, target)
    assert others
    assert len({c.sink for c in found}) == len(found)
    require_same(sink, found)
    for candidate in found:
        text = to_text(candidate.steps)
        assert text is not None
        assert from_text(text) == candidate.steps
        assert applied(sink, candidate.steps) is candidate.sink


def test_so_do_those_around_others() -> None:
    sink, target = PROGRAMS["middle"](), TARGETS[1]
    around = Knobs(groups=2, rounds=4.0)
    found = list(candidates(sink, target, around))
    assert found[0].steps == choose_schedule(sink, target, around)
    assert found[0].knobs == around
    require_same(sink, found)


def test_what_knobs_bring() -> None:
    """Of each kind, those that the others lack."""
    kinds = {
        name: {
            type(step).__name__
            for c in candidates(PROGRAMS[name](), TARGETS[1])
            for step in c.steps
        }
        for name in PROGRAMS
    }
    assert {"Outputs", "Parts", "Vectorize"} <= kinds["middle"]
    assert {"Lanes", "Parallel"} <= kinds["sum"]
    assert {"Contract", "Outputs"} <= kinds["product"]
    assert {"Reorder", "Parallel"} <= kinds["copy"]
    assert "Rows" in kinds["rows"]


def test_neighbours_differ_in_one_value() -> None:
    plain = list(neighbours(AS_ESTIMATED, 0, 1))
    assert len(plain) == len(set(plain))
    assert AS_ESTIMATED not in plain
    assert {k.way for k in neighbours(AS_ESTIMATED, 3, 1)} == {None, 1, 2, 3, -1}
    parts = [k for k in neighbours(AS_ESTIMATED, 0, 2) if k.parts]
    assert all((k.of(0), k.of(1)).count(AS_ESTIMATED) == 1 for k in parts)
    assert sum(map(len, VALUES.values())) > len(plain)
    assert str(Knobs(groups=2)) == "knobs(groups=2)"


# What is known comes before what is estimated


class Rule:
    """A plugin with an answer for everything."""

    @hookimpl
    def uopc_register_rewrites(self, register) -> None:
        register("schedule", [lambda sink, target: []])


KNOWN: tuple[Step, ...] = (Split(0, 4, 9), Unroll(9))


def test_a_known_schedule_is_used() -> None:
    sink = rangeify([array(0, 20) * 2.0], "k")
    asked = []

    def known(sink: UOp, target: Target) -> tuple[Step, ...]:
        asked.append((sink, target))
        return KNOWN

    found = find_schedule(sink, PLAIN, known)
    assert (found.steps, found.rule) == (KNOWN, None)
    assert asked == [(sink, PLAIN)]


def test_plugins_are_asked_before() -> None:
    sink = rangeify([array(0, 20) * 2.0], "k")
    host = PluginHost([])
    host.register_module(Rule(), "rule")
    with use(host):
        found = find_schedule(sink, PLAIN, lambda sink, target: KNOWN)
    assert found.steps == ()
    assert found.rule is not None


@pytest.mark.parametrize("steps", [None, [Split(0, 0, 9)], [Merge, 3]])
def test_what_does_not_do_is_ignored(steps) -> None:
    sink = rangeify([array(0, 20) * 2.0], "k")
    found = find_schedule(sink, PLAIN, lambda sink, target: steps)
    assert found.steps == choose_schedule(sink, PLAIN)

"""The search: made-up data, candidates as native functions, who wins; no clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from uopc.backend_c import Spelling, cache
from uopc.backend_c.backend import spellings
from uopc.backend_c.target import current_target
from uopc.backend_c.tuning import search as module
from uopc.backend_c.tuning import trials as trials_module
from uopc.backend_c.tuning.memory import Memory
from uopc.backend_c.tuning.search import Search
from uopc.backend_c.tuning.trials import Clock, Trial, compiled, ratio
from uopc.dtype import DType, bf16, f32, i32, i64
from uopc.rangeify import rangeify
from uopc.schedule import Split, choose_schedule
from uopc.schedule.candidates import Candidate, applied
from uopc.schedule.step import Step
from uopc.uop import Ops, UOp

pytestmark = pytest.mark.usefixtures("own_cache")

SOON = math.inf


def array(slot: int, *shape: int, dtype: DType = f32) -> UOp:
    return UOp.buffer(math.prod(shape), dtype, slot).reshape(shape)


def sums() -> UOp:
    return rangeify([array(0, 30, 200).reduce(Ops.ADD, 1)], "sums")


def candidate(sink: UOp, steps: Sequence[Step]) -> Candidate:
    after = applied(sink, steps)
    assert after is not None
    return Candidate(tuple(steps), after)


def chosen(sink: UOp) -> Candidate:
    return candidate(sink, choose_schedule(sink, current_target()))


def searched(sink: UOp, told: list[str] | None = None) -> Search:
    tell: Callable[[str], None] = [].append if told is None else told.append
    current = chosen(sink)
    return Search(sink, current, current_target(), spellings(), 1, tell)


# Data


def test_positions_are_in_range() -> None:
    table, rows = array(0, 50, 8), array(1, 100, dtype=i32)
    sink = rangeify([UOp(Ops.INDEX, (table, rows))], "gather")
    memory = Memory(sink)
    (of_rows,) = (i for i, b in enumerate(memory.buffers) if b.dtype is i32)
    values = memory.arrays[of_rows]
    assert values.min() >= 0
    assert 25 < values.max() < 50
    assert len(set(values.tolist())) > 20


def test_each_of_two_positions_has_its_own_range() -> None:
    table = array(0, 5, 70)
    at = array(1, 300, dtype=i64), array(2, 300, dtype=i32)
    sink = rangeify([UOp(Ops.INDEX, (table, *at))], "gather")
    memory = Memory(sink)
    most = {
        b.dtype: int(a.max())
        for b, a in zip(memory.buffers, memory.arrays, strict=True)
        if not b.dtype.is_float
    }
    assert most[i64] == 4
    assert 35 < most[i32] < 70


@pytest.mark.parametrize("dtype", [f32, bf16])
def test_floats_do_not_cancel(dtype: DType) -> None:
    memory = Memory(rangeify([array(0, 64, dtype=dtype) + 1.0], "k"))
    for b, a in zip(memory.buffers, memory.arrays, strict=True):
        values = b.dtype.load(a)
        assert 0.25 <= values.min() <= values.max() <= 1.75


def test_what_is_written_in_place_starts_anew() -> None:
    sink = rangeify([array(0, 100) * 3.0], "k")
    out, given = Memory(sink).buffers
    if out.arg.slot == 0:
        out, given = given, out
    (store,) = (u for u in sink.toposort() if u.op is Ops.STORE)
    assert store.src[0] is out
    from uopc.uop import substitute

    (over,) = substitute([sink], {out: given})
    memory = Memory(over)
    (before,) = memory.results()
    (trial,) = compiled([Candidate((), over)], memory, spellings(), 1)
    clock = Clock(memory)
    for _ in range(3):
        clock.once(trial)
        np.testing.assert_array_equal(memory.results()[0], before * np.float32(3))
    clock.rounds([trial], 3, SOON)
    clock.once(trial)
    np.testing.assert_array_equal(memory.results()[0], before * np.float32(3))


# Native functions


def test_candidates_run_as_often_as_asked() -> None:
    sink = sums()
    memory = Memory(sink)
    both = [chosen(sink), Candidate((), sink)]
    trials = compiled(both, memory, spellings(), 1)
    assert [t.candidate for t in trials] == both
    clock = Clock(memory)
    (given,) = (
        a for b, a in zip(memory.buffers, memory.arrays, strict=True) if a.size == 6000
    )
    for trial in trials:
        clock.once(trial)
        (result,) = memory.results()
        np.testing.assert_allclose(result, given.reshape(30, 200).sum(1), 1e-5)
    times = clock.rounds(trials, 4, SOON)
    assert [len(t) for t in times] == [4, 4]
    assert [len(t) for t in clock.rounds(trials, 10, 0.0)] == [trials_module.LEAST] * 2


def test_what_does_not_compile_is_left_out(own_cache: Any) -> None:
    """One that a compiler refuses, and one that has no spelling at all."""
    good, bad = (rangeify([op], "k") for op in (array(0, 9) * 2.0, array(0, 9).exp2()))
    odd = rangeify([UOp(Ops.SIN, (array(0, 9),))], "k")
    known = {**spellings(), Ops.EXP2: Spelling("no_such_function_(")}
    del known[Ops.SIN]
    three = [Candidate((), s) for s in (bad, good, odd, good)]
    found = compiled(three, Memory(good), known, 1)
    assert [t.candidate for t in found] == [three[1], three[3]]
    assert compiled([three[0]], Memory(good), known, 1) == []
    # They are no entries, and nothing is left of them.
    assert not list(own_cache.glob("*trial*")) + list(own_cache.glob(".tmp-*"))
    assert cache.stats.misses == 0


# Who wins


def rigged(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[Trial], float]) -> None:
    """Programs run, but a made-up clock says how long they took."""
    real = Clock._seconds

    def timed(self: Clock, trial: Trial, count: int) -> float:
        real(self, trial, 1)
        return seconds(trial)

    monkeypatch.setattr(Clock, "_seconds", timed)


def test_the_fastest_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found knob by knob: its knobs differ in two values from those at first."""
    sink = sums()

    def seconds(trial: Trial) -> float:
        knobs = trial.candidate.knobs
        if knobs is None:
            return 1.0
        return 1.0 - 0.2 * (knobs.groups == 1) - 0.3 * (knobs.outputs is True)

    rigged(monkeypatch, seconds)
    told: list[str] = []
    found = searched(sink, told).run(SOON)
    assert found.winner is not None
    assert found.winner.knobs is not None
    assert (found.winner.knobs.groups, found.winner.knobs.outputs) == (1, True)
    assert (found.before, round(found.after, 9)) == (1.0, 0.5)
    assert found.tried == len(told) > 4


@pytest.mark.parametrize("part, wins", [(0.90, True), (0.96, False), (1.0, False)])
def test_only_what_is_clearly_better(
    part: float, wins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rigged(monkeypatch, lambda t: 1.0 if t.candidate.knobs is None else part)
    found = searched(sums()).run(SOON)
    assert (found.winner is not None) == wins
    assert found.after == (part if wins else 1.0)


def test_luck_does_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Better in the first looks, but not when the two are measured anew."""
    calls: dict[str, int] = {}

    def seconds(trial: Trial) -> float:
        if trial.candidate.knobs is None:
            return 1.0
        name = str(trial.candidate)
        calls[name] = calls.get(name, 0) + 1
        return 0.5 if calls[name] < 60 else 1.5

    rigged(monkeypatch, seconds)
    found = searched(sums()).run(SOON)
    assert found.winner is None
    assert found.before == found.after == 1.0


def test_one_with_other_results_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sums()
    wrong = rangeify([array(0, 30, 200).reduce(Ops.ADD, 1) * 2.0], "sums")
    found = [Candidate((Split(0, 2, 9),), wrong)]
    monkeypatch.setattr(module, "candidates", lambda *args: iter(found))
    rigged(monkeypatch, lambda t: 1.0 if t.candidate.sink is not wrong else 0.1)
    told: list[str] = []
    assert searched(sink, told).run(SOON).winner is None
    assert told[0].startswith("other results")


def test_without_time_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    rigged(monkeypatch, lambda t: 1.0)
    found = searched(sums()).run(0.0)
    assert (found.winner, found.tried, found.before) == (None, 0, 1.0)


def test_a_ratio_is_of_rounds() -> None:
    """What disturbs a whole round disturbs both."""
    assert ratio([1.0, 10.0, 2.0], [0.5, 5.0, 1.0]) == 0.5

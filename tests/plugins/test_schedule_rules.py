"""Schedules by rules of plugins: who is asked, what is checked, who is to blame."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.interp import run_loops
from uopc.plugins import PluginHost, use
from uopc.rangeify import rangeify
from uopc.runtime import lower
from uopc.schedule import PLAIN, Target
from uopc.spec import SpecError
from uopc.testing import buf
from uopc.uop import Ops, UOp, substitute, toposort

AST = buf(0, 8) * 2.0
WHOSE = "raised by the schedule rule 'rule' (plugin 'mine', uopc-mine 3.1)"


@dataclass(frozen=True)
class Halves:
    """The loop twice, over half of it each."""

    def __str__(self) -> str:
        return "halves(2)"

    def apply(self, sink: UOp) -> UOp:
        (end,) = sink.src
        number, extent, dtype, _ = end.src[0].arg
        half = UOp(Ops.RANGE, (), (number, extent // 2, dtype))
        rest = half + UOp.const(extent // 2, dtype)
        parts = [substitute(end.src[1:], {end.src[0]: at}) for at in (half, rest)]
        ends = (UOp(Ops.END, (half, *part)) for part in parts)
        return UOp(Ops.SINK, tuple(ends), sink.arg)


@dataclass(frozen=True)
class Does:
    """A step that does anything."""

    change: Callable[[UOp], Any]

    def __str__(self) -> str:
        return "does(harm)"

    def apply(self, sink: UOp) -> Any:
        return self.change(sink)


@pytest.fixture
def schedule_by(fake: Any) -> Iterator[Callable[..., UOp]]:
    """``schedule_by(answers, ...)``: a kernel as lowered where rules give these.

    An answer is a function of the loops and the target. There is one plugin for each.
    """
    points = importlib.metadata.distribution("uopc-core").entry_points

    def run(*answers: Callable[[UOp, Target], Any], target: Target = PLAIN) -> UOp:
        every = [*points.select(group="uopc.plugins")]
        for i, answer in enumerate(answers):
            name = "mine" + "-too" * i

            def rule(sink: UOp, target: Target, answer: Any = answer) -> Any:
                return answer(sink, target)

            plugin = fake.plugin(
                uopc_register_rewrites=lambda register, rule=rule: register(
                    "schedule", [rule]
                )
            )
            every.append(fake.entry_point(name, plugin, f"uopc-{name} 3.1"))
        with use(PluginHost(every, strict=True)):
            return lower(AST, "e_8", target=target)

    return run


def extents(sink: UOp) -> list[int]:
    return [s.src[0].arg.extent for s in sink.src if s.op is Ops.END]


def test_a_rule_chooses_the_steps(schedule_by: Any, capsys: Any) -> None:
    asked: list[tuple[UOp, Target]] = []

    def answer(sink: UOp, target: Target) -> list[Halves]:
        asked.append((sink, target))
        return [Halves()]

    target = Target(vector_bytes=64)
    with overriding(UOPC_CHECK=3, UOPC_DEBUG=2):
        sink = schedule_by(answer, target=target)
    assert extents(sink) == [4, 4]
    assert asked == [(rangeify([AST], "e_8"), target)]
    assert capsys.readouterr().out == "schedule of e_8: halves(2)\n"
    x = np.arange(8, dtype=np.float32)
    (got,) = run_loops(sink, {0: x}).values()
    assert got.tolist() == (2 * x).tolist()


def test_the_first_answer_counts(schedule_by: Any) -> None:
    def never(sink: UOp, target: Target) -> None:
        pytest.fail("the rule before it had an answer")

    plain = rangeify([AST], "e_8")
    with overriding(UOPC_OPT=1):
        halved = schedule_by(lambda sink, target: None, lambda *_: [Halves()], never)
        assert extents(halved) == [4, 4]
        assert schedule_by(lambda *_: (), never) is plain
        assert schedule_by(lambda *_: None) is schedule_by()


def test_level_zero_asks_nobody(schedule_by: Any) -> None:
    with overriding(UOPC_OPT=0):
        sink = schedule_by(lambda *_: pytest.fail("asked"))
    assert sink is rangeify([AST], "e_8")


def test_each_step_is_a_pass(schedule_by: Any, tmp_path: Any) -> None:
    with overriding(UOPC_DUMP=tmp_path):
        schedule_by(lambda *_: [Does(lambda sink: sink), Halves()])
    assert {p.name for p in tmp_path.iterdir()} == {
        "e_8.rangeify.uir",
        "e_8.schedule.1.does.uir",
        "e_8.schedule.2.halves.uir",
        "e_8.schedule.uir",
    }


def wrong_loop(sink: UOp) -> UOp:
    """A legal program that leaves out the last element."""
    (loop,) = (u for u in toposort([sink]) if u.op is Ops.RANGE)
    shorter = UOp(Ops.RANGE, (), (0, 7, loop.dtype))
    return substitute([sink], {loop: shorter})[0]


def illegal(sink: UOp) -> UOp:
    """A program with an op that works on whole arrays."""
    (end,) = sink.src
    store = end.src[1]
    broken = store.with_src((*store.src[:2], AST.reduce(Ops.ADD, 1)))
    return sink.with_src((end.with_src((end.src[0], broken)),))


def fails(*_: Any) -> Any:
    raise KeyError("no idea")


MISTAKES = {
    "rule fails": (fails, KeyError, "no idea"),
    "no list": (lambda *_: Halves(), TypeError, "a schedule is a list of steps"),
    "no step": (lambda *_: ["split"], TypeError, "a step has a method apply"),
    "step fails": (lambda *_: [Does(fails)], KeyError, "no idea"),
    "no program": (
        lambda *_: [Does(lambda sink: sink.src[0])],
        TypeError,
        r"step does\(harm\) gave .*, expected a loop program",
    ),
    "illegal": (lambda *_: [Does(illegal)], SpecError, "breaks the loops rule"),
    "meaning": (
        lambda *_: [Does(wrong_loop)],
        SpecError,
        "schedule.1.does changed what the kernel computes",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_its_plugin(schedule_by: Any, mistake: str) -> None:
    answer, error, message = MISTAKES[mistake]
    with overriding(UOPC_CHECK=3), pytest.raises(error, match=message) as caught:
        schedule_by(answer)
    assert caught.value.__notes__ == [WHOSE]


def test_what_is_no_function_is_no_rule(fake: Any) -> None:
    plugin = fake.plugin(
        uopc_register_rewrites=lambda register: register("schedule", [Halves()])
    )
    host = PluginHost([fake.entry_point("odd", plugin)])
    host.load(quiet=True)
    (failure,) = host.failures
    assert "expected a function (sink, target) of steps, got Halves" in str(failure)

"""What simplifiers of one plan remember for each other."""

from __future__ import annotations

import pytest

from uopc.config import overriding
from uopc.dtype import i32
from uopc.simplify import RULES, Rule, Simplifier, Var, remembering
from uopc.simplify import rewrite as rewriting
from uopc.uop import Ops, UOp


def variable(number: int, extent: int) -> UOp:
    return UOp(Ops.RANGE, (), (number, extent, i32, "serial"))


def positions() -> list[UOp]:
    """Positions that shorten, under conditions and without."""
    i, j = variable(0, 8), variable(1, 12)
    flat = i * 12 + j
    inside = j < 6
    return [
        flat // 12 * 12 + flat % 12,
        (flat + 96) // 12 % 8,
        inside.where(j % 6 + i * 0, (j + 6) % 12),
        (inside & (flat < 90)).where(flat // 6, i),
    ]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[UOp]:
    """The nodes for which rules are looked through from now on."""
    seen: list[UOp] = []
    step = Simplifier._step

    def counted(self: Simplifier, u: UOp) -> UOp | None:
        seen.append(u)
        return step(self, u)

    monkeypatch.setattr(rewriting.Simplifier, "_step", counted)
    return seen


def test_the_results_are_the_same():
    alone = [Simplifier()(u) for u in positions()]
    with remembering():
        for _ in range(2):
            assert [Simplifier()(u) for u in positions()] == alone


def test_no_rule_is_tried_twice_on_a_node(steps: list[UOp]):
    with remembering():
        Simplifier()(positions()[1])
        assert steps
        steps.clear()
        Simplifier()(positions()[1])
        assert not steps
        with remembering():  # the same memory
            Simplifier()(positions()[1])
        assert not steps
    Simplifier()(positions()[1])
    assert steps


def test_conditions_are_looked_into_each_time(steps: list[UOp]):
    with remembering():
        Simplifier()(positions()[2])
        steps.clear()
        Simplifier()(positions()[2])
        assert any(u.op is Ops.WHERE for u in steps)


def test_other_rules_have_a_memory_of_their_own():
    x = Var("x")
    more = Rule("to-zero", x * 7, lambda x: x.const_like(0))
    product = variable(0, 8) * 7
    with remembering():
        assert Simplifier()(product) is product
        assert Simplifier((*RULES, more))(product).op is Ops.CONST
        assert Simplifier()(product) is product


def test_rewrites_are_shown_each_time(capsys: pytest.CaptureFixture[str]):
    with remembering(), overriding(UOPC_DEBUG=4):
        shown = []
        for _ in range(2):
            Simplifier()(positions()[0])
            shown.append(capsys.readouterr().out)
    assert "rewrite" in shown[0]
    assert shown[0] == shown[1]


def test_it_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), remembering():
        raise ZeroDivisionError
    assert rewriting.memory() is not rewriting.memory()

"""check_vjp: right rules pass, wrong ones are noticed, and the message says where."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from uopc.autodiff.rules import RULES
from uopc.dtype import DTYPES, f32, f64
from uopc.plugins import registry
from uopc.tensor import Tensor
from uopc.testing import check_vjp
from uopc.testing.vjp import smooth_samples
from uopc.uop import OpDef, Ops, UOp

Parts = tuple[UOp | None, ...]
Rule = Callable[[UOp, UOp], Parts]


def broken(monkeypatch: pytest.MonkeyPatch, op: OpDef, rule: Rule) -> str:
    """What the checker says about a rule."""
    monkeypatch.setitem(registry().vjps, op, rule)
    with pytest.raises(AssertionError) as caught:
        check_vjp(op)
    return str(caught.value)


def test_every_row_that_is_differentiable_passes_to_second_order() -> None:
    checked = 0
    for op in registry().ops.values():
        if op.differentiable and op.kind != "leaf":
            assert check_vjp(op).samples == len(smooth_samples(op)) > 0, op
            checked += 1
    assert checked >= len(RULES)


def test_it_counts_what_it_did() -> None:
    counts = check_vjp(Ops.SIN, order=1, modes=("reverse",), directions=3)
    assert (counts.samples, counts.directions, counts.comparisons) == (2, 6, 8)


def one(mistake: Callable[[UOp, UOp, UOp], UOp | None], source: int = 0) -> Rule:
    """The rule of MUL with one contribution changed."""

    def rule(u: UOp, g: UOp) -> Parts:
        parts = list(RULES[Ops.MUL](u, g))
        right = parts[source]
        assert right is not None
        parts[source] = mistake(u, g, right)
        return tuple(parts)

    return rule


def at_one_element(u: UOp, g: UOp, right: UOp) -> UOp:
    if u.shape != (2, 3):
        return right
    mask = np.zeros((2, 3))
    mask[1, 2] = 0.25
    rows = [UOp.stack([UOp.const(v, f64) for v in row]) for row in mask.tolist()]
    return right + g * UOp.stack(rows)


MISTAKES = {
    "sign": (lambda u, g, r: -r, "source 1 is off at"),
    "factor": (lambda u, g, r: r * 1.00001, "6 of 6 elements"),
    "none": (lambda u, g, r: None, "0 everywhere: does the rule return None?"),
    "one element": (at_one_element, r"source 1 is off at \[1, 2\].*1 of 6 elements"),
    "added constant": (lambda u, g, r: r + 1e-5, "source 1 is off"),
    "not linear": (lambda u, g, r: r * g * g, "source 1 is off|not linear"),
    "detached": (lambda u, g, r: r.detach(), "forward mode|gradient of the gradient"),
    "hides x": (
        lambda u, g, r: g * u.src[0].detach(),
        "gradient of the gradient by source 0 is off",
    ),
    "shape": (lambda u, g, r: r.reshape((1, *r.shape)), "mul"),
    "dtype": (lambda u, g, r: r.cast(f32), "f32"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_source_is_named(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    change, said = MISTAKES[mistake]
    message = broken(monkeypatch, Ops.MUL, one(change, source=1))
    assert message.startswith("mul: ")
    assert re.search(said, message), message
    if mistake not in ("shape", "dtype"):
        assert "%0 = param 0" in message


def test_a_rule_that_agrees_in_value_and_is_not_linear_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rule(u: UOp, g: UOp) -> Parts:
        size = g.maximum(-g)  # g again for g > 0, and not else
        return (size, size)

    broken(monkeypatch, Ops.ADD, rule)


WRONG: dict[str, tuple[OpDef, Rule]] = {
    "permute": (Ops.PERMUTE, lambda u, g: (g.permute(u.arg),)),
    "div": (Ops.DIV, lambda u, g: RULES[Ops.DIV](u, g)[::-1]),
    "where": (Ops.WHERE, lambda u, g: (None, g, g)),
    "flip": (Ops.FLIP, lambda u, g: (g,)),
    "stack": (Ops.STACK, lambda u, g: RULES[Ops.STACK](u, g)[::-1]),
}


@pytest.mark.parametrize("name", WRONG)
def test_likely_mistakes_are_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert broken(monkeypatch, *WRONG[name]).startswith(f"{name}: ")


@pytest.mark.parametrize("op", RULES, ids=lambda op: op.name)
def test_a_rule_of_nothing_but_none_is_noticed(
    monkeypatch: pytest.MonkeyPatch, op: OpDef
) -> None:
    assert "None?" in broken(monkeypatch, op, lambda u, g: (None,) * len(u.src))


@pytest.mark.parametrize("op", RULES, ids=lambda op: op.name)
def test_a_rule_without_a_second_derivative_is_noticed(
    monkeypatch: pytest.MonkeyPatch, op: OpDef
) -> None:
    def rule(u: UOp, g: UOp) -> Parts:
        return tuple(p and p.detach() for p in RULES[op](u, g))

    broken(monkeypatch, op, rule)


def test_a_wrong_forward_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry().jvps, Ops.SIN, lambda u, t: t[0])
    with pytest.raises(AssertionError, match="sin: forward mode of the function is"):
        check_vjp(Ops.SIN)
    assert check_vjp(Ops.SIN, order=1, modes=("reverse",)).samples == 2


@pytest.mark.parametrize("name", [d.name for d in DTYPES.values() if d is not f64])
def test_other_types_are_refused_with_the_reason(name: str) -> None:
    dtype = DTYPES[name]
    x = UOp.param(0, dtype, (2,))
    reason = "lose half of the digits" if dtype.is_float else "f64"
    if dtype.is_float:
        with pytest.raises(TypeError, match=reason):
            check_vjp(Ops.SIN, [x.sin()])
    else:
        with pytest.raises((TypeError, ValueError), match=reason):
            check_vjp(Ops.MAX, [x.maximum(x)])


def test_arrays_and_results_in_f32_are_refused() -> None:
    with pytest.raises(TypeError, match=r"argument 0 is f32.*lose half"):
        check_vjp(Tensor.sin, [(np.ones(2, np.float32),)])
    with pytest.raises(TypeError, match="the result is f32"):
        check_vjp(lambda x: x.cast(f32).sin().cast(f64), [((2,),)])


def test_a_kink_is_not_blamed_on_the_rule() -> None:
    with pytest.raises(AssertionError, match=r"kink.*from the left.*from the right"):
        check_vjp(Tensor.relu, [(np.array([1.0, 0.0]),)])
    # Close to a kink the differences take smaller steps.
    assert check_vjp(Tensor.relu, [(np.array([1.0, 1e-4]),)]).samples == 1


def test_functions_of_tensors_and_of_nodes() -> None:
    def layer(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).softmax(1)

    assert check_vjp(layer, [((2, 3), (3, 2)), ((1, 2), (2, 2))]).samples == 2

    def picked(x: UOp, at: UOp) -> UOp:
        return x.index(at).sin()

    places = np.array([2, 0, 2], np.int32)
    assert check_vjp(picked, [((3,), places)], uops=True).samples == 1


def test_a_function_that_stops_gradients_is_off() -> None:
    with pytest.raises(AssertionError, match="argument 1 is off at"):
        check_vjp(lambda x, y: x * y.detach(), [((2,), (2,))])


def test_what_cannot_be_checked_is_an_error() -> None:
    with pytest.raises(ValueError, match="differentiable=False"):
        check_vjp(Ops.CMPLT)
    with pytest.raises(ValueError, match="give samples"):
        check_vjp(Tensor.sin)
    with pytest.raises(TypeError, match="a node of this op"):
        check_vjp(Ops.SIN, [UOp.param(0, f64, (2,))])
    with pytest.raises(ValueError, match="no argument is f64"):
        check_vjp(lambda i: i.cast(f64), [(np.arange(3),)])

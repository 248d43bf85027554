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
    "added constant": (lambda u, g, r: r + 1e-5, "source 1 is not linear in the cot"),
    "not linear": (lambda u, g, r: r * g, "source 1 is not linear in the cotangent"),
    "a little": (lambda u, g, r: r * (1 + 1e-6), "source 1 is off at"),
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

    assert "is not linear in the cotangent" in broken(monkeypatch, Ops.ADD, rule)


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

    message = broken(monkeypatch, op, rule)
    if "0 everywhere" in message:
        assert message.count("None, or is its second derivative detached?") == 1


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


def naive_norm(x: Tensor) -> Tensor:
    return x.square().sum().sqrt()  # its gradient at 0 is a NaN


def leaky(x: Tensor) -> Tensor:
    return x.relu() - 0.01 * (-x).relu()  # its gradient at 0 is not of either side


def above(x: Tensor) -> Tensor:
    return (x > 0).where(x.sin() + 1, x)


# A right function and a point at which differences show nothing.
NOWHERE = {
    "even kink": (Tensor.abs, [0.0]),
    "even kink beside": (Tensor.abs, [2.0, 0.0]),
    "kink of a norm": (Tensor.norm, [0.0, 0.0]),
    "kink of a gradient": (lambda x: x * x.abs(), [0.0]),
    "kink of a gradient from one side": (lambda x: x.relu().square(), [0.0, 1.0]),
    "no gradient at the kink": (naive_norm, [0.0, 0.0]),
    "none of both sides": (leaky, [0.0]),
    "jump": (above, [0.0]),
    "kink of a tie": (lambda x: x.max(), [1.0, 1.0]),
    "infinite slope": (Tensor.sqrt, [0.0]),
    "pole beside": (Tensor.log, [1e-6, 3.0]),
    "pole of a derivative": (Tensor.log, [1e-6]),
    "lost in rounding": (lambda x: x + 1e10, [1.0]),
    "periods lost in rounding": (Tensor.sin, [1e12]),
    "no period in a step": (Tensor.sin, [1e8]),
}


@pytest.mark.parametrize("what", NOWHERE)
def test_where_differences_show_nothing_nobody_is_blamed(what: str) -> None:
    f, x = NOWHERE[what]
    with pytest.raises(AssertionError) as caught:
        check_vjp(f, [(np.array(x),)])
    message = str(caught.value)
    assert re.search(r"the sample is at a kink or a jump of the \w+, or diff", message)
    assert re.search("from the left the|does not settle: it is", message), message
    assert "choose another sample" in message
    assert " is off" not in message
    assert "None" not in message


LARGE = {
    "square": (Tensor.square, [1e8]),
    "squares": (lambda x: x.square().sum(), [1e8, 1.0, -3e7]),
    "cube": (lambda x: x * x * x, [1e5, -2e5]),
    "log": (Tensor.log, [1e10, 1e9]),
    "steep": (Tensor.exp, [100.0, 1.0]),
    "small": (lambda x: x.square() + x, [1e-9, 0.0]),
}


def wrong_by(f: Callable[[Tensor], Tensor], part: float) -> Callable[..., Tensor]:
    """The function, with a gradient that is too large by a part of it."""
    return lambda x: f(x) * (1 + part) - (f(x) * part).detach()


@pytest.mark.parametrize("what", LARGE)
def test_steps_go_by_the_size_of_the_sample(what: str) -> None:
    f, x = LARGE[what]
    assert check_vjp(f, [(np.array(x),)]).samples == 1
    with pytest.raises(AssertionError, match="the gradient by argument 0 is off at"):
        check_vjp(wrong_by(f, 1e-6), [(np.array(x),)])


BESIDE = {
    "near a kink": (Tensor.relu, [1e-4, -1.0]),
    "nearer": (lambda x: x.relu().square(), [2e-5, -1.0]),
    "another element is at a kink": (Tensor.relu, [0.0, 1.0]),
    "another element is at an even kink": (Tensor.abs, [0.0, 1.0]),
    "another element is lost in rounding": (Tensor.sin, [1e9, 1.0]),
}


@pytest.mark.parametrize("what", BESIDE)
def test_what_is_wrong_beside_a_kink_is_found(what: str) -> None:
    f, x = BESIDE[what]
    at = x.index(1.0) if 1.0 in x else 0
    with pytest.raises(AssertionError, match=rf"argument 0 is off at \[{at}\]"):
        check_vjp(wrong_by(f, 1e-2), [(np.array(x),)])


def test_a_gradient_of_nothing_is_not_confirmed_by_steps_that_vanish() -> None:
    def flat(x: Tensor) -> Tensor:
        return x.detach().sin() + 0 * x

    for size in (1e8, 1e12, 1e17):
        with pytest.raises(AssertionError, match="choose another sample"):
            check_vjp(flat, [(np.array([size]),)])


def test_a_detached_second_derivative_is_named_as_a_cause() -> None:
    def f(x: Tensor) -> Tensor:
        return x * x.detach() * 2 - x.square().detach()  # x ** 2, and its slope

    with pytest.raises(AssertionError, match="gradient of the gradient by argument 0"):
        check_vjp(f, [(np.array([1.0, 2.0]),)])

    def rule_like(x: Tensor) -> Tensor:
        return x.detach().exp() * (x - x.detach() + 1)  # exp, and its slope

    with pytest.raises(AssertionError, match=r"None, or is its second.*detached\?"):
        check_vjp(rule_like, [(np.array([1.0, 2.0]),)], modes=("reverse",))


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
    with pytest.raises(TypeError, match="an op or a function, not 'exp'"):
        check_vjp("exp", [((2,),)])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="gave a tuple, expected one Tensor"):
        check_vjp(lambda x: (x, x), [((2,),)])
    with pytest.raises(TypeError, match="gave a Tensor, expected one UOp"):
        check_vjp(lambda x: Tensor(x), [((2,),)], uops=True)


ARRAY = np.ones(2)
NESTED = {
    "dict": {"a": ARRAY},
    "tuple": (ARRAY, ARRAY),
    "list": [Tensor(ARRAY), Tensor(ARRAY)],
    "rows of two lengths": [[1.0], [1.0, 2.0]],
    "text": "a",
    "nothing": None,
}


@pytest.mark.parametrize("what", NESTED)
def test_arguments_are_not_nested(what: str) -> None:
    with pytest.raises(TypeError, match=r"argument 1 is a .*arrays or shapes, not nes"):
        check_vjp(lambda x, y: x, [(ARRAY, NESTED[what])])

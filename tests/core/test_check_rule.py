"""The checker of rewrite rules: it passes the built-in ones and refutes wrong ones."""

from __future__ import annotations

import re

import pytest

from uopc.dtype import DTYPES, bf16, boolean, f16, f32, i8, i32, u8, u32
from uopc.simplify import BOOLS, DISCRETE, INTS, RULES, Exactly, Num, Op, Rule, Var
from uopc.testing import check_rule
from uopc.testing.instances import typings
from uopc.testing.points import evaluate_at, float_values, points, unequal
from uopc.uop import OpDef, Ops, UOp, infer

x, y, p, a, b = Var("x"), Var("y"), Var("p"), Num("a"), Num("b")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_changes_no_bit(rule: Rule) -> None:
    """All values of 8 bits, special ones of the others."""
    assert check_rule(rule, wanted=6).total() > 0


def test_rules_have_names_of_their_own() -> None:
    assert len({r.name for r in RULES}) == len(RULES) > 40


def const(value: float, like: UOp) -> UOp:
    return UOp.const(value, like.dtype)


def wrapping(value: int, like: UOp) -> UOp:
    half = 1 << (like.dtype.bits - 1)
    signed = (value + half) % (2 * half) - half
    return const(signed if like.dtype.kind == "int" else value % (2 * half), like)


def fitting(value: int, like: UOp) -> UOp | None:
    inside = like.dtype.min <= value <= like.dtype.max
    return const(value, like) if inside else None


def if_positive(u: UOp, result: UOp) -> UOp | None:
    return result if int(u.value) > 0 else None


# What is wrong with each -> the rule.
WRONG = {
    "drops the remainder": Rule(
        "1", x // a * b, lambda x, a, b: x if a is b else None, INTS
    ),
    "drops it for negative divisors only": Rule(
        "2",
        x // a * b + x % a,
        lambda x, a, b: x if a.value == -b.value else None,
        INTS,
    ),
    "the sum may wrap": Rule(
        "3", x + a < b, lambda x, a, b: x < wrapping(b.value - a.value, x), INTS
    ),
    "the product may wrap": Rule(
        "4",
        x * a < b,
        lambda x, a, b: if_positive(a, x < const(-(-b.value // a.value), x)),
        INTS,
    ),
    "the divisor may wrap": Rule(
        "5",
        x // a // b,
        lambda x, a, b: if_positive(a, x // wrapping(a.value * b.value, x)),
        INTS,
    ),
    "floor is not odd": Rule(
        "6", x * -1 // a, lambda x, a: if_positive(a, x // a * -1), INTS
    ),
    "rounds each part": Rule(
        "7", (x + y) // a, lambda x, y, a: x // a + y // a, INTS
    ),
    "a mask for any divisor": Rule(
        "8",
        x % a,
        lambda x, a: None if a.value <= 0 else x & const(a.value - 1, x),
        INTS,
    ),
    "one off": Rule(
        "9",
        Op(Ops.CMPNE, x < a, Exactly(True)),
        lambda x, a: a < x if x.dtype.is_int else None,
    ),
    "swaps what does not commute": Rule("10", x < y, lambda x, y: y < x),
    "the wrong end of an interval": Rule(
        "11",
        Op(Ops.MAX, x, y),
        lambda x, y, bounds: x if bounds(x)[1] >= bounds(y)[1] else None,
        DISCRETE,
    ),
    "the wrong branch": Rule(
        "12", Op(Ops.WHERE, Op(Ops.CMPNE, p, Exactly(True)), x, y),
        lambda p, x, y: p.where(x, y),
    ),
    "shifts bits out": Rule(
        "13", Op(Ops.SHR, Op(Ops.SHL, x, a), a), lambda x, a: x, INTS
    ),
    "or is not and": Rule("14", Op(Ops.OR, x, y), lambda x, y: x & y, BOOLS),
    "true for one order of operands only": Rule(
        "15", x * 2 + y, lambda x, y: x + x + (y if y.op is Ops.PARAM else x)
    ),
    "wrong for one constant": Rule(
        "16", x + a, lambda x, a: x if a.value == 77 else None, INTS
    ),
    "wrong for one value": Rule(
        "17", x < y, lambda x, y: (x + 1 < y + 1), INTS
    ),
    "NaN and infinity times 0": Rule("18", x * 0.0, lambda x: const(0.0, x)),
    "infinity minus itself": Rule("19", x + x * -1.0, lambda x: const(0.0, x)),
    "-0.0 plus 0.0": Rule("20", x + 0.0, lambda x: x),
    "NaN differs from itself": Rule(
        "21", Op(Ops.CMPNE, x, x), lambda x: const(False, x.ne(x))
    ),
    "0 / 0": Rule("22", Op(Ops.DIV, x, x), lambda x: const(1.0, x)),
    "float sums rounded apart": Rule(
        "23",
        x + a + b,
        lambda x, a, b: x + const(a.value + b.value, x) if x.dtype.is_float else None,
    ),
    "NaN is not less and not more": Rule(
        "24",
        Op(Ops.CMPNE, x < y, Exactly(True)),
        lambda x, y: (y < x).where(y < x, x.ne(y).logical_not()),
    ),
    "a product for a quotient": Rule(
        "25", Op(Ops.DIV, x, a), lambda x, a: x * const(1 / (a.value or 1.0), x)
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_is_refuted(what: str) -> None:
    rule = WRONG[what]
    with pytest.raises(AssertionError, match="changes a result") as caught:
        check_rule(rule)
    message = str(caught.value)
    assert message.startswith(f"rule {rule.name!r} changes a result (")
    before, after = re.findall(r"(?:before|after): .* = (.*)\n", message)
    assert before != after
    assert re.search(r"with (param|ridx)\d+ = ", message)


def test_a_wrong_float_rule_is_wrong_in_every_float_type() -> None:
    for dtype in (d for d in DTYPES.values() if d.is_float):
        with pytest.raises(AssertionError, match=f"x: {dtype}"):
            check_rule(WRONG["NaN and infinity times 0"], dtypes=[dtype])


def test_a_rule_that_never_applies_is_no_success() -> None:
    with pytest.raises(AssertionError, match="rule 'idle' never applied"):
        check_rule(Rule("idle", x + y, lambda x, y: None))
    with pytest.raises(AssertionError, match="never applied"):
        check_rule(Rule("bool sums", x + y, lambda x, y: y + x, BOOLS))


def test_a_rule_that_fails_is_named_with_what_it_was_given() -> None:
    with pytest.raises(OverflowError) as caught:
        check_rule(Rule("negates", x + a, lambda x, a: x - -a.value, INTS))
    assert caught.value.__notes__ == ["rule 'negates' was applied to param0 + -128"]


def test_a_third_party_checks_a_rule_on_its_own_op() -> None:
    double = OpDef(
        "double", "elementwise", 1, infer.elementwise(("int", "float")), "2 * x.",
        numpy=lambda u, x: x + x,
    )  # fmt: skip
    applied = check_rule(Rule("double", Op(double, x), lambda x: x + x))
    assert set(applied) == {
        f"x: {d}" for d in DTYPES.values() if d.kind in ("int", "float")
    }
    with pytest.raises(AssertionError, match=r"before: double\(param0\)"):
        check_rule(Rule("double", Op(double, x), lambda x: x * x))


def types_of(rule: Rule) -> set[str]:
    return {str(t) for t in typings(rule, (boolean, i8, u8, f32))}


def test_patterns_get_all_types_that_their_ops_take() -> None:
    assert types_of(Rule("", x + y, lambda: None)) == {
        f"x: {d}, y: {d}" for d in (i8, u8, f32)
    }
    assert types_of(Rule("", x + 1, lambda: None)) == {"x: i8", "x: u8"}
    assert types_of(Rule("", x * 0.5, lambda: None)) == {"x: f32"}
    assert types_of(Rule("", x < a, lambda: None, BOOLS)) == {"x: bool, a: bool"}
    assert len(types_of(Rule("", Op(Ops.WHERE, x < a, y, y), lambda: None))) == 16
    assert len(types_of(Rule("", Op(Ops.CAST, x), lambda: None))) == 4
    casts = list(typings(Rule("", Op(Ops.CAST, x), lambda: None), (boolean, i8)))
    assert len(casts) == 4


def test_all_orders_of_operands_are_made() -> None:
    (typed,) = typings(Rule("", x * a + y, lambda: None), [i8])
    assert len(set(typed.orders)) == 4


def test_values_of_8_bits_are_complete_and_of_others_have_the_corners() -> None:
    u, v, w = UOp.param(0, i8), UOp.param(1, u8), UOp.param(2, i32)
    known = {n: (n.dtype.min, n.dtype.max) for n in (u, v, w)}
    values = points([u, v], known, 65_536)
    assert len(set(zip(values[u].tolist(), values[v].tolist(), strict=True))) == 65_536
    wide = points([w], known, 4096)[w].tolist()
    assert {i32.min, i32.max, 0, -1, 1, 2**16, 2**30 + 1} <= set(wide)
    some = points([w], {w: (5, 9)}, 4096)[w].tolist()
    assert some == [5, 6, 7, 8, 9]
    assert len(points([u, v, w], known, 1000)[w]) == 1000


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.is_float], ids=str)
def test_float_values_have_the_corners(dtype) -> None:
    values = float_values(dtype)
    assert values.dtype == dtype.numpy
    # Each is a value of its type.
    assert not unequal(dtype.load(dtype.store(values)), values).any()
    texts = {str(float(v)) for v in values}
    assert {"0.0", "-0.0", "1.0", "-1.0", "inf", "-inf", "nan"} <= texts
    finite = values[abs(values) < float("inf")].astype(float)
    largest = {f16: 65504.0, bf16: 2.0**128 - 2.0**120}.get(dtype)
    assert largest is None or finite.max() == largest
    assert 0 < min(abs(finite[finite != 0])) < 1e-7


def test_expressions_are_evaluated_at_many_points() -> None:
    u, r = UOp.param(0, u32), UOp(Ops.RANGE, (), (1, 3, u32))
    values = points([u, r], {u: (7, 8)}, 100)
    total, seven = evaluate_at([u * 10 + r, UOp.const(7, u32)], values)
    assert total.tolist() == [70, 71, 72, 80, 81, 82]
    assert seven.tolist() == [7] * 6

"""The prover itself: its terms mean what the op table says, and it refutes."""

import random

import prover
import pytest
import z3

from uopc.dtype import DTYPES, boolean, i8, i32, i64, u64
from uopc.simplify import INTS, Num, Op, Rule, Var
from uopc.testing import check_rule
from uopc.testing.instances import constants, instances, typings
from uopc.testing.points import evaluate_at
from uopc.uop import BUILTIN_OPS, Ops, UOp, substitute

DISCRETE = tuple(d for d in DTYPES.values() if not d.is_float)
FLOAT_OPS = {op for op in BUILTIN_OPS if op.domain in ("positive", "nonzero")} | {
    Ops.SIN, Ops.COS, Ops.EXP, Ops.EXP2, Ops.TANH, Ops.FMA,
}  # fmt: skip
OPS = [op for op in BUILTIN_OPS if op.kind == "elementwise" and op not in FLOAT_OPS]
NO_NUMBERS = (Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR)  # but bools, perhaps

x, y, a, b = Var("x"), Var("y"), Num("a"), Num("b")


def number(term) -> int:
    term = z3.simplify(term)
    if z3.is_bool(term):
        return int(z3.is_true(term))
    return term.as_long()


@pytest.mark.parametrize("theory", [prover.Bits, prover.Numbers])
@pytest.mark.parametrize("op", OPS, ids=str)
def test_terms_mean_what_the_op_table_says(op, theory):
    rng = random.Random(0)
    pattern = Op(op, *(Var(f"v{k}") for k in range(op.arity)))
    compared = 0
    for typed in typings(Rule("", pattern, lambda: None), DISCRETE):
        if theory is prover.Numbers and op in NO_NUMBERS:
            compared += 1
            if typed.orders[0].dtype is not boolean:
                continue
        for _ in range(30):
            leaves = typed.variables.values()
            values = constants(rng, [u.dtype for u in leaves])
            consts = [
                UOp.const(n, u.dtype) for n, u in zip(values, leaves, strict=True)
            ]
            places = dict(zip(leaves, consts, strict=True))
            (u,) = substitute([typed.orders[0]], places)
            expected = int(evaluate_at([u], {})[0])
            if theory is prover.Bits:  # which has no signs
                expected %= 1 << u.dtype.bits
            assert number(theory({})(u)) == expected, (op, values, typed)
            compared += 1
    assert compared


def refuted(rule: Rule, *dtypes) -> str:
    for case in instances(rule, dtypes, wanted=16):
        try:
            assert prover.prove(case), "no answer"
        except AssertionError as problem:
            return str(problem)
    return ""


WRONG = {
    "one value of many": Rule(
        "1", Op(Ops.CMPNE, x, 123_456_789), lambda x: x.ne(x).logical_not(), INTS
    ),
    "one pair of values": Rule(
        "2",
        x < y,
        lambda x, y: (x < y) & (x.ne(987_654_321) | y.ne(987_654_322)),
        INTS,
    ),
    "wraps at the end": Rule(
        "3",
        x + y < y,
        lambda x, y: x < 0,
        INTS,
    ),
    "a remainder for a mask": Rule(
        "4", Op(Ops.AND, x, 0xFFFFF), lambda x: x % 0xFFFFF, INTS
    ),
    "floor of a negative product": Rule("5", x * -1 // 3, lambda x: x // 3 * -1, INTS),
    "rounds toward zero": Rule(
        "6", x // 4, lambda x: (x < 0).where(-(-x // 4), x // 4), INTS
    ),
    "the remainder of another sign": Rule(
        "7", x % -5, lambda x: (x % 5) * -1, INTS
    ),
    "a cast that cuts": Rule("8", x % 1_000_000, lambda x: x.cast(i8).cast(x.dtype)),
    "the largest number has no next": Rule(
        "9", x < y, lambda x, y: x + 1 < y + 1, INTS
    ),
    "right up to a million": Rule(
        "10",
        Op(Ops.MAX, x, y),
        lambda x, y: (x < 1_000_003).where(x.maximum(y), x),
        INTS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_is_refuted(what: str):
    rule = WRONG[what]
    message = refuted(rule, boolean, i32)
    assert message.startswith(f"rule {rule.name!r} changes a result (")
    assert "before: " in message
    assert "with param0 = " in message


def test_z3_finds_what_samples_miss():
    rule = WRONG["one pair of values"]
    assert check_rule(rule, dtypes=[boolean, i32]).total()
    message = refuted(rule, boolean, i32)
    assert "with param0 = 987654321, param1 = 987654322;" in message


def test_intervals_are_given():
    u = UOp.param(0, i32)
    known = {u: (3, 9)}
    assert prover.within(u * 2 + 1, (7, 19), known) == "numbers"
    assert prover.within(u * 2 + 1, (7, 18), known) == {u: 9}
    loop = UOp(Ops.RANGE, (), (0, 5, i64))
    assert prover.within(loop, (0, 4), {}) == "numbers"
    assert prover.within(loop, (0, 3), {}) == {loop: 4}


def test_there_may_be_no_answer():
    """Factors of a product of primes take longer than this."""
    u, v = (UOp.param(k, u64) for k in range(2))
    known = {u: (2, 2**31), v: (2, 2**31)}
    product = UOp.const(1_000_000_007 * 998_244_353, u64)
    answer = prover.holds(
        lambda term: term(u * v) != term(product), known, seconds=(0.02,)
    )
    assert answer == ""

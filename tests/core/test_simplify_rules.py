"""What the simplifier relies on, and what it does to floats.

The rules one by one are in test_check_rule.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from uopc.dtype import DTYPES, boolean, f32, i8, i32, u8, u32
from uopc.simplify import RULES, Bounds, Simplifier, fold
from uopc.uop import BUILTIN_OPS, Ops, UOp

TYPES = (i8, u8, i32, u32, boolean, f32)


@pytest.mark.parametrize("op", [op for op in BUILTIN_OPS if op.commutative], ids=str)
@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_a_commutative_op_may_be_swapped(op, dtype, special, same_bits) -> None:
    a, b = UOp.param(0, dtype), UOp.param(1, dtype)
    try:
        u = UOp(op, (a, b))
    except TypeError:
        return  # not of this type
    x, y = (m.reshape(-1) for m in np.meshgrid(special(dtype), special(dtype)))
    with np.errstate(all="ignore"):
        same_bits(u.op.numpy(u, x, y), u.op.numpy(u, y, x))


@pytest.mark.parametrize("op", [o for o in BUILTIN_OPS if o.kind == "elementwise"],
                         ids=str)  # fmt: skip
def test_only_exact_ops_are_folded(op, special, same_bits) -> None:
    for dtype in TYPES:
        arg = u8 if op is Ops.CAST else None
        for value in special(dtype).tolist():
            src = [UOp.const(value, dtype)] * op.arity
            if op is Ops.WHERE:
                src[0] = UOp.const(True, boolean)
            try:
                u = UOp(op, tuple(src), arg)
            except TypeError:
                break
            folded = fold(u)
            if not op.exact:
                assert folded is None
                continue
            assert folded is not None
            assert folded.op is Ops.CONST
            with np.errstate(all="ignore"):
                arrays = (np.asarray(s.value, s.dtype.numpy) for s in src)
                expected = np.asarray(op.numpy(u, *arrays))
            same_bits(np.asarray(folded.value, folded.dtype.numpy), expected)


X = UOp.param(0, f32)
FLOATS_STAY = {
    "zero times": X * 0.0,
    "plus zero": X + 0.0,
    "minus itself": X - X,
    "sum of constants": X + 1.0 + 2.0,
    "product of constants": X * 3.0 * 2.0,
    "sum of multiples": X * 3.0 + X * 2.0,
    "distributed": (X + 1.0) * 2.0,
    "over itself": X / X,
    "compared with itself": X.ne(X),
    "not less": (X < 1.0).logical_not(),
}


@pytest.mark.parametrize("name", FLOATS_STAY)
def test_float_arithmetic_is_left_alone(name: str) -> None:
    assert Simplifier()(FLOATS_STAY[name]) is FLOATS_STAY[name]


def test_what_floats_allow_is_done() -> None:
    for u in (X * 1.0, X / 1.0, X + -0.0, X.maximum(X)):
        assert Simplifier()(u) is X
    assert Simplifier()(UOp.const(1.0, f32) * X) is X
    assert Simplifier()(UOp.const(0.1, f32) + 0.2).value == float(
        np.float32(0.1) + np.float32(0.2)
    )


def test_one_is_not_true() -> None:
    """A pattern of True must not match the integer 1."""
    i, a, b = UOp.param(0, i32), UOp.param(1, f32), UOp.param(2, f32)
    for u in (i.ne(1), i.ne(1).logical_not(), i.ne(1).where(a, b), i.eq(1)):
        assert Simplifier()(u) is u
    assert Simplifier()(i.ne(1).logical_not().where(a, b)) is i.ne(1).where(b, a)


def at_the_end_of_u8(r: UOp) -> UOp:
    return (r.cast(u8) * 3).maximum(189) % 7


def just_below_the_largest(r: UOp) -> UOp:
    return (r * -1 + i32.max - 1) % 12_118 < 3_029


def unsimplified_digits(r: UOp) -> UOp:
    return r // 1 + r % 1 + r


@pytest.mark.parametrize(
    "build", [at_the_end_of_u8, just_below_the_largest, unsimplified_digits]
)
def test_rules_come_to_an_end_where_types_end(build, evaluate_over, same_bits) -> None:
    r = UOp(Ops.RANGE, (), (0, 67, i32))
    values = {r: np.arange(67, dtype=np.int32)}
    u = build(r)
    new = Simplifier()(u)
    same_bits(*(np.broadcast_to(evaluate_over(n, values), 67) for n in (new, u)))
    for rule in RULES:  # also on what another rule would have simplified first
        if rule.pattern.op is u.op:
            better = rule.apply(u, Bounds())
            got = evaluate_over(u if better is None else better, values)
            same_bits(np.broadcast_to(got, 67), evaluate_over(u, values))

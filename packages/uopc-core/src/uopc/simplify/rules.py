"""The built-in rewrite rules on scalar expressions, as data.

None changes a float result: no reassociation, and ``x * 0`` folds for
integers only. Rules that assume an integer sum does not wrap ask the interval
analysis first.
"""

from __future__ import annotations

from uopc.dtype import boolean
from uopc.simplify.bounds import Bounds
from uopc.simplify.linear import divide, modulo
from uopc.simplify.pattern import (
    BOOLS,
    DISCRETE,
    INTS,
    Exactly,
    Num,
    Op,
    Pat,
    Rule,
    Var,
)
from uopc.uop import Ops, UOp

x, y, z, p = Var("x"), Var("y"), Var("z"), Var("p")
a, b, c = Num("a"), Num("b"), Num("c")
YES, NO = Exactly(True), Exactly(False)


def _wrapped(value: int, like: UOp) -> UOp:
    """The integer constant ``value`` modulo 2**bits."""
    dtype = like.dtype
    value &= (1 << dtype.bits) - 1
    return UOp.const(value - (1 << dtype.bits) if value > dtype.max else value, dtype)


def _truth(value: bool) -> UOp:
    return UOp.const(value, boolean)


def _int(u: UOp) -> int:
    return int(u.value)


def _fits(value: int, like: UOp) -> UOp | None:
    inside = like.dtype.min <= value <= like.dtype.max
    return UOp.const(value, like.dtype) if inside else None


def _compare_by_range(x: UOp, y: UOp, bounds: Bounds) -> UOp | None:
    (low, high), (below, above) = bounds(x), bounds(y)
    if high < below:
        return _truth(True)
    return _truth(False) if low >= above else None


def _differ_by_range(x: UOp, y: UOp, bounds: Bounds) -> UOp | None:
    (low, high), (below, above) = bounds(x), bounds(y)
    return _truth(True) if high < below or above < low else None


def _max_by_range(x: UOp, y: UOp, bounds: Bounds) -> UOp | None:
    return x if bounds(x)[0] >= bounds(y)[1] else None


def _lt_shifted(x: UOp, a: UOp, b: UOp, bounds: Bounds) -> UOp | None:
    limit = None if bounds.wraps(x + a) else _fits(_int(b) - _int(a), x)
    return None if limit is None else x < limit


def _gt_shifted(x: UOp, a: UOp, b: UOp, bounds: Bounds) -> UOp | None:
    limit = None if bounds.wraps(x + a) else _fits(_int(b) - _int(a), x)
    return None if limit is None else limit < x


def _lt_scaled(x: UOp, a: UOp, b: UOp, bounds: Bounds) -> UOp | None:
    if _int(a) <= 0 or bounds.wraps(x * a):
        return None
    return x < UOp.const(-(-_int(b) // _int(a)), x.dtype)


def _lt_divided(x: UOp, a: UOp, b: UOp) -> UOp | None:
    limit = _fits(_int(a) * _int(b), x)
    return None if _int(a) <= 0 or limit is None else x < limit


def _gt_divided(x: UOp, a: UOp, b: UOp) -> UOp | None:
    limit = _fits(_int(a) * (_int(b) + 1) - 1, x)
    return None if _int(a) <= 0 or limit is None else limit < x


def _ge_from_not_lt(x: UOp, a: UOp) -> UOp | None:
    limit = _fits(_int(a) - 1, x) if x.dtype.is_int else None
    return None if limit is None else limit < x


def _le_from_not_gt(x: UOp, a: UOp) -> UOp | None:
    limit = _fits(_int(a) + 1, x) if x.dtype.is_int else None
    return None if limit is None else x < limit


def _rejoin(x: UOp, a: UOp, b: UOp, c: UOp) -> UOp | None:
    """(x // a) * b + (x % a) * c is x * c when b = a * c."""
    same = _int(a) > 0 and _int(b) == _int(a) * _int(c)
    return x * c if same else None


def _rejoin_in_sum(x: UOp, y: UOp, a: UOp, b: UOp, c: UOp) -> UOp | None:
    whole = _rejoin(x, a, b, c)
    return None if whole is None else y + whole


def _tighter(x: UOp, a: UOp, b: UOp, y: UOp, z: UOp) -> UOp | None:
    if a.value != a.value or b.value != b.value:
        return None  # nothing is less than NaN
    return (x < (a if a.value < b.value else b)).where(y, z)


def _mask_differs(x: UOp, a: UOp, b: UOp) -> UOp | None:
    return _truth(True) if _int(b) & ~_int(a) else None


def _bits_differ(x: UOp, a: UOp, b: UOp) -> UOp | None:
    return _truth(True) if _int(a) & ~_int(b) else None


def _unless_const(u: UOp, result: UOp) -> UOp | None:
    return None if u.op is Ops.CONST else result


def _not(u: Pat) -> Op:
    return Op(Ops.CMPNE, u, YES)


SUM_RULES = (
    Rule("add-zero", x + 0, lambda x: x, INTS),
    Rule("add-negative-zero", x + -0.0, lambda x: x),
    Rule(
        "add-constants",
        (x + a) + b,
        lambda x, a, b: x + _wrapped(_int(a) + _int(b), x),
        INTS,
    ),
    Rule(
        "add-constant-last",
        (x + a) + y,
        lambda x, a, y: _unless_const(y, (x + y) + a),
        INTS,
    ),
    Rule("add-self", x + x, lambda x: x * _wrapped(2, x), INTS),
    Rule("add-multiple", x * a + x, lambda x, a: x * _wrapped(_int(a) + 1, x), INTS),
    Rule(
        "add-multiples",
        x * a + x * b,
        lambda x, a, b: x * _wrapped(_int(a) + _int(b), x),
        INTS,
    ),
    Rule(
        "add-multiples-in-sum",
        (y + x * a) + x * b,
        lambda x, y, a, b: y + x * _wrapped(_int(a) + _int(b), x),
        INTS,
    ),
    Rule(
        "rejoin",
        (x // a) * b + x % a,
        lambda x, a, b: _rejoin(x, a, b, UOp.const(1, x.dtype)),
        INTS,
    ),
    Rule("rejoin-scaled", (x // a) * b + (x % a) * c, _rejoin, INTS),
    Rule(
        "rejoin-in-sum",
        (y + (x // a) * b) + x % a,
        lambda x, y, a, b: _rejoin_in_sum(x, y, a, b, UOp.const(1, x.dtype)),
        INTS,
    ),
    Rule(
        "rejoin-scaled-in-sum",
        (y + (x // a) * b) + (x % a) * c,
        _rejoin_in_sum,
        INTS,
    ),
)

PRODUCT_RULES = (
    Rule("mul-one", x * 1, lambda x: x, INTS),
    Rule("mul-one-float", x * 1.0, lambda x: x),
    Rule("mul-zero", x * 0, lambda x: UOp.const(0, x.dtype), INTS),
    Rule(
        "mul-constants",
        (x * a) * b,
        lambda x, a, b: x * _wrapped(_int(a) * _int(b), x),
        INTS,
    ),
    Rule(
        "mul-shifted",
        (x + a) * b,
        lambda x, a, b: x * b + _wrapped(_int(a) * _int(b), x),
        INTS,
    ),
    Rule("div-one", Op(Ops.DIV, x, 1.0), lambda x: x),
    Rule("floordiv", x // c, lambda x, c, bounds: divide(x, c, bounds), INTS),
    Rule("floormod", x % c, lambda x, c, bounds: modulo(x, c, bounds), INTS),
)

COMPARISON_RULES = (
    Rule("less-by-range", x < y, _compare_by_range, DISCRETE),
    Rule("less-than-self", x < x, lambda x: _truth(False)),
    Rule("less-shifted", (x + a) < b, _lt_shifted, INTS),
    Rule("greater-shifted", Op(Ops.CMPLT, b, x + a), _gt_shifted, INTS),
    Rule("less-scaled", (x * a) < b, _lt_scaled, INTS),
    Rule("less-divided", (x // a) < b, _lt_divided, INTS),
    Rule("greater-divided", Op(Ops.CMPLT, b, x // a), _gt_divided, INTS),
    Rule("differ-by-range", Op(Ops.CMPNE, x, y), _differ_by_range, DISCRETE),
    Rule("differ-from-self", Op(Ops.CMPNE, x, x), lambda x: _truth(False), DISCRETE),
    Rule("differ-from-false", Op(Ops.CMPNE, x, NO), lambda x: x, BOOLS),
    Rule("not-not", _not(_not(x)), lambda x: x, BOOLS),
    Rule("not-less", _not(x < a), _ge_from_not_lt, BOOLS),
    Rule("not-greater", _not(Op(Ops.CMPLT, a, x)), _le_from_not_gt, BOOLS),
    Rule("max-self", Op(Ops.MAX, x, x), lambda x: x),
    Rule("max-by-range", Op(Ops.MAX, x, y), _max_by_range, DISCRETE),
    Rule(
        "max-by-range-swapped",
        Op(Ops.MAX, y, x),
        lambda x, y, bounds: _max_by_range(x, y, bounds),
        DISCRETE,
    ),
)

BIT_RULES = (
    Rule("and-self", Op(Ops.AND, x, x), lambda x: x),
    Rule("or-self", Op(Ops.OR, x, x), lambda x: x),
    Rule("and-true", Op(Ops.AND, x, YES), lambda x: x, BOOLS),
    Rule("and-false", Op(Ops.AND, x, NO), lambda x: _truth(False), BOOLS),
    Rule("or-true", Op(Ops.OR, x, YES), lambda x: _truth(True), BOOLS),
    Rule("or-false", Op(Ops.OR, x, NO), lambda x: x, BOOLS),
    Rule("and-zero", Op(Ops.AND, x, 0), lambda x: x.const_like(0), INTS),
    Rule("or-zero", Op(Ops.OR, x, 0), lambda x: x, INTS),
    Rule("xor-zero", Op(Ops.XOR, x, 0), lambda x: x, INTS),
    Rule("mask-differs", Op(Ops.CMPNE, Op(Ops.AND, x, a), b), _mask_differs, INTS),
    Rule("set-bits-differ", Op(Ops.CMPNE, Op(Ops.OR, x, a), b), _bits_differ, INTS),
    Rule("shift-left-zero", Op(Ops.SHL, x, 0), lambda x: x, INTS),
    Rule("shift-right-zero", Op(Ops.SHR, x, 0), lambda x: x, INTS),
)

CHOICE_RULES = (
    Rule("where-true", Op(Ops.WHERE, YES, x, y), lambda x, y: x),
    Rule("where-false", Op(Ops.WHERE, NO, x, y), lambda x, y: y),
    Rule("where-same", Op(Ops.WHERE, p, x, x), lambda p, x: x),
    Rule("where-not", Op(Ops.WHERE, _not(p), x, y), lambda p, x, y: p.where(y, x)),
    Rule(
        "where-nested-true",
        Op(Ops.WHERE, p, Op(Ops.WHERE, p, x, y), z),
        lambda p, x, y, z: p.where(x, z),
    ),
    Rule(
        "where-nested-false",
        Op(Ops.WHERE, p, x, Op(Ops.WHERE, p, y, z)),
        lambda p, x, y, z: p.where(x, z),
    ),
    Rule(
        "where-tighter",
        Op(Ops.WHERE, x < a, Op(Ops.WHERE, x < b, y, z), z),
        _tighter,
        BOOLS,
    ),
)

RULES: tuple[Rule, ...] = (
    SUM_RULES + PRODUCT_RULES + COMPARISON_RULES + BIT_RULES + CHOICE_RULES
)

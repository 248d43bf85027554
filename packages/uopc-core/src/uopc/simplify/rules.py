"""The built-in rewrite rules on scalar expressions, as data.

None changes a float result: no reassociation, and ``x * 0`` folds for
integers only. Rules that assume an integer sum does not wrap ask the interval
analysis first.
"""

from __future__ import annotations

from uopc.dtype import boolean
from uopc.simplify.bounds import Bounds
from uopc.simplify.context import positional
from uopc.simplify.division import at_most, collect, divide, modulo
from uopc.simplify.linear import Sum, compose
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

x, y, z, p, q = Var("x"), Var("y"), Var("z"), Var("p"), Var("q")
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


def _max_by_range(x: UOp, y: UOp, bounds: Bounds) -> UOp | None:
    return x if bounds(x)[0] >= bounds(y)[1] else None


def _less(x: UOp, b: UOp, bounds: Bounds) -> UOp | None:
    shorter = at_most(x, _int(b) - 1, bounds)
    return None if shorter is None else _upto(*shorter, x, bounds)


def _greater(x: UOp, b: UOp, bounds: Bounds) -> UOp | None:
    shorter = at_most(x, _int(b), bounds)
    return None if shorter is None else _above(*shorter, x, bounds)


def _upto(total: Sum, limit: int, like: UOp, bounds: Bounds) -> UOp | None:
    if _falls(total):
        return _above(_negated(total), -limit - 1, like, bounds)
    left, right = compose(total, like, bounds), _fits(limit + 1, like)
    return None if left is None or right is None else left < right


def _above(total: Sum, limit: int, like: UOp, bounds: Bounds) -> UOp | None:
    if _falls(total):
        return _upto(_negated(total), -limit - 1, like, bounds)
    left, right = compose(total, like, bounds), _fits(limit, like)
    return None if left is None or right is None else right < left


def _falls(total: Sum) -> bool:
    """Whether the sum reads better with its sign changed."""
    return max(total[0].values(), key=abs, default=0) < 0


def _negated(total: Sum) -> Sum:
    return {t: -k for t, k in total[0].items()}, -total[1]


def _lt_divided(x: UOp, a: UOp, b: UOp) -> UOp | None:
    limit = _fits(_int(a) * _int(b), x)
    return None if _int(a) <= 0 or limit is None else x < limit


def _gt_divided(x: UOp, a: UOp, b: UOp) -> UOp | None:
    limit = _fits(_int(a) * (_int(b) + 1) - 1, x)
    return None if _int(a) <= 0 or limit is None else limit < x


def _remainder_in(x: UOp, n: int, first: int, last: int, bounds: Bounds) -> UOp | None:
    """Whether x % n lies in [first, last], if that is one interval of x."""
    if not 0 <= first <= last < n:
        return None
    low, high = bounds(x)
    period = (low - last + n - 1) // n * n  # of the first interval not below low
    begin, end = period + first, period + last
    if begin > high:
        return _truth(False)
    if begin + n <= high:
        return None
    parts = []
    if begin > low:
        parts.append(UOp.const(begin - 1, x.dtype) < x)
    if end < high:
        parts.append(x < UOp.const(end + 1, x.dtype))
    if len(parts) == 2:
        return parts[0] & parts[1]
    return parts[0] if parts else _truth(True)


def _ge_from_not_lt(x: UOp, a: UOp) -> UOp | None:
    limit = _fits(_int(a) - 1, x) if x.dtype.is_int else None
    return None if limit is None else limit < x


def _le_from_not_gt(x: UOp, a: UOp) -> UOp | None:
    limit = _fits(_int(a) + 1, x) if x.dtype.is_int else None
    return None if limit is None else x < limit


def _tighter(x: UOp, a: UOp, b: UOp, y: UOp, z: UOp) -> UOp | None:
    if a.value != a.value or b.value != b.value:
        return None  # nothing is less than NaN
    return (x < (a if a.value < b.value else b)).where(y, z)


def _mask_differs(x: UOp, a: UOp, b: UOp) -> UOp | None:
    return _truth(True) if _int(b) & ~_int(a) else None


def _bits_differ(x: UOp, a: UOp, b: UOp) -> UOp | None:
    return _truth(True) if _int(a) & ~_int(b) else None


def _gated(p: UOp, x: UOp) -> UOp | None:
    """``x`` where p holds, else 0: by the gates of the reads that it consists of."""
    if not positional(p):
        return None
    if x.op is Ops.INDEX and len(x.src) == 3:
        buffer, index, gate = x.src
        return UOp(Ops.INDEX, (buffer, index, p & gate))
    if x.op is Ops.WHERE:
        yes, no = _gated(p, x.src[1]), _gated(p, x.src[2])
        return None if yes is None or no is None else x.src[0].where(yes, no)
    return x if x.op is Ops.CONST and x is UOp.const(0, x.dtype) else None


def _ungated(x: UOp, y: UOp, bounds: Bounds) -> UOp:
    low, high = bounds(y)
    if high < 0 or low >= x.arg.size:
        return UOp.const(0, x.dtype)  # in a loop that never runs
    return UOp(Ops.INDEX, (x, y))


def _both(p: UOp, q: UOp, x: UOp, y: UOp) -> UOp | None:
    return (p & q).where(x, y) if positional(p) and positional(q) else None


def _constant_last(p: UOp, a: UOp, x: UOp) -> UOp | None:
    """``a`` comes last where that lets x take in the condition."""
    gated = x.op is Ops.INDEX and len(x.src) == 3
    nested = x.op is Ops.WHERE and a in x.src
    if p.op is not Ops.CMPLT or not (gated or nested) or not positional(p):
        return None
    left, right = p.src
    opposite = None
    if right.op is Ops.CONST:
        opposite = _ge_from_not_lt(left, right)
    elif left.op is Ops.CONST:
        opposite = _le_from_not_gt(right, left)
    return None if opposite is None else opposite.where(x, a)


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
    Rule("collect", x + y, lambda x, y, bounds: collect(x + y, bounds), INTS),
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
    Rule("less-than-self", x < x, lambda x: _truth(False)),
    Rule("less", x < b, _less, INTS),
    Rule("greater", Op(Ops.CMPLT, b, x), _greater, INTS),
    Rule(
        "less-remainder",
        (x % a) < b,
        lambda x, a, b, bounds: _remainder_in(x, _int(a), 0, _int(b) - 1, bounds),
        INTS,
    ),
    Rule(
        "greater-remainder",
        Op(Ops.CMPLT, b, x % a),
        lambda x, a, b, bounds: _remainder_in(
            x, _int(a), _int(b) + 1, _int(a) - 1, bounds
        ),
        INTS,
    ),
    Rule("less-divided", (x // a) < b, _lt_divided, INTS),
    Rule("greater-divided", Op(Ops.CMPLT, b, x // a), _gt_divided, INTS),
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
    Rule("where-constant-last", Op(Ops.WHERE, p, a, x), _constant_last),
    Rule("where-both", Op(Ops.WHERE, p, Op(Ops.WHERE, q, x, y), y), _both),
    Rule(
        "where-tighter",
        Op(Ops.WHERE, x < a, Op(Ops.WHERE, x < b, y, z), z),
        _tighter,
        BOOLS,
    ),
)

READ_RULES = (
    Rule("read-always", Op(Ops.INDEX, x, y, YES), _ungated),
    Rule("read-never", Op(Ops.INDEX, x, y, NO), lambda x, y: UOp.const(0, x.dtype)),
    Rule("where-gated-int", Op(Ops.WHERE, p, x, 0), _gated),
    Rule("where-gated-float", Op(Ops.WHERE, p, x, 0.0), _gated),
    Rule("where-gated-bool", Op(Ops.WHERE, p, x, NO), _gated),
)

RULES: tuple[Rule, ...] = (
    SUM_RULES + PRODUCT_RULES + COMPARISON_RULES + BIT_RULES + CHOICE_RULES + READ_RULES
)

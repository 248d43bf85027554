"""Each rewrite rule keeps every bit, on every instance that we can enumerate.

A rule's pattern is instantiated with all combinations of variables (of the whole
range of a type, of a small range, of a negative one) and of constants; where the
rule applies, both sides are evaluated over all values of the variables.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from uopc.dtype import DTYPES, boolean, f32, i8, i32, u8, u32
from uopc.simplify import RULES, Bounds, Exactly, Num, Op, Rule, Simplifier, Var, fold
from uopc.uop import BUILTIN_OPS, Ops, UOp

COMPARES = (Ops.CMPLT, Ops.CMPNE)
SMALL = (-128, -9, -4, -2, -1, 0, 1, 2, 3, 4, 6, 12, 100, 127)
FEW = (-3, 0, 1, 2, 3, 6)


def names(pattern: Any, kind: type) -> list[str]:
    """The variables (or numbers) of a pattern, in order, each once."""
    if isinstance(pattern, kind):
        return [pattern.name]
    found = [n for s in getattr(pattern, "src", ()) for n in names(s, kind)]
    return list(dict.fromkeys(found))


def typed(pattern: Any, dtype: Any, inner: Any, found: dict[str, Any]) -> None:
    """Collect the dtype of every variable, for a result of type ``dtype``.

    ``inner`` is what comparisons compare.
    """
    if isinstance(pattern, (Var, Num)):
        found.setdefault(pattern.name, dtype)
        return
    if isinstance(pattern, Exactly):
        return
    parts = [dtype] * len(pattern.src)
    if pattern.op is Ops.WHERE:
        parts[0] = boolean
    elif pattern.op in COMPARES:
        truth = any(
            isinstance(s, Exactly) and isinstance(s.number, bool) for s in pattern.src
        )
        parts = [boolean if truth else inner] * 2
    for s, d in zip(pattern.src, parts, strict=True):
        typed(s, d, inner, found)


def build(pattern: Any, env: dict[str, UOp], dtype: Any, inner: Any) -> UOp:
    if isinstance(pattern, (Var, Num)):
        return env[pattern.name]
    if isinstance(pattern, Exactly):
        return UOp.const(pattern.number, dtype)
    parts: list[Any] = [dtype] * len(pattern.src)
    if pattern.op is Ops.WHERE:
        parts[0] = boolean
    elif pattern.op in COMPARES:
        others = [s for s in pattern.src if not isinstance(s, Exactly)]
        one = build(others[0], env, inner, inner)
        parts = [one.dtype] * 2
    src = [build(s, env, d, inner) for s, d in zip(pattern.src, parts, strict=True)]
    return UOp(pattern.op, tuple(src))


def variables(dtype: Any, number: int) -> list[UOp]:
    """What a variable may stand for."""
    found = [UOp.param(number, dtype)]
    if dtype.is_int:
        r = UOp(Ops.RANGE, (), (number, 7, dtype))
        found += [r, r + (-3 if dtype.kind == "int" else 3), r + 20]
    return found


def numbers(dtype: Any, count: int, special: Any) -> list[Any]:
    if dtype is boolean or dtype.is_float:
        return special(dtype).tolist()
    if dtype.bits > 8:
        wide = [dtype.min, -1, 0, 1, 2, 6, dtype.max] if count < 3 else [-1, 2, 6, 12]
        return [n for n in wide if dtype.min <= n <= dtype.max]
    pool = SMALL if count < 3 else FEW
    return [n for n in pool if dtype.min <= n <= dtype.max]


def instances(rule: Rule, dtype: Any, inner: Any, special: Any) -> Iterator[UOp]:
    found: dict[str, Any] = {}
    typed(rule.pattern, dtype, inner, found)
    free, fixed = names(rule.pattern, Var), names(rule.pattern, Num)
    choices = [variables(found[n], k) for k, n in enumerate(free)]
    values = [numbers(found[n], len(fixed), special) for n in fixed]
    # Of many variables all are of one sort: the whole type, or a small range.
    mixed = len(free) * len(fixed) < 4 and len(free) < 3
    together = [[c[i % len(c)] for c in choices] for i in range(4)]
    for nodes in itertools.product(*choices) if mixed else together:
        for given in itertools.product(*values):
            env = dict(zip(free, nodes, strict=True))
            for n, v in zip(fixed, given, strict=True):
                env[n] = UOp.const(v, found[n])
            yield build(rule.pattern, env, dtype, inner)


def grid(leaves: list[UOp], special: Any) -> dict[UOp, np.ndarray]:
    """All combinations of values of the leaves."""
    columns = []
    for u in leaves:
        if u.op is Ops.RANGE:
            columns.append(np.arange(u.arg[1]).astype(u.dtype.numpy))
        elif u.dtype.is_int and u.dtype.bits == 8 and len(leaves) < 3:
            step = (1, 5)[len(leaves) - 1]
            every = np.arange(u.dtype.min, u.dtype.max + 1, step, dtype=u.dtype.numpy)
            columns.append(np.union1d(every, special(u.dtype)))
        else:
            columns.append(special(u.dtype))
    mesh = np.meshgrid(*columns, indexing="ij") if columns else []
    return {u: m.reshape(-1) for u, m in zip(leaves, mesh, strict=True)}


TYPES = (i8, u8, i32, u32, boolean, f32)


def legal(rule: Rule, dtype: Any, inner: Any) -> bool:
    """Whether the pattern can be of these types at all."""
    env = {}
    found: dict[str, Any] = {}
    typed(rule.pattern, dtype, inner, found)
    for k, (n, d) in enumerate(found.items()):
        env[n] = UOp.param(k, d)
    try:
        u = build(rule.pattern, env, dtype, inner)
    except (TypeError, OverflowError):
        return False
    return rule.types(u.src[0].dtype)


def test_rules_have_names_of_their_own() -> None:
    assert len({r.name for r in RULES}) == len(RULES) > 40


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_changes_no_bit(rule: Rule, special, evaluate_over, same_bits) -> None:
    fired = 0
    compares = any(op in COMPARES for op in ops_of(rule.pattern))
    results = (i8, f32) if compares else TYPES
    for dtype in (boolean,) if rule.pattern.op in COMPARES else results:
        for inner in TYPES if compares else (dtype,):
            if not legal(rule, dtype, inner):
                continue
            for u in instances(rule, dtype, inner, special):
                fired += check(rule, u, special, evaluate_over, same_bits)
    assert fired, "never applied"


def ops_of(pattern: Any) -> list[Any]:
    if not isinstance(pattern, Op):
        return []
    return [pattern.op, *(op for s in pattern.src for op in ops_of(s))]


def check(rule: Rule, u: UOp, special, evaluate_over, same_bits) -> bool:
    bounds = Bounds()
    new = rule.apply(u, bounds)
    if new is None:
        return False
    assert new is not u
    assert new.dtype is u.dtype
    assert new.shape == u.shape
    leaves = [n for n in u.toposort() if n.op in (Ops.PARAM, Ops.RANGE)]
    values = grid(leaves, special)
    before, after = evaluate_over(u, values), evaluate_over(new, values)
    same_bits(np.broadcast_to(after, before.shape), before)
    return True


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

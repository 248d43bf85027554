"""Random expressions before and after simplification, and what it achieves."""

from __future__ import annotations

import time

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import boolean, f32, i8, i32, i64, u8
from uopc.simplify import Bounds, Simplifier
from uopc.simplify.context import facts
from uopc.simplify.text import infix
from uopc.uop import Ops, UOp, toposort


class Trees:
    """Random scalar expressions over loop variables, with all their values."""

    def __init__(self, seed: int, dtype) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        extents = [int(n) for n in self.rng.choice([2, 3, 4, 6, 8, 9], 3)]
        self.loops = [UOp(Ops.RANGE, (), (k, n, dtype)) for k, n in enumerate(extents)]
        mesh = np.meshgrid(*map(np.arange, extents), indexing="ij")
        self.values = {
            r: m.reshape(-1).astype(dtype.numpy)
            for r, m in zip(self.loops, mesh, strict=True)
        }
        self.size = mesh[0].size

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def number(self, *wanted: int) -> UOp:
        pool = wanted or (-7, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 8, 12, 24, 100)
        fits = [n for n in pool if self.dtype.min <= n <= self.dtype.max]
        return UOp.const(self.pick(fits), self.dtype)

    def tree(self, depth: int) -> UOp:
        if depth == 0:
            return self.pick(self.loops) if self.rng.random() < 0.75 else self.number()
        a = self.tree(depth - 1)
        match self.pick("++++***//%%%?m#"):
            case "+":
                return a + self.tree(depth - 1)
            case "*":
                return a * self.number()
            case "/":
                return a // self.number(1, 2, 3, 4, 6, 8, 12, 24, 5, -2, 0)
            case "%":
                return a % self.number(1, 2, 3, 4, 6, 8, 12, 24, 5, -3, 0)
            case "?":
                return self.truth(depth - 1).where(a, self.tree(depth - 1))
            case "m":
                return a.maximum(self.tree(depth - 1))
        return self.pick((a * self.tree(0), a // self.tree(0), a % self.tree(0)))

    def truth(self, depth: int) -> UOp:
        a, b = self.tree(depth), self.tree(max(0, depth - 1))
        less = self.pick((a < b, a < self.number(), self.number() < a, a.ne(b)))
        match self.pick("....!&|"):
            case "!":
                return less.logical_not()
            case "&":
                return less & (a < self.number())
            case "|":
                return less | (self.number() < b)
        return less


TYPES = (i32, i32, i8, u8, i64)


@pytest.mark.parametrize("seed", range(150))
def test_integer_expressions_keep_their_values(
    seed: int, evaluate_over, same_bits
) -> None:
    trees = Trees(seed, TYPES[seed % len(TYPES)])
    simplify = Simplifier()
    for depth in (2, 3, 3, 4):
        for u in (trees.tree(depth), trees.truth(depth)):
            new = simplify(u)
            assert new.dtype is u.dtype
            before, after = (
                np.broadcast_to(evaluate_over(n, trees.values), trees.size)
                for n in (u, new)
            )
            same_bits(after, before)
            assert simplify(new) is new


@pytest.mark.parametrize("seed", range(60))
def test_bounds_hold_for_every_value(seed: int, evaluate_over) -> None:
    trees = Trees(1000 + seed, TYPES[seed % len(TYPES)])
    for depth in (2, 3, 4):
        bounds = Bounds()
        root = trees.truth(depth).where(trees.tree(depth), trees.tree(depth))
        for u in toposort([root]):
            low, high = bounds(u)
            values = evaluate_over(u, trees.values)
            assert low <= int(values.min())
            assert int(values.max()) <= high
            assert u.dtype.min <= low <= high <= u.dtype.max
            if u.op in (Ops.ADD, Ops.MUL) and not bounds.wraps(u):
                a, b = (evaluate_over(s, trees.values).astype(object) for s in u.src)
                exact = a + b if u.op is Ops.ADD else a * b
                assert np.all(exact == values)


@pytest.mark.parametrize("seed", range(60))
def test_what_a_condition_tells_is_true_where_it_holds(
    seed: int, evaluate_over
) -> None:
    trees = Trees(2000 + seed, TYPES[seed % len(TYPES)])
    told = 0
    for _ in range(20):
        a, n = trees.tree(2), trees.number()
        for cond in (a < n, n < a):
            truth = np.broadcast_to(evaluate_over(cond, trees.values), trees.size)
            yes, no = facts(cond, Bounds())
            told += len(yes) + len(no)
            for u, (low, high), where in [
                *((*fact, truth) for fact in yes), *((*fact, ~truth) for fact in no)
            ]:  # fmt: skip
                values = np.broadcast_to(evaluate_over(u, trees.values), trees.size)
                assert np.all((low <= values[where]) & (values[where] <= high))
    assert told


SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, float("inf"), float("nan"), 1e30)


def float_tree(rng: np.random.Generator, leaves: list[UOp], depth: int) -> UOp:
    if depth == 0:
        if rng.random() < 0.5:
            return leaves[int(rng.integers(len(leaves)))]
        return UOp.const(SPECIAL[int(rng.integers(len(SPECIAL)))], f32)
    a, b = (float_tree(rng, leaves, depth - 1) for _ in range(2))
    match int(rng.integers(9)):
        case 0 | 1:
            return a + b
        case 2 | 3:
            return a * b
        case 4:
            return a / b
        case 5:
            return a.maximum(b)
        case 6:
            return a // b if rng.random() < 0.5 else a % b
        case 7:
            return a.cast(i32).cast(f32)
    cond = (a < b) if rng.random() < 0.5 else a.ne(b)
    return cond.where(b, float_tree(rng, leaves, depth - 1))


@pytest.mark.parametrize("seed", range(80))
def test_float_expressions_keep_every_bit(
    seed: int, special, evaluate_over, same_bits
) -> None:
    rng = np.random.default_rng(seed)
    leaves = [UOp.param(k, f32) for k in range(2)]
    mesh = np.meshgrid(special(f32), special(f32))
    values = {u: m.reshape(-1) for u, m in zip(leaves, mesh, strict=True)}
    simplify = Simplifier()
    for depth in (1, 2, 3):
        u = float_tree(rng, leaves, depth)
        before, after = (evaluate_over(n, values) for n in (u, simplify(u)))
        size = values[leaves[0]].shape
        # MAX of two zeros may be either, so what follows from its sign may differ.
        if any(n.op is Ops.MAX for n in toposort([u])):
            before, after = before + np.float32(0), after + np.float32(0)
        same_bits(np.broadcast_to(after, size), np.broadcast_to(before, size))


def loops(*extents: int) -> list[UOp]:
    return [UOp(Ops.RANGE, (), (k, n, i32)) for k, n in enumerate(extents)]


R, S, T = loops(3, 4, 5)
X = UOp.param(0, i32)
# What index expressions become.
SHORTER = [
    (R * 4 + S, R * 4 + S),
    ((R * 4 + S) // 4, R),
    ((R * 4 + S) % 4, S),
    ((R * 20 + S * 5 + T) // 5, R * 4 + S),
    ((R * 20 + S * 5 + T) // 20, R),
    ((R * 20 + S * 5 + T) % 20, S * 5 + T),
    ((R * 20 + S * 5 + T) % 20 // 5, S),
    ((R * 20 + S * 5 + T) // 5 % 4, S),
    ((S + 4) // 4, UOp.const(1, i32)),
    ((S + 4) % 4, S),
    (S // 4, UOp.const(0, i32)),
    (X // 2 // 3, X // 6),
    (X % 12 % 4, X % 4),
    (X // 4 * 4 + X % 4, X),
    (S < 4, UOp.const(True, boolean)),
    (S < 0, UOp.const(False, boolean)),
    (S + 2 < 3, S < 1),
    (S * 3 // 6, S // 2),
    (X + X, X * 2),
    (X * 3 + X, X * 4),
    (X - X, UOp.const(0, i32)),
    (X + 1 + 2, X + 3),
    (X * -1 * -1, X),
    ((S * -1 + 3) * -1 + 3, S),
    (S.maximum(T * 0), S),
    ((X < 3).where(X, X), X),
    ((X < 3).where((X < 3).where(X, R), S), (X < 3).where(X, S)),
    ((S < 2).where(S // 2, S), (S < 2).where(UOp.const(0, i32), S)),
    ((X & -1), X & -1),
    (UOp.const(3, i32) + X, X + 3),
    ((R * 20 + S * 5 + T) // 10, R * 2 + S // 2),
    ((R * 20 + S * 5 + T) % 10, S % 2 * 5 + T),
    ((R * 5 + (S * 5 + T) // 3) // 4, (R * 15 + S * 5 + T) // 12),
    ((R * 4 + S) // 3 % 2 * 3 + (R * 4 + S) % 3, (R * 4 + S) % 6),
    (((S * -1) + 5) % 3, ((S * -1) + 5) % 3),  # not of a negative number
    ((R * 5 + T) // 5 * 5 + (R + S) + T, R * 6 + S + T),
    (((S < 2) & (T < 9)) & (S < 3), S < 2),
    ((S + 3) % 4 < 2, (UOp.const(0, i32) < S) & (S < 3)),
    ((R * 4 + S) < 8, R < 2),
    (((S * -1) + 3) < 2, UOp.const(1, i32) < S),
    ((S < 2).where((T < 3).where(X, R), R), ((S < 2) & (T < 3)).where(X, R)),
    # What is known of a sum is known of the sums that contain it.
    ((S + T < 3).where((S + T) * 2 // 6 + R, X), (S + T < 3).where(R, X)),
]


@pytest.mark.parametrize(("long", "short"), SHORTER)
def test_index_expressions_get_short(long: UOp, short: UOp) -> None:
    assert Simplifier()(long) is short


# What divisions and remainders are taken of, with a constant ``a`` inside.
DIVIDENDS = {
    "quotient": lambda x, r, s, a: x // a,
    "remainder": lambda x, r, s, a: x % a,
    "row": lambda x, r, s, a: r * a + s,
    "shifted row": lambda x, r, s, a: r * a + s + a,
    "scaled": lambda x, r, s, a: (r + 1) * a,
    "scaled and shifted": lambda x, r, s, a: r * a + 5,
    "shifted": lambda x, r, s, a: x + a,
    "sum of remainders": lambda x, r, s, a: x % a + r * 6,
}


@pytest.mark.parametrize("dtype", [i8, u8], ids=str)
@pytest.mark.parametrize("name", DIVIDENDS)
def test_divisions_of_small_types_for_all_constants(
    name: str, dtype, evaluate_over, same_bits
) -> None:
    x = UOp.param(0, dtype)
    r, s = (UOp(Ops.RANGE, (), (k, 5, dtype)) for k in range(2))
    every = np.arange(dtype.min, dtype.max + 1, dtype=dtype.numpy)
    mesh = [np.arange(5).astype(dtype.numpy)] * 2
    columns = [every, *mesh] if name in ("sum of remainders",) else [every[:1], *mesh]
    if name in ("quotient", "remainder", "shifted"):
        columns = [every, mesh[0][:1], mesh[0][:1]]
    grid = (m.reshape(-1) for m in np.meshgrid(*columns, indexing="ij"))
    values = dict(zip((x, r, s), grid, strict=True))
    constants = [n for n in (-128, -7, -1, 0, 1, 2, 3, 4, 6, 12, 25, 100, 127)
                 if n >= dtype.min]  # fmt: skip
    size = values[x].size
    for a in constants:
        inside = DIVIDENDS[name](x, r, s, UOp.const(a, dtype))
        for b in constants:
            for u in (inside // b, inside % b, inside < b):
                new = Simplifier()(u)
                before, after = (
                    np.broadcast_to(evaluate_over(n, values), size) for n in (u, new)
                )
                same_bits(after, before)


WRAPPING = [
    # 200 * r leaves the range of u8, so nothing may be concluded from r.
    lambda r: (r * 200) // 200,
    lambda r: (r * 200 + r) % 200,
    lambda r: (r + 250) < 252,
    lambda r: (r + 250) // 2,
    lambda r: r * 128 // 2,
]


@pytest.mark.parametrize("build", WRAPPING)
def test_nothing_is_concluded_from_sums_that_wrap(
    build, evaluate_over, same_bits
) -> None:
    r = UOp(Ops.RANGE, (), (0, 9, u8))
    values = {r: np.arange(9, dtype=np.uint8)}
    u = build(r)
    same_bits(evaluate_over(Simplifier()(u), values), evaluate_over(u, values))


WHOLE = (i32.min, i32.max)
BOUNDS = [
    (S, (0, 3)), (S + 10, (10, 13)), (S * -2, (-6, 0)), (S // 2, (0, 1)),
    (S % 2, (0, 1)), (S % 9, (0, 3)), (X, WHOLE), (X % 7, (0, 6)),
    (X % -7, WHOLE), (X // 0, WHOLE), (X + 1, WHOLE),
    (S.maximum(T), (0, 4)), ((S < 9).where(S, T), (0, 4)), (S.cast(u8), (0, 3)),
    ((S - 1).cast(u8), (0, 255)), (X.cast(i8), (-128, 127)), (S < 9, (1, 1)),
    (S.ne(9), (1, 1)), (S.ne(3), (0, 1)), (S.cast(u8) & 1, (0, 1)),
    (UOp.param(1, f32).cast(i32), WHOLE),
]  # fmt: skip


@pytest.mark.parametrize(("u", "interval"), BOUNDS)
def test_intervals(u: UOp, interval: tuple[int, int]) -> None:
    assert Bounds()(u) == interval


def test_a_read_relies_on_its_gate_only() -> None:
    """C may load before it decides, so an index without a gate is good anywhere."""
    table, zero = UOp.buffer(4, f32, 0), UOp.const(0.0, f32)
    read = UOp(Ops.INDEX, (table, T % 4))
    new = Simplifier()((T < 4).where(read, zero))
    assert new is UOp(Ops.INDEX, (table, T, T < 4))
    assert Simplifier()(new) is new
    new = Simplifier()((T < 2).where(UOp(Ops.INDEX, (table, S % 4)), zero))
    assert new is (T < 2).where(UOp(Ops.INDEX, (table, S)), zero)
    kept = (S < 2).where(UOp(Ops.INDEX, (table, (S + T) % 4)), zero)
    assert Simplifier()(kept) is kept


def test_each_rewrite_can_be_printed(capsys) -> None:
    with overriding(UOPC_DEBUG=4):
        Simplifier()((R * 4 + S) // 4)
    assert capsys.readouterr().out == (
        "rewrite floordiv: ((ridx0 * 4) + ridx1) // 4 -> ridx0\n"
    )
    with overriding(UOPC_DEBUG=4):
        Simplifier()(UOp.const(2, i32) * S + UOp.const(1, i32) * 3)
        read = UOp(Ops.INDEX, (UOp.buffer(4, f32, 0), S))
        Simplifier()((S < 4).where(read, UOp.param(1, f32)))
    lines = capsys.readouterr().out.splitlines()
    assert "rewrite constant-last: 2 * ridx1 -> ridx1 * 2" in lines
    assert "rewrite fold: 1 * 3 -> 3" in lines
    assert "rewrite where-true: (True ? data0[ridx1] : param1) -> data0[ridx1]" in lines


def test_printed_expressions_are_one_short_line() -> None:
    u = X
    for _ in range(5000):
        u = (u + 1).maximum(u)
    assert len(infix(u)) <= 100
    assert infix(UOp.param(0, f32).exp2().cast(i32) // 3) == "cast(exp2(param0)) // 3"


def test_conditions_inside_conditions_take_reasonable_time() -> None:
    def seconds(n: int) -> float:
        place, u = UOp(Ops.RANGE, (), (0, 400, i32)), X
        other = UOp(Ops.RANGE, (), (1, 9, i32))
        for k in range(n):
            u = (place < 3 * k + 5).where(u, place + other * k)
            u = (other < k % 8).where(u * place, u + other)
        start = time.process_time()
        Simplifier()(u)
        return time.process_time() - start

    assert seconds(24) < 100 * max(seconds(6), 0.01)

"""What the rules rely on: intervals, sums, divisions, and facts of conditions.

8-bit types over all their values; wide ones near their limits with z3, for all values.
"""

import random
from collections import Counter

import numpy as np
import prover
import pytest
import z3
from trees import NARROW, WIDE, Trees

from uopc.dtype import boolean
from uopc.simplify import ANY, Bounds, Op, Rule, Simplifier, Var
from uopc.simplify.context import facts
from uopc.simplify.division import at_most, quotient, remainder
from uopc.simplify.linear import Sum, compose, decompose, fits, span
from uopc.simplify.text import infix
from uopc.testing.instances import typings
from uopc.testing.points import evaluate_at, points, unequal
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp, toposort

LIMIT = 65_536
ELEMENTWISE = [op for op in BUILTIN_OPS if op.kind == "elementwise"]


def at_all(trees: Trees, *roots: UOp) -> list[np.ndarray]:
    """The values of expressions at all (or 65,536) values of the leaves."""
    return evaluate_at(roots, points(trees.leaves, trees.known, LIMIT))


def told(answer: str | dict, *roots: UOp) -> str:
    """z3's verdict if it is no refutation, which fails."""
    if isinstance(answer, str):
        return answer
    values = evaluate_at(roots, prover.as_arrays(answer))
    shown = "\n".join(f"{infix(u)} = {v}" for u, v in zip(roots, values, strict=True))
    raise AssertionError(f"refuted by {answer}:\n{shown}")


def of_integers(op: OpDef, dtypes: tuple) -> list[UOp]:
    """An op over PARAMs of all types that it takes."""
    arity = op.arity or 0
    rule = Rule("", Op(op, *(Var(f"v{k}") for k in range(arity))), lambda: None, ANY)
    typed = (t.orders[0] for t in typings(rule, dtypes))
    return [u for u in typed if not u.dtype.is_float]


def some_intervals(rng: random.Random, u: UOp) -> dict[UOp, tuple[int, int]]:
    known = {}
    for s in u.src:
        low, high = s.dtype.min, s.dtype.max
        near = (low, low + 1, -1, 0, 1, 2, 7, high - 1, high)
        picks = [*(n for n in near if low <= n <= high), rng.randint(low, high)]
        a, b = sorted(rng.choice(picks) for _ in range(2))
        known[s] = (a, b)
    return known


@pytest.mark.parametrize("op", ELEMENTWISE, ids=str)
def test_intervals_of_8_bits_hold_every_value(op: OpDef):
    rng = random.Random(0)
    tight = tried = 0
    for u in of_integers(op, (boolean, *NARROW)):
        for _ in range(60):
            known = some_intervals(rng, u)
            bounds = Bounds(tuple(known.items()))
            low, high = bounds(u)
            data = points(list(known), known, LIMIT)
            (values,) = evaluate_at([u], data)
            assert low <= values.min(), (infix(u), known)
            assert values.max() <= high, (infix(u), known)
            tried += 1
            tight += (low, high) == (values.min(), values.max())
            if op in (Ops.ADD, Ops.MUL) and not bounds.wraps(u):
                a, b = (data[s].astype(object) for s in u.src)
                assert np.all((a + b if op is Ops.ADD else a * b) == values)
    # What the analysis knows it mostly knows to the point.
    if op in (Ops.ADD, Ops.MAX, Ops.CMPLT, Ops.CMPNE, Ops.WHERE):
        assert tight > tried / 2


@pytest.mark.parametrize("op", ELEMENTWISE, ids=str)
def test_intervals_of_wide_types_hold_every_value(op: OpDef, summary: list[str]):
    rng = random.Random(0)
    proved: Counter[str] = Counter()
    for u in of_integers(op, tuple(WIDE)):
        for _ in range(10):
            known = some_intervals(rng, u)
            low, high = Bounds(tuple(known.items()))(u)
            if (low, high) == (u.dtype.min, u.dtype.max):
                continue  # says nothing
            proved[told(prover.within(u, (low, high), known), u)] += 1
    if proved:
        counts = ", ".join(f"{n} by {k or 'nothing'}" for k, n in proved.items())
        summary.append(f"intervals of {op.name}: {counts}")
        assert proved[""] <= proved.total() / 10


def value(total: Sum, trees: Trees) -> np.ndarray:
    """A sum at all points, in unlimited integers."""
    terms, constant = total
    zero = trees.leaves[0]
    first, *values = at_all(trees, zero, *terms)
    result = np.full(first.shape, constant, object)
    for k, v in zip(terms.values(), values, strict=True):
        result = result + v.astype(object) * k
    return result


@pytest.mark.parametrize("seed", range(60))
def test_sums_and_quotients_of_8_bits(seed: int):
    trees = Trees(seed, NARROW[seed % 2])
    done: Counter[str] = Counter()
    for depth in (1, 2, 2, 3, 3):
        u = trees.tree(depth)
        bounds = Bounds()
        total = decompose(u, bounds)
        exact = value(total, trees)
        assert np.all(exact == at_all(trees, u)[0].astype(object))
        low, high = span(total, bounds)
        assert low <= exact.min()
        assert exact.max() <= high
        if fits(total, u, bounds):
            again = compose(total, u, bounds)
            assert again is not None
            assert np.all(at_all(trees, again)[0] == exact)
        for n in (1, 2, 3, 4, 6, 7, 12, 24, 100, 127):
            known = {
                "//": (quotient(total, n, u, bounds), exact // n),
                "%": (remainder(total, n, u, bounds), exact % n),
            }
            for name, (got, expected) in known.items():
                if got is not None:
                    assert np.all(value(got, trees) == expected), (infix(u), n)
                    done[name] += 1
        for limit in (-129, -4, -1, 0, 1, 5, 31, 127, 255):
            shorter = at_most(u, limit, bounds)
            if shorter is not None:
                less = value(shorter[0], trees) <= shorter[1]
                assert np.all(less == (exact <= limit)), (infix(u), limit)
    assert done


@pytest.mark.parametrize("seed", range(400))
def test_expressions_of_8_bits_keep_their_values(seed: int):
    trees = Trees(seed, NARROW[seed % 2])
    for depth in (2, 3, 3, 4):
        for u in (trees.tree(depth), trees.truth(depth)):
            new = Simplifier()(u)
            before, after = at_all(trees, u, new)
            bad = unequal(before, after)
            assert not bad.any(), f"{infix(u)}\nbecame {infix(new)}"


@pytest.mark.parametrize("seed", range(150))
def test_reads_in_branches_stay_inside(seed: int):
    """C may load before it decides: only a gate keeps a read from happening."""
    trees = Trees(seed, NARROW[seed % 2])
    table = UOp.buffer(6, trees.dtype, 9)
    for depth in (1, 2, 2):
        index = trees.tree(depth).maximum(0) % 6
        read, other = UOp(Ops.INDEX, (table, index)), trees.tree(1)
        u = trees.truth(depth).where(read, other)
        if trees.rng.random() < 0.5:
            u = trees.truth(1).where(u + trees.tree(1), u)
        new = Simplifier()(u)
        before, after = at_all(trees, u, new)
        assert not unequal(before, after).any(), f"{infix(u)}\nbecame {infix(new)}"
        for r in toposort([new]):
            if r.op is Ops.INDEX:
                _, i, *gates = r.src
                places, *happens = at_all(trees, i, *gates)
                outside = (places < 0) | (places >= 6)
                assert not (outside & (happens[0] if gates else True)).any(), infix(new)


def test_wide_expressions_keep_their_values(summary: list[str]):
    proved: Counter[str] = Counter()
    for seed in range(250):
        trees = Trees(seed, WIDE[seed % len(WIDE)])
        for u in (trees.tree(2), trees.tree(3), trees.truth(2)):
            new = Simplifier()(u)
            if new is not u:
                answer = prover.holds(
                    lambda term, u=u, new=new: term(u) == term(new),
                    trees.known,
                    seconds=(1, 2),
                )
                proved[told(answer, u, new)] += 1
    counts = ", ".join(f"{n} by {k or 'nothing'}" for k, n in proved.items())
    summary.append(f"simplified expressions of 32 and 64 bits: {counts}")
    assert proved.total() > 300
    assert proved[""] < proved.total() / 10


@pytest.mark.parametrize("seed", range(100))
def test_facts_of_8_bits_are_true_where_a_condition_holds(seed: int):
    trees = Trees(seed, NARROW[seed % 2])
    for _ in range(8):
        cond = trees.truth(2)
        truth = at_all(trees, cond)[0]
        yes, no = facts(cond, Bounds())
        for told_, where in ((yes, truth), (no, ~truth)):
            for u, (low, high) in told_:
                values = at_all(trees, u)[0][where].astype(int)
                assert np.all((low <= values) & (values <= high)), infix(cond)


def test_facts_of_wide_types_are_true_where_a_condition_holds(summary: list[str]):
    proved: Counter[str] = Counter()
    for seed in range(200):
        trees = Trees(seed, WIDE[seed % len(WIDE)])
        cond = trees.truth(2)
        yes, no = facts(cond, Bounds())
        for (u, ends), side in [*((f, True) for f in yes), *((f, False) for f in no)]:

            def claim(term, u=u, ends=ends, side=side, cond=cond):
                return z3.Implies(
                    term(cond) == side, term.between(term(u), ends, u.dtype)
                )

            answer = prover.holds(claim, trees.known, seconds=(1, 2))
            proved[told(answer, cond, u)] += 1
    counts = ", ".join(f"{n} by {k or 'nothing'}" for k, n in proved.items())
    summary.append(f"facts of conditions of 32 and 64 bits: {counts}")
    assert proved.total() > 100
    assert proved[""] < proved.total() / 10

"""Random chains of movement ops: every index is as short as it can be.

Over all positions of the loops it is computed by brute force which element is read
where. If that is a sum of multiples of the loop variables, the index must be written
as that sum: no division, and no more operations than the sum needs. A condition must
be true somewhere and false somewhere.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uopc.composite import pad, stack
from uopc.dtype import i32
from uopc.interp import evaluate
from uopc.rangeify import rangeify
from uopc.simplify.text import infix
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray
MAX_ELEMENTS = 600
LENGTHS = (1, 2, 3, 4, 5, 6, 8)


def reshape(u: UOp, r: random.Random) -> UOp:
    left, shape = math.prod(u.shape), []
    while left > 1:
        shape.append(r.choice([d for d in range(2, left + 1) if left % d == 0]))
        left //= shape[-1]
    return u.reshape(shape) if len(shape) < 6 else u


def permute(u: UOp, r: random.Random) -> UOp:
    return u.permute(r.sample(range(len(u.shape)), len(u.shape)))


def shrink(u: UOp, r: random.Random) -> UOp:
    begins = [r.randrange(n) for n in u.shape]
    pairs = zip(begins, u.shape, strict=True)
    return u.shrink([(b, b + 1 + r.randrange(n - b)) for b, n in pairs])


def expand(u: UOp, r: random.Random) -> UOp:
    at, times = r.randrange(len(u.shape) + 1), r.choice((2, 3, 4))
    if times * math.prod(u.shape) > MAX_ELEMENTS or len(u.shape) > 4:
        return u
    ones = u.reshape((*u.shape[:at], 1, *u.shape[at:]))
    return ones.expand((*u.shape[:at], times, *u.shape[at:]))


def flip(u: UOp, r: random.Random) -> UOp:
    axes = tuple(a for a in range(len(u.shape)) if r.random() < 0.5)
    return UOp(Ops.FLIP, (u,), axes)


def stride(u: UOp, r: random.Random) -> UOp:
    axis, step = r.randrange(max(1, len(u.shape))), r.choice((2, 3))
    if not u.shape or u.shape[axis] <= 2:
        return u
    n = u.shape[axis]
    count = -(-n // step)
    widths = [(0, 0)] * len(u.shape)
    widths[axis] = (0, count * step - n)
    before, after = u.shape[:axis], u.shape[axis + 1 :]
    split = pad(u, widths).reshape((*before, count, step, *after))
    window = [(0, 1 if a == axis + 1 else m) for a, m in enumerate(split.shape)]
    return split.shrink(window).reshape((*before, count, *after))


def windows(u: UOp, r: random.Random) -> UOp:
    """(..., n) -> (..., k, n - k + 1): k copies, then rows one longer."""
    *lead, n = u.shape or (1,)
    k = r.choice((2, 3))
    if n <= k or len(lead) > 3 or (k + 1) * math.prod(u.shape) > MAX_ELEMENTS:
        return u
    whole = [(0, m) for m in lead]
    v = u.reshape((*lead, 1, n)).expand((*lead, k + 1, n)).reshape((*lead, (k + 1) * n))
    v = v.shrink([*whole, (0, k * (n + 1))]).reshape((*lead, k, n + 1))
    return v.shrink([*whole, (0, k), (0, n - k + 1)])


def padded(u: UOp, r: random.Random) -> UOp:
    widths = [(r.choice((0, 0, 1, 2)), r.choice((0, 0, 1, 2))) for _ in u.shape]
    size = math.prod(a + n + b for n, (a, b) in zip(u.shape, widths, strict=True))
    return pad(u, widths) if size <= MAX_ELEMENTS else u


def stacked(u: UOp, r: random.Random) -> UOp:
    if 3 * math.prod(u.shape) > MAX_ELEMENTS or len(u.shape) > 4:
        return u
    parts = [u, u.const_like(0), UOp(Ops.FLIP, (u,), tuple(range(len(u.shape))))]
    return stack(r.sample(parts, r.choice((2, 3))), r.randrange(len(u.shape) + 1))


MOVES: dict[str, Callable[[UOp, random.Random], UOp]] = {
    f.__name__: f for f in (reshape, permute, shrink, expand, flip, stride)
}
ALL = {**MOVES, **{f.__name__: f for f in (windows, padded, stacked)}}


def chain(shape: list[int], steps: list[tuple[str, int]]) -> UOp:
    u = UOp.buffer(math.prod(shape), i32, 0).reshape(shape)
    for name, seed in steps:
        u = ALL[name](u, random.Random(seed))
    return u


class Positions:
    """The values of all nodes of a loop program's one statement, at all positions."""

    def __init__(self, sink: UOp) -> None:
        loops, statement = [], sink
        while statement.op is not Ops.STORE:
            if statement.op is Ops.END:
                loops.append(statement.src[0])
            statement = statement.src[-1]
        self.value = statement.src[2]
        shape = [r.arg[1] for r in loops]
        grids = np.indices(shape).reshape(len(shape), math.prod(shape))
        self.columns = [*grids.astype(float), np.ones(grids.shape[1])]
        self.values = dict(zip(loops, grids, strict=True))
        self.order = toposort(statement.src[1:])
        for u in self.order:
            if u.op is Ops.INDEX:
                self.values[u] = self.read(*u.src)
            elif u not in self.values and u.op is not Ops.BUFFER:
                got = u.op.numpy(u, *(self.values[s] for s in u.src))
                self.values[u] = np.broadcast_to(got, grids.shape[1:])
        self.matters = self.needed()

    def read(self, buffer: UOp, index: UOp, gate: UOp | None = None) -> Array:
        at = self.values[index]
        live = self.values[gate] if gate is not None else np.ones(at.shape, bool)
        assert np.all((at >= 0) & (at < buffer.arg[0]) | ~live)
        return np.where(live, at + 1, 0)  # what the buffers of these tests hold

    def needed(self) -> dict[UOp, Array]:
        """Where the value of a node makes a difference."""
        needed = {u: np.zeros(self.columns[-1].shape, bool) for u in self.order}
        needed[self.value][:] = True
        for u in reversed(self.order):
            where = dict.fromkeys(u.src, needed[u])
            if u.op is Ops.WHERE:
                cond = self.values[u.src[0]]
                where[u.src[1]], where[u.src[2]] = needed[u] & cond, needed[u] & ~cond
            elif u.op is Ops.INDEX and len(u.src) == 3:
                where[u.src[1]] = needed[u] & self.values[u.src[2]]
                where[u.src[2]] = np.ones(needed[u].shape, bool)
            for s, there in where.items():
                needed[s] |= there
        return needed

    def plain_sum(self, u: UOp) -> list[int] | None:
        """The factors of the loop variables, and 1, that ``u`` is the sum of."""
        at = self.matters[u]
        grid = np.stack([c[at] for c in self.columns], 1)
        factors, _, rank, _ = np.linalg.lstsq(grid, self.values[u][at], rcond=None)
        whole = factors.round().astype(int)
        exact = np.array_equal(grid @ whole, self.values[u][at])
        return whole.tolist() if exact and rank == grid.shape[1] else None

    def complaints(self) -> list[str]:
        """What is longer than it needs to be."""
        found = []
        for u in self.order:
            if u.op is Ops.INDEX:
                index, where = u.src[1], self.matters[u]
                factors = self.plain_sum(index) if where.any() else None
                if not where.any():
                    found.append(f"never read: {infix(u)}")
                elif factors and operations(index) > needs(factors):
                    found.append(f"long: {infix(index)} for {factors}")
            elif u.op is Ops.CMPLT:
                values = self.values[u][self.matters[u]]
                if values.all() or not values.any():
                    found.append(f"decided: {infix(u)}")
        return found


def operations(u: UOp) -> int:
    return sum(n.op.kind == "elementwise" for n in toposort([u]) if n.src)


def needs(factors: list[int]) -> int:
    """The additions and multiplications of a sum of multiples."""
    products = sum(k not in (0, 1) for k in factors[:-1])
    return products + max(0, sum(k != 0 for k in factors) - 1)


def examine(root: UOp, run_program: Callable) -> list[str]:
    """Complaints about the loops for ``root``; its values must be right."""
    sink = rangeify([root], "k")
    (buffer,) = (u for u in root.toposort() if u.op is Ops.BUFFER)
    data = {buffer: np.arange(1, buffer.arg[0] + 1, dtype=np.int32)}
    (value,) = evaluate([root], data)
    positions = Positions(sink)
    np.testing.assert_array_equal(positions.values[positions.value], value.reshape(-1))
    (got,) = run_program(sink, {0: data[buffer]}).values()
    np.testing.assert_array_equal(got, value.reshape(-1))
    return positions.complaints()


SHAPES = st.lists(st.sampled_from(LENGTHS), min_size=1, max_size=3)


def steps(names: dict[str, Callable]) -> st.SearchStrategy[list[tuple[str, int]]]:
    one = st.tuples(st.sampled_from(sorted(names)), st.integers(0, 2**16))
    return st.lists(one, min_size=2, max_size=6)


@given(SHAPES, steps(MOVES))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_moved_elements_are_read_at_plain_sums(run_program, shape, moves) -> None:
    assert examine(chain(shape, moves), run_program) == []


@pytest.mark.parametrize("width", [1, 2, 5])
@given(
    SHAPES, steps({n: f for n, f in MOVES.items() if n not in ("reshape", "stride")})
)
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_what_is_padded_last_keeps_plain_sums(run_program, width, shape, moves) -> None:
    u = chain(shape, moves)
    if math.prod(n + 2 * width for n in u.shape) <= 4000:
        root = pad(u, [(width, width)] * len(u.shape))
        assert examine(root, run_program) == []


def test_chains_of_all_ops_are_right_and_nearly_always_short(run_program) -> None:
    """Some zeros and flips meet by chance, where only trying all values would tell."""
    rng, long = random.Random(0), {}
    for _ in range(250):
        shape = [rng.choice(LENGTHS) for _ in range(rng.randint(1, 3))]
        ops = [(rng.choice(sorted(ALL)), rng.randrange(2**16)) for _ in range(6)]
        ops = ops[: rng.randint(2, 6)]
        if found := examine(chain(shape, ops), run_program):
            long[str((shape, ops))] = found
    assert len(long) <= 5, long

"""Loop programs compute what the graphs they came from say, at good addresses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from uopc.composite import cat, iota, matmul, pad, softmax, stack
from uopc.dtype import DTYPES, boolean, f32, f64, i8, i32, i64, u8, u64
from uopc.interp import evaluate
from uopc.rangeify import rangeify
from uopc.schedule import Outputs, apply_schedule, choose_schedule
from uopc.simplify import Bounds
from uopc.spec import check
from uopc.testing.bounded import differences, evaluate_bounded
from uopc.testing.graphs import random_graph
from uopc.uir import parse_uir, to_uir
from uopc.uop import Ops, UOp, toposort


class Pool:
    """Random graphs of movement ops, reductions, stacks and reads, on integers."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.data: dict[UOp, np.ndarray] = {}

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def buffer(self, shape: tuple[int, ...]) -> UOp:
        size = math.prod(shape)
        u = UOp.buffer(size, i32, len(self.data))
        self.data[u] = self.rng.integers(-9, 10, size).astype(np.int32)
        return u.reshape(shape)

    def shape(self) -> tuple[int, ...]:
        rank = 1 + self.below(3)
        return tuple(int(n) for n in self.rng.choice([1, 2, 3, 4, 6], rank))

    def step(self, u: UOp) -> UOp:
        n = math.prod(u.shape)
        match self.below(12):
            case 0:
                return self.reshape(u)
            case 1:
                axes = [int(a) for a in self.rng.permutation(len(u.shape))]
                return u.permute(axes)
            case 2:
                window = []
                for m in u.shape:
                    begin = self.below(m)
                    window.append((begin, begin + 1 + self.below(m - begin)))
                return u.shrink(window)
            case 3:
                axes = tuple(a for a in range(len(u.shape)) if self.below(2))
                return UOp(Ops.FLIP, (u,), axes)
            case 4 if n <= 60:
                at = self.below(len(u.shape) + 1)
                ones = (*u.shape[:at], 1, *u.shape[at:])
                return u.reshape(ones).expand((*u.shape[:at], 3, *u.shape[at:]))
            case 5 | 6 if u.shape:
                op = (Ops.ADD, Ops.MAX, Ops.MUL)[self.below(3)]
                return u.reduce(op, 1 + self.below(len(u.shape)))
            case 7 if n <= 60:
                parts = [u, u * 2, -u][: 2 + self.below(2)]
                return stack(parts, self.below(1 + min(1, len(u.shape))))
            case 8 if u.shape:
                return u.index(self.below(u.shape[0]))
            case 9 if u.shape:
                return self.gather(u)
            case 10 if u.shape and n <= 40:
                widths = [(self.below(3), self.below(3)) for _ in u.shape]
                return pad(u, widths)
        return (u * 3 + u.const_like(1)).maximum(u)

    def reshape(self, u: UOp) -> UOp:
        left, shape = math.prod(u.shape), []
        while left > 1:
            n = int(self.rng.choice([d for d in range(2, left + 1) if left % d == 0]))
            shape.append(n)
            left //= n
        for _ in range(self.below(3)):
            shape.insert(self.below(len(shape) + 1), 1)
        return u.reshape(shape)

    def gather(self, u: UOp) -> UOp:
        count = 1 + self.below(min(2, len(u.shape)))
        lead = self.shape()[:2]
        while math.prod(lead) * math.prod(u.shape[count:]) > 200:
            lead = lead[:-1]
        # Among the indices are some below 0 and some past the end.
        return u.index(*(self.buffer(lead) % 9 - 2 for _ in range(count)))

    def graph(self, steps: int) -> UOp:
        u = self.buffer(self.shape())
        for _ in range(steps):
            u = self.step(u)
            if math.prod(u.shape) > 400:
                u = u.reshape((math.prod(u.shape),)).shrink([(0, 100)])
        return u


def compare(root: UOp, data, run_program, steps: str) -> None:
    """Interpret the graph, and the loops after the steps; no bit may differ."""
    sink = rangeify([root], "k")
    check(toposort([sink]), "loops")
    if steps == "schedule":
        sink = apply_schedule(sink, choose_schedule(sink))
        check(toposort([sink]), "loops")
    assert parse_uir(to_uir(sink)) is sink
    (expected,) = evaluate([root], data, contract=False)
    outputs = run_program(sink, {u.arg[2]: a for u, a in data.items()})
    if not expected.size:
        assert not outputs or not next(iter(outputs.values())).size
        return
    ((slot, got),) = outputs.items()
    read = [u.arg[2] for u in toposort([sink]) if u.op is Ops.BUFFER
            and u.arg[4] == "global" and u.arg[2] != slot]  # fmt: skip
    assert slot == max(read, default=-1) + 1
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected.reshape(-1))


@pytest.mark.parametrize("steps", ["loops", "schedule"])
@pytest.mark.parametrize("seed", range(70))
def test_random_graphs_of_moved_elements(seed: int, steps: str, run_program) -> None:
    pool = Pool(seed)
    root = pool.graph(2 + seed % 7)
    compare(root, pool.data, run_program, steps)


@pytest.mark.parametrize("seed", range(50))
def test_random_graphs_of_every_op(seed: int, run_program) -> None:
    graph = random_graph(seed, steps=10, max_elements=48)
    expected = evaluate_bounded(graph.roots, graph.inputs)
    inputs = {u.arg[2]: a for u, a in graph.inputs.items()}
    for root, bounded in zip(graph.roots, expected, strict=True):
        if not bounded.value.size:
            continue
        sink = rangeify([root], "k")
        for program in (sink, apply_schedule(sink, choose_schedule(sink))):
            (got,) = run_program(program, inputs).values()
            wrong = differences(got.reshape(root.shape), bounded)
            assert not wrong.any(), graph.text()


def numbers(*shape: int) -> tuple[UOp, dict[UOp, np.ndarray]]:
    u = UOp.buffer(math.prod(shape), i32, 0)
    return u.reshape(shape), {u: np.arange(1, math.prod(shape) + 1, dtype=np.int32)}


def loop_of(text: str) -> tuple[UOp, dict[UOp, np.ndarray]]:
    u, data = numbers(6)
    pairs = u.reshape((3, 2)).reduce(Ops.ADD, 1)
    return {
        "copy": u,
        "scalar": u.reduce(Ops.ADD, 1),
        "ones": u.reshape((1, 6, 1)).reduce(Ops.ADD, 1),
        "sum of nothing": u.shrink([(2, 2)]).reduce(Ops.ADD, 1),
        "product of nothing": u.shrink([(2, 2)]).reduce(Ops.MUL, 1),
        "kept beside nothing": u.reshape((6, 1)).expand((6, 0)).reduce(Ops.ADD, 1),
        "iota": iota(7),
        "constant": UOp.const(3, i32).reshape((1, 1)).expand((2, 3)),
        "bare constant": UOp.const(3, i32),
        "nested": (u.reshape((2, 3)).reduce(Ops.MAX, 1) * 2).reduce(Ops.ADD, 1),
        "twice": u.reduce(Ops.ADD, 1) * u.reduce(Ops.MAX, 1),
        "softmax-like": u + u.reduce(Ops.MAX, 1).reshape((1,)).expand((6,)),
        "matmul": matmul(u.reshape((2, 3)), u.reshape((3, 2))),
        "transposed": matmul(u.reshape((2, 3)), u.reshape((3, 2))).permute((1, 0)),
        "one-long axes": u.reshape((1, 6)).expand((4, 6)).reshape((2, 2, 6)),
        "cat": cat([u, u * 2, u * 3], 0),
        "cat inner": cat([u.reshape((2, 3)), u.reshape((2, 3))], 1),
        "pad": pad(u.reshape((2, 3)), [(2, 1), (1, 3)]),
        "stack of one": UOp.stack([u]),
        "stack of five": UOp.stack([u * k for k in range(1, 6)]),
        "stacked inside": stack([u, -u], 1),
        "flip": UOp(Ops.FLIP, (u.reshape((2, 3)),), (0, 1)),
        "detach": u.detach() + 1,
        "own index": u.index(u),
        "index of index": u.index(u.index(u)),
        "index by sum": u.index(u.reduce(Ops.ADD, 1)),
        "gather from nothing": u.shrink([(0, 0)]).index(u),
        "table and index": pairs.index(pairs % 4),
        "tables and indices": UOp.stack([pairs, pairs * 2, pairs + 1]).index(
            pairs % 3, pairs % 4
        ),
        "reduced index": u.reshape((2, 3)).index(u.index(u) % 2).reduce(Ops.ADD, 1),
    }[text], data


NAMES = ("copy", "scalar", "ones", "sum of nothing", "product of nothing",
         "kept beside nothing", "iota", "constant", "bare constant", "nested", "twice",
         "softmax-like", "matmul", "transposed", "one-long axes", "cat", "cat inner",
         "pad", "stack of one", "stack of five", "stacked inside", "flip", "detach",
         "own index", "index of index", "index by sum", "gather from nothing",
         "table and index", "tables and indices", "reduced index")  # fmt: skip


@pytest.mark.parametrize("steps", ["loops", "schedule"])
@pytest.mark.parametrize("name", NAMES)
def test_particular_shapes(name: str, steps: str, run_program) -> None:
    root, data = loop_of(name)
    compare(root, data, run_program, steps)


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.is_int], ids=str)
def test_gathers_with_every_index_type(dtype, run_program) -> None:
    table, place = UOp.buffer(300, f32, 0), UOp.buffer(9, dtype, 1)
    idx = [0, 1, 2, 299, 300, dtype.max, dtype.min, 120, 5]
    idx = np.array([min(i, dtype.max) for i in idx], dtype.numpy)
    data = {table: np.arange(1, 301, dtype=np.float32), place: idx}
    compare(table.index(place), data, run_program, "loops")
    compare(table.reshape((30, 10)).index(place, place), data, run_program, "loops")


@pytest.mark.parametrize("dtype", [boolean, i8, u8, i64, u64, f32, f64], ids=str)
def test_accumulators_start_at_the_identity(dtype, run_program) -> None:
    low = -np.inf if dtype.is_float else dtype.min
    u = UOp.buffer(4, dtype, 0).reshape((2, 2))
    data = {u.src[0]: np.full(4, low).astype(dtype.numpy)}
    compare(u.reduce(Ops.MAX, 1), data, run_program, "loops")
    if dtype is not boolean:
        data = {u.src[0]: np.array([-0.0 if dtype.is_float else 0] * 4, dtype.numpy)}
        compare(u.reduce(Ops.MUL, 1), data, run_program, "schedule")


def test_movement_costs_no_buffer_and_reductions_one_accumulator() -> None:
    u, _ = numbers(4, 6)
    sink = rangeify([UOp(Ops.FLIP, (u.permute((1, 0)),), (0,)).reshape((24,))], "k")
    assert [n.op for n in toposort([sink])].count(Ops.BUFFER) == 2
    sink = rangeify([u.reduce(Ops.ADD, 1)], "k")
    local = [n for n in toposort([sink]) if n.op is Ops.BUFFER and n.arg[4] == "local"]
    assert len(local) == 1


def test_matching_axes_are_not_divided() -> None:
    u, _ = numbers(4, 6)
    sink = rangeify([u.reshape((2, 2, 6)).permute((2, 0, 1)).reshape((6, 4))], "k")
    assert not {Ops.FLOORDIV, Ops.FLOORMOD} & {n.op for n in toposort([sink])}


def test_a_read_that_vanishes_does_not_shift_the_others() -> None:
    a, b = UOp.buffer(3, f32, 0), UOp.buffer(3, f32, 1)
    sink = rangeify([(iota(3) < 9).where(b, a)], "k")
    slots = {n.arg[2] for n in toposort([sink]) if n.op is Ops.BUFFER}
    assert slots == {1, 2}
    zero = (UOp.buffer(3, i32, 5) * 0).cast(f32) + a
    slots = {n.arg[2] for n in toposort([rangeify([zero], "k")]) if n.op is Ops.BUFFER}
    assert slots == {0, 1}


def test_several_outputs_of_one_shape(run_program) -> None:
    u, data = numbers(2, 3)
    roots = [u + 1, u * u, u]
    outputs = run_program(rangeify(roots, "k"), {0: next(iter(data.values()))})
    assert sorted(outputs) == [1, 2, 3]
    for slot, value in zip((1, 2, 3), evaluate(roots, data), strict=True):
        np.testing.assert_array_equal(outputs[slot], value.reshape(-1))


def test_positions_beyond_32_bits_are_64_bits_wide() -> None:
    wide, two, row = (UOp.buffer(n, i8, 0) for n in (2**33, 2, 2**16))
    square = row.reshape((2**16, 1)).expand((2**16, 2**16))
    for u, dtype in [
        (numbers(6)[0], i32),
        (UOp.buffer(2**31 - 1, i8, 0) + 1, i32),
        (UOp.buffer(2**31, i8, 0) + 1, i64),
        (wide.shrink([(2**32, 2**32 + 4)]), i64),
        (wide.reshape((2**16, 2**17)).shrink([(5, 7), (0, 4)]), i64),
        # Four billion rounds, but no number above 2**16.
        (square.reduce(Ops.ADD, 2), i32),
        (square.reduce(Ops.ADD, 1), i32),
        (square.permute((1, 0)).reduce(Ops.MAX, 1), i32),
        # Positions in the middle that no buffer has.
        (square.reshape((2**32,)).reduce(Ops.ADD, 1), i64),
        (square.reshape((2**17, 2**15)).reduce(Ops.ADD, 1), i64),
        (two.reshape((2, 1)).expand((2, 2**32)).reduce(Ops.MAX, 1), i64),
        (two.reshape((2, 1, 1)).expand((2, 2**16, 2**16)).reduce(Ops.MAX, 2), i32),
        (square, i64),  # what is stored is that large
    ]:
        nodes = toposort([rangeify([u], "k")])
        assert {n.dtype for n in nodes if n.op is Ops.RANGE} == {dtype}
        bounds = Bounds()
        stores = [n.src[1] for n in nodes if n.op is Ops.STORE]
        reads = [n.src[1] for n in nodes if n.op is Ops.INDEX]
        for n in toposort(stores + reads, lambda u: () if u.op is Ops.INDEX else u.src):
            assert not bounds.wraps(n)


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="param cannot be lowered to loops"):
        rangeify([UOp.param(0, f32, (3,))], "k")


@pytest.mark.parametrize(("width", "extents"), [
    (2, [2, 4, 4, 6]), (3, [2, 2, 3, 4, 6]), (8, [4, 6, 8])
])  # fmt: skip
def test_blocks_of_outputs_add_in_the_same_order(width: int, extents, run_program):
    rng = np.random.default_rng(0)
    x, w = UOp.buffer(24, f32, 0), UOp.buffer(48, f32, 1)
    inputs = {0: rng.standard_normal(24).astype("f4"),
              1: rng.standard_normal(48).astype("f4")}  # fmt: skip
    sink = rangeify([matmul(x.reshape((4, 6)), w.reshape((6, 8)))], "k")
    (plain,) = run_program(sink, inputs).values()
    loop = next(n for n in toposort([sink]) if n.op is Ops.RANGE and n.arg[1] == 8)
    step = Outputs(loop.arg[0], width, 9)
    assert str(step) == f"outputs(ridx{loop.arg[0]}, {width})"
    after = apply_schedule(sink, [step])
    (fast,) = run_program(after, inputs).values()
    assert plain.tobytes() == fast.tobytes()
    # A block of everything leaves no loop around it.
    ranges = sorted(n.arg[1] for n in toposort([after]) if n.op is Ops.RANGE)
    assert ranges == extents


def test_a_softmax_in_one_kernel_is_still_right(run_program) -> None:
    u = UOp.buffer(12, f64, 0).reshape((3, 4))
    x = np.random.default_rng(0).standard_normal(12)
    sink = rangeify([softmax(u, 1)], "k")
    e = np.exp(x.reshape(3, 4) - x.reshape(3, 4).max(1, keepdims=True))
    for program in (sink, apply_schedule(sink, choose_schedule(sink))):
        (got,) = run_program(program, {0: x}).values()
        np.testing.assert_allclose(got.reshape(3, 4), e / e.sum(1, keepdims=True))

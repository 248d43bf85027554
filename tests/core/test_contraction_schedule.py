"""Contractions in blocks of tiles compute what their loops computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from uopc.composite import matmul
from uopc.composite.convolution import conv
from uopc.dtype import DType, bf16, f16, f32, f64, i32
from uopc.interp.loops import run_loops
from uopc.kernelize import make_plan
from uopc.rangeify import rangeify
from uopc.schedule import Narrow, Target, apply_schedule, contraction_blocks
from uopc.schedule import contraction as module
from uopc.schedule.contraction import Contract, contraction
from uopc.schedule.contraction_blocks import Blocks, Size, block_depths, choose_blocks
from uopc.schedule.contraction_build import LeftKind
from uopc.schedule.contraction_pattern import find_contraction
from uopc.schedule.contraction_right import RightKind
from uopc.schedule.nest import Addresses, is_local, is_loop
from uopc.spec import check
from uopc.uop import Ops, UOp, toposort

AVX2 = Target(vector_bytes=32, registers=16, fma=True, l2=512 << 10)
AVX512 = Target(vector_bytes=64, registers=32, fma=True, l2=1 << 20)
SSE = Target(vector_bytes=16, registers=16, fma=False)
TARGETS = [SSE, AVX2, AVX512]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks so small that little arrays take several of them, in every direction."""
    monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(module, "WASTE", 100)
    monkeypatch.setattr(contraction_blocks, "MAX_DEPTH", 4)
    monkeypatch.setattr(contraction_blocks, "PANEL_BYTES", 1 << 10)
    yield


def array(slot: int, *shape: int, dtype: DType = f32) -> UOp:
    """A buffer as an array."""
    return UOp.buffer(math.prod(shape), dtype, slot).reshape(shape)


def loops(u: UOp) -> UOp:
    """The loop program of what is one kernel."""
    plan, _ = make_plan([u])
    (kernel,) = plan.kernels
    return rangeify([kernel.ast], kernel.name)


def assert_same(
    sink: UOp, target: Target, tolerance: float = 1e-5, step: Contract | None = None
) -> Contract:
    """The schedule, or else one step, keeps the meaning. Returns the last step."""
    steps = contraction(sink, target) if step is None else [step]
    assert steps is not None
    step = next(s for s in steps if isinstance(s, Contract))
    after = apply_schedule(sink, steps)
    check(toposort([after]), "loops")
    rng = np.random.default_rng(0)
    buffers = {u for u in toposort([sink]) if u.op is Ops.BUFFER}
    data = {
        b.arg.slot: b.dtype.round(rng.standard_normal(b.arg.size)).astype(b.dtype.numpy)
        for b in buffers
        if b.arg.space == "global"
    }
    before, now = run_loops(sink, data), run_loops(after, data)
    assert before.keys() == now.keys()
    for slot, expected in before.items():
        scale = 1 + float(np.abs(expected).max())
        np.testing.assert_allclose(
            now[slot].astype(np.float64),
            expected.astype(np.float64),
            rtol=0,
            atol=tolerance * scale,
        )
    return step


@pytest.mark.parametrize(
    "m, k, n, target",
    [
        (7, 5, 11, AVX2), (12, 4, 16, AVX2), (13, 3, 25, AVX2), (2, 9, 3, AVX2),
        (7, 5, 11, SSE), (6, 6, 8, SSE), (15, 2, 17, AVX512), (3, 5, 65, AVX512),
    ],
)  # fmt: skip
def test_matmul(m: int, k: int, n: int, target: Target) -> None:
    assert_same(loops(matmul(array(0, m, k), array(1, k, n))), target)


@pytest.mark.parametrize("right", ["by columns", "by terms", "in place"])
@pytest.mark.parametrize("left", ["in place", "by rows", "by strips"])
@pytest.mark.parametrize("turned", [False, True])
def test_blocks_in_both_directions(
    left: LeftKind, right: RightKind, turned: bool
) -> None:
    """Two blocks down and two across, of two tiles each; three passes; edges."""
    if turned and right == "in place":
        return  # its columns are no neighbours
    sink = loops(matmul(array(0, 13, 5), array(1, 5, 56)))
    step = Contract(Blocks(4, 2, 8, 2, 2, 2), 1, left, right, True, True, turned)
    assert_same(sink, AVX2, step=step)


@pytest.mark.parametrize("terms", [(5,), (3, 9), (2, 17)])
@pytest.mark.parametrize("depth", [8, 9, 17])
def test_rows_are_packed_by_vectors_of_terms(
    terms: tuple[int, ...], depth: int
) -> None:
    """With terms left over, and passes that end within a row of the inner loop."""
    n = math.prod(terms)
    left = array(0, 7, n) * 2.0 + array(2, 7, n)
    product = left.reshape((7, 1, *terms)).expand((7, 16, *terms)) * array(
        1, 16, n
    ).reshape((1, 16, *terms)).expand((7, 16, *terms))
    sink = loops(product.reduce(Ops.ADD, len(terms)))
    blocks = Blocks(3, 2, 8, depth, high=2, wide=1)
    step = Contract(blocks, 1, "by rows", "by terms", True, True)
    assert_same(sink, AVX2, step=step)


def test_what_is_computed_for_rows_is_computed_by_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    left = array(0, 64, 128) * 2.0 + 1.0
    (step, *_) = contraction(loops(matmul(left, array(1, 128, 64))), AVX2) or ()
    assert isinstance(step, Contract)
    assert step.left == "by rows"
    assert not step.turned


def test_rows_and_columns_may_change_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two columns fill no vector, but many rows do."""
    sink = loops(matmul(array(0, 64, 20), array(1, 20, 2)))
    assert assert_same(sink, AVX2).turned
    wide = loops(matmul(array(0, 20, 64), array(1, 64, 64)))
    assert not assert_same(wide, AVX2).turned


@pytest.mark.parametrize("rows", [20, 21, 24])
@pytest.mark.parametrize("tile", [4, 3])
def test_rows_that_are_near_are_packed_for_a_whole_block(rows: int, tile: int) -> None:
    """The last block may have a tile less than the two of others, or a shifted one."""
    left = array(0, 5, rows).permute((1, 0)) * 2.0
    sink = loops(matmul(left, array(1, 5, 16)))
    blocks = Blocks(tile, 2, 8, depth=3, high=2, wide=1)
    step = Contract(blocks, 1, "by blocks", "by columns", True, True)
    assert_same(sink, AVX2, step=step)
    own = {u.arg.size for u in toposort([step.apply(sink)]) if is_local(u)}
    assert 2 * tile * 3 in own


@pytest.mark.parametrize("target", [*TARGETS, Target(32, 16, True, 64, 128, 256)])
def test_windows_whose_rows_are_near_in_memory(target: Target) -> None:
    """Weights as (height, width, in, out): no block has to hold all of their terms."""
    w = array(1, 3, 3, 40, 256).permute((3, 2, 0, 1))
    x = array(0, 1, 40, 6, 8)
    sink = loops(conv(x, w, (1, 1), ((1, 1), (1, 1)), (1, 1), 1))
    steps = contraction(sink, target)
    assert steps is not None
    step = next(s for s in steps if isinstance(s, Contract))
    assert (step.left, step.right) != ("by blocks", "whole")
    check(toposort([apply_schedule(sink, steps)]), "loops")


@pytest.mark.parametrize("columns", [16, 19, 7])
@pytest.mark.parametrize("depth", [8, 12, 7, 20])
def test_columns_are_packed_in_square_blocks(columns: int, depth: int) -> None:
    """Terms of passes, and columns, that are left over from blocks of 8 x 8."""
    right = array(1, columns, 20).permute((1, 0)) * 2.0
    sink = loops(matmul(array(0, 3, 20), right))
    step = Contract(Blocks(3, 1, 8, depth, 1, 2), 1, "in place", "by terms", True, True)
    assert_same(sink, AVX2, step=step)
    assert eight_at_once(step.apply(sink)) == (columns >= 8 and depth >= 8)


def eight_at_once(sink: UOp) -> bool:
    """Whether a vector loop stores eight things that are read from global memory."""
    return any(
        u.op is Ops.END and len(u.src) == 9 and all(map(from_memory, u.src[1:]))
        for u in toposort([sink])
    )


def from_memory(statement: UOp) -> bool:
    reads = [u for u in statement.toposort() if u.op is Ops.INDEX]
    return bool(reads) and all(u.src[0].arg.space == "global" for u in reads)


def test_a_right_factor_of_few_rows_stays_where_it_is() -> None:
    step = assert_same(loops(matmul(array(0, 7, 5), array(1, 5, 32))), AVX2)
    assert step.right == "in place"
    (step,) = contraction(loops(matmul(array(0, 25, 99), array(1, 99, 9999))), AVX2)
    assert step.right == "by columns"


def test_transposed_operands_are_packed() -> None:
    a, b = array(0, 5, 7).permute((1, 0)), array(1, 19, 5).permute((1, 0))
    step = assert_same(loops(matmul(a, b)), AVX2)
    assert (step.left, step.right) == ("in place", "by terms")
    a = array(0, 3, 256).permute((1, 0))  # a power of two apart
    (far,) = contraction(loops(matmul(a, array(1, 3, 24))), AVX2)
    assert far.left == "by blocks" and far.blocks.rows == 4


def test_rows_that_are_near_are_packed_as_vectors() -> None:
    a, b = array(0, 3, 8).permute((1, 0)), array(1, 3, 24)
    step = assert_same(loops(matmul(a * 2.0, b)), AVX2)
    assert step.left == "by blocks" and step.blocks.rows in (4, 8)


@pytest.mark.parametrize(
    "dtype, tolerance", [(f64, 1e-14), (bf16, 1e-2), (f16, 2e-3), (f32, 1e-6)]
)
def test_types(dtype: DType, tolerance: float) -> None:
    product = matmul(array(0, 7, 5, dtype=dtype), array(1, 5, 9, dtype=dtype))
    step = assert_same(loops(product), AVX2, tolerance)
    assert step.blocks.lanes == (4 if dtype is f64 else 8)


def test_halves_are_added_up_in_f32() -> None:
    """Their products too are not rounded on the way: 1 + 2 ** -8 is no bf16."""
    a, b = array(0, 4, 3, dtype=bf16), array(1, 3, 8, dtype=bf16)
    sink = loops(matmul(a, b))
    data = {
        0: np.tile(np.float32([1 + 2**-7, -1, 0]), 4),
        1: np.repeat(np.float32([1 + 2**-7, 1 + 2**-6, 0]), 8),
    }
    steps = contraction(sink, AVX2)
    assert steps is not None
    (out,) = run_loops(apply_schedule(sink, steps), data).values()
    assert set(out.tolist()) == {2.0**-14}


def test_batches_and_operands_that_all_of_them_share() -> None:
    a = array(0, 3, 7, 2)
    assert_same(loops(matmul(a, array(1, 3, 2, 9))), AVX2)
    shared = array(1, 1, 2, 9).expand((3, 2, 9))
    step = assert_same(loops(matmul(a, shared)), AVX2)
    assert step.blocks.rows * step.blocks.high > 7  # rows of several matrices
    shared = array(1, 1, 7, 2).expand((3, 7, 2))
    assert_same(loops(matmul(shared, array(0, 3, 2, 9))), AVX2)


def test_what_feeds_it_and_what_follows() -> None:
    """Elementwise work on the way in and out is done while packing and storing."""
    x = matmul(array(0, 7, 3), array(1, 3, 9))
    y = x + array(2, 1, 9).expand((7, 9))
    relu = (y > 0).where(y, y.const_like(0.0))
    assert_same(loops(relu), AVX2)
    a, b = array(0, 7, 3), array(1, 3, 9)
    squares = matmul(a * a + 1.0, (b < 0).where(b, b * 3))
    step = assert_same(loops(squares), AVX512)
    assert step.left == "by strips"
    three = (a.reshape((7, 1, 3)).expand((7, 9, 3)) * 2.0) * b.permute((1, 0)).reshape(
        (1, 9, 3)
    ).expand((7, 9, 3))
    assert_same(loops(three.reduce(Ops.ADD, 1)), AVX2)


@pytest.mark.parametrize("alone", [False, True], ids=["with others", "alone"])
@pytest.mark.parametrize("target", TARGETS)
def test_what_follows_in_wider_types_is_in_narrower_vectors(
    target: Target, alone: bool
) -> None:
    """No vector of doubles is wider than a register, whatever the sums are."""
    x = matmul(array(0, 7, 3), array(1, 3, 37)).cast(f64)
    y = x if alone else array(2, 7, 37).cast(f64)
    sink = loops(((x < 0) & (y < 1)).where(x.const_like(0.0), x * y).cast(f32))
    assert_same(sink, target)
    steps = contraction(sink, target)
    assert steps is not None and any(isinstance(s, Narrow) for s in steps)
    after = apply_schedule(sink, steps)
    vectors = [u for u in toposort([after]) if is_vector(u)]
    assert len(vectors) > 3
    for u in vectors:
        width = Addresses(u.src[1:]).widest([u.src[0]])
        assert u.src[0].arg.extent * width <= target.vector_bytes


def is_vector(u: UOp) -> bool:
    """Whether a statement is a loop over lanes."""
    return is_loop(u) and u.src[0].arg.kind == "vector"


def test_written_over_what_it_adds_to() -> None:
    """Each element is read before it is stored, once: no tile does any twice."""
    m, k, n = 7, 5, 9
    product = matmul(array(0, m, k), array(1, k, n)) + array(2, m, n)
    sink = loops(product)
    blocks = Blocks(4, 1, 8, 5, 1, 1)  # the second tile has a row of the first
    steps = [Contract(blocks, 1, "in place", "by columns", True, True)]
    after = apply_schedule(sink, steps)
    stored = [u for u in toposort([after]) if u.op is Ops.STORE]
    (out,) = {u.src[0] for u in stored if u.src[0].arg.space == "global"}
    given = next(
        u
        for u in toposort([after])
        if u.op is Ops.BUFFER and u.arg[2:] == (2, 0, "global")
    )
    text = {out: given}
    from uopc.uop import substitute

    rng = np.random.default_rng(1)
    a, b, c = (
        rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (m, n))
    )
    (over,) = substitute([after], text)
    result = run_loops(over, {0: a.ravel(), 1: b.ravel(), 2: c.ravel()})[2]
    np.testing.assert_allclose(result.reshape(m, n), a @ b + c, rtol=1e-4, atol=1e-5)


def convolution(batch: int, channels: int, height: int, width: int, rows: int) -> UOp:
    """Of 3x3, with a border of zeros."""
    x, w = array(0, batch, channels, height, width), array(1, rows, channels, 3, 3)
    return loops(conv(x, w, (1, 1), ((1, 1), (1, 1)), (1, 1)))


@pytest.mark.parametrize(
    "sizes, target",
    [
        ((1, 2, 2, 16, 3), AVX2), ((2, 1, 3, 7, 4), AVX2), ((2, 1, 3, 3, 2), AVX512),
        ((1, 2, 3, 5, 2), SSE),
    ],
)  # fmt: skip
def test_convolution(sizes: tuple[int, ...], target: Target) -> None:
    """By whatever way the estimate likes best, and by all others there are."""
    sink = convolution(*sizes)
    assert_same(sink, target)
    found = find_contraction(sink)
    assert found is not None
    kinds = set()
    for c in (found, found.turned()):
        for step, _ in module._ways(c, target):
            way = replace(step, turned=c is not found)
            assert_same(sink, target, step=way)
            kinds.add((way.right, way.turned))
    assert ("whole", False) in kinds
    assert len(kinds) >= 3


def test_a_window_seen_backwards() -> None:
    """As in the gradient of a convolution: what is read moves with x - kx."""
    x, w = array(0, 1, 2, 4, 8), array(1, 3, 2, 3, 3)
    out = conv(x, w, (1, 1), ((1, 1), (1, 1)), (1, 1))
    (node,) = (u for u in toposort([out]) if u.op is Ops.CONV)
    back = node.arg._replace(b=(-1, -1), e=(1, 1))
    step = assert_same(loops(UOp(Ops.CONV, node.src, back)), AVX2)
    assert step.right == "whole"


def test_a_window_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four channels two fit at a time."""
    monkeypatch.setattr(module, "WINDOW_BYTES", 2 * 6 * 10 * 4)
    monkeypatch.setattr(module, "FEW", 1)
    step = assert_same(convolution(1, 4, 4, 8, 2), AVX2)
    assert step.right == "whole" and step.blocks.depth == 18


@pytest.mark.parametrize(
    "stride, padding, dilation, groups",
    [
        ((2, 1), ((0, 0), (1, 1)), (1, 1), 1),
        ((1, 1), ((2, 1), (0, 3)), (1, 2), 1),
        ((1, 1), ((1, 1), (1, 1)), (1, 1), 2),
        ((1, 2), ((1, 0), (2, 2)), (2, 1), 1),
    ],
)
def test_other_convolutions(
    stride: tuple[int, int],
    padding: tuple[tuple[int, int], tuple[int, int]],
    dilation: tuple[int, int],
    groups: int,
) -> None:
    x, w = array(0, 1, 2, 5, 8), array(1, 4, 2 // groups, 2, 3)
    assert_same(loops(conv(x, w, stride, padding, dilation, groups)), AVX2)


def test_what_is_no_contraction() -> None:
    a, b = array(0, 8, 8), array(1, 8, 8)
    cases: list[Callable[[], UOp]] = [
        lambda: a + b,
        lambda: a.reduce(Ops.ADD, 1),
        lambda: (a * b).reduce(Ops.ADD, 1),  # no loop of its own for either
        lambda: matmul(a, array(1, 8, 1)),  # no columns
        lambda: matmul(array(0, 8, 8, dtype=i32), array(1, 8, 8, dtype=i32)),
        lambda: (a.reshape((8, 1, 8)).expand((8, 8, 8))).reduce(Ops.MAX, 1),
    ]
    for make in cases:
        sink = loops(make())
        assert find_contraction(sink) is None, sink
        assert contraction(sink, AVX2) is None


def test_only_loop_variables_have_digits() -> None:
    """A float divided by an infinity is no digit of one."""
    x = array(0, 8)
    assert contraction(loops(x // x.const_like(math.inf)), AVX2) is None


def test_small_ones_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    small = loops(matmul(array(0, 8, 8), array(1, 8, 8)))
    assert find_contraction(small) is not None
    assert contraction(small, AVX2) is None
    flat = loops(matmul(array(0, 3, 1000), array(1, 1000, 2)))
    assert contraction(flat, AVX512) is None  # of 16 lanes, 13 would be empty
    large = loops(matmul(array(0, 64, 64), array(1, 64, 64)))
    assert contraction(large, AVX2) is not None


def test_a_schedule_prints() -> None:
    step = Contract(
        Blocks(6, 2, 8, 256, 40, 16), 1, "in place", "by columns", True, True
    )
    assert str(step) == "contract(tile 6x16, block 240x256x256, left in place)"
    with pytest.raises(ValueError, match="no contraction"):
        step.apply(loops(array(0, 8) + 1.0))


@pytest.mark.parametrize("target", TARGETS)
def test_blocks_fit_registers_and_caches(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for rows, columns, depth in [(1024, 1024, 1024), (64, 128, 784), (3, 999, 5)]:
        lanes = target.lanes(f32)
        size = Size(
            1,
            rows,
            -(-columns // lanes),
            (depth,),
            0.25,
            0.25,
            0.3,
            block_depths([depth]),
        )
        b, _ = choose_blocks(size, f32, target)
        assert b.rows * b.vectors + b.vectors + 1 <= target.registers
        panel = 4 * b.wide * b.vectors * lanes * b.depth
        assert panel <= contraction_blocks.PANEL_BYTES
        assert b.high * b.rows < rows + b.rows


def test_rounds_are_equal_and_even(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads are to finish together; the split is a matter of the shape alone."""
    monkeypatch.undo()
    b, _ = choose_blocks(
        Size(1, 1024, 128, (1024,), 0.25, 0.25, 0.3, (256,)), f32, AVX2
    )
    down = math.ceil(math.ceil(1024 / b.rows) / b.high)
    across = math.ceil(math.ceil(128 / b.vectors) / b.wide)
    assert down * across % 2 == 0
    assert down * b.high * b.rows * across * b.wide * b.vectors < 1.1 * 1024 * 128

"""Leaves, movement, reductions and selection against statements in plain NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from uopc.dtype import DTYPES, boolean, f16, f32, f64, i8, i32, i64, u8, u64
from uopc.interp import evaluate
from uopc.uop import BUILTIN_OPS, Ops, UOp

ALL = tuple(DTYPES.values())


def data(dtype, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    low, high = max(dtype.min, -100), min(dtype.max, 100)
    return rng.integers(low, high, shape, endpoint=True).astype(dtype.numpy)


def stride_permute(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    out = np.empty([x.shape[a] for a in axes], x.dtype)
    for place in np.ndindex(out.shape):
        back = [0] * x.ndim
        for k, a in enumerate(axes):
            back[a] = place[k]
        out[place] = x[tuple(back)]
    return out


Statement = Callable[[np.ndarray], np.ndarray]
X = (2, 3, 4)
# The op, on a (2, 3, 4) array, and the same in NumPy.
MOVES: dict[str, tuple[Callable[[UOp], UOp], Statement]] = {
    "reshape": (lambda u: u.reshape((6, 4)), lambda x: np.array(
        [x[i // 3, i % 3] for i in range(6)])),
    "reshape flat": (lambda u: u.reshape((24,)), lambda x: np.array(list(x.flat))),
    "reshape ones": (lambda u: u.reshape((1, 24, 1)),
                     lambda x: x.ravel()[None, :, None]),
    "expand": (lambda u: u.reshape((2, 1, 3, 4)).expand((2, 5, 3, 4)),
               lambda x: np.repeat(x[:, None], 5, axis=1)),
    "expand to nothing": (lambda u: u.reshape((24, 1)).expand((24, 0)),
                          lambda x: np.zeros((24, 0), x.dtype)),
    **{f"permute {p}": (lambda u, p=p: u.permute(p),
                        lambda x, p=p: stride_permute(x, p))
       for p in itertools.permutations(range(3))},
    "shrink": (lambda u: u.shrink([(1, 2), (0, 2), (1, 4)]), lambda x: x[1:, :2, 1:]),
    "shrink to nothing": (lambda u: u.shrink([(0, 2), (2, 2), (0, 4)]),
                          lambda x: x[:, 2:2]),
    "shrink nothing": (lambda u: u.shrink([(0, 2), (0, 3), (0, 4)]), lambda x: x),
    "flip": (lambda u: UOp(Ops.FLIP, (u,), (0, 2)), lambda x: x[::-1, :, ::-1]),
    "flip none": (lambda u: UOp(Ops.FLIP, (u,), ()), lambda x: x),
    "stack": (lambda u: UOp.stack([u, u, UOp(Ops.FLIP, (u,), (1,))]),
              lambda x: np.array([x, x, x[:, ::-1]])),
    "index": (lambda u: u.index(1), lambda x: x[1]),
    "index two": (lambda u: u.index(1, 2), lambda x: x[1, 2]),
    "index all": (lambda u: u.index(0, 2, 3), lambda x: x[0, 2, 3]),
    "detach": (lambda u: u.detach(), lambda x: x),
    "contiguous": (lambda u: UOp(Ops.STAGE, (u,), "contiguous"), lambda x: x),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("name", MOVES)
def test_elements_move_unchanged(name: str, dtype, same_bits) -> None:
    build, statement = MOVES[name]
    x = data(dtype, X)
    if dtype.is_float:
        x.flat[:4] = [math.nan, -0.0, math.inf, 1e-42]
    u = UOp.param(0, dtype, X)
    (got,) = evaluate([build(u)], {u: x})
    same_bits(got, statement(x))


def test_leaves() -> None:
    for n in (0, 1, 7):
        (got,) = evaluate([UOp(Ops.IOTA, (), n)], {})
        assert got.dtype == np.int32
        assert got.tolist() == list(range(n))
    for value, dtype in [(1, i32), (-0.0, f64), (True, boolean), (2**64 - 1, u64)]:
        (got,) = evaluate([UOp.const(value, dtype)], {})
        assert got.dtype == dtype.numpy
        assert repr(got.item()) == repr(value)


def test_a_leaf_without_data_is_named() -> None:
    with pytest.raises(KeyError, match=r"no data given for .*Ops\.BUFFER f32"):
        evaluate([UOp.buffer(3, f32, 4) + 1.0], {})
    with pytest.raises(NotImplementedError, match="store has no NumPy meaning"):
        one = UOp.const(1.0, f32)
        evaluate([UOp(Ops.STORE, (UOp.buffer(1, f32, 0), UOp.const(0, i32), one))],
                 {UOp.buffer(1, f32, 0): np.zeros(1, np.float32)})  # fmt: skip


def wrapped(value: int, dtype) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if value > dtype.max else value


INT_REDUCE = {Ops.ADD: sum, Ops.MUL: math.prod, Ops.MAX: max}


@pytest.mark.parametrize("dtype", [d for d in ALL if d.is_int], ids=str)
@pytest.mark.parametrize("op", INT_REDUCE, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_integer_reductions_wrap(op, n: int, dtype, same_bits) -> None:
    x = data(dtype, X)
    x[0, 0, 0], x[1, 2, 3] = dtype.max, dtype.min
    u = UOp.param(0, dtype, X)
    (got,) = evaluate([u.reduce(op, n)], {u: x})
    groups = x.reshape(math.prod(X[: 3 - n]), -1).tolist()
    expected = [wrapped(INT_REDUCE[op](group), dtype) for group in groups]
    same_bits(got, np.array(expected, dtype.numpy).reshape(X[: 3 - n]))


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("op", INT_REDUCE, ids=str)
def test_float_reductions(op, dtype) -> None:
    rows = [
        [1.0, -2.0, 3.5, 0.25],
        [math.nan, 1.0, math.inf, 2.0],
        [math.inf, 1.0, 2.0, 3.0],
        [math.inf, -math.inf, 1.0, 1.0],
        [-math.inf, -math.inf, -1.0, -2.0],
        [-0.0, -0.0, -0.0, -0.0],
    ]
    x = np.array(rows, dtype.numpy)
    u = UOp.param(0, dtype, x.shape)
    (got,) = evaluate([u.reduce(op, 1)], {u: x})
    step = {Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.MAX: np.maximum}[op]
    with np.errstate(all="ignore"):
        expected = x[:, 0]
        for k in range(1, 4):
            expected = step(expected, x[:, k])
    assert got.dtype == dtype.numpy
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", [boolean, i8, u8, i64], ids=str)
def test_max_of_small_types(dtype) -> None:
    x = data(dtype, X, seed=3)
    u = UOp.param(0, dtype, X)
    (got,) = evaluate([u.reduce(Ops.MAX, 2)], {u: x})
    assert got.tolist() == [max(x[0].flat), max(x[1].flat)]


EMPTY = [(Ops.ADD, 0), (Ops.MUL, 1)]


@pytest.mark.parametrize(("op", "value"), EMPTY)
@pytest.mark.parametrize("dtype", [f32, i32, u8], ids=str)
def test_reducing_nothing_gives_the_identity(op, value, dtype, same_bits) -> None:
    u = UOp.param(0, dtype, (2, 0))
    (got,) = evaluate([u.reduce(op, 1)], {u: np.zeros((2, 0), dtype.numpy)})
    same_bits(got, np.full(2, value, dtype.numpy))


def gather(x: np.ndarray, *idx: np.ndarray) -> np.ndarray:
    """Element by element; 0 where an index is out of range."""
    out = np.zeros(idx[0].shape + x.shape[len(idx) :], x.dtype)
    for place in np.ndindex(idx[0].shape):
        where = [int(i[place]) for i in idx]
        if all(0 <= w < n for w, n in zip(where, x.shape, strict=False)):
            out[place] = x[tuple(where)]
    return out


@pytest.mark.parametrize("index_dtype", [d for d in ALL if d.is_int], ids=str)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_gather_reads_zero_out_of_range(index_dtype, count: int, same_bits) -> None:
    rng = np.random.default_rng(count)
    low = max(-3, index_dtype.min)
    idx = [rng.integers(low, 6, (5, 4)).astype(index_dtype.numpy) for _ in range(count)]
    idx[0].flat[:2] = [index_dtype.min, index_dtype.max]
    for dtype in (f32, boolean, u64):
        x = data(dtype, X, seed=7)
        u = UOp.param(0, dtype, X)
        nodes = [UOp.param(k + 1, index_dtype, (5, 4)) for k in range(count)]
        values = {u: x, **dict(zip(nodes, idx, strict=True))}
        (got,) = evaluate([u.index(*nodes)], values)
        same_bits(got, gather(x, *idx))


def test_gather_by_a_scalar_and_from_nothing(same_bits) -> None:
    u, i = UOp.param(0, f32, (3, 2)), UOp.param(1, i32)
    x = data(f32, (3, 2))
    for at, expected in [(2, x[2]), (3, np.zeros(2, "f4")), (-1, np.zeros(2, "f4"))]:
        (got,) = evaluate([u.index(i)], {u: x, i: np.asarray(at, np.int32)})
        same_bits(got, expected)
    empty, three = UOp.param(0, f32, (0, 2)), UOp.param(1, i32, (3,))
    given = {empty: np.zeros((0, 2), "f4"), three: np.arange(3, dtype="i4")}
    same_bits(evaluate([empty.index(three)], given)[0], np.zeros((3, 2), "f4"))


def test_an_index_that_is_wide_is_not_cut(same_bits) -> None:
    u, i = UOp.param(0, f32, (3,)), UOp.param(1, i64, (3,))
    x, idx = data(f32, (3,)), np.array([2**32 + 1, 1, -(2**40)])
    (got,) = evaluate([u.index(i)], {u: x, i: idx})
    same_bits(got, np.array([0, x[1], 0], np.float32))


def scatter(g: np.ndarray, idx: list[np.ndarray], lengths: tuple[int, ...]):
    """Element by element, from 0.0 on, in the order of the index."""
    at = idx[0].shape
    out = np.zeros((*lengths, *g.shape[len(at) :]), g.dtype)
    for place in np.ndindex(at):
        where = tuple(int(i[place]) for i in idx)
        if all(0 <= w < n for w, n in zip(where, lengths, strict=True)):
            out[where] = out[where] + g[place]
    return out


@pytest.mark.parametrize("index_dtype", [d for d in ALL if d.is_int], ids=str)
@pytest.mark.parametrize("lengths", [(4,), (4, 2), (3, 0)], ids=str)
def test_scatter_adds_in_order_and_nothing_out_of_range(
    index_dtype, lengths: tuple[int, ...], same_bits
) -> None:
    rng = np.random.default_rng(len(lengths))
    low = max(-3, index_dtype.min)
    idx = [rng.integers(low, 6, (5, 4)).astype(index_dtype.numpy) for _ in lengths]
    idx[0].flat[:2] = [index_dtype.min, index_dtype.max]
    nodes = [UOp.param(k + 1, index_dtype, (5, 4)) for k in range(len(lengths))]
    for dtype in (f32, f64, i8, u64):
        u = UOp.param(0, dtype, (5, 4, 3))
        g = data(dtype, (5, 4, 3), seed=7)
        root = UOp(Ops.SCATTER_ADD, (u, *nodes), lengths)
        values = {u: g, **dict(zip(nodes, idx, strict=True))}
        same_bits(evaluate([root], values)[0], scatter(g, idx, lengths))


def test_scatter_of_half_types_is_rounded_once(same_bits) -> None:
    u, i = UOp.param(0, f16, (4096,)), UOp.param(1, i32, (4096,))
    given = {u: np.ones(4096, np.float16), i: np.zeros(4096, np.int32)}
    (got,) = evaluate([UOp(Ops.SCATTER_ADD, (u, i), (2,))], given)
    same_bits(got, np.array([4096, 0], np.float16))


def test_scatter_of_a_negative_zero_starts_from_zero(same_bits) -> None:
    u, i = UOp.param(0, f32), UOp.param(1, i32)
    given = {u: np.asarray(-0.0, np.float32), i: np.asarray(1, np.int32)}
    root = UOp(Ops.SCATTER_ADD, (u, i), (2,))
    for node in (root, Ops.SCATTER_ADD.lower(root)):
        same_bits(evaluate([node], given)[0], np.zeros(2, np.float32))


def test_a_sum_of_products_may_be_contracted_and_means_the_same() -> None:
    a, b = UOp.param(0, f32, (3, 1, 5)), UOp.param(1, f32, (1, 4, 5))
    x, y = data(f32, (3, 1, 5)), data(f32, (1, 4, 5), 1)
    full = (3, 4, 5)
    u = (a.expand(full) * b.expand(full)).reduce(Ops.ADD, 1)
    values = {a: x, b: y}
    naive, short = (evaluate([u], values, contract=c)[0] for c in (False, True))
    np.testing.assert_allclose(naive, (x * y).sum(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(short, naive, rtol=1e-5, atol=1e-6)
    # Nothing is contracted away that somebody else reads.
    product = u.src[0]
    both = evaluate([u, product], values)
    np.testing.assert_array_equal(both[1], x * y)
    both = evaluate([u, product.exp2(), u * 2.0], values)
    np.testing.assert_allclose(both[1], np.exp2(x * y), rtol=1e-6)
    np.testing.assert_allclose(both[2], 2 * naive, rtol=1e-5, atol=1e-6)


CONTRACTIONS = {
    "a row twice": lambda u: (u.reshape((2, 1, 12)).expand((2, 3, 12)),) * 2,
    "constants": lambda u: (u.const_like(2.0), u.const_like(3.0)),
    "one constant": lambda u: (u, u.const_like(3.0)),
    "outer": lambda u: (u.reshape((24, 1)).expand((24, 24)),
                        u.reshape((1, 24)).expand((24, 24))),
    "nothing": lambda u: (u.shrink([(0, 2), (0, 3), (0, 0)]),) * 2,
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRACTIONS)
@pytest.mark.parametrize("n", [1, 2])
def test_contraction_of_repeated_elements(name: str, n: int) -> None:
    u = UOp.param(0, f32, X)
    left, right = CONTRACTIONS[name](u)
    root = (left * right).reduce(Ops.ADD, n)
    values = {u: data(f32, X)}
    (short,) = evaluate([root], values)
    (naive,) = evaluate([root], values, contract=False)
    np.testing.assert_allclose(short, naive, rtol=1e-5)


def test_every_row_with_a_meaning_is_covered_here_or_beside() -> None:
    here = {Ops.CONST, Ops.IOTA, Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.SHRINK,
            Ops.FLIP, Ops.REDUCE, Ops.STACK, Ops.INDEX, Ops.STAGE,
            Ops.SCATTER_ADD, Ops.CONV}  # fmt: skip
    rest = {op for op in BUILTIN_OPS if op.numpy and op.kind != "elementwise"}
    assert rest == here

"""INDEX in C: indices of every type, in range and out, gathered themselves."""

from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import DTYPES, DType, f32, i32
from uopc.runtime import backend_named, new_buffer, realize
from uopc.uop import Ops, UOp

Array = np.ndarray[Any, Any]
INDEX_TYPES = [d for d in DTYPES.values() if d.is_int]
ROWS = (1, 3, 127, 128, 129, 255, 256, 257, 1000)


def leaf(array: Array) -> UOp:
    return new_buffer(array.reshape(-1).copy()).reshape(array.shape)


def run(roots: list[UOp], opt: int) -> list[Array]:
    with overriding(UOPC_OPT=opt):
        flat = realize(roots, None, backend_named("c"))
    return [x.reshape(r.shape) for x, r in zip(flat, roots, strict=True)]


def taken(table: Array, index: Array) -> Array:
    """Rows of ``table``, zeros where the index is out of range: one by one."""
    rows = [
        table[i] if 0 <= i < len(table) else np.zeros_like(table[0])
        for i in index.reshape(-1).tolist()
    ]
    return np.array(rows, table.dtype).reshape(index.shape + table.shape[1:])


def indices(dtype: DType) -> Array:
    near = {n + d for n in (0, *ROWS) for d in (-2, -1, 0, 1)} | {
        2**31,
        2**32,
        2**32 + 1,
    }
    ends = {dtype.min, dtype.min + 1, dtype.max - 1, dtype.max}
    fits = sorted(v for v in near | ends if dtype.min <= v <= dtype.max)
    return np.array(fits, dtype.numpy)


@pytest.mark.parametrize("opt", [0, 1])
def test_every_index_type_and_length(opt: int):
    tables = {n: np.arange(1, n * 2 + 1, dtype=np.float32).reshape(n, 2) for n in ROWS}
    cases = [(t, d) for t in tables.values() for d in INDEX_TYPES]
    leaves = {n: leaf(t) for n, t in tables.items()}
    data = {d: indices(d) for d in INDEX_TYPES}
    read = {d: leaf(x) for d, x in data.items()}
    got = run([leaves[len(t)].index(read[d]) for t, d in cases], opt)
    for (table, dtype), rows in zip(cases, got, strict=True):
        np.testing.assert_array_equal(
            rows, taken(table, data[dtype]), err_msg=f"{dtype} into {len(table)}"
        )


@pytest.mark.parametrize("opt", [0, 1])
def test_indices_that_are_gathered(opt: int):
    rng = np.random.default_rng(3)
    table = rng.standard_normal((7, 4)).astype(np.float32)
    first = np.array([2, -1, 6, 7, 0, 3, 5, 1], np.int32)
    second = np.array([[0, 7, 8], [3, 3, -5]], np.int32)
    third = np.array([1, 0, 2, 1], np.int32)
    t, a, b, c = map(leaf, (table, first, second, third))
    once = taken(table, first)
    twice = taken(table, taken(first, second))
    roots = [
        t.index(a).index(b),
        t.index(a.index(b)),
        t.index(a.index(b.index(c))),
        t.index(a.index(b)).reduce(Ops.ADD, 1),
        t.index(a.index(b).reduce(Ops.MAX, 1)),
        t.index(a, a),
        t.permute((1, 0)).index(a.index(c), UOp(Ops.FLIP, (c,), (0,))),
    ]
    expected = [
        taken(once, second),
        twice,
        taken(table, taken(first, taken(second, third))),
        twice.sum(-1),
        taken(table, taken(first, second).max(1)),
        np.array([table[i, i] if 0 <= i < 4 else 0 for i in first.tolist()]),
        np.array(
            [
                table.T[i, j] if 0 <= i < 4 else 0
                for i, j in zip(taken(first, third), third[::-1], strict=True)
            ]
        ),
    ]
    for k, (x, want) in enumerate(zip(run(roots, opt), expected, strict=True)):
        np.testing.assert_allclose(x, want, rtol=1e-6, err_msg=f"root {k}")


@pytest.mark.parametrize("opt", [0, 1])
def test_tables_and_indices_without_elements(opt: int):
    none = leaf(np.zeros((0, 3), np.float32))
    some = leaf(np.array([0, 1], np.int32))
    empty = leaf(np.zeros((0,), np.int32))
    table = leaf(np.ones((2, 3), np.float32))
    got = run([none.index(some), table.index(empty), none.index(some) + 1.0], opt)
    assert [x.shape for x in got] == [(2, 3), (0, 3), (2, 3)]
    assert not got[0].any()
    assert (got[2] == 1).all()


def test_a_constant_behind_a_marker_may_be_out_of_range():
    """The marker goes away, but what is left is no mistake of the user's."""
    table = leaf(np.arange(1, 4, dtype=np.float32))
    inside, outside = (UOp.const(i, i32).detach() for i in (2, 3))
    got = run([table.index(inside), table.index(outside)], 1)
    assert [x.item() for x in got] == [3.0, 0.0]


@pytest.mark.parametrize("opt", [0, 1])
def test_reads_stay_inside_whatever_guards_them(opt: int):
    """A read under a condition happens all the same: its index must be clamped."""
    n = 5
    table = leaf(np.arange(1, n + 1, dtype=np.float32))
    far = np.array([-(10**9), -1, 0, 4, 5, 10**9], np.int32)
    i = leaf(far)
    zero = UOp.const(0.0, f32).broadcast_scalar((6,))
    guarded = [
        (i < n).where(table.index(i), zero),
        ((i < n) & (i > -1)).where(table.index(i), zero + 7.0),
        (i < 0).where(zero, (i < n).where(table.index(i), zero)),
    ]
    got = run(guarded, opt)
    assert got[0].tolist() == [0, 0, 1, 5, 0, 0]
    assert got[1].tolist() == [7, 7, 1, 5, 7, 7]
    assert got[2].tolist() == [0, 0, 1, 5, 0, 0]


@pytest.mark.parametrize("opt", [0, 1])
def test_indices_made_of_truth_values(opt: int):
    """gcc 12.2 vectorises some of these loops to read at -1 for true."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 3, 64).astype(np.float32) for _ in range(2))
    p, q = (rng.integers(0, 3, 64).astype(np.int32) for _ in range(2))
    table = np.arange(1, 17, dtype=np.float32)
    square = rng.integers(0, 3, (3, 3)).astype(np.float32)
    t, a, b, c, d, s = map(leaf, (table, x, y, p, q, square))
    less, below = a < b, c < d
    turned = s.permute((1, 0)).ne(s).cast(DTYPES["u16"])
    u8 = DTYPES["u8"]
    made = {
        "cast": (less.cast(i32), x < y),
        "one less": (1 - less.cast(i32), 1 - (x < y)),
        "scaled": (less.cast(i32) * 4 + 2, (x < y) * 4 + 2),
        "or": ((less | below).cast(i32), (x < y) | (p < q)),
        "narrow": (less.cast(u8) ^ 1, (x < y) ^ True),
        "sum": (less.cast(i32) + below.cast(i32), (x < y) * 1 + (p < q)),
        "choice": (
            less.where(c.const_like(5), c.const_like(3)),
            np.where(x < y, 5, 3),
        ),
    }
    got = run([*(t.index(i) for i, _ in made.values()), s.index(turned, turned)], opt)
    for (name, (_, want)), rows in zip(made.items(), got, strict=False):
        np.testing.assert_array_equal(rows, table[want.astype(int)], err_msg=name)
    where = (square != square.T).astype(int)
    np.testing.assert_array_equal(got[-1], square[where, where])

"""Indexing by data against NumPy: shapes, values, and what is out of range."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from uopc.composite import one_hot_index
from uopc.dtype import DTYPES, bf16, boolean, f16, f32, f64, i8, i32, i64, u8, u64
from uopc.tensor import Tensor
from uopc.uop import Ops, toposort

Array = np.ndarray[Any, Any]
X = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
T = Tensor(X)
# Keys that fit any axis of X, by how they are written.
PARTS: dict[str, Any] = {
    ":": slice(None),
    "::-1": slice(None, None, -1),
    "1": 1,
    "...": Ellipsis,
    "None": None,
    "[0,-1]": np.array([0, -1]),
    "[[1],[-2]]": np.array([[1], [-2]], np.int32),
    "0-d": np.array(-1, np.int8),
}


def tensors(key: Sequence[Any]) -> tuple[Any, ...]:
    """The key with tensors for its arrays."""
    return tuple(Tensor(k) if isinstance(k, np.ndarray) else k for k in key)


def keys(length: int) -> list[tuple[str, ...]]:
    return [
        names
        for names in itertools.product(PARTS, repeat=length)
        if names.count("...") < 2 and names.count("None") < 2
    ]


def full_keys() -> list[tuple[str, ...]]:
    """Keys for all four axes and an Ellipsis that stands for none."""
    return [k for k in keys(5) if "None" not in k and "..." in k]


def test_keys_mean_what_they_mean_to_numpy() -> None:
    """All mixtures of three parts, some of four, and of five with an empty ``...``."""
    used = 0
    for names in [*keys(1), *keys(2), *keys(3), *keys(4)[::7], *full_keys()[::9]]:
        key = tuple(PARTS[n] for n in names)
        got = T[tensors(key)]
        expected = X[key]
        assert got.shape == expected.shape, names
        if used % 5 == 0:  # of values some are enough: a program each
            np.testing.assert_array_equal(got.numpy(), expected, err_msg=str(names))
        used += 1
    assert used > 700


def test_lists_and_arrays_choose_like_tensors() -> None:
    for key in ([0, 1], [[1, 0], [0, 0]], np.array([1, -1], np.int64), [-1]):
        np.testing.assert_array_equal(T[key].numpy(), X[np.array(key)])
    np.testing.assert_array_equal(T[[1, 0], :, (0, 3)].numpy(), X[[1, 0], :, (0, 3)])
    assert T[[]].shape == (0, 3, 4, 5)
    assert T[:, np.zeros((0, 2), np.int32)].shape == (2, 0, 2, 4, 5)


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.is_int], ids=str)
@pytest.mark.parametrize("n", [1, 5, 127, 128, 129, 255, 256, 300])
def test_every_index_type_wraps_and_masks(dtype: Any, n: int) -> None:
    near = {0, 1, n - 1, n, n + 1, 2 * n, -1, -n, -n - 1, dtype.min, dtype.max}
    places = sorted(v for v in near if dtype.min <= v <= dtype.max)
    table = np.arange(1, n + 1, dtype=np.int32)
    expected = [int(table[v]) if -n <= v < n else 0 for v in places]
    got = Tensor(table)[Tensor(np.array(places, dtype.numpy))]
    assert got.tolist() == expected


@pytest.mark.parametrize("dtype", [boolean, i8, u64, f16, bf16, f64], ids=str)
def test_every_type_of_data_is_copied(dtype: Any) -> None:
    x = Tensor(np.array([[0, 1], [1, 1], [1, 0]])).cast(dtype)
    got = x[Tensor([2, 0, 5])]
    assert got.dtype is dtype
    assert got.cast(i32).tolist() == [[1, 0], [0, 1], [0, 0]]


# -- functions ----------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, None])
@pytest.mark.parametrize("index", [[1, 0, -1], [[0, 1], [-2, 0]], 1], ids=str)
def test_take(axis: int | None, index: Any) -> None:
    expected = np.take(X, index, axis)
    for given in (index, np.array(index), Tensor(index)):
        np.testing.assert_array_equal(T.take(given, axis).numpy(), expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_index_select_is_take_of_one_axis(axis: int) -> None:
    index = np.array([1, 0, 0])
    got = T.index_select(axis, Tensor(index))
    np.testing.assert_array_equal(got.numpy(), np.take(X, index, axis))
    with pytest.raises(ValueError, match=r"index_select\(f32.*i32\[1, 1\].*one axis"):
        T.index_select(0, Tensor([[0]]))


def gathered(x: Array, axis: int, index: Array) -> Array:
    """PyTorch's definition of gather, element by element."""
    out = np.zeros(index.shape, x.dtype)
    for place in np.ndindex(index.shape):
        at, n = int(index[place]), x.shape[axis]
        if -n <= at < n:
            out[place] = x[(*place[:axis], at, *place[axis + 1 :])]
    return out


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("lengths", [(2, 3, 4), (1, 2, 3), (0, 3, 4)], ids=str)
def test_gather(axis: int, lengths: tuple[int, ...]) -> None:
    shape = tuple(7 if k == axis else n for k, n in enumerate(lengths))
    x = X[..., 0]
    index = np.random.default_rng(axis).integers(-5, 5, shape)
    got = Tensor(x).gather(axis, Tensor(index)).numpy()
    np.testing.assert_array_equal(got, gathered(x, axis, index))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("ones", [(), (0,), (1,), (2,), (0, 2)], ids=str)
def test_take_along_axis_broadcasts_the_other_axes(axis: int, ones: Any) -> None:
    x, rng = X[..., 0], np.random.default_rng(1)
    shape = [1 if k in ones else n for k, n in enumerate(x.shape)]
    shape[axis] = 2
    index = rng.integers(-2, 2, shape)
    expected = np.take_along_axis(x, index, axis)
    for name in ("take_along_axis", "take_along_dim"):
        got = getattr(Tensor(x), name)(Tensor(index), axis)
        np.testing.assert_array_equal(got.numpy(), expected)
    narrow = Tensor(x[:1] if axis else x[:, :1])
    wide = np.broadcast_to(narrow.numpy(), x.shape)
    every = np.zeros((1, 1, 1), int) + 1
    got = narrow.take_along_axis(Tensor(every + np.zeros(x.shape, int)), axis)
    np.testing.assert_array_equal(
        got.numpy(), np.take_along_axis(wide, every + np.zeros(x.shape, int), axis)
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(2, 3), (1, 2), (2, 0)], ids=str)
def test_scatter_add(axis: int, shape: tuple[int, ...]) -> None:
    """PyTorch's definition; the source may be longer than the index."""
    x, src = X[:, :, 0, 0], np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    index = np.random.default_rng(axis + 1).integers(-4, 4, shape)
    expected = x.copy()
    for place in np.ndindex(shape):
        at, n = int(index[place]), x.shape[axis]
        if -n <= at < n:
            to = list(place)
            to[axis] = at
            expected[tuple(to)] += src[place]
    got = Tensor(x).scatter_add(axis, Tensor(index), Tensor(src))
    np.testing.assert_array_equal(got.numpy(), expected)


def test_scatter_add_combines_types_as_a_sum_does() -> None:
    index, ones = Tensor([0, 0, 2]), Tensor([1, 1, 1])
    assert Tensor([0.5, 0.5, 0.5]).scatter_add(0, index, ones).tolist() == [
        2.5,
        0.5,
        1.5,
    ]
    u = Tensor(np.array([255, 1, 0], np.uint8))
    wrapped = u.scatter_add(0, index, ones.cast(u8))
    assert wrapped.dtype is u8
    assert wrapped.tolist() == [1, 1, 1]
    zeros = Tensor(np.zeros(3), dtype=f16)
    many = Tensor(np.ones(4096), dtype=f16)
    got = zeros.scatter_add(0, Tensor(np.zeros(4096, np.int32)), many)
    assert got.dtype is f16
    assert got.tolist() == [4096, 0, 0]


def test_tables_and_indices_without_elements() -> None:
    none, index = Tensor(np.zeros((0, 3), np.float32)), Tensor([0, -1, 4])
    assert none[index].tolist() == [[0] * 3] * 3
    assert none.take(Tensor(np.zeros((2, 0), np.int32))).shape == (2, 0, 3)
    empty = Tensor(np.zeros((0, 3), np.int32))
    assert Tensor(np.ones((2, 3))).gather(0, empty).shape == (0, 3)
    kept = Tensor([1.0, 2.0]).scatter_add(0, Tensor(np.zeros(0, int)), Tensor([5.0]))
    assert kept.tolist() == [1, 2]
    assert Tensor(np.zeros(0)).scatter_add(0, Tensor([0]), Tensor([5.0])).shape == (0,)


# -- mistakes -----------------------------------------------------------------

MASK = Tensor(np.ones((2, 3), bool))
ERRORS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "mask": (lambda: T[MASK], TypeError,
             r"index\(f32\[2, 3, 4, 5\], bool\[2, 3\]\): a bool mask .*where"),
    "mask array": (lambda: T[np.ones(2, bool)], TypeError, "a bool mask"),
    "mask list": (lambda: T[[True, False]], TypeError, "a bool mask"),
    "0-d mask": (lambda: T[np.array(True)], TypeError, "index of type ndarray"),
    "floats": (lambda: T[Tensor([0.0])], TypeError,
               r"index\(f32\[2, 3, 4, 5\], f32\[1\]\): .*integer type, not f32"),
    "float list": (lambda: T[:, [0.5]], TypeError, "integer type, not f32"),
    "shapes": (lambda: T[Tensor([0, 1]), Tensor([0, 1, 2])], IndexError,
               r"index\(f32.*, i32\[2\], i32\[3\]\): .*do not broadcast"),
    "too many": (lambda: Tensor([1.0])[Tensor([0]), Tensor([0])], IndexError,
                 "too many indices"),
    "known": (lambda: T[Tensor([0]), 3], IndexError, "index 3 is out of range"),
    "take known": (lambda: T.take(2), IndexError, "index 2 is out of range"),
    "take a slice": (lambda: T.take(slice(1)), TypeError, "index of type slice"),
    "take axis": (lambda: T.take([0], 4), IndexError, "axis 4"),
    "gather rank": (lambda: T.gather(0, Tensor([0])), ValueError,
                    r"gather\(f32\[2, 3, 4, 5\], i32\[1\]\): .*as many axes"),
    "gather length": (lambda: Tensor(X[0, 0]).gather(0, Tensor([[0] * 6])), ValueError,
                      "nowhere longer, except along axis 0"),
    "gather type": (lambda: Tensor([1.0]).gather(0, Tensor([1.0])), TypeError,
                    r"gather\(f32\[1\], f32\[1\]\)"),
    "along": (lambda: T.take_along_axis(Tensor([0]), 0), ValueError,
              r"take_along_axis\(f32.*as many axes"),
    "along shapes": (lambda: Tensor(X[0, 0]).take_along_axis(Tensor([[0] * 3]), 0),
                     ValueError, "take_along_axis.*do not broadcast"),
    "scatter src": (lambda: T.scatter_add(0, Tensor([0]), Tensor([1.0])), ValueError,
                    r"scatter_add\(f32\[2, 3, 4, 5\], i32\[1\]\)"),
    "scatter short": (
        lambda: Tensor([1.0]).scatter_add(0, Tensor([0, 0]), Tensor([1.0])), ValueError,
        r"scatter_add\(f32\[1\], i32\[2\], f32\[1\]\): the index is longer"),
    "scatter rank": (
        lambda: Tensor([1.0]).scatter_add(0, Tensor([0]), Tensor(1.0)), ValueError,
        "what is added must have as many axes"),
    "scatter number": (
        lambda: Tensor([1.0]).scatter_add(0, Tensor([0]), 1.0), TypeError,
        "scatter_add: expected a Tensor to add, got 1.0"),
    "scatter bool": (
        lambda: MASK[0].scatter_add(0, Tensor([0]), MASK[0]), TypeError,
        r"scatter_add\(bool\[3\], i32\[1\], bool\[3\]\): sums of bool need a cast"),
    "scatter types": (
        lambda: Tensor([1]).cast(u64).scatter_add(0, Tensor([0]), Tensor([1])),
        TypeError, r"scatter_add\(u64\[1\], i32\[1\], i32\[1\]\): .*no common"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_a_mistake_is_named_at_the_call(name: str) -> None:
    call, kind, words = ERRORS[name]
    with pytest.raises(kind, match=words):
        call()


# -- one-hot matrices ---------------------------------------------------------

INDEX = np.array([[2, 0], [5, -1]])
TABLE = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def multiplies(t: Tensor) -> bool:
    return any(u.op in (Ops.MUL, Ops.REDUCE) for u in toposort([t.uop]))


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.is_int], ids=str)
@pytest.mark.parametrize("shape", [(), (4,), (2, 2), (1,), (0,)], ids=str)
def test_one_hot_times_a_table_is_a_gather(dtype: Any, shape: tuple[int, ...]) -> None:
    index = np.resize(np.array([2, 0, 5, 3]), shape).astype(dtype.numpy)
    hot = Tensor(index).one_hot(4)
    inside = np.where(index < 4, index, 0)
    for table in (
        TABLE,
        TABLE[:, 0],
        TABLE.astype(np.float16),
        (9 * TABLE).astype(int),
    ):
        rows = hot @ Tensor(table)
        assert not multiplies(rows)
        alive = (index < 4).reshape(index.shape + (1,) * (table.ndim - 1))
        expected = np.where(alive, table[inside], 0)
        assert rows.shape == expected.shape
        np.testing.assert_array_equal(rows.numpy(), expected)
        assert rows.dtype is (hot[..., :1] * Tensor(table[0])).dtype


def test_a_comparison_with_positions_is_a_one_hot_matrix() -> None:
    i, places = Tensor(INDEX), Tensor.arange(4)
    wide = i.unsqueeze(-1)
    seen = [
        wide.eq(places).cast(f32),
        places.eq(wide).cast(f64),
        wide.eq(places).where(1.0, 0.0),
        wide.eq(places.cast(i64)).cast(f32),
        wide.eq(places).cast(f32).cast(f16),
        i.cast(i8).one_hot(4).cast(f64),
    ]
    for hot in seen:
        rows = hot @ Tensor(TABLE)
        assert not multiplies(rows)
        np.testing.assert_allclose(rows.numpy()[0], TABLE[[2, 0]], rtol=1e-3)
        assert not rows.numpy()[1].any()
    one = Tensor([0, 1]).one_hot(1) @ Tensor([[7.0, 8.0]])
    assert one.tolist() == [[7, 8], [0, 0]]
    assert not multiplies(one)


def test_what_is_no_one_hot_matrix_is_multiplied() -> None:
    i, places = Tensor(INDEX), Tensor.arange(4)
    wide = i.unsqueeze(-1)
    near_misses = [
        wide.eq(places).where(2.0, 0.0),
        wide.eq(places).where(1.0, 0.5),
        wide.eq(places).where(0.0, 1.0),
        wide.ne(places).cast(f32),
        (wide < places).cast(f32),
        wide.eq(places + 1).cast(f32),
        wide.eq(places.flip()).cast(f32),
        wide.cast(f32).eq(places.cast(f32)).cast(f32),
        wide.eq(Tensor([0, 1, 2, 3])).cast(f32),
        Tensor(np.arange(4).reshape(4, 1)).eq(Tensor([3, 2, 1, 0])).cast(f32),
        places.reshape(4, 1).eq(places.reshape(4, 1)).expand(4, 4).cast(f32),
        Tensor(2).eq(places).cast(f32).reshape(1, 4).expand(3, 4),
        Tensor.arange(300).cast(u8).reshape(1, 300).eq(
            Tensor(np.uint8([[44]]))).cast(f32),
        Tensor([[1], [2], [3], [0]]).eq(places.reshape(4, 1)).cast(f32),
        Tensor([[1, 2, 3, 0]]).expand(4, 4).eq(places).cast(f32),
    ]  # fmt: skip
    for k, hot in enumerate(near_misses):
        table = np.random.default_rng(1).standard_normal((hot.shape[-1], 3))
        assert one_hot_index(hot.uop) is None or k == 11, k
        got = (hot @ Tensor(table)).numpy()
        np.testing.assert_allclose(got, hot.numpy() @ table, atol=1e-6, err_msg=str(k))
    hot = i.one_hot(4)
    assert multiplies(hot @ Tensor(np.ones((2, 4, 3), np.float32)))  # a batch of tables
    hot.requires_grad = True
    assert multiplies(hot @ Tensor(TABLE))
    with pytest.raises(ValueError, match="inner lengths 4 and 5"):
        i.one_hot(4) @ Tensor(np.ones((5, 3), np.float32))


def test_other_rows_have_no_effect() -> None:
    table = TABLE.copy()
    table[1] = [np.nan, np.inf, -np.inf]
    rows = Tensor(INDEX).one_hot(4) @ Tensor(table)
    np.testing.assert_array_equal(rows.numpy()[0], TABLE[[2, 0]])

"""Assignment to elements against NumPy, and that nothing built before notices."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from uopc import composite
from uopc.dtype import DTYPES, bf16, boolean, f16, f64, i32, u8
from uopc.tensor import Tensor
from uopc.uop import toposort

Array = np.ndarray[Any, Any]
X = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
# Keys that fit any axis of X, by how they are written.
PARTS: dict[str, Any] = {
    ":": slice(None),
    "::-2": slice(None, None, -2),
    "1:": slice(1, None),
    "-1": -1,
    "...": Ellipsis,
    "None": None,
    "[0,-1,0]": np.array([0, -1, 0]),
    "[[1],[-2]]": np.array([[1], [-2]], np.int32),
}


def keys(length: int) -> list[tuple[str, ...]]:
    return [
        names
        for names in itertools.product(PARTS, repeat=length)
        if names.count("...") < 2 and names.count("None") < 2
    ]


def numpys(key: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(PARTS[n] for n in key)


def tensors(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(Tensor(k) if isinstance(k, np.ndarray) else k for k in key)


def check(x: Array, key: Any, value: Any, dtype: Any = None) -> None:
    """The same assignment to a tensor and to an array."""
    t = Tensor(x, dtype=dtype)
    t[tensors(key) if isinstance(key, tuple) else key] = (
        Tensor(value) if isinstance(value, np.ndarray) else value
    )
    want = x.copy()
    want[key] = value
    assert t.dtype.numpy == want.dtype
    np.testing.assert_array_equal(t.numpy(), want, err_msg=str(key))


def test_keys_mean_what_they_mean_to_numpy() -> None:
    """Mixtures of up to four parts, with a value for each element, or for each row."""
    used = [*keys(1), *keys(2)[::2], *keys(3)[::11], *keys(4)[::101]]
    for count, names in enumerate(used):
        key = numpys(names)
        shape = X[key].shape
        if count % 3 == 1:
            shape = shape[-1:]
        elif count % 3 == 2:
            shape = tuple(1 if k % 2 else n for k, n in enumerate(shape))
        check(X, key, -1 - np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    assert len(used) > 80


@pytest.mark.parametrize("n", [1, 2, 7])
def test_every_slice(n: int) -> None:
    x = np.arange(n, dtype=np.int32)
    ends = [None, *range(-n - 1, n + 2)]
    steps = [None, 2, -1, -3, n, -n]
    cases = [*itertools.product(ends, ends, steps)]
    news, wants = [], []
    for begin, end, step in cases[:: 1 + n // 3]:
        where = slice(begin, end, step)
        value = 10 + np.arange(len(x[where]), dtype=np.int32)
        t, want = Tensor(x), x.copy()
        t[where], want[where] = Tensor(value), value
        news.append(t)
        wants.append(want)
    assert len(news) > 20
    assert Tensor.stack(news).tolist() == np.stack(wants).tolist()


def test_lists_arrays_and_numbers_as_in_getitem() -> None:
    for key in ([0, 1], [[1, 0], [0, 0]], np.array([1, -1]), [-1], [], np.int64(1),
                np.array(1), (0, [2, 1]), ([1, 0], slice(None), (0, 3))):  # fmt: skip
        check(X, key, 7)
    for value in (True, 2, 2.5, np.float64(2.5), np.array(3), np.int8(3)):
        check(X, (0, slice(1, None)), value)
    t = Tensor(2.0)
    t[()] = 3.0
    assert t.item() == 3
    t[...] = Tensor([[4.0]])
    assert t.item() == 4
    t[None] = Tensor([5.0])
    assert t.item() == 5


def test_ones_in_front_of_a_value_do_not_count() -> None:
    check(X, (0, 1), np.full((1, 1, 1, 5), 3, np.float32))
    check(X, (0, [1, 1]), np.zeros((1, 1, 2, 4, 1), np.float32))


# -- where an element is named twice ------------------------------------------


@pytest.mark.parametrize("count", [2, 16, 17, 257, 5000])
@pytest.mark.parametrize("n", [1, 5, 300])
def test_the_last_of_equal_indices_wins(count: int, n: int) -> None:
    rng = np.random.default_rng(count + n)
    index = rng.integers(-n, n, count)
    check(np.zeros(n), (index,), rng.standard_normal(count))
    other = rng.integers(0, 3, count)
    check(np.zeros((n, 3)), (index, other), rng.standard_normal(count))


def test_the_last_wins_whatever_the_values_are() -> None:
    nan, inf = np.nan, np.inf
    values = np.array([nan, 1.0, inf, -inf, -0.0, nan, 2.0, nan], np.float32)
    index = np.array([0, 0, 1, 1, 2, 3, 3, 4])
    t = Tensor.ones(6)
    t[Tensor(index)] = Tensor(values)
    want = np.float32([1.0, -inf, -0.0, 2.0, nan, 1.0])
    np.testing.assert_array_equal(t.numpy(), want)
    assert np.signbit(t.numpy()[2])


def test_last_writer() -> None:
    rng = np.random.default_rng(0)
    for lengths in ((4,), (3, 5), (1, 1)):
        for shape in ((1,), (3, 7), (1000,)):
            idx = [rng.integers(-1, n + 1, shape).astype(np.int32) for n in lengths]
            want = np.full(lengths, -1)
            for place, to in enumerate(zip(*map(np.ravel, idx), strict=True)):
                if all(0 <= i < n for i, n in zip(to, lengths, strict=True)):
                    want[to] = place
            nodes = [Tensor(i).uop for i in idx]
            got = Tensor(composite.last_writer(nodes, lengths))
            assert got.tolist() == want.tolist()
            found = Tensor(composite.written(nodes, lengths))
            assert found.tolist() == (want >= 0).tolist()


def test_memory_of_the_winners_is_in_proportion_to_elements_and_indices() -> None:
    t = Tensor.zeros(1000)
    t[Tensor(np.zeros(4096, np.int32))] = Tensor(np.zeros(4096, np.float32))
    largest = max(np.prod(u.shape) for u in toposort([t.uop]))
    assert largest <= 16 * 1000


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.is_int], ids=str)
@pytest.mark.parametrize("n", [1, 127, 128, 256, 300])
def test_every_index_type_wraps_and_drops(dtype: Any, n: int) -> None:
    near = {0, 1, n - 1, n, n + 1, 2 * n, -1, -n, -n - 1, dtype.min, dtype.max}
    places = sorted(v for v in near if dtype.min <= v <= dtype.max)
    want = np.zeros(n, int)
    for i, v in enumerate(places):
        if -n <= v < n:
            want[v] = i + 1
    t = Tensor(np.zeros(n, np.int32))
    t[Tensor(np.array(places, dtype.numpy))] = Tensor(np.arange(len(places)) + 1)
    assert t.tolist() == want.tolist()
    for v in places:  # one position alone takes another way
        one = Tensor(np.zeros(n, np.int32))
        one[Tensor(np.array(v, dtype.numpy))] = 1
        assert one.tolist() == [int(-n <= v < n and k == v % n) for k in range(n)]


def test_out_of_range_data_names_nothing() -> None:
    t = Tensor(np.zeros((2, 3), np.float32))
    t[Tensor([0, 7, -3]), Tensor([0, 1, 1])] = Tensor([1.0, 2.0, 3.0])
    t[Tensor([-9, 2])] = 5.0
    assert t.tolist() == [[1, 0, 0], [0, 0, 0]]
    none = Tensor(np.zeros((0, 3), np.float32))
    none[Tensor([0])] = 5.0
    assert none.shape == (0, 3)


# -- masks --------------------------------------------------------------------

MASK = X[:, :, 0, 0] % 40 > 0


def test_masks() -> None:
    row = np.arange(5, dtype=np.float32)
    cases: list[tuple[Any, Any]] = [
        (X > 50, -1.0),
        (MASK, np.float32([[1], [2], [3], [4]]) * row),
        ((MASK, slice(1, 3)), row),
        ((MASK, 1), row),
        ((slice(None), X[0, :, 0, 0] > 0), np.full((2, 1, 4, 5), 9, np.float32)),
        ((0, slice(None), X[0, 0, :, 0] > 5), row),  # the mask's axis goes first
        ((..., X[0, 0, :, :] % 2 == 0), np.float32([[[1]], [[2]]])),
        ((None, MASK[:, 0], slice(None, None, -1)), -2),
        (np.zeros((2, 3), bool), -2),
    ]
    for key, value in cases:
        check(X, key, value)
    t = Tensor(X)
    t[(X > 50).tolist()] = 0.0
    np.testing.assert_array_equal(t.numpy(), np.where(X > 50, 0, X))
    t[t.ne(t)] = 1.0
    t[t < 50] = 1.0
    assert set(t.flatten().tolist()) == {*map(float, range(50, 51)), 0.0, 1.0} - {0.0}


# -- types --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_type_of_element(dtype: Any) -> None:
    t = Tensor(np.zeros((3, 2))).cast(dtype)
    t[Tensor([2, 0, 2]), 1] = Tensor([1, 1, 0]).cast(dtype)
    t[1] = 1
    assert t.dtype is dtype
    assert t.cast(i32).tolist() == [[0, 1], [1, 1], [0, 0]]


def test_values_are_cast_as_cast_does() -> None:
    floats = Tensor([2.7, -2.7, 300.0, float("nan")])
    for dtype in (u8, i32, boolean, f16, bf16, f64):
        t = Tensor(np.zeros(4)).cast(dtype)
        t[:] = floats
        assert t.dtype is dtype
        np.testing.assert_array_equal(t.numpy(), floats.cast(dtype).numpy())
    t = Tensor([0, 0])
    t[0], t[1] = 2.7, True
    assert (t.dtype, t.tolist()) == (i32, [2, 1])
    mask = Tensor([False, False, True])
    mask[0], mask[2] = 2, 0.0
    assert mask.tolist() == [True, False, False]


# -- mistakes -----------------------------------------------------------------

T = Tensor(X)
ERRORS: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "range": (2, 0.0, IndexError, "index 2 is out of range"),
    "many": ((0,) * 5, 0.0, IndexError, "too many indices"),
    "many with a mask": (
        (0, slice(1, None), None, slice(None, 4, 2), MASK), 0.0, IndexError,
        r"too many indices in \[0, 1:, None, :4:2, bool\[2, 3\]\]: 5 for 4 axes"),
    "two ellipses": ((..., 0, ...), 0.0, IndexError,
                     r"more than one \.\.\. in \[\.\.\., 0, \.\.\.\]"),
    "float slice": (slice(0, 1.5), 0.0, TypeError, "slice indices must be integers"),
    "no step": (slice(None, None, 0), 0.0, ValueError, "step cannot be zero"),
    "float key": (1.0, 0.0, TypeError, "index of type float"),
    "bool key": (True, 0.0, TypeError, "index of type bool"),
    "0-d mask": (Tensor(True), 0.0, TypeError, r"mask of shape \(\)"),
    "float data": (Tensor([1.0]), 0.0, TypeError,
                   r"setitem\(f32\[2, 3, 4, 5\], f32\[1\]\).*integer"),
    "data shapes": (([0, 1], [0, 1, 2]), 0.0, IndexError,
                    r"setitem\(.*i32\[2\], i32\[3\]\): .*do not broadcast"),
    "value shape": (0, Tensor([1.0, 2.0]), ValueError,
                    r"setitem\(f32\[2, 3, 4, 5\], f32\[2\]\): the value does not "
                    r"broadcast to the selection's \(3, 4, 5\)"),
    "value rank": ((0, 0, 0), Tensor(np.ones((2, 5))), ValueError, "not broadcast"),
    "empty": ([], Tensor([1.0, 2.0]), ValueError, "does not broadcast"),
    "mask length": (Tensor([True]), 0.0, IndexError,
                    r"setitem\(f32\[2, 3, 4, 5\], bool\[1\]\): the mask does not fit"),
    "mask rank": (Tensor(np.ones((1,) * 5, bool)), 0.0, IndexError, "too many"),
    "mask values": (MASK, Tensor(np.ones((4, 4, 5))), ValueError,
                    "as many elements as are true"),
    "mask and data": ((MASK[:, 0], [0, 1]), 0.0, TypeError, "no index array"),
    "data and mask": (([0, 1], MASK[0]), 0.0, TypeError, "no other mask"),
    "two masks": ((MASK[:, 0], MASK[0]), 0.0, TypeError, "no other mask"),
    "array": (0, np.ones(5), TypeError,
              r"setitem\(f32\[2, 3, 4, 5\]\): wrap the NumPy array in a Tensor"),
    "list": (0, [1.0], TypeError, "expected a Tensor or a number, got list"),
    "text": (0, "1", TypeError, "expected a Tensor or a number, got str"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_a_mistake_is_named_and_changes_nothing(name: str) -> None:
    key, value, kind, words = ERRORS[name]
    t = Tensor(X)
    before = t.uop
    with pytest.raises(kind, match=words) as caught:
        t[key] = value
    assert t.uop is before
    assert str(caught.value).startswith("setitem(f32[2, 3, 4, 5]")
    assert str(caught.value).count("setitem") == 1
    assert "_MaskAxis" not in str(caught.value)


def test_a_number_that_does_not_fit_is_an_error() -> None:
    t = Tensor(np.zeros(2, np.uint8))
    with pytest.raises((OverflowError, ValueError), match=r"300.*u8|u8.*300"):
        t[0] = 300

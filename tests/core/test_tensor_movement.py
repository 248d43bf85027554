"""Shapes, slices and joins of tensors against NumPy, and what they refuse."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.dtype import DTYPES, boolean, f32, i8, i32, i64, u8, u64
from uopc.tensor import Tensor

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
Statement = Callable[[Any], Any]

# The call on a (2, 3, 4) tensor, and NumPy's.
MOVES: dict[str, tuple[Statement, Statement]] = {
    "reshape": (lambda t: t.reshape(6, 4), lambda x: x.reshape(6, 4)),
    "reshape tuple": (lambda t: t.reshape((4, 6)), lambda x: x.reshape(4, 6)),
    "reshape -1": (lambda t: t.reshape(-1, 4), lambda x: x.reshape(-1, 4)),
    "reshape to -1": (lambda t: t.reshape(-1), lambda x: x.reshape(-1)),
    "reshape numpy": (lambda t: t.reshape(np.array([4, -1])),
                      lambda x: x.reshape(4, 6)),
    "flatten": (lambda t: t.flatten(), lambda x: x.reshape(24)),
    "flatten 1": (lambda t: t.flatten(1), lambda x: x.reshape(2, 12)),
    "flatten -2": (lambda t: t.flatten(-2), lambda x: x.reshape(2, 12)),
    "expand": (lambda t: t.unsqueeze(1).expand(2, 5, 3, 4),
               lambda x: np.repeat(x[:, None], 5, 1)),
    "expand -1": (lambda t: t.unsqueeze(0).expand(3, -1, -1, -1),
                  lambda x: np.repeat(x[None], 3, 0)),
    "expand in front": (lambda t: t.expand(5, 2, 3, 4),
                        lambda x: np.repeat(x[None], 5, 0)),
    "permute": (lambda t: t.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    "permute negative": (lambda t: t.permute(-1, 0, -2),
                         lambda x: x.transpose(2, 0, 1)),
    "permute tuple": (lambda t: t.permute((1, 0, 2)), lambda x: x.transpose(1, 0, 2)),
    "transpose": (lambda t: t.transpose(), lambda x: x.swapaxes(1, 2)),
    "transpose two": (lambda t: t.transpose(0, -1), lambda x: x.swapaxes(0, 2)),
    "T": (lambda t: t.T, lambda x: x.swapaxes(1, 2)),
    "unsqueeze": (lambda t: t.unsqueeze(1), lambda x: x[:, None]),
    "unsqueeze -1": (lambda t: t.unsqueeze(-1), lambda x: x[..., None]),
    "squeeze": (lambda t: t[:1, :, :1].squeeze(), lambda x: x[0, :, 0]),
    "squeeze axis": (lambda t: t[:1].squeeze(0), lambda x: x[0]),
    "squeeze -1": (lambda t: t[..., :1].squeeze(-1), lambda x: x[..., 0]),
    "flip": (lambda t: t.flip(), lambda x: x[::-1, ::-1, ::-1]),
    "flip one": (lambda t: t.flip(1), lambda x: x[:, ::-1]),
    "flip two": (lambda t: t.flip((0, -1)), lambda x: x[::-1, :, ::-1]),
    "flip none": (lambda t: t.flip(()), lambda x: x),
    "shrink": (lambda t: t.shrink([(0, 1), (1, 3), (2, 2)]), lambda x: x[:1, 1:3, 2:2]),
    "pad": (lambda t: t.pad([(1, 0), (2, 3), (0, 1)]),
            lambda x: np.pad(x, [(1, 0), (2, 3), (0, 1)])),
    "pad much": (lambda t: t.pad([(9, 17), (0, 0), (0, 0)]),
                 lambda x: np.pad(x, [(9, 17), (0, 0), (0, 0)])),
    "pad nothing": (lambda t: t.pad([(0, 0)] * 3), lambda x: x),
    "pad an empty axis": (lambda t: t[:, :0].pad([(0, 0), (1, 2), (0, 0)]),
                          lambda x: np.zeros((2, 3, 4), x.dtype)),
    "cat": (lambda t: Tensor.cat([t, t + t, t], 0) if t.dtype is not boolean
            else Tensor.cat([t, t, t], 0),
            lambda x: np.concatenate([x, x + x if x.dtype != bool else x, x])),
    "cat 1": (lambda t: Tensor.cat([t, t[:, :1]], 1),
              lambda x: np.concatenate([x, x[:, :1]], 1)),
    "cat -1": (lambda t: Tensor.cat([t[..., :1], t, t[..., :2]], -1),
               lambda x: np.concatenate([x[..., :1], x, x[..., :2]], -1)),
    "cat with nothing": (lambda t: Tensor.cat([t[:0], t, t[:0]]), lambda x: x),
    "cat of nothing": (lambda t: Tensor.cat([t[:0], t[:0]]), lambda x: x[:0]),
    "cat of one": (lambda t: Tensor.cat([t], 2), lambda x: x),
    "stack": (lambda t: Tensor.stack([t, t.flip(0)]), lambda x: np.stack([x, x[::-1]])),
    "stack 2": (lambda t: Tensor.stack([t, t.flip(0), t], 2),
                lambda x: np.stack([x, x[::-1], x], 2)),
    "stack -1": (lambda t: Tensor.stack([t, t], -1), lambda x: np.stack([x, x], -1)),
    "stack_with": (lambda t: t.stack_with(t.flip(1), t),
                   lambda x: np.stack([x, x[:, ::-1], x])),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str, same_bits) -> None:
    call, statement = MOVES[name]
    same_bits(call(Tensor(X)).numpy(), statement(X))


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
@pytest.mark.parametrize("name", ["pad", "cat", "cat -1", "stack", "flip", "expand"])
def test_moves_of_every_dtype(name: str, dtype, same_bits) -> None:
    call, statement = MOVES[name]
    x = (X % 7).astype(dtype.numpy)
    same_bits(call(Tensor(x)).numpy(), statement(x))


def test_joins_keep_every_bit() -> None:
    x = Tensor(np.array([-0.0, np.nan, np.inf, -np.inf], np.float32))
    for t in (Tensor.cat([x, x]), x.pad([(1, 2)]), Tensor.stack([x, x], 1)):
        value = t.numpy().reshape(-1)
        assert np.isnan(value).any()
        assert (np.signbit(value) & (value == 0)).any()
    assert Tensor.cat([x, x]).numpy().tobytes() == np.tile(x.numpy(), 2).tobytes()


def test_joins_promote() -> None:
    a, b = Tensor([1, 2]), Tensor([0.5, 1.5])
    assert Tensor.cat([a, b]).dtype is f32
    assert Tensor.cat([a, b]).tolist() == [1, 2, 0.5, 1.5]
    assert Tensor.stack([a, Tensor(np.array([3, 4]))]).dtype is i64
    assert a.stack_with(Tensor(np.array([3, 4], np.uint8))).dtype is i32


KEYS: list[Any] = [
    0, -1, 1, np.int64(1), np.uint8(0),
    (1, 2), (-1, -1), (0, 1, 2), (1, -3, -4), (..., 1), (0, ..., -1), (..., 0, 1),
    slice(None), slice(1, None), slice(None, 1), slice(0, 0), slice(5, 9),
    slice(-1, None),
    (slice(None), 1), (slice(None), slice(1, 3)), (1, slice(1, 3)), (1, slice(None), 2),
    (1, 2, slice(1, 3)), (slice(None), 1, slice(None, None, 2)), (0, slice(1, 2), 3),
    (..., slice(None, None, 2)), (..., slice(1, None, 2)), (..., slice(None, None, -1)),
    (..., slice(None, None, -2)), (..., slice(3, 0, -2)), (..., slice(-2, None, -3)),
    (..., slice(0, 3, 5)), (..., slice(3, 3, -1)), (..., slice(None, None, 100)),
    (slice(None, None, -1), slice(None, None, -1), slice(None, None, -3)),
    None, (None, 0), (0, None), (slice(None), None), (..., None), (None, ..., None),
    (1, None, 2), (1, None, slice(1, 3)), (None, 1, slice(None), None, 3),
    (..., 1, None), (slice(0, 1), None, 2, ...), (), ...,
    (..., slice(None), slice(1, 3)),
    (slice(None), slice(2, 0), 1), (1, slice(2, 0)),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_indexing(key: Any, same_bits) -> None:
    same_bits(Tensor(X)[key].numpy(), np.asarray(X[key]))


def test_slices_of_every_sign(same_bits) -> None:
    x = np.arange(5, dtype=np.int32)
    t = Tensor(x)
    ends = (None, -7, -5, -2, 0, 1, 3, 5, 8)
    for begin, end, step in itertools.product(ends, ends, (-4, -2, -1, 1, 2, 3, None)):
        key = slice(begin, end, step)
        same_bits(t[key].numpy(), np.ascontiguousarray(x[key]))


def test_iteration_and_length() -> None:
    t = Tensor(X)
    assert len(t) == 2
    assert [row.tolist() for row in t] == X.tolist()
    assert len(Tensor.zeros(0, 3)) == 0
    with pytest.raises(TypeError, match="0-d"):
        len(Tensor(1.0))
    with pytest.raises(TypeError, match="0-d"):
        list(Tensor(1.0))


ZERO_SIZE = {
    "reshape": (lambda t: t.reshape(0, 7), (0, 7)),
    "reshape -1": (lambda t: t.reshape(-1, 3), (0, 3)),
    "permute": (lambda t: t.permute(1, 0), (3, 0)),
    "expand": (lambda t: t.unsqueeze(0).expand(4, 0, 3), (4, 0, 3)),
    "flip": (lambda t: t.flip(), (0, 3)),
    "pad": (lambda t: t.pad([(0, 0), (1, 1)]), (0, 5)),
    "cat": (lambda t: Tensor.cat([t, t], 1), (0, 6)),
    "stack": (lambda t: Tensor.stack([t, t]), (2, 0, 3)),
    "index": (lambda t: t[:, 1], (0,)),
    "arithmetic": (lambda t: (t + 1).exp(), (0, 3)),
    "sum": (lambda t: t.sum(1), (0,)),
    "matmul": (lambda t: t @ Tensor.ones(3, 2), (0, 2)),
    "softmax": (lambda t: t.softmax(1), (0, 3)),
}


@pytest.mark.parametrize("name", ZERO_SIZE)
def test_tensors_without_elements(name: str) -> None:
    call, shape = ZERO_SIZE[name]
    got = call(Tensor.zeros(0, 3)).numpy()
    assert got.shape == shape
    assert got.dtype == np.float32


T = Tensor(X)
ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "reshape": (lambda: T.reshape(5, 5), ValueError, r"cannot reshape \(2, 3, 4\)"),
    "two -1": (lambda: T.reshape(-1, -1), ValueError, "more than one -1"),
    "odd -1": (lambda: T.reshape(-1, 5), ValueError, "does not fit"),
    "-1 of nothing": (lambda: T[:0].reshape(0, -1), ValueError, "does not fit"),
    "-2": (lambda: T.reshape(-2, 12), ValueError, r"reshape.*-2"),
    "float": (lambda: T.reshape(2.0, 12), TypeError, "integers"),
    "expand": (lambda: T.expand(2, 3, 5), ValueError,
               r"expand.*\(2, 3, 4\) to \(2, 3, 5\)"),
    "expand rank": (lambda: T.expand(3, 4), ValueError, r"fewer axes than \(2, 3, 4\)"),
    "permute": (lambda: T.permute(0, 1), ValueError, "not a permutation of the 3 axes"),
    "permute twice": (lambda: T.permute(0, 0, 1), ValueError, "not a permutation"),
    "permute axis": (lambda: T.permute(0, 1, 3), IndexError, "axis 3 is out of range"),
    "transpose": (lambda: T.transpose(0, 3), IndexError, "axis 3"),
    "unsqueeze": (lambda: T.unsqueeze(5), IndexError, "axis 5"),
    "squeeze": (lambda: T.squeeze(1), ValueError,
                r"axis 1 of \(2, 3, 4\) is not 1 long"),
    "flip": (lambda: T.flip(3), IndexError, "axis 3"),
    "pad": (lambda: T.pad([(1, 1)]), ValueError, "expected 3 pairs"),
    "pad negative": (lambda: T.pad([(0, -1)] * 3), ValueError, "lengths >= 0"),
    "pad triple": (lambda: T.pad([(1, 1, 1)] * 3), ValueError, "expected 3 pairs"),
    "cat": (lambda: Tensor.cat([T, T[:, 1:]], 2), ValueError,
            r"\(2, 3, 4\) and \(2, 2, 4\) differ outside axis 2"),
    "cat rank": (lambda: Tensor.cat([T, T[0]]), ValueError,
                 r"\(2, 3, 4\) and \(3, 4\)"),
    "cat of none": (lambda: Tensor.cat([]), ValueError, "cat: needs at least one"),
    "cat axis": (lambda: Tensor.cat([T], 3), IndexError, "axis 3"),
    "stack": (lambda: Tensor.stack([T, T[:1]]), ValueError, r"\(1, 3, 4\) differ"),
    "stack of none": (lambda: Tensor.stack([]), ValueError, "stack: needs"),
    "index": (lambda: T[2], IndexError,
              r"index\(f32\[2, 3, 4\]\): index 2 is out of range for an axis of "
              "length 2"),
    "index -": (lambda: T[0, -4], IndexError, "index -4"),
    "index later": (lambda: T[:, 3], IndexError, "index 3"),
    "too many": (lambda: T[0, 0, 0, 0], IndexError, "too many indices"),
    "two ...": (lambda: T[..., ...], IndexError, r"more than one \.\.\. in \["),
    "of a scalar": (lambda: Tensor(1.0)[0], IndexError, r"too many .* \[0\]: 1 for 0"),
    "float index": (lambda: T[1.0], TypeError, "index of type float.*integers"),
    "bool index": (lambda: T[True], TypeError, "index of type bool"),
    "step 0": (lambda: T[::0], ValueError, "step cannot be zero"),
    "broadcast": (lambda: T + T[:, :2], ValueError,
                  r"add\(f32\[2, 3, 4\], f32\[2, 2, 4\]\).*\(3, 2\)"),
    "where shapes": (lambda: (T > 0).where(T[:, :2], 1.0), ValueError,
                     r"where\(bool\[2, 3, 4\], f32\[2, 2, 4\]\).*not broadcast"),
    "where dtypes": (lambda: (T > 0).where(T.cast(u64), T.cast(i8)), TypeError,
                     r"where\(bool.*u64\[2, 3, 4\], i8\[.*no common"),
    "cat dtypes": (lambda: Tensor.cat([T.cast(u64), T.cast(i8)]), TypeError,
                   r"cat\(u64\[2, 3, 4\], i8\[2, 3, 4\]\): .*no common"),
    "where": (lambda: T.where(T, T), TypeError, "condition must be bool, not f32"),
    "operand": (lambda: T + "a", TypeError, "expected a Tensor or a number, got str"),
    "None": (lambda: T * None, TypeError, "got NoneType"),
    "array": (lambda: T + X, TypeError, "wrap the NumPy array in a Tensor"),
    "array first": (lambda: X + T, TypeError, "wrap the NumPy array in a Tensor"),
    "list": (lambda: T * [1.0], TypeError, "got list"),
    "power": (lambda: T ** [1.0], TypeError, "got list"),
    "large scalar": (lambda: Tensor([1]) + 2**40, OverflowError, "does not fit i32"),
    "negative scalar": (lambda: Tensor(X.astype("u1")) + -1, OverflowError, "fit u8"),
    "item": (lambda: T.item(), ValueError, r"item\(\) needs one element, got .*3, 4"),
    "truth": (lambda: bool(T), ValueError, "truth value"),
    "float of": (lambda: float(T), ValueError, "one element"),
    "shift": (lambda: Tensor([1]) << 1, TypeError, r"shl\(i32\[1\], i32\[1\]\)"),
    "invert": (lambda: ~T, TypeError, r"xor\(f32"),
    "bits": (lambda: T & T, TypeError, r"and\(f32"),
    "assign": (lambda: T.assign(T[0]), ValueError, r"f32\[3, 4\] into f32\[2, 3, 4\]"),
    "assign dtype": (lambda: T.assign(T.cast(i32)), ValueError, "i32.* into f32"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_comes_at_the_call_and_is_clear(name: str) -> None:
    call, kind, words = ERRORS[name]
    with pytest.raises(kind, match=words):
        call()


def test_views_of_a_result_are_of_its_value() -> None:
    t = Tensor(X).realize()
    assert t.T.T.numpy().tolist() == X.tolist()
    assert t[1].T[2].tolist() == X[1].T[2].tolist()
    assert Tensor(np.array([1, 2], np.uint8)).T.dtype is u8

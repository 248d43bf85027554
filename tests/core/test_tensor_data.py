"""How tensors are made, read and reassigned: values never change under a reader."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import DTYPES, bf16, boolean, f32, f64, i32, i64, u8, u32
from uopc.runtime import buffer_data
from uopc.tensor import Tensor, realize_all
from uopc.uop import Ops, UOp

LITERALS: list[tuple[Any, Any, tuple[int, ...]]] = [
    (1.5, f32, ()), (2, i32, ()), (True, boolean, ()), ([], f32, (0,)),
    ([1, 2], i32, (2,)), ([1, 2.5], f32, (2,)), ([True, False], boolean, (2,)),
    ([[1, 2, 3], [4, 5, 6]], i32, (2, 3)), (((1.0,), (2.0,)), f32, (2, 1)),
    ([[], []], f32, (2, 0)), ([2**31 - 1, -(2**31)], i32, (2,)),
    (np.float64(1.5), f64, ()), (np.float32(1.5), f32, ()), (np.int64(3), i64, ()),
    (np.uint8(3), u8, ()), (np.bool_(True), boolean, ()), (np.array(2.5), f64, ()),
    (range(3), i32, (3,)),
]  # fmt: skip


@pytest.mark.parametrize(("data", "dtype", "shape"), LITERALS, ids=repr)
def test_literals(data, dtype, shape) -> None:
    t = Tensor(data)
    assert (t.dtype, t.shape, t.ndim) == (dtype, shape, len(shape))
    assert t.numel() == math.prod(shape)
    np.testing.assert_array_equal(t.numpy(), np.array(data))
    assert t.tolist() == np.array(data).tolist()


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_numpy_arrays_keep_their_dtype_and_bits(dtype, special, same_bits) -> None:
    x = special(dtype)
    t = Tensor(x, dtype=dtype if dtype is bf16 else None)
    assert t.dtype is dtype
    same_bits(t.numpy(), x)
    assert t.numpy().tobytes() == x.tobytes() or dtype.is_float


@pytest.mark.parametrize("source", list(DTYPES.values()), ids=str)
@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_a_dtype_converts_as_cast_does(source, dtype, special, same_bits) -> None:
    x = special(source)
    given = Tensor(x, dtype=source)
    same_bits(Tensor(x, dtype=dtype).numpy(), given.cast(dtype).numpy())


CONVERTED = [
    (1.9, i32, 1), (-1.9, i32, -1), (math.nan, i32, 0), (1e20, i32, 2**31 - 1),
    (-5.0, u8, 0), (0.5, boolean, True), (3, f32, 3.0), (3, f64, 3.0),
    (1e300, f32, math.inf),
    ([1.9, -1.9], i32, [1, -1]), ([0, 5], boolean, [False, True]), ([255], u8, [255]),
    ([1e300], f32, [math.inf]), (True, i32, 1), ([True], f32, [1.0]),
]  # fmt: skip


@pytest.mark.parametrize(("data", "dtype", "value"), CONVERTED, ids=repr)
def test_converted_literals(data, dtype, value) -> None:
    t = Tensor(data, dtype=dtype)
    assert t.dtype is dtype
    assert t.tolist() == value


X = np.arange(24, dtype=np.float32).reshape(4, 6)
LAYOUTS = {
    "transposed": X.T, "reversed": X[::-1, ::-1], "strided": X[::2, 1::3],
    "fortran": np.asfortranarray(X), "broadcast": np.broadcast_to(X[0], (3, 6)),
    "big-endian": X.astype(">f4"), "big-endian integers": np.arange(5, dtype=">i8"),
    "big-endian strided": X.astype(">f4")[:, ::2], "zero size": X[:0],
    "0-d": np.array(3.0), "0-d view": X[1, 2:3].reshape(()),
    "unaligned": np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view("f4"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_memory_of_any_layout(name: str) -> None:
    x = LAYOUTS[name]
    t = Tensor(x)
    np.testing.assert_array_equal(t.numpy(), x)
    assert t.numpy().dtype == x.dtype.newbyteorder("=")
    assert t.shape == x.shape
    data = buffer_data(t.uop.src[0] if t.uop.op is Ops.RESHAPE else t.uop)
    assert data.flags.c_contiguous
    assert data.flags.aligned


def test_a_read_only_array_may_be_used() -> None:
    x = np.arange(3.0)
    x.flags.writeable = False
    t = Tensor(x)
    assert (t + 1).tolist() == [1, 2, 3]
    assert t.numpy().flags.writeable


def test_arrays_are_copied_on_the_way_in_and_out() -> None:
    x = np.arange(3, dtype=np.float32)
    t = Tensor(x)
    later = t * 2
    x[:] = 99
    assert t.tolist() == [0, 1, 2]
    out = t.numpy()
    out[:] = 77
    assert t.tolist() == [0, 1, 2]
    result = later.numpy()
    result[:] = 55
    assert later.tolist() == [0, 2, 4]
    assert t.reshape(3).numpy() is not t.reshape(3).numpy()


def test_numpy_takes_a_tensor_for_an_array() -> None:
    t = Tensor([1.0, 2.0])
    x = np.asarray(t)
    assert x.dtype == np.float32
    assert x.tolist() == [1, 2]
    assert np.asarray(t, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(t, [1, 2])
    with pytest.raises(ValueError, match="always copied"):
        np.array(t, copy=False)


BAD_DATA = [
    (lambda: Tensor("abc"), TypeError, "no element type for NumPy dtype"),
    (lambda: Tensor([None]), TypeError, "no element type for NumPy dtype object"),
    (lambda: Tensor(1j), TypeError, "complex"),
    (lambda: Tensor({}), TypeError, "object"),
    (lambda: Tensor([[1, 2], [3]]), ValueError, "inhomogeneous"),
    (lambda: Tensor(Tensor(1)), TypeError, "a Tensor already"),
    (lambda: Tensor([2**31]), OverflowError, "2147483648 does not fit i32"),
    (lambda: Tensor([-(2**40)]), OverflowError, "does not fit i32"),
    (lambda: Tensor([2**63]), OverflowError, "does not fit i32"),
    (lambda: Tensor([[0, 300]], dtype=u8), OverflowError, "300 does not fit u8"),
    (lambda: Tensor(-1, dtype=u32), OverflowError, "-1 does not fit u32"),
    (lambda: Tensor.arange(2**31 - 2, 2**31 + 2), OverflowError, "does not fit i32"),
    (lambda: Tensor.arange(300, dtype=u8), OverflowError, "299 does not fit u8"),
    (lambda: Tensor.arange(3, step=0), ValueError, "step must not be 0"),
    (lambda: Tensor.full((2,), 300, dtype=u8), OverflowError, "300 does not fit u8"),
    (lambda: Tensor.zeros(-1), ValueError, "-1"),
]


@pytest.mark.parametrize(("call", "kind", "words"), BAD_DATA)
def test_bad_data(call, kind, words) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_constructors() -> None:
    assert Tensor.zeros(2, 3).numpy().tolist() == [[0] * 3] * 2
    assert Tensor.zeros((2, 3)).shape == Tensor.zeros([2, 3]).shape == (2, 3)
    assert Tensor.zeros().shape == ()
    assert Tensor.ones(2, dtype=u8).numpy().tolist() == [1, 1]
    assert Tensor.ones(2, dtype=u8).dtype is u8
    assert Tensor.ones(2).dtype is Tensor.zeros(2).dtype is f32
    for value, dtype in [(2, i32), (2.5, f32), (True, boolean)]:
        full = Tensor.full((2, 2), value)
        assert full.dtype is dtype
        assert full.tolist() == [[value] * 2] * 2
    assert Tensor.full((2,), 1, dtype=f64).dtype is f64
    assert Tensor.full((), 3.0).item() == 3


RANGES = [(5,), (0,), (-3,), (2, 7), (7, 2), (0, 10, 3), (0, 9, 3), (10, 0, -3),
          (10, 1, -3), (-5, 5, 2), (0.0, 1.0, 0.25), (1.0, 0.0, -0.25), (0, 1, 0.3),
          (1, 1.3, 0.1), (0.5, 3), (2.5,)]  # fmt: skip


@pytest.mark.parametrize("args", RANGES)
def test_arange(args: tuple[float, ...]) -> None:
    expected = np.arange(*args)
    got = Tensor.arange(*args)
    assert got.dtype is (i32 if all(isinstance(a, int) for a in args) else f32)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


def test_arange_of_a_dtype() -> None:
    assert Tensor.arange(3, dtype=f64).dtype is f64
    assert Tensor.arange(256, dtype=u8).numpy().sum() == 255 * 128
    assert Tensor.arange(2**31 - 2, 2**31).tolist() == [2**31 - 2, 2**31 - 1]
    wide = Tensor.arange(2**40, 2**40 + 3, dtype=i64)
    assert wide.tolist() == [2**40, 2**40 + 1, 2**40 + 2]


def test_items() -> None:
    assert Tensor([[2.5]]).item() == 2.5
    assert type(Tensor(2).item()) is int
    assert type(Tensor(True).item()) is bool
    assert float(Tensor([2])) == 2.0
    assert int(Tensor(2.7)) == 2
    assert bool(Tensor([[0]])) is False


def test_repr() -> None:
    t = Tensor([1.0, 2.0]) + 1
    assert repr(t) == "<Tensor f32[2] lazy>"
    t.realize()
    assert repr(t) == "Tensor([2., 3.], dtype=f32)"
    p = Tensor([1.0], requires_grad=True)
    assert repr(p) == "Tensor([1.], dtype=f32, requires_grad=True)"


# -- assignment -------------------------------------------------------------------


@pytest.mark.parametrize("read_first", [False, True])
def test_a_reader_built_before_an_assignment_sees_the_old_value(read_first) -> None:
    t = Tensor([1.0, 2.0])
    reader = t * 10
    t.assign(t + 5)
    if read_first:
        t.realize()
    assert reader.tolist() == [10, 20]
    assert t.tolist() == [6, 7]
    assert (t * 10).tolist() == [60, 70]
    assert reader.tolist() == [10, 20]


def test_every_version_keeps_its_readers() -> None:
    t = Tensor([1.0])
    readers = []
    for _ in range(6):
        readers.append(t + 0.5)
        t.assign(t * 2)
        if len(readers) % 2:
            t.realize()
    assert [r.item() for r in readers] == [1.5, 2.5, 4.5, 8.5, 16.5, 32.5]
    assert t.item() == 64


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("realized", [False, True])
def test_two_tensors_are_swapped(together: bool, realized: bool) -> None:
    a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    if realized:
        realize_all([a, b])
    new_a, new_b = b * 1, a * 1
    a.assign(new_a)
    b.assign(new_b)
    if together:
        Tensor.realize_all([a, b])
    assert a.tolist() == [3, 4]
    assert b.tolist() == [1, 2]


def test_swapped_without_arithmetic() -> None:
    a, b = Tensor([1.0]), Tensor([2.0])
    old = Tensor(a.uop)
    a.assign(b)
    b.assign(old)
    assert (a.item(), b.item()) == (2, 1)
    a.assign(a + 10)
    assert (a.item(), b.item(), old.item()) == (12, 1, 1)


def test_a_copy_does_not_follow_an_assignment() -> None:
    a = Tensor([1.0])
    b = a.detach()
    c = a.reshape(1, 1)
    a.assign(Tensor([5.0]))
    assert (a.item(), b.item(), c.item()) == (5, 1, 1)


def test_an_assigned_value_is_computed_once_and_old_data_is_freed() -> None:
    t = Tensor(np.zeros(1000, np.float32))
    watch = weakref.ref(buffer_data(t.uop.src[0]))
    slot = t.uop.src[0].arg[2]
    for _ in range(3):
        reader = t * 2  # so that the new value is not written over this one
        t.assign(t + 1)
        t.realize()
        del reader
    gc.collect()
    assert watch() is None
    assert t.uop.src[0].arg[2] == slot  # the same buffer, a later version
    assert t.uop.src[0].arg[3] > 0
    assert t.tolist() == [3] * 1000


def test_an_old_value_is_kept_for_a_reader_that_waits() -> None:
    t = Tensor(np.zeros(10, np.float32))
    reader = (t + 1).exp()
    t.assign(t + 1)
    t.realize()
    gc.collect()
    np.testing.assert_allclose(reader.numpy(), np.full(10, math.e), rtol=1e-6)


def test_a_raw_node_over_released_data_says_why() -> None:
    t = Tensor(np.zeros(3, np.float32)).realize()
    node = t.uop * 3.0  # no tensor knows of this reader
    t.assign(t + 1)
    t.realize()
    with pytest.raises(RuntimeError, match="assigned a new value since"):
        Tensor(node).numpy()


def test_equal_parameters_are_different_nodes() -> None:
    """Otherwise a gradient with respect to one would count the other's uses."""
    makers = [lambda: Tensor.zeros(3, requires_grad=True),
              lambda: Tensor(2.0, requires_grad=True),
              lambda: Tensor(UOp.const(2.0, f32), requires_grad=True),
              lambda: Tensor.arange(3, dtype=f32) * 1]  # fmt: skip
    for make in makers:
        a, b = make(), make()
        a.requires_grad = b.requires_grad = True
        assert a.uop is not b.uop
        realize_all([a, b])
        assert a.uop is not b.uop
        assert a.tolist() == b.tolist()
    a, b = Tensor.zeros(3), Tensor.zeros(3)
    realize_all([a, b])
    a.requires_grad = b.requires_grad = True
    assert a.uop is not b.uop
    for t in (a, b):
        t.assign(Tensor.ones(3))
    assert a.uop is not b.uop
    assert a.tolist() == b.tolist() == [1, 1, 1]


def test_results_are_computed_once() -> None:
    x = Tensor(np.arange(4, dtype=np.float32), requires_grad=True)
    y = (x * 2).realize()
    assert y.realize() is y
    assert y.numpy().tolist() == [0, 2, 4, 6]
    with overriding(UOPC_BACKEND="missing"):  # nothing has to run for these
        assert y.tolist() == [0, 2, 4, 6]
        assert x.tolist() == [0, 1, 2, 3]
        assert y.reshape(2, 2).tolist() == [[0, 2], [4, 6]]
        with pytest.raises(RuntimeError, match="missing"):
            (y + 1).numpy()


def test_requires_grad_is_passed_on_and_detach_ends_it() -> None:
    p, x = Tensor([1.0], requires_grad=True), Tensor([1.0])
    assert (p + x).requires_grad
    assert not (x + x).requires_grad
    assert not (p * 2).detach().requires_grad
    assert p.is_leaf
    assert x.is_leaf
    assert not (p + x).is_leaf
    assert (p * 2).detach().is_leaf


@pytest.mark.parametrize("dtype", ["f64", np.float64, f64])
def test_constructors_take_all_names_of_a_dtype(dtype) -> None:
    made = [
        Tensor.zeros(2, dtype=dtype), Tensor.ones(2, dtype=dtype),
        Tensor.full((2,), 3, dtype=dtype), Tensor.arange(2, dtype=dtype),
        Tensor.rand(2, dtype=dtype), Tensor.randn(2, dtype=dtype),
    ]  # fmt: skip
    assert {t.dtype for t in made} == {f64}
    with pytest.raises(TypeError, match="'f23' is no element type"):
        Tensor.zeros(2, dtype="f23")


def copied(t: Tensor) -> Tensor:
    return copy.copy(t)


def deep_copied(t: Tensor) -> Tensor:
    return copy.deepcopy([t])[0]


def sent(t: Tensor) -> Tensor:
    return pickle.loads(pickle.dumps(t))


@pytest.mark.parametrize("way", [copied, deep_copied, sent])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64", "bool"])
def test_copies_and_pickles_hold_the_value(way, dtype) -> None:
    t = Tensor([[1, 0], [1, 1]], dtype=dtype)
    lazy = t.T.cat([t])
    for twin, value in ((way(t), t.tolist()), (way(lazy), lazy.tolist())):
        assert type(twin) is Tensor
        assert (twin.dtype, twin.tolist()) == (t.dtype, value)
    twin = way(t)
    t.assign(Tensor([[0, 0], [0, 0]], dtype=dtype))
    del t, lazy
    gc.collect()
    assert twin.sum().item() == 3


@pytest.mark.parametrize("way", [copied, deep_copied, sent])
def test_a_copy_of_a_parameter_is_one(way) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    twin = way(w)
    assert twin.requires_grad
    assert twin.is_leaf
    w.assign(w * 2)
    assert (twin.tolist(), w.tolist()) == ([1, 2], [2, 4])
    assert not way(w * 2).requires_grad

"""Element types and how two of them combine."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from uopc.dtype import (
    DTYPES,
    bf16,
    boolean,
    f16,
    f32,
    f64,
    from_numpy,
    i8,
    i16,
    i32,
    i64,
    promote,
    promote_scalar,
    u8,
    u16,
    u32,
    u64,
    void,
)

ALL = tuple(DTYPES.values())
INTS = (i8, i16, i32, i64, u8, u16, u32, u64)

# The array API's table: rows and columns i8 i16 i32 i64 u8 u16 u32 u64.
_X = None
INT_TABLE = [
    [i8, i16, i32, i64, i16, i32, i64, _X],
    [i16, i16, i32, i64, i16, i32, i64, _X],
    [i32, i32, i32, i64, i32, i32, i64, _X],
    [i64, i64, i64, i64, i64, i64, i64, _X],
    [i16, i16, i32, i64, u8, u16, u32, u64],
    [i32, i32, i32, i64, u16, u16, u32, u64],
    [i64, i64, i64, i64, u32, u32, u32, u64],
    [_X, _X, _X, _X, u64, u64, u64, u64],
]


@pytest.mark.parametrize("i", range(8), ids=[d.name for d in INTS])
@pytest.mark.parametrize("j", range(8), ids=[d.name for d in INTS])
def test_integers_follow_the_array_api(i: int, j: int) -> None:
    expected = INT_TABLE[i][j]
    if expected is not None:
        assert promote(INTS[i], INTS[j]) is expected
        return
    with pytest.raises(TypeError, match="no common integer type; cast") as error:
        promote(INTS[i], INTS[j])
    assert INTS[i].name in str(error.value)
    assert INTS[j].name in str(error.value)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_bool_is_the_weakest_and_floats_the_strongest(dtype) -> None:
    assert promote(dtype, dtype) is dtype
    assert promote(boolean, dtype) is promote(dtype, boolean) is dtype
    for f in (f16, bf16, f32, f64):
        expected = f if not dtype.is_float else promote(f, dtype)
        assert promote(f, dtype) is promote(dtype, f) is expected
    assert promote(f32, f64) is promote(f64, f32) is f64
    # Neither holds the other's numbers.
    assert promote(f16, bf16) is promote(bf16, f16) is f32


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        *((d, v, d) for d in INTS for v in (True, 3)),
        *((d, 0.5, f32) for d in (*INTS, boolean)),
        *((d, v, d) for d in (f16, bf16, f32, f64) for v in (True, 3, 0.5)),
        (boolean, True, boolean),
        (boolean, 3, i32),
    ],
)
def test_python_scalars_are_weak(dtype, value, expected) -> None:
    assert promote_scalar(dtype, value) is expected


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_a_dtype_is_one_object_with_its_numpy_counterpart(dtype) -> None:
    known = f32 if dtype is bf16 else dtype  # NumPy has no bf16
    assert from_numpy(dtype.numpy) is known
    assert from_numpy(dtype.numpy.newbyteorder()) is known
    assert from_numpy(dtype.numpy.type) is known
    assert dtype.itemsize == dtype.storage.itemsize
    for twin in (pickle.loads(pickle.dumps(dtype)), copy.deepcopy(dtype)):
        assert twin is dtype
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        assert (dtype.min, dtype.max, dtype.bits) == (info.min, info.max, info.bits)
    assert [dtype.is_int, dtype.is_float, dtype is boolean].count(True) == 1


def test_void_is_no_element_type() -> None:
    assert "void" not in DTYPES
    assert pickle.loads(pickle.dumps(void)) is void


@pytest.mark.parametrize("name", ["complex64", "datetime64[s]", "U3", "object"])
def test_a_numpy_dtype_without_counterpart_is_named(name: str) -> None:
    with pytest.raises(TypeError, match="no element type for NumPy dtype") as error:
        from_numpy(np.dtype(name))
    assert "float32" in str(error.value)  # what there is instead


def test_a_dtype_cannot_be_changed() -> None:
    for field in ("bits", "other"):
        with pytest.raises(AttributeError, match="a DType is immutable"):
            setattr(f32, field, 64)
        with pytest.raises(AttributeError, match="a DType is immutable"):
            delattr(f32, field)
    assert f32.bits == 32

"""What tensors are made of: numbers, nested lists, NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from uopc.dtype import DType, bf16, f32, from_numpy, i32
from uopc.runtime import new_buffer
from uopc.runtime.buffers import empty
from uopc.uop import Literal, Scalar, UOp, cast_array, scalar_dtype


def python_scalar(value: Any) -> Scalar:
    """A number that Python or NumPy gives, as Python's own; others raise TypeError."""
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("wrap the NumPy array in a Tensor first")
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    if isinstance(value, (bool, int, float)):
        return value
    raise TypeError(f"expected a Tensor or a number, got {type(value).__name__}")


def from_data(data: Any, dtype: DType | None) -> UOp:
    """A node for numbers, nested lists or a NumPy array, which is copied."""
    if isinstance(data, (bool, int, float)) and not isinstance(data, np.generic):
        number = scalar_dtype(data)
        if dtype is not None and number.is_float and not dtype.is_float:
            data = cast_array(np.asarray(data), dtype).item()
        return UOp.const(data, dtype or number)
    array = np.asarray(data)
    given = from_numpy(array.dtype)
    if given is bf16:
        array = bf16.load(array.view(np.uint16))
    wanted = dtype or given
    if not isinstance(data, (np.ndarray, np.generic)):
        # Lists of Python numbers take the types of bare numbers.
        if dtype is None:
            wanted = f32 if given.is_float else i32 if given.is_int else given
        if given.is_int and wanted.is_int:
            for end in (array.min(initial=0), array.max(initial=0)):
                Literal.of(int(end), wanted)  # an integer that does not fit raises
    flat = empty(array.size, wanted)
    values = array if given is wanted else cast_array(array, wanted)
    flat[:] = wanted.store(values.reshape(-1))
    return new_buffer(flat, wanted).reshape(array.shape)

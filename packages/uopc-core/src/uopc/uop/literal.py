"""A constant's identity: its dtype and its bits."""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from uopc.dtype import DType, bf16, f16, f32, f64
from uopc.dtype.bf16 import round_bf16

Scalar: TypeAlias = bool | int | float


class Literal(NamedTuple):
    """A constant's identity: its dtype and its bits, so that 0.0 is not -0.0."""

    dtype: DType
    bits: int

    @property
    def value(self) -> Scalar:
        """The constant as a Python bool, int or float."""
        dtype, bits = self
        if dtype.is_float:
            return _float_value(bits, dtype)
        if dtype.kind == "bool":
            return bits != 0
        return bits - (1 << dtype.bits) if bits > dtype.max else bits

    @classmethod
    def of(cls, value: Any, dtype: DType) -> Literal:
        """Encode ``value``; an integer that does not fit raises OverflowError."""
        if dtype.is_float:
            return cls(dtype, _float_bits(float(value), dtype))
        number = int(value != 0) if dtype.kind == "bool" else int(value)
        if number != value and dtype.is_int:
            raise TypeError(f"{value!r} is not a value of {dtype}; cast it")
        if not dtype.min <= number <= dtype.max:
            raise OverflowError(
                f"{number} does not fit {dtype} ({dtype.min} to {dtype.max})"
            )
        return cls(dtype, number & ((1 << dtype.bits) - 1))


# How the bits are stored, and how the number in them is.
_FLOAT_CODES = {
    f16: (struct.Struct("<H"), struct.Struct("<e")),
    f32: (struct.Struct("<I"), struct.Struct("<f")),
    f64: (struct.Struct("<Q"), struct.Struct("<d")),
}


def _float_value(bits: int, dtype: DType) -> float:
    if dtype is bf16:  # the upper half of an f32
        dtype, bits = f32, bits << 16
    as_bits, as_float = _FLOAT_CODES[dtype]
    number: float = as_float.unpack(as_bits.pack(bits))[0]
    return number


def _float_bits(number: float, dtype: DType) -> int:
    if number != number:
        number = math.nan  # one NaN: NumPy gives no meaning to the others
    if dtype is bf16:
        return _float_bits(float(round_bf16(np.asarray(number))), f32) >> 16
    as_bits, as_float = _FLOAT_CODES[dtype]
    try:
        packed = as_float.pack(number)
    except OverflowError:  # rounds to infinity
        packed = as_float.pack(math.copysign(math.inf, number))
    bits: int = as_bits.unpack(packed)[0]
    return bits

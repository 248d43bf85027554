"""Element types and constants as C writes them."""

from __future__ import annotations

import math

import numpy as np

from uopc.dtype import DType
from uopc.uop import Literal

C_TYPES = {
    "f32": "float",
    "f64": "double",
    # Half types are bits to C; only casts look into them.
    "f16": "unsigned short",
    "bf16": "unsigned short",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long long",
    "u8": "unsigned char",
    "u16": "unsigned short",
    "u32": "unsigned",
    "u64": "unsigned long long",
    "bool": "_Bool",
}
# A vector wider than the machine's has no register to be passed in; nobody minds
# within one file, all of whose functions on vectors are inlined.
NO_ABI = '#pragma GCC diagnostic ignored "-Wpsabi"\n'
INLINE = "static inline __attribute__((always_inline)) "
_INT_SUFFIX = {"i64": "LL", "u32": "u", "u64": "ull"}


def c_type(dtype: DType) -> str:
    """The C type of one element."""
    return C_TYPES[dtype.name]


def c_literal(literal: Literal) -> str:
    """The shortest C text with exactly this value."""
    value, dtype = literal.value, literal.dtype
    if dtype.is_half:
        return str(literal.bits)
    if not dtype.is_float:
        suffix = _INT_SUFFIX.get(dtype.name, "")
        if dtype.kind == "int" and value == dtype.min and dtype.bits >= 32:
            # The magnitude of the smallest integer is not itself a constant.
            return f"(-{dtype.max}{suffix}-1)"
        return f"{int(value)}{suffix}"
    suffix = "f" if dtype.bits == 32 else ""
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    return str(dtype.numpy.type(value) if suffix else np.float64(value)) + suffix


def between(a: int, b: int) -> list[int]:
    """The powers of two between two others, in the order from ``a`` to ``b``."""
    least, most = min(a, b), max(a, b)
    sizes = [least << k for k in range(1, (most // least).bit_length() - 1)]
    return sizes if a < b else sizes[::-1]

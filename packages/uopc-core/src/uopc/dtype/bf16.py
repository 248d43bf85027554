"""bf16 numbers in NumPy, which has no such type.

They have the sign, the exponent and the first 7 fraction bits of an f32. Their
values are kept in f32 arrays and their memory in u16 arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

PRECISION = 8  # significant bits, the hidden one included
SMALLEST_EXPONENT = -133  # of the smallest subnormal number


def round_bf16(x: Array) -> Array:
    """Any float array to the nearest bf16 values, ties to even, as f32."""
    x = np.asarray(x)
    if x.dtype == np.float16:
        x = x.astype(np.float32)
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(x)
        unit = np.maximum(exponent - PRECISION, SMALLEST_EXPONENT)
        # Scaling by powers of two is exact, so the only rounding is rint's.
        whole = np.rint(np.ldexp(x, -unit))
        return np.asarray(np.ldexp(whole, unit), np.float32)


def bf16_to_bits(values: Array) -> Array:
    """The 16 bits of bf16 values (an f32 array), as u16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16
    return bits.reshape(np.shape(values)).astype(np.uint16)


def bf16_from_bits(bits: Array) -> Array:
    """The bf16 values that u16 bits stand for, as f32."""
    wide = np.ascontiguousarray(bits, np.uint16).astype(np.uint32) << 16
    return wide.view(np.float32).reshape(np.shape(bits))

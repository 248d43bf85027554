"""Small nodes to start examples from."""

from __future__ import annotations

from uopc.dtype import DType, f32
from uopc.uop import UOp


def buf(slot: int, n: int, dtype: DType = f32) -> UOp:
    """A BUFFER of ``n`` elements (f32 unless said otherwise)."""
    return UOp.buffer(n, dtype, slot)

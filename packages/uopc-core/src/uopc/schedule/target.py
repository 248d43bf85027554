"""What a schedule knows about the machine; the backend says it."""

from __future__ import annotations

from dataclasses import dataclass

from uopc.dtype import DType


@dataclass(frozen=True)
class Target:
    """A processor, as far as schedules care.

    Attributes:
        vector_bytes: width of a vector register.
        registers: how many vector registers there are.
        fma: whether a multiply-add that rounds once is one instruction.
        l1, l2: bytes of cache of one core.
        l3: bytes of the cache that all cores share.
        cores: how many may be used. No result depends on it.
    """

    vector_bytes: int = 16
    registers: int = 16
    fma: bool = False
    l1: int = 32 << 10
    l2: int = 256 << 10
    l3: int = 8 << 20
    cores: int = 1

    def lanes(self, dtype: DType) -> int:
        """How many elements a vector register holds."""
        return self.vector_bytes // dtype.itemsize


PLAIN = Target()
"""What can be relied on where nothing is known."""

"""Random numbers as graphs: Threefry-2x32 with 20 rounds.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
(SC 2011). The same key and counter give the same numbers on every backend.
"""

from __future__ import annotations

import math

from uopc.composite.elementwise import cos, log
from uopc.composite.shape import iota
from uopc.dtype import DType, bf16, f16, f64, u32, u64
from uopc.uop import UOp

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def threefry(key: tuple[UOp, UOp], counter: tuple[UOp, UOp]) -> tuple[UOp, UOp]:
    """Two u32 words from a key and a counter of two u32 words each."""
    k0, k1 = key
    schedule = (k0, k1, (k0 ^ k1) ^ PARITY)
    x0, x1 = counter[0] + k0, counter[1] + k1
    for group in range(5):
        for r in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << r) | (x1 >> (32 - r))) ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + (group + 1)
    return x0, x1


def _words(u: UOp) -> tuple[UOp, UOp]:
    """The low and the high half of a u64."""
    return u.cast(u32), (u >> 32).cast(u32)


def random_bits(key: UOp, counter: UOp, n: int) -> UOp:
    """``n`` random u32 words from a 0-d u64 key and a 0-d u64 counter.

    Uses the counters from ``counter`` up to ``counter + blocks(n)``.
    """
    half = blocks(n)
    place = iota(half).cast(u64) + counter.broadcast_scalar((half,))
    k0, k1 = (w.broadcast_scalar((half,)) for w in _words(key))
    words = threefry((k0, k1), _words(place))
    return UOp.stack(words).reshape((2 * half,)).shrink([(0, n)])


def blocks(n: int) -> int:
    """How many counter values ``n`` words use."""
    return (n + 1) // 2


def uniform(bits: UOp, dtype: DType) -> UOp:
    """Words to floats in [0, 1): multiples of 2**-24, f16 2**-11, bf16 2**-8.

    As many bits as the type holds exactly: rounding more would make ones.
    """
    digits = {f16: 11, bf16: 8}.get(dtype, 24)
    return (bits >> (32 - digits)).cast(dtype) * 2.0**-digits


def normal(bits: UOp, dtype: DType) -> UOp:
    """2n words to n standard normal floats (Box and Muller, 1958)."""
    n = bits.shape[0] // 2
    # 1 - u lies in (0, 1], where the logarithm is finite.
    u = 1.0 - uniform(bits.shrink([(0, n)]), f64)
    angle = uniform(bits.shrink([(n, 2 * n)]), f64) * (2 * math.pi)
    return ((log(u) * -2.0).sqrt() * cos(angle)).cast(dtype)

"""Short inner loops with guarded reads: what gcc 12 gets wrong when it unrolls them.

Of these 320 kernels it computed 26 wrongly, until the printer kept it from that.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from uopc.composite import pad
from uopc.config import overriding
from uopc.dtype import f32, f64, i32, u8, u32
from uopc.runtime import backend_named, new_buffer, realize
from uopc.uop import Ops, UOp


def shapes() -> Iterator[UOp]:
    """Stacked, padded, cut and transposed arrays with few columns."""
    for dtype, n, m in itertools.product(
        (f32, f64, u8, i32), (3, 6, 8, 16), (2, 3, 4, 8)
    ):
        numbers = np.arange(n * m)
        a, b = (
            new_buffer((numbers % k + 1).astype(dtype.numpy)).reshape((n, m))
            for k in (97, 89)
        )
        both = UOp.stack([a, b]).reshape((2 * n, m))
        yield both
        yield both.shrink(((n // 2, n + n // 2), (0, m)))
        yield pad(both.permute((1, 0)), [(1, 1), (0, 0)])
        yield pad(a, [(1, 2), (0, 0)])
        yield pad(a, [(0, 0), (1, 1)])


def shifts() -> Iterator[UOp]:
    """A guard that is no read: a shift by the width or more."""
    for n, m, k in itertools.product((3, 5, 8), (2, 3, 8), (2, 4)):
        x = new_buffer(np.arange(n * m, dtype=np.uint32) * 0x01234567)
        by = new_buffer((np.arange(n * m) * 7 % 40).astype(np.uint32))
        assert x.dtype is u32
        shifted = UOp(Ops.SHR, (x, by)).reshape((n, m, 1))
        yield shifted.expand((n, m, k))


@pytest.mark.parametrize("family", [shapes, shifts])
def test_guards_hold_at_every_level(family) -> None:
    roots = list(family())
    want = realize(roots, None, backend_named("interp"))
    for level in (0, 1):
        with overriding(UOPC_OPT=level):
            got = realize(roots, None, backend_named("c"))
        wrong = [
            root.shape
            for root, x, y in zip(roots, got, want, strict=True)
            if not np.array_equal(x, y)
        ]
        assert not wrong, f"UOPC_OPT={level}"

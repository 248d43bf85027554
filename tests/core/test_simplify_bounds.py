"""Intervals: they hold for every value, and are no wider than they have to be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from uopc.dtype import i32
from uopc.interp import run_loops
from uopc.schedule.nest import end, loop, read, store
from uopc.simplify import Bounds
from uopc.uop import Ops, UOp

FREE = read(UOp.buffer(9, i32, 0), loop(0, 9, i32))  # of which nothing is known


@pytest.mark.parametrize(
    ("condition", "interval"),
    [
        (FREE < 5, (i32.min, 7)),
        (UOp.const(-1, i32) < FREE, (0, i32.max)),
        ((UOp.const(-1, i32) < FREE) & (FREE < 5), (0, 7)),
        ((FREE < 5) & (FREE < 3) & (UOp.const(1, i32) < FREE), (2, 7)),
        ((UOp.const(5, i32) < FREE) & (FREE < 3), (7, 7)),
        ((FREE + 1) < 5, (i32.min, i32.max)),
        ((FREE < 5) | (FREE < 3), (i32.min, i32.max)),
    ],
)
def test_a_chosen_branch_is_within_what_is_let_through(
    condition: UOp, interval: tuple[int, int]
) -> None:
    chosen = condition.where(FREE, FREE.const_like(7))
    assert Bounds()(chosen) == interval
    # And the values are, for all that the branch may be.
    r = loop(0, 9, i32)
    nest = UOp(Ops.SINK, (end(r, store(UOp.buffer(9, i32, 1), r, chosen)),), "k")
    for first in itertools.chain(range(-12, 12, 3), (i32.min, i32.max - 9)):
        values = [first + i for i in range(9)]
        (got,) = run_loops(nest, {0: np.array(values, np.int32)}).values()
        assert all(interval[0] <= v <= interval[1] for v in got.tolist())

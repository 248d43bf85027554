"""Schedules: every step keeps the meaning, on random kernels and several machines."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from uopc.dtype import f32, f64, i32
from uopc.interp import run_loops
from uopc.rangeify import rangeify
from uopc.schedule import (
    PLAIN,
    Lanes,
    Outputs,
    Reorder,
    Split,
    Target,
    Unroll,
    choose_reduction,
    choose_schedule,
    model,
)
from uopc.schedule.fuse import stretch
from uopc.schedule.nest import is_local, stores
from uopc.spec import check
from uopc.uop import OpDef, Ops, UOp, toposort

# Small caches make schedules for much data out of little.
TARGETS = [
    PLAIN,
    Target(32, 16, True, 32 << 10, 1 << 10, 1 << 11, 2),
    Target(64, 32, True, 64, 128, 256, 2),
]
LENGTHS = (1, 2, 3, 5, 7, 8, 9, 16, 17, 20, 33)


class Kernels:
    """Random kernels: permuted, repeated and flipped reads; perhaps a reduction."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def kernel(self) -> UOp:
        shape = [self.rng.choice(LENGTHS) for _ in range(self.rng.randint(1, 4))]
        while math.prod(shape) > 700:
            shape.pop()
        dtype = self.rng.choice((f32, f32, f64, i32))
        value = self.leaf(0, shape, dtype)
        for slot in range(1, self.rng.randint(2, 4)):
            op = self.rng.choice((Ops.ADD, Ops.MUL, Ops.MAX))
            value = UOp(op, (value, self.leaf(slot, shape, dtype)))
        if self.rng.random() < 0.7:
            order = self.rng.sample(range(len(shape)), len(shape))
            op = self.rng.choice((Ops.ADD, Ops.ADD, Ops.MAX))
            value = value.permute(order).reduce(op, self.rng.randint(1, len(shape)))
            if self.rng.random() < 0.5:
                value = value * 2 + value
        return value

    def leaf(self, slot: int, shape: list[int], dtype) -> UOp:
        rank = len(shape)
        order = list(range(rank))
        if self.rng.random() < 0.4:
            self.rng.shuffle(order)
        moved = tuple(shape[axis] for axis in order)
        kept = tuple(n if self.rng.random() < 0.75 else 1 for n in moved)
        u = UOp.buffer(math.prod(kept), dtype, slot).reshape(kept).expand(moved)
        u = u.permute(tuple(order.index(axis) for axis in range(rank)))
        return u.flip((self.rng.randrange(rank),)) if self.rng.random() < 0.2 else u


def made_up(sink: UOp) -> dict[int, np.ndarray]:
    data = {}
    for u in toposort([sink]):
        if u.op is Ops.BUFFER and u.arg.space == "global":
            rng = np.random.default_rng(u.arg.slot)
            x = rng.standard_normal(u.shape) * 4
            data[u.arg.slot] = x.astype(u.dtype.numpy)
    return data


def assert_rounds_apart(sink: UOp) -> None:
    """What parallel rounds store is their own, or at places of their own."""
    for s in sink.src:
        if s.op is not Ops.END or s.src[0].arg.kind != "parallel":
            continue
        others = [t for t in sink.src if t is not s]
        elsewhere = {u for u in toposort(others) if is_local(u)}
        places: dict[UOp, set[UOp]] = {}
        for t in stores(s.src[1:]):
            places.setdefault(t.src[0], set()).add(t.src[1])
        for buffer, at in places.items():
            if not is_local(buffer) or buffer in elsewhere:
                assert stretch(at, [s.src[0]]) is not None, buffer


@pytest.mark.parametrize("seed", range(8))
def test_every_step_keeps_the_meaning(seed: int, monkeypatch) -> None:
    kernels, seen = Kernels(seed), set()
    for _ in range(10):
        pays = kernels.rng.choice((5, 60, 1000))
        monkeypatch.setattr(model, "PAYS_NS", pays)
        monkeypatch.setattr(model, "ROUND_NS", pays / 3)
        sink = rangeify([kernels.kernel()], "k")
        data = made_up(sink)
        expected = run_loops(sink, data)
        steps = choose_schedule(sink, kernels.rng.choice(TARGETS))
        for step in steps:
            seen.add(type(step).__name__)
            sink = step.apply(sink)
            check(toposort([sink]), "loops")
        assert_rounds_apart(sink)
        for slot, stored in run_loops(sink, data).items():
            np.testing.assert_allclose(stored, expected[slot], 1e-4, 1e-4)
    assert "Simplify" in seen


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(40, 24), (17, 33), (3, 19, 16)])
def test_a_transpose_is_made_in_square_blocks(
    target: Target, shape: tuple[int, ...], monkeypatch
) -> None:
    """With rows, columns and rounds that are left over."""
    monkeypatch.setattr(model, "PAYS_NS", 5)
    monkeypatch.setattr(model, "ROUND_NS", 3)
    turned = UOp.buffer(math.prod(shape), f32, 0).reshape(shape)
    *batch, columns, rows = shape
    order = (*range(len(batch)), len(batch) + 1, len(batch))
    sink = rangeify([turned.permute(order) + 1.0], "k")
    expected = run_loops(sink, made_up(sink))
    for step in choose_schedule(sink, target):
        sink = step.apply(sink)
        check(toposort([sink]), "loops")
    for slot, stored in run_loops(sink, made_up(sink)).items():
        np.testing.assert_array_equal(stored, expected[slot])
    square = [
        u
        for u in toposort([sink])
        if u.op is Ops.END and len(u.src) - 1 == u.src[0].arg.extent > 1
    ]
    lanes = target.lanes(f32)
    enough = rows >= (lanes if batch else 2 * lanes) and columns >= lanes
    assert bool(square) == enough


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX])
@pytest.mark.parametrize("shape", [(150, 48), (37, 45), (3, 64)])
def test_rows_of_far_memory_are_taken_together(
    op: OpDef, shape: tuple[int, ...], monkeypatch
) -> None:
    """Each accumulator gets several rows' terms at once, in their order: same bits."""
    monkeypatch.setattr(choose_reduction, "GROUPS", 1)
    monkeypatch.setattr(choose_reduction, "SHORT", 2)
    array = UOp.buffer(math.prod(shape), f32, 0).reshape(shape)
    before = after = rangeify([array.permute((1, 0)).reduce(op, 1)], "k")
    steps = choose_schedule(before, Target(32, 16, True, 64, 128, 256, 1))
    (rows,) = (s for s in steps if isinstance(s, Split))
    assert Unroll(rows.inner) in steps
    for step in steps:
        after = step.apply(after)
        if not isinstance(step, (Split, Reorder, Unroll)):
            before = step.apply(before)
        check(toposort([after]), "loops")
    data = made_up(before)
    for slot, stored in run_loops(after, data).items():
        np.testing.assert_array_equal(stored, run_loops(before, data)[slot])
    stored = [
        [s.src[0] for s in u.src[1:]]
        for u in toposort([after])
        if u.op is Ops.END and u.src[0].arg.kind == "vector" and len(u.src) > 2
    ]
    assert all(len(s) <= rows.size and len(set(s)) == 1 for s in stored)
    most = max(map(len, stored), default=1)
    assert most == min(rows.size, shape[0])


def test_blocks_of_much_work_are_not_copied() -> None:
    """What an element takes is then more than its way."""
    u = UOp.buffer(64 * 64, f32, 0).reshape((64, 64)).permute((1, 0))
    for value, jams in ((u + 1.0, 1), (UOp(Ops.EXP, (UOp(Ops.EXP, (u,)),)), 0)):
        steps = choose_schedule(rangeify([value], "k"), TARGETS[1])
        assert [type(s).__name__ for s in steps].count("Jam") == jams


@pytest.mark.parametrize("per_row", [0, 1, 2])
def test_terms_side_by_side_become_lanes(per_row: int) -> None:
    """Whatever else is read that is the same for all terms, such as a row's maximum."""
    value = UOp.buffer(64 * 96, f32, 0).reshape((64, 96))
    for slot in range(1, 1 + per_row):
        value = value * UOp.buffer(64, f32, slot).reshape((64, 1)).expand((64, 96))
    target = Target(32, 16, True, 32 << 10, 1 << 20, 1 << 25, 2)
    steps = choose_schedule(rangeify([value.reduce(Ops.ADD, 1)], "k"), target)
    assert any(isinstance(s, Lanes) for s in steps)
    assert not any(isinstance(s, Outputs) for s in steps)

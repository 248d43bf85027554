"""Plans whose kernels write over inputs: hazards, their order, their text."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np

from uopc.config import overriding
from uopc.dtype import f32, i32
from uopc.kernelize import Plan, make_plan, plan_graph
from uopc.kernelize.inplace import written_over
from uopc.kernelize.order import possible_order
from uopc.runtime import lower, new_buffer
from uopc.uir import parse_uir, to_uir
from uopc.uop import Ops, UOp, toposort


def planned(roots: Sequence[UOp], homes: dict[int, UOp]) -> tuple[Plan, list[UOp]]:
    return make_plan(roots, None, backend="interp", homes=homes)


def test_the_writer_comes_after_all_readers_in_the_plan_and_its_text() -> None:
    p = new_buffer(np.zeros(16, np.float32))
    x = p.reshape((4, 4))
    roots = [p + 1.0, x.permute((1, 0)) * 2.0, x.reduce(Ops.ADD, 1)]
    plan, inputs = planned(roots, {0: p})
    assert [k.over for k in plan.kernels] == [None, None, 0]
    assert plan.kernels[-1].out == plan.outputs[0]
    assert inputs == [p]
    text = to_uir(plan_graph(plan))
    assert parse_uir(text) is plan_graph(plan)
    calls = [u for u in plan_graph(plan).toposort() if u.op is Ops.CALL]
    before = set(toposort([next(c for c in calls if c.src[0].arg == "e_16")]))
    assert all(c in before for c in calls)
    other, _ = planned(roots, {})
    assert other is not plan
    assert [k.over for k in other.kernels] == [None] * 3
    assert planned(roots, {0: p})[0] is plan
    loaded = pickle.loads(pickle.dumps(plan))
    assert (loaded.kernels, loaded.outputs) == (plan.kernels, plan.outputs)


def test_an_input_that_is_a_result_as_it_is_stays() -> None:
    p = new_buffer(np.zeros(4, np.float32))
    plan, _ = planned([p + 1.0, p.detach()], {0: p})
    assert [k.over for k in plan.kernels] == [None]


def test_one_result_takes_one_place() -> None:
    p, q = (new_buffer(np.zeros(4, np.float32)) for _ in range(2))
    plan, _ = planned([p + q, p + q], {0: p, 1: q})
    assert [k.over for k in plan.kernels] == [0]


def test_places_of_another_type_or_size_are_not_taken() -> None:
    p = new_buffer(np.zeros(4, np.float32))
    for root in (p.cast(i32), p.reshape((4, 1)).expand((4, 2)) + 1.0):
        plan, _ = planned([root], {0: p})
        assert [k.over for k in plan.kernels] == [None]


def test_chains_of_waits_are_kept() -> None:
    """Each update reads the next one's old value: they run from one end."""
    n = 6
    p = [new_buffer(np.full(4, k, np.float32)) for k in range(n)]
    roots = [p[k] + p[(k + 1) % n] for k in range(n)]
    plan, _ = planned(roots, dict(enumerate(p)))
    over = [k.over for k in plan.kernels]
    assert over.count(None) == 1  # one copy breaks the circle
    written: set[int] = set()
    for k in plan.kernels:
        assert written.isdisjoint(k.args)
        written |= {k.over} if k.over is not None else set()


def test_orders_that_are_possible() -> None:
    assert possible_order([[], [0], [1], [0]]) == [0, 1, 2, 3]
    assert possible_order([[3], [], [1], [2]]) == [1, 2, 3, 0]
    assert written_over([], [], [], [], []) == ({}, [])


def test_the_loops_of_a_kernel_in_place_have_one_buffer() -> None:
    p, q = (UOp.buffer(6, f32, slot) for slot in range(2))
    with overriding(UOPC_CHECK=3):
        sink = lower(p * q + p, "both", over=0)
    buffers = {u.arg.slot for u in toposort([sink]) if u.op is Ops.BUFFER}
    assert buffers == {0, 1}
    unread = lower(q * 2.0 + q, "one", over=0)
    assert {u.arg.slot for u in toposort([unread]) if u.op is Ops.BUFFER} == {1, 2}

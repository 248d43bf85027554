"""Where temporaries live, and the data behind BUFFER nodes."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from uopc.dtype import f32, f64, i32, u8
from uopc.interp import ReferenceBackend
from uopc.kernelize import Kernel, Plan, PlanBuffer, make_plan
from uopc.runtime import (
    MemoryPlan,
    backend_named,
    buffer_data,
    default_backend,
    new_buffer,
    next_version,
    plan_memory,
    realize,
    release,
)
from uopc.runtime.buffers import empty
from uopc.testing.graphs import random_graph
from uopc.uop import FIRST_LIVE_SLOT, Ops, UOp

NOTHING = UOp.const(0.0, f32)


def random_plan(seed: int) -> Plan:
    """Kernels that read some earlier buffers, of random sizes."""
    rng = np.random.default_rng(seed)
    dtypes = (f32, f64, u8, i32)
    buffers = [PlanBuffer(10, f32, "input") for _ in range(int(rng.integers(1, 4)))]
    kernels = []
    for k in range(int(rng.integers(2, 40))):
        count = int(rng.integers(0, min(4, len(buffers)) + 1))
        args = tuple(int(a) for a in rng.choice(len(buffers), count, replace=False))
        role = "output" if rng.random() < 0.2 else "temporary"
        size = int(rng.choice([0, 1, 15, 16, 17, 64, 100, 1000]))
        buffers.append(PlanBuffer(size, dtypes[int(rng.integers(4))], role))
        if size:
            kernels.append(Kernel(f"e_{k}", NOTHING, args, len(buffers) - 1))
    return Plan(tuple(kernels), tuple(buffers), (len(buffers) - 1,))


def check_memory(plan: Plan, memory: MemoryPlan) -> None:
    """Run the plan over an arena that remembers who wrote each byte last."""
    owner = np.full(memory.arena_bytes, -1)
    temporaries = {
        k.out for k in plan.kernels if plan.buffers[k.out].role == "temporary"
    }
    assert set(memory.offsets) == temporaries
    for i in temporaries:
        begin, end = memory.offsets[i], memory.offsets[i] + plan.buffers[i].nbytes
        assert begin % 64 == 0
        assert 0 <= begin <= end <= memory.arena_bytes
    for k in plan.kernels:
        if k.out in temporaries:
            at = memory.offsets[k.out]
            owner[at : at + plan.buffers[k.out].nbytes] = k.out
        # After the output is written every argument must still be whole.
        for i in (k.out, *k.args):
            if i in temporaries:
                at = memory.offsets[i]
                assert np.all(owner[at : at + plan.buffers[i].nbytes] == i)
    assert memory.arena_bytes <= memory.sum_bytes


@pytest.mark.parametrize("seed", range(100))
def test_live_temporaries_never_overlap(seed: int) -> None:
    plan = random_plan(seed)
    check_memory(plan, plan_memory(plan))


@pytest.mark.parametrize("seed", range(20))
def test_the_same_for_plans_of_graphs(seed: int) -> None:
    plan, _ = make_plan(random_graph(seed, steps=30).roots)
    check_memory(plan, plan_memory(plan))


def test_a_chain_of_temporaries_uses_two_places() -> None:
    u = UOp.buffer(1024, f32, 0).reshape((32, 32))
    for _ in range(9):
        u = u + u.reduce(Ops.ADD, 1).reshape((32, 1)).expand((32, 32))
        u = UOp(Ops.STAGE, (u,), "contiguous")
    plan, _ = make_plan([u])
    memory = plan_memory(plan)
    check_memory(plan, memory)
    assert memory.sum_bytes >= 8 * 4096
    assert memory.arena_bytes <= 2 * 4096 + 2 * 128


@pytest.mark.parametrize("inlined", [False, True])
def test_what_waits_runs_later_although_sooner_would_need_less(inlined: bool) -> None:
    """One stage waits for the other, or for what is no kernel of its own but reads it.

    Its own first kernel has nothing to wait for and is put off as well.
    """
    x, y = (UOp.buffer(n, f32, i) for i, n in enumerate((1024, 512)))
    small, large = (UOp(Ops.STAGE, (u + 1.0,), "contiguous") for u in (y, x))
    first = UOp(Ops.STAGE, (small.reduce(Ops.ADD, 1),), "contiguous")
    after = large.after(first * 2.0 if inlined else first).reduce(Ops.MAX, 1)
    plan, _ = make_plan([after, first])
    assert [plan.buffers[k.out].size for k in plan.kernels] == [512, 1, 1024, 1]
    assert plan_memory(plan).arena_bytes == 4096


def test_the_lower_bound_is_what_is_alive_at_once() -> None:
    over = []
    for seed in range(200):
        plan = random_plan(seed)
        memory = plan_memory(plan)
        steps = range(len(plan.kernels))
        touched = {
            i: [s for s in steps if i in (plan.kernels[s].out, *plan.kernels[s].args)]
            for i in memory.offsets
        }
        alive = [
            sum(
                -(-plan.buffers[i].nbytes // 64) * 64
                for i, at in touched.items()
                if at[0] <= s <= at[-1]
            )
            for s in steps
        ]
        assert memory.live_bytes == max(alive, default=0) <= memory.arena_bytes
        over.append(memory.arena_bytes > 1.1 * memory.live_bytes)
    assert sum(over) <= 1  # where sizes are as odd as here


def test_an_output_is_no_temporary() -> None:
    x = UOp.buffer(4, f32, 0)
    mid = UOp(Ops.STAGE, (x + 1.0,), "contiguous")
    plan, _ = make_plan([mid * 2.0, mid])
    assert plan_memory(plan) == MemoryPlan({}, 0, 0, 0)


def test_new_buffers_have_slots_of_their_own() -> None:
    a, b = (new_buffer(np.zeros(3, np.float32)) for _ in range(2))
    assert a is not b
    assert min(a.arg[2], b.arg[2]) >= FIRST_LIVE_SLOT
    assert a.arg[2] != b.arg[2]
    assert (a.dtype, a.shape) == (f32, (3,))


def test_a_version_keeps_the_slot_and_spares_older_readers() -> None:
    old = new_buffer(np.arange(3, dtype=np.float32))
    new = next_version(old, np.arange(10, 13, dtype=np.float32))
    newer = next_version(old, np.zeros(3, np.float32))
    assert len({old, new, newer}) == 3
    assert old.arg[2] == new.arg[2] == newer.arg[2]
    assert buffer_data(old).tolist() == [0, 1, 2]
    assert buffer_data(new).tolist() == [10, 11, 12]
    both = realize([old + new])[0]
    assert both.tolist() == [10, 12, 14]
    # Two versions in one graph are two arguments.
    assert len(make_plan([old + new])[1]) == 2


@pytest.mark.parametrize(
    "array", [np.zeros(4, np.float32), np.zeros(3, np.float64)], ids=["size", "dtype"]
)
def test_a_version_of_another_kind_is_refused(array: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"does not fit .*BUFFER f32"):
        next_version(new_buffer(np.zeros(3, np.float32)), array)


def test_a_buffer_without_data_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"buffer \(3, f32, 0, .* never given any"):
        realize([UOp.buffer(3, f32, 0) + 1.0])
    node = new_buffer(np.zeros(3, np.float32))
    release(node, "it was sold")
    with pytest.raises(RuntimeError, match="has no data: it was sold"):
        buffer_data(node)
    release(node, "another reason")
    with pytest.raises(RuntimeError, match="has no data: another reason"):
        buffer_data(node)


def test_data_lives_as_long_as_its_node() -> None:
    node = new_buffer(np.zeros(3, np.float32))
    watch = weakref.ref(buffer_data(node))
    reader = node + 1.0
    del node
    gc.collect()
    assert watch() is not None
    del reader
    gc.collect()
    assert watch() is None


@pytest.mark.parametrize("size", [0, 1, 5, 1000])
@pytest.mark.parametrize("dtype", [u8, f32, f64], ids=str)
def test_arrays_start_on_a_cache_line(size: int, dtype) -> None:
    a = empty(size, dtype)
    assert (a.shape, a.dtype) == ((size,), dtype.numpy)
    assert a.ctypes.data % 64 == 0 or not size
    assert a.flags.writeable
    assert a.flags.c_contiguous


def test_realize_gives_inputs_as_they_are_and_copies_nothing() -> None:
    x = new_buffer(np.arange(6, dtype=np.float32))
    flat, shaped, nothing = realize([x, x.reshape((2, 3)), x.shrink([(2, 2)])])
    assert flat is shaped is buffer_data(x)
    assert nothing.shape == (0,)


def test_several_threads_run_one_plan() -> None:
    def build(offset: float) -> UOp:
        x = new_buffer(np.arange(64, dtype=np.float32) + np.float32(offset))
        return (x + x.reduce(Ops.ADD, 1).reshape((1,)).expand((64,))).reduce(Ops.MAX, 1)

    realize([build(0.0)])
    results: dict[int, float] = {}

    def work(k: int) -> None:
        for _ in range(10):
            results[k] = float(realize([build(float(k))], backend=backend)[0][0])

    backend = ReferenceBackend()
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    expected = {k: float(sum(range(64)) + 64 * k + 63 + k) for k in range(8)}
    assert results == expected


def test_backends_by_name() -> None:
    reference = backend_named("interp")
    assert default_backend() is reference
    assert (reference.name, reference.unavailable()) == ("interp", None)
    assert reference.supports(Ops.TANH)
    assert not reference.supports(Ops.STORE)
    with pytest.raises(RuntimeError, match=r"no backend named 'abacus' .*interp"):
        backend_named("abacus")

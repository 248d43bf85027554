"""Chains of 100,000 nodes, once of a million: no step may recurse, and all are linear.

What they cost is measured in ``benchmarks/graphs.py``.
"""

from __future__ import annotations

import gc
import itertools
import pickle
import sys
import time
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from uopc.dtype import f32, i32
from uopc.interp import ReferenceBackend, evaluate
from uopc.kernelize import _plans, make_plan
from uopc.runtime import lower, new_buffer, realize
from uopc.runtime.memory import plan_memory
from uopc.simplify import Bounds, Simplifier
from uopc.spec import check
from uopc.tensor import Tensor
from uopc.uir import parse_uir, to_uir
from uopc.uop import Ops, UOp, live_nodes, substitute, toposort

DEPTH = 100_000


@pytest.fixture(scope="module", autouse=True)
def without_collector() -> Iterator[None]:
    """Nothing here needs the cycle collector, which would scan it all the time."""
    plans = dict(_plans)
    gc.disable()
    yield
    gc.enable()
    _plans.clear()  # those of 100,000 nodes slow down every collection
    _plans.update(plans)


@pytest.fixture(scope="module")
def source() -> UOp:
    return new_buffer(np.arange(3, dtype=np.float32))


@pytest.fixture(scope="module")
def chain(source: UOp) -> UOp:
    """((x + x) * 0.5 + x) * 0.5 ...: 100,000 steps that stay in range."""
    half = source.const_like(0.5)
    u = source
    for i in range(DEPTH):
        u = u * half if i % 2 else u + source
    return u


def expected() -> np.ndarray:
    x = np.arange(3, dtype=np.float32)
    value = x
    for i in range(DEPTH):
        value = value * np.float32(0.5) if i % 2 else value + x
    return value


def test_the_chain_is_deeper_than_the_recursion_limit() -> None:
    assert sys.getrecursionlimit() * 10 < DEPTH


def test_a_walk_is_children_first(chain: UOp) -> None:
    order = toposort([chain])
    assert len(order) == DEPTH + 4  # the source, and a constant of three nodes
    place = {u: i for i, u in enumerate(order)}
    assert all(place[s] < place[u] for u in order for s in u.src)
    assert chain.toposort() == order


def test_print_and_parse(chain: UOp) -> None:
    # Parsed text may alias the live buffer's slot here: the graph is the same.
    text = to_uir(chain)
    assert len(text.splitlines()) == DEPTH + 3
    assert parse_uir(text) is chain


def test_pickle(chain: UOp) -> None:
    assert pickle.loads(pickle.dumps(chain)) is chain


def test_substitute(chain: UOp, source: UOp) -> None:
    other = UOp.buffer(3, f32, 5)
    (moved,) = substitute([chain], {source: other})
    assert moved is not chain
    leaves = [u for u in toposort([moved]) if u.op is Ops.BUFFER]
    assert leaves == [other]
    assert substitute([moved], {other: source}) == [chain]
    assert substitute([chain], {other: source}) == [chain]


def test_check(chain: UOp) -> None:
    check(toposort([chain]), "graph")


def test_plan_and_run(chain: UOp) -> None:
    (result,) = realize([chain])
    np.testing.assert_array_equal(result, expected())
    plan, _ = make_plan([chain], None, ReferenceBackend().supports, "interp")
    assert "interp" in plan.programs  # the very plan that has just run
    assert DEPTH // 500 <= len(plan.kernels) <= DEPTH // 200
    for k in plan.kernels[:: len(plan.kernels) // 10]:
        assert len(toposort([k.ast])) <= 520


def test_interpret_without_a_plan() -> None:
    u = source = UOp.param(0, i32)
    for _ in range(DEPTH // 4):
        u = u + source
    (value,) = evaluate([u], {source: np.asarray(3, np.int32)})
    assert value == 3 * (DEPTH // 4 + 1)


def test_simplify() -> None:
    u = UOp.param(0, i32)
    steps = [UOp.const(n, i32) for n in (-2, 1, 3)]
    for i in range(DEPTH // 10):
        u = u + steps[i % 3]
    assert len(toposort([Simplifier()(u)])) <= 3


def test_bounds() -> None:
    u = UOp(Ops.RANGE, (), (0, 10, i32))
    three = UOp.const(3, i32)
    for _ in range(DEPTH // 4):
        u = u.maximum(three)
    assert Bounds()(u) == (3, 9)


def test_free() -> None:
    before = live_nodes()
    u = UOp.buffer(2, f32, 77)
    for _ in range(DEPTH):
        u = UOp(Ops.ADD, (u, u))
    assert live_nodes() >= before + DEPTH
    watch = weakref.ref(u)
    del u
    assert watch() is None
    assert live_nodes() <= before


def test_a_million_nodes() -> None:
    before = live_nodes()
    x = UOp.param(987654, f32)  # nobody else's
    u = x
    for i in range(1_000_000):
        u = u + x if i % 2 else u * x
    assert len(toposort([u])) == 1_000_001
    data = pickle.dumps(u)
    del u
    assert live_nodes() <= before + 1
    u = pickle.loads(data)
    assert live_nodes() == before + 1_000_001
    assert u.src[0].src[0].src[1] is x
    del u, x
    assert live_nodes() <= before


def test_sixty_levels_of_sharing_in_every_pass(
    source: UOp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2**60 paths, 60 nodes; with every check between passes that there is."""
    monkeypatch.setenv("UOPC_CHECK", "3")
    u = source * source.const_like(2.0**-60)
    for _ in range(60):
        u = u + u
    assert parse_uir(to_uir(u)) is u
    assert pickle.loads(pickle.dumps(u)) is u
    (moved,) = substitute([u], {source: UOp.buffer(3, f32, 5)})
    assert len(toposort([moved])) == len(toposort([u]))
    (kernel,) = make_plan([u])[0].kernels
    assert len(toposort([lower(kernel.ast, kernel.name)])) < 100
    (result,) = realize([u])
    np.testing.assert_array_equal(result, np.arange(3))
    n = UOp(Ops.RANGE, (), (0, 3, i32))
    for _ in range(60):
        n = n + n
    assert len(toposort([Simplifier()(n)])) <= 3


def gathers(n: int) -> UOp:
    table = UOp.buffer(64, i32, 0)
    u = UOp.buffer(64, i32, 1)
    for _ in range(n):
        u = table.index(u)
    return u


def views(n: int) -> UOp:
    x = UOp.buffer(64, f32, 0)
    u = x
    for _ in range(n):
        u = u.reshape((8, 8)).permute((1, 0)).reshape((64,)) + x
    return u


def reductions(n: int) -> UOp:
    x = UOp.buffer(64, f32, 0).reshape((8, 8))
    total = x.reduce(Ops.ADD, 1)
    for k in range(n):
        total = total + (x * float(k)).reduce(Ops.ADD, 1)
    return total


def sums(n: int) -> UOp:
    level = [UOp.buffer(4, f32, k) for k in range(n)]
    while len(level) > 1:
        level = [a + b for a, b in itertools.zip_longest(
            level[::2], level[1::2], fillvalue=level[0])]  # fmt: skip
    return level[0]


def calls(work: Callable[[], object]) -> int:
    """How many functions ``work`` calls: what it costs, without a clock."""
    count = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


PASSES: dict[str, Callable[[UOp], object]] = {
    "print": to_uir,
    "parse": lambda u: parse_uir(to_uir(u)),
    "pickle": lambda u: pickle.loads(pickle.dumps(u)),
    "pickle many": lambda u: pickle.dumps(toposort([u])),
    "make_plan": lambda u: make_plan([u]),
    "lower": lambda u: lower(u, "k"),
}


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("graph", [gathers, views, reductions, sums])
def test_passes_are_linear(name: str, graph: Callable[[int], UOp]) -> None:
    run = PASSES[name]
    run(graph(3))  # what is only done the first time
    small, large = (calls(lambda n=n: run(graph(n))) for n in (25, 200))
    assert large < 1.4 * 8 * small


def test_many_temporaries_are_placed_soon() -> None:
    """Sums that are all alive at once, each a kernel of its own."""
    x = UOp.buffer(16, f32, 0).reshape((4, 4))
    parts = [(x * float(k)).reduce(Ops.ADD, 1) for k in range(3000)]
    total = parts[-1]
    for part in parts[:-1]:
        total = total + part
    plan, _ = make_plan([total])
    assert len(plan.kernels) >= 3000
    start = time.process_time()
    memory = plan_memory(plan)
    assert time.process_time() - start < 3
    assert len(memory.offsets) >= 2999


def test_building_and_freeing_take_linear_time() -> None:
    def seconds(n: int) -> float:
        start = time.process_time()
        u = UOp.buffer(2, f32, 78)
        for _ in range(n):
            u = UOp(Ops.ADD, (u, u))
        del u
        return time.process_time() - start

    seconds(1000)
    small = min(seconds(10_000) for _ in range(3))
    assert seconds(100_000) < 50 * small


def test_a_long_loop_over_a_tensor() -> None:
    x = Tensor([1.0, 2.0])
    y = x
    for _ in range(2000):
        y = y * 0.5 + x
    np.testing.assert_array_equal(y.numpy(), [2.0, 4.0])

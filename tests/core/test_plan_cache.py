"""Plans are found by exact keys, forgotten when unused, counted, and watched."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest

from uopc import kernelize
from uopc.config import overriding
from uopc.dtype import f32, f64
from uopc.kernelize import Plan, constants, make_plan
from uopc.kernelize.key import graph_key
from uopc.runtime import count, new_buffer, realize, stats
from uopc.tensor import Tensor
from uopc.testing.graphs import random_graph
from uopc.uop import OpDef, Ops, UOp, toposort


@pytest.fixture(autouse=True)
def no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins without plans, and without misses that were noticed before."""
    monkeypatch.setattr(constants, "_seen", {})
    monkeypatch.setattr(kernelize.plan, "_plans", {})


def chain(n: int, source: UOp | None = None) -> UOp:
    """Graphs of different structure for different n."""
    u = new_buffer(np.ones(3, np.float32)) if source is None else source
    for _ in range(n):
        u = u.exp2()
    return u


def made_by(*numbers: int) -> int:
    """How many plans looking these chains up makes."""
    before = stats()
    for n in numbers:
        make_plan([chain(n)])
    after = stats() - before
    assert after.plans_made + after.plans_found == len(numbers)
    return after.plans_made


# -- the key ------------------------------------------------------------------


def graph_of(
    key: Sequence[Any], buffers: Sequence[UOp], leaves: dict[UOp, UOp]
) -> list[UOp]:
    """The roots that a key was made of, read back from it."""
    tokens = iter(key)
    known: list[UOp | None] = []
    nodes = {b: u for u, b in leaves.items()}

    def read(token: Any) -> UOp:
        if not isinstance(token, OpDef):
            found = known[token]
            assert found is not None
            return found
        place = len(known)
        known.append(None)
        if token is Ops.BUFFER:
            buffer = buffers[next(tokens)]
            node = nodes.get(buffer, buffer)
            assert (next(tokens), next(tokens)) == (node.shape, node.dtype)
        else:
            arg = next(tokens)
            arity = next(tokens) if token.arity is None else token.arity
            src = tuple([read(next(tokens)) for _ in range(arity)])
            node = UOp(token, src, arg)
        known[place] = node
        return node

    return [read(token) for token in tokens]


@pytest.mark.parametrize("seed", range(60))
def test_a_graph_can_be_read_back_from_its_key(seed: int) -> None:
    roots = random_graph(seed, steps=25).roots
    key, buffers = graph_key(roots, {})
    assert graph_of(key, buffers, {}) == list(roots)
    visited = [u for u in toposort(roots) if u.op is Ops.BUFFER]
    assert buffers == visited
    inner = next((u for u in toposort(roots) if u.src and u not in roots), None)
    if inner is not None:
        leaves = {inner: new_buffer(np.empty(inner.shape).ravel(), f64)}
        key, buffers = graph_key(roots, leaves)
        assert graph_of(key, buffers, leaves) == list(roots)


def test_keys_tell_graphs_apart_that_are_written_alike() -> None:
    """Ops of any number of sources, and where one root ends and the next begins."""
    a, b = (UOp.buffer(3, f32, n) for n in (1, 2))
    groups = [
        [[UOp.stack([a, b])], [UOp.stack([a]), b]],
        [[a, a], [a]],
        [[a + a], [a + b], [b + a, a]],
        [[a.exp2(), a], [a, a.exp2()]],
    ]
    for group in groups:
        assert len({graph_key(roots, {})[0] for roots in group}) == len(group)
    assert graph_key([a + b], {})[0] == graph_key([b + a], {})[0]


# -- forgetting ---------------------------------------------------------------


def test_the_plan_used_longest_ago_is_forgotten_and_made_again() -> None:
    with overriding(UOPC_PLANS=3):
        assert made_by(1, 2, 3) == 3
        assert made_by(1, 3, 2, 1) == 0
        assert made_by(4) == 1  # instead of 3
        assert made_by(1, 2, 4) == 0
        assert made_by(3) == 1  # instead of 1
        assert made_by(2, 4) == 0
        assert made_by(1) == 1
        assert len(kernelize.plan._plans) == 3
    with overriding(UOPC_PLANS=1):
        assert made_by(9) == 1
        assert len(kernelize.plan._plans) == 1


def test_a_forgotten_plan_is_freed_unless_someone_has_it() -> None:
    with overriding(UOPC_PLANS=2):
        held = make_plan([chain(1)])[0]
        refs: list[weakref.ref[Plan]] = [weakref.ref(held)]
        refs += [weakref.ref(make_plan([chain(n)])[0]) for n in range(2, 8)]
        gc.collect()
        alive = [ref() is not None for ref in refs]
        assert alive == [True, False, False, False, False, True, True]


def programs_alive(limit: int) -> list[int]:
    """How many programs exist after each of ten plans."""
    made: weakref.WeakSet[Any] = weakref.WeakSet()

    class Counted:
        name = "counted"
        priority = 0

        def unavailable(self) -> None:
            return None

        def supports(self, op: OpDef) -> bool:
            return True

        def compile(self, plan: Plan) -> Any:
            class Program:
                def __call__(self, arrays: Sequence[Any]) -> None:
                    counts.append(len(made))

            program = Program()
            made.add(program)
            return program

    counts: list[int] = []
    with overriding(UOPC_PLANS=limit):
        for n in range(10):
            realize([chain(n + 1)], None, Counted())
    return counts


def test_programs_go_with_their_plans() -> None:
    gc.disable()
    try:
        # The program that runs is there besides: its plan replaces one at its making.
        assert programs_alive(3) == [1, 2, 3, 3, 3, 3, 3, 3, 3, 3]
    finally:
        gc.enable()


def test_threads_that_throw_out_each_others_plans_compute_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UOPC_PLANS", "1")
    monkeypatch.setenv("UOPC_BACKEND", "interp")
    x = np.linspace(-1, 1, 3).astype(np.float32)
    expected = {n: realize([chain(n, new_buffer(x))])[0] for n in range(1, 5)}
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            for i in range(25):
                n = (seed + i) % 4 + 1
                (got,) = realize([chain(n, new_buffer(x))])
                if not np.array_equal(got, expected[n]):
                    wrong.append((n, got))
        except Exception as error:
            wrong.append(error)

    before = stats()
    threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert len(kernelize.plan._plans) == 1
    after = stats() - before
    assert after.plans_made + after.plans_found == after.native_calls == 200


# -- counting -----------------------------------------------------------------


def test_stats_count_what_happened_between_two() -> None:
    x = Tensor(np.ones((4, 8), np.float32)).realize()
    start = stats()
    (x.softmax() + 1).realize()
    first = stats()
    (x.softmax() + 1).realize()
    second = stats()
    assert (first - start).plans_made == 1
    assert (first - start).plans_found == 0
    assert (first - start).native_calls == 1
    # The result, and in the arena a maximum and a sum per row, a cache line each.
    assert (first - start).bytes_allocated == 4 * 8 * 4 + 2 * 64
    again = second - first
    assert (again.plans_made, again.plans_found, again.native_calls) == (0, 1, 1)
    assert again.bytes_allocated == (first - start).bytes_allocated
    assert (again.compilations, again.cache_hits) == (0, 0)
    assert not any(astuple(stats() - second))
    with pytest.raises(AttributeError):
        second.plans_made = 0  # type: ignore[misc]


def test_counters_are_known_by_name() -> None:
    before = stats()
    count(compilations=2, cache_hits=3)
    assert (stats() - before).compilations == 2
    assert (stats() - before).cache_hits == 3
    with pytest.raises(KeyError, match="plans"):
        count(plans=1)
    count(compilations=-2, cache_hits=-3)


# -- constants that change ----------------------------------------------------


def told(values: Iterator[float] | Sequence[float], graph: Any) -> list[str]:
    """The warnings while a graph is looked up with these constants."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for v in values:
            make_plan([graph(v)])
    assert all(w.category is RuntimeWarning for w in caught)
    assert all(w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught]


def scaled(rate: float) -> UOp:
    x = new_buffer(np.ones(6, np.float32)).reshape((2, 3))
    return (x * 0.5 + x.exp2() * rate).reduce(Ops.ADD, 1)


def test_a_constant_that_changes_five_times_is_named_once() -> None:
    assert told([0.1, 0.2, 0.3, 0.4], scaled) == []
    (message,) = told([0.7, 0.8, 0.9, 1.0], scaled)
    for part in (
        "compiled 5 times",
        "a constant: it is 0.7 and was 0.4, in mul of f32[2, 3]",
        "0-d Tensor",
        "assign()",
    ):
        assert part in message
    other = told(np.linspace(2, 3, 9), lambda v: scaled(v) + 1.0)
    assert len(other) == 1


def read_at(v: float) -> UOp:
    x = new_buffer(np.ones(60, np.float32)).reshape((20, 3))
    return x.index(int(v)) * 2.0


def window(v: float) -> UOp:
    x = new_buffer(np.ones(60, np.float32)).reshape((20, 3))
    return x.shrink([(int(v), int(v) + 4), (1, 3)]) * 2.0


POSITIONS = {
    "an index": (read_at, "a constant: it is 5 and was 4, in index of f32[3]"),
    "a slice": (window, "a slice that begins elsewhere: at (5, 1), and before at (4,"),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_a_position_that_changes_is_named_as_one(name: str) -> None:
    graph, words = POSITIONS[name]
    (message,) = told(range(1, 9), graph)
    assert words in message
    assert "t[Tensor(np.asarray(i))]" in message
    assert told([1, 1, 1, 1, 1, 1], graph) == []


def test_windows_of_other_widths_are_other_structures() -> None:
    def prefix(v: float) -> UOp:
        return new_buffer(np.ones(60, np.float32)).shrink([(0, int(v))]) * 2.0

    assert told(range(1, 9), prefix) == []


def test_several_constants_that_change_are_counted() -> None:
    def two(v: float) -> UOp:
        return scaled(v).exp2() * (v + 100)

    (message,) = told([1.0, 2.0, 3.0, 4.0, 5.0], two)
    assert "a constant (and 1 more)" in message


SILENT: dict[str, Any] = {
    "the same": lambda v: scaled(7.0),
    "another structure": lambda v: chain(int(v), scaled(0.1 + v)),
    "now one, now the other": lambda v: (
        new_buffer(np.ones(6, np.float32)) * (100.0 + v // 2) + (200.0 + (v + 1) // 2)
    ),
    "data": lambda v: new_buffer(np.ones(3, np.float32)) * new_buffer(
        np.full(3, v, np.float32)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_said_of(name: str) -> None:
    assert told(np.arange(1.0, 12.0), SILENT[name]) == []


def test_plans_that_are_found_are_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    make_plan([scaled(1.0)])
    monkeypatch.setattr("uopc.kernelize.plan.notice_miss", None)
    make_plan([scaled(1.0)])
    with pytest.raises(TypeError):
        make_plan([scaled(2.0)])

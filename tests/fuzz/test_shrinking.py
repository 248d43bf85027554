"""Planted faults: found by random graphs, and shrunk to a few nodes by hypothesis."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from uopc.dtype import f32, f64, i32
from uopc.testing import RandomGraph, random_graph, replay
from uopc.testing.compare import complaints
from uopc.testing.strategies import graphs, shrunk
from uopc.uop import OpDef, Ops, UOp, toposort

Array = np.ndarray[Any, Any]
Meaning = Callable[..., Any]
SMALL = {"steps": 8, "max_elements": 64}


def evaluated(g: RandomGraph, op: OpDef, meaning: Meaning) -> list[Array]:
    """The values of the roots where one op means something else."""
    values: dict[UOp, Array] = dict(g.inputs)
    with np.errstate(all="ignore"):
        for u in toposort(g.roots):
            if u not in values:
                sources = [values[s] for s in u.src]
                new = meaning(u, *sources) if u.op is op else None
                right = u.op.compute(u, *sources)
                values[u] = right if new is None else np.asarray(new, right.dtype)
    return [values[r] for r in g.roots]


def max_that_ignores_nan(u: UOp, a: Array, b: Array) -> Array:
    return np.where(a < b, b, a)


def remainder_of_c(u: UOp, a: Array, b: Array) -> Any:
    return np.fmod(a, b) if u.dtype.is_int and b.all() else None


def permute_the_other_way(u: UOp, x: Array) -> Any:
    y = x.transpose(np.argsort(u.arg))
    return y if y.shape == u.shape else None


def sum_without_the_last(u: UOp, x: Array) -> Any:
    if u.arg[0] is not Ops.ADD or not x.size:
        return None
    rows = x.reshape((*u.shape, -1))
    return rows[..., :-1].sum(axis=-1).reshape(u.shape)


# What the fault is in, and how many nodes are left.
FAULTS: dict[Meaning, tuple[OpDef, int]] = {
    max_that_ignores_nan: (Ops.MAX, 5),
    remainder_of_c: (Ops.FLOORMOD, 5),
    permute_the_other_way: (Ops.PERMUTE, 4),
    sum_without_the_last: (Ops.REDUCE, 3),
}


@pytest.mark.parametrize("meaning", FAULTS, ids=lambda f: f.__name__)
def test_a_fault_is_found_and_shrunk(meaning: Meaning):
    op, most = FAULTS[meaning]

    def fails(g: RandomGraph) -> bool:
        return bool(complaints(g, evaluated(g, op, meaning)))

    every = (random_graph(seed, **SMALL) for seed in range(2000))
    failing = itertools.islice(filter(fails, every), 5)
    start = min(failing, key=lambda g: len(g.choices))
    small = shrunk(start, fails, **SMALL)
    assert fails(small)
    assert len(toposort(small.roots)) <= most, small.text()
    assert sum(len(a) for a in small.inputs.values()) <= 32, small.text()


def test_the_line_that_comes_with_a_small_graph_makes_it_again():
    def fails(g: RandomGraph) -> bool:
        return any(u.op is Ops.FLIP for u in toposort(g.roots))

    failing = (g for g in map(random_graph, range(100)) if fails(g))
    small = shrunk(next(failing), fails)
    call = small.text().splitlines()[0].removeprefix("# ")
    numbers = call.removeprefix("replay([").partition("])")[0]
    again = replay([int(n) for n in numbers.split(",")])
    if ".part(" in call:
        again = again.part(int(call.partition(".part(")[2].rstrip(")")))
    assert again.roots == small.roots
    assert again.origin == small.origin == call


def test_a_graph_that_does_not_fail_is_left_alone():
    g = random_graph(3)
    assert shrunk(g, lambda _: False) is g


@settings(max_examples=50, deadline=None, database=None)
@given(graphs(steps=6, max_elements=30, dtypes=(f32, i32, f64)))
def test_hypothesis_draws_graphs_without_complaint(g: RandomGraph):
    """No health check fails, and the options are heeded."""
    assert all(u.size <= 30 for u in (e.value for e in g.expected))
    assert not complaints(g, [e.value for e in g.expected])

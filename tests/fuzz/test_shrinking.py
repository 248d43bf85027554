"""Planted faults: found by random graphs, and shrunk to a few nodes by hypothesis."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uopc.dtype import f32, f64, i32
from uopc.testing import RandomGraph, random_graph, replay
from uopc.testing.compare import complaints
from uopc.testing.strategies import graphs, shrunk
from uopc.uop import OpDef, Ops, UOp, toposort

Array = np.ndarray[Any, Any]
Meaning = Callable[..., Any]


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
    op, n = u.arg
    if op is not Ops.ADD or not x.size:
        return None
    rows = x.reshape((*u.shape, -1))
    return rows[..., :-1].sum(axis=-1).reshape(u.shape)


def narrow_sum(u: UOp, a: Array, b: Array) -> Any:
    if u.dtype.kind != "uint" or u.dtype.bits > 16:
        return None
    return np.minimum(a.astype(int) + b, u.dtype.max)


def zero_without_sign(u: UOp, x: Array) -> Any:
    y = u.op.compute(u, x)
    return y + 0 if u.src[0].dtype.is_float and u.dtype.is_float else None


def negative_indices_wrap(u: UOp, x: Array, *idx: Array) -> Any:
    ok = all(np.all((-n <= i) & (i < n)) for i, n in zip(idx, x.shape, strict=False))
    return x[tuple(i.astype(int) for i in idx)] if ok else None


def shift_modulo_width(u: UOp, a: Array, b: Array) -> Any:
    return a << (b % a.dtype.type(u.dtype.bits))


FAULTS: dict[Meaning, tuple[OpDef, int]] = {
    max_that_ignores_nan: (Ops.MAX, 5),
    remainder_of_c: (Ops.FLOORMOD, 5),
    permute_the_other_way: (Ops.PERMUTE, 4),
    sum_without_the_last: (Ops.REDUCE, 3),
    narrow_sum: (Ops.ADD, 5),
    zero_without_sign: (Ops.CAST, 5),
    negative_indices_wrap: (Ops.INDEX, 5),
    shift_modulo_width: (Ops.SHL, 5),
}


@pytest.mark.parametrize("meaning", FAULTS, ids=lambda f: f.__name__)
def test_a_fault_is_found_and_shrunk(meaning: Meaning):
    op, most = FAULTS[meaning]

    def fails(g: RandomGraph) -> bool:
        return bool(complaints(g, evaluated(g, op, meaning)))

    failing = (g for g in map(random_graph, range(2000)) if fails(g))
    small = shrunk(next(failing), fails)
    assert fails(small)
    assert len(toposort(small.roots)) <= most, small.text()
    assert max(len(a) for a in small.inputs.values()) <= 12, small.text()


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

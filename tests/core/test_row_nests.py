"""Kernels that share outer loops: one nest, round by round, with scratch of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_joined_kernels import run_nests

from uopc.config import overriding
from uopc.interp import run_loops
from uopc.kernelize import make_plan
from uopc.rangeify import rangeify
from uopc.runtime import Nest, lower_nest, nests_of
from uopc.schedule import Target, apply_schedule, choose_schedule, model
from uopc.schedule.fuse import fuse, stretch
from uopc.schedule.keep import Keep
from uopc.schedule.rows import parts_of
from uopc.schedule.scratch import in_scratch, near_enough
from uopc.tensor import Tensor
from uopc.testing import buf
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]
SHAPE = (6, 40)
TARGET = Target(32, 16, True, 32 << 10, 512 << 10, 32 << 20, 2)


def centred(x: Tensor) -> Tensor:
    return x - x.mean(axis=-1, keepdim=True)


def median(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a.maximum(b).minimum(a.minimum(b).maximum(c))


def odd(x: Tensor) -> Tensor:
    """Nobody has named it: less the median of three means, over the largest square."""
    means = (x[..., i : i + n].mean(axis=-1, keepdim=True) for i, n in THIRDS)
    rest = x - median(*means)
    return rest / rest.square().max(axis=-1, keepdim=True)


THIRDS = ((0, 13), (13, 13), (26, 14))


def pairs(x: Tensor) -> Tensor:
    """Short sums, which are made for several outputs at once, of what a row made."""
    rest = x * 2 - x.max(axis=-1, keepdim=True)
    return rest[..., : x.shape[-1] // 2 * 2].reshape(*x.shape[:-1], -1, 2).max(-1)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "pairs": pairs,
    "softmax": lambda x: x.softmax(),
    "log_softmax": lambda x: x.log_softmax(),
    "layer norm": lambda x: centred(x) / centred(x).square().mean(-1, True).sqrt(),
    "RMS norm": lambda x: x / (x.square().mean(axis=-1, keepdim=True) + 1e-5).sqrt(),
    "cross-entropy": lambda x: (x.log_softmax() * x.sigmoid()).sum(axis=-1),
    "no name": odd,
}


def data(shape: tuple[int, ...] = SHAPE) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def nests(y: Tensor) -> tuple[list[Nest], list[UOp]]:
    with overriding(UOPC_OPT=1):
        plan, inputs = make_plan([y.uop], None, backend="interp")
        return nests_of(plan.kernels), inputs


def lowered(nest: Nest, target: Target = TARGET, check: int = 3) -> UOp:
    with overriding(UOPC_OPT=1, UOPC_CHECK=check):
        found = lower_nest(nest, nest.name, target)
    assert found is not None
    assert_stored_first(found.sink)
    assert_numbered_apart(found.sink)
    return found.sink


def assert_numbered_apart(sink: UOp) -> None:
    """No loop is inside another one of its number."""
    pending: list[tuple[UOp, frozenset[int]]] = [(s, frozenset()) for s in sink.src]
    while pending:
        s, outer = pending.pop()
        if s.op is Ops.END and s.src[0].op is Ops.RANGE:
            assert s.src[0].arg.number not in outer
            outer |= {s.src[0].arg.number}
        pending += [(t, outer) for t in s.src[1:] if s.op is Ops.END]


def assert_stored_first(sink: UOp) -> None:
    """No element of a local buffer is read before some statement stores into it."""
    stored: set[UOp] = set()
    pending = list(reversed(sink.src))
    while pending:
        s = pending.pop()
        if s.op is Ops.END:
            pending += reversed(s.src[1:])
        else:
            read = {u.src[0] for u in toposort([s]) if u.op is Ops.INDEX}
            assert all(b in stored for b in read if b.arg.space == "local"), s
            stored.add(s.src[0])


def touched(sink: UOp) -> set[UOp]:
    """The arrays of a program that are not its own."""
    nodes = toposort([sink])
    return {u for u in nodes if u.op is Ops.BUFFER and u.arg.space == "global"}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [SHAPE, (2, 3, 40), (5, 33)])
def test_a_function_of_rows_is_one_nest(name: str, shape: tuple[int, ...]) -> None:
    if name == "no name" and shape[-1] != SHAPE[-1]:
        return
    x = data(shape)
    y = FUNCTIONS[name](Tensor(x))
    (nest,), _ = nests(y)
    assert len(nest.kernels) > 1
    sink = lowered(nest)
    read, written = sorted(touched(sink), key=lambda b: b.arg.slot)
    assert read.arg.size == x.size
    assert written.arg.size == np.prod(y.shape)
    (got,) = run_loops(sink, {read.arg.slot: x.reshape(-1)}).values()
    with overriding(UOPC_OPT=0):
        expected = FUNCTIONS[name](Tensor(x)).numpy().reshape(-1)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def random_rows(seed: int) -> Callable[[Tensor], Tensor]:
    """Statistics of rows, mixed into the rows and into one another."""
    rng = random.Random(seed)
    kinds = [
        rng.choice(("mean", "max", "sum", "min")) for _ in range(rng.randint(1, 4))
    ]
    picks = [rng.random() for _ in range(32)]

    def call(x: Tensor) -> Tensor:
        values, at = [x], iter(picks)
        for kind in kinds:
            of = values[int(next(at) * len(values))]
            s = getattr(of, kind)(axis=-1, keepdim=True) * 0.25
            changed = of - s if next(at) < 0.5 else of * s.tanh()
            values.append(changed.exp() if next(at) < 0.3 else changed)
        total = values[-1] + values[int(next(at) * len(values))]
        return total.sum(axis=-1) if next(at) < 0.3 else total

    return call


@pytest.mark.parametrize("seed", range(40))
def test_random_functions_of_rows(seed: int) -> None:
    shape = random.Random(seed).choice([(4, 21), (3, 32), (2, 2, 19)])
    x, f = data(shape) / 4, random_rows(seed)
    with overriding(UOPC_OPT=0):
        expected = f(Tensor(x)).numpy().reshape(-1)
    with overriding(UOPC_OPT=1):
        plan, _ = make_plan([f(Tensor(x)).uop], None, backend="interp")
    assert any(k.joined for k in plan.kernels) or len(plan.kernels) == 1
    memory = run_nests(plan, [x.reshape(-1)])
    np.testing.assert_allclose(memory[plan.outputs[0]], expected, rtol=1e-4, atol=1e-5)


def test_the_plan_lists_the_logical_kernels() -> None:
    with overriding(UOPC_OPT=1):
        plan, _ = make_plan([Tensor(data()).softmax().uop], None, backend="interp")
    assert [k.name for k in plan.kernels] == ["r_6", "r_6", "e_6_40"]
    assert [k.joined for k in plan.kernels] == [False, True, True]
    assert [k.passing for k in plan.kernels] == [True, True, False]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x / x.sum(axis=0, keepdim=True),
        lambda x: x - x.max(),
        lambda x: x @ x.T - (x @ x.T).flip(0),
    ],
    ids=["columns", "all", "products"],
)
def test_what_is_no_function_of_rows_stays_apart(f: Any) -> None:
    found, _ = nests(f(Tensor(data((40, 40)))))
    assert len(found) > 1


def test_rows_too_long_for_the_cache_stay_apart() -> None:
    """A plan may ask for it, the machine has the last word; nothing is lost then."""
    (nest,), _ = nests(Tensor(data()).softmax())
    small = Target(32, 16, True, 128, 256, 1 << 20, 2)
    with overriding(UOPC_OPT=1):
        assert lower_nest(nest, "k", small) is None
        first, last = nest.without_last()
        assert [k.passing for k in first.kernels] == [False, False]
        assert last.kernels == nest.kernels[-1:]
        assert lower_nest(last, "k", small) is not None
    long, _ = nests(Tensor(np.zeros((2, 1 << 17), np.float32)).softmax())
    assert len(long) == 3


def test_an_array_that_others_read_is_stored() -> None:
    x = Tensor(data())
    total = x.sum(axis=-1, keepdim=True)
    y = (x * total).uop, (total.reshape(6) + 1.0).uop
    with overriding(UOPC_OPT=1):
        plan, _ = make_plan([total.uop, *y], None, backend="interp")
    nest = nests_of(plan.kernels)[0]
    stored = {u.src[0] for u in toposort([lowered(nest)]) if u.op is Ops.STORE}
    outputs = {b.arg.size for b in stored if b.arg.space == "global"}
    assert outputs == {6, 240}


# -- the loops ----------------------------------------------------------------

ROWS = UOp(Ops.RANGE, (), (0, 8, rangeify([buf(0, 2)], "k").src[0].src[0].dtype))
LANE = UOp(Ops.RANGE, (), (1, 4, ROWS.dtype))


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ([ROWS], ((1,), 0, 1)),
        ([ROWS * 4 + LANE], ((4,), 0, 4)),
        ([ROWS * 4 + LANE, ROWS * 4 + 3], ((4,), 0, 4)),
        ([ROWS * 4 + 1, ROWS * 4 + 3], ((4,), 1, 3)),
        ([ROWS * -4 + 28 + LANE], ((-4,), 28, 4)),
        ([ROWS * 3 + LANE], None),
        ([ROWS, ROWS + 1], None),
        ([ROWS * 4, ROWS * 5], None),
        ([LANE], None),
        ([ROWS // 2], None),
    ],
)
def test_what_rounds_touch(addresses: list[UOp], expected: Any) -> None:
    found = stretch(addresses, [ROWS])
    assert (found and (found.strides, found.low, found.size)) == expected


def softmax_loops() -> UOp:
    x = buf(0, 12).reshape((3, 4))
    high = buf(1, 3).reshape((3, 1)).expand((3, 4))
    total = buf(2, 3).reshape((3, 1)).expand((3, 4))
    shifted = UOp(Ops.EXP, (x + high * -1.0,))
    parts = [x.reduce(Ops.MAX, 1), shifted.reduce(Ops.ADD, 1), shifted / total]
    sinks = [rangeify([v], "k") for v in parts]
    fused = fuse(UOp(Ops.SINK, tuple(s for sink in sinks for s in sink.src), "k"))
    assert fused is not None
    return fused


X = data((3, 4)).reshape(-1)


def test_scratch_is_for_what_is_passed_on() -> None:
    sink = softmax_loops()
    expected = run_loops(sink, {0: X})[3]
    assert near_enough(sink, 4 * (4 + 1 + 1 + 4))
    assert not near_enough(sink, 4 * (4 + 1 + 1 + 4) - 1)
    after = in_scratch(sink, [1, 2], 64)
    assert {b.arg.slot for b in touched(after)} == {0, 3}
    assert run_loops(after, {0: X})[3].tolist() == expected.tolist()
    assert in_scratch(sink, [1, 2], 3) is sink
    assert in_scratch(sink, [], 64) is sink


def test_equal_values_are_kept_where_that_pays() -> None:
    sink = softmax_loops()
    expected = run_loops(sink, {0: X})[3]
    after = Keep(8, 64).apply(sink)
    exps = [u for u in toposort([after]) if u.op is Ops.EXP]
    assert len(exps) == 1
    assert len(parts_of(after.src[0].src[1:])) == 4
    assert run_loops(after, {0: X})[3].tolist() == expected.tolist()
    first, *others = Keep(8, 64).gains(sink)
    assert str(first).startswith("exp for 2 parts: 0.64 ns of work, 0.12 ns of traffic")
    assert first.gain > 0
    assert all(other.gain < 0 for other in others)
    assert Keep(8, 15).apply(sink) is sink  # no room
    assert Keep(1000, 64).apply(sink) is sink  # so many at once that it costs nothing


def test_a_value_is_not_kept_beyond_what_it_reads() -> None:
    """The second part writes over what the third one reads."""
    x = buf(0, 12).reshape((3, 4))
    first = rangeify([UOp(Ops.EXP, (x,)).reduce(Ops.ADD, 1)], "k").src
    row, column, *_ = (u for u in toposort(first) if u.op is Ops.RANGE)
    at = row * 4 + column
    own, out = buf(0, 12), buf(9, 12)
    twice = UOp(Ops.STORE, (own, at, UOp(Ops.INDEX, (own, at)) * 2.0))
    last = UOp(Ops.STORE, (out, at, UOp(Ops.EXP, (UOp(Ops.INDEX, (own, at)),))))
    nests = [UOp(Ops.END, (row, UOp(Ops.END, (column, s)))) for s in (twice, last)]
    fused = fuse(UOp(Ops.SINK, (*first, *nests), "k"))
    assert fused is not None
    assert Keep(8, 1 << 20).apply(fused) is fused


@pytest.mark.parametrize("rows", [16, 64])
def test_parts_get_schedules_of_their_own(rows: int, monkeypatch) -> None:
    monkeypatch.setattr(model, "PAYS_NS", 50)
    monkeypatch.setattr(model, "ROUND_NS", 10)
    x = buf(0, rows * 40).reshape((rows, 40))
    high = buf(1, rows).reshape((rows, 1)).expand((rows, 40))
    sinks = [rangeify([v], "k") for v in (x.reduce(Ops.MAX, 1), x * high)]
    sink = fuse(UOp(Ops.SINK, tuple(s for sink in sinks for s in sink.src), "k"))
    assert sink is not None
    given = {0: data((rows, 40)).reshape(-1)}
    expected = run_loops(sink, given)
    steps = choose_schedule(sink, TARGET)
    names = [str(s).partition("(")[0] for s in steps]
    assert names == ["rows", "parallel", "simplify"]
    got = run_loops(apply_schedule(sink, steps), given)
    for slot, array in expected.items():
        assert got[slot].tolist() == array.tolist()

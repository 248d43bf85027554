"""Kernels in one loop nest: which may be, in what order, and what the nest computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.interp import run_loops
from uopc.kernelize import Plan, make_plan
from uopc.rangeify import rangeify
from uopc.runtime import Nest, lower_nest, nests_of, new_buffer, plan_memory
from uopc.schedule.fuse import fuse, without_stores
from uopc.testing import buf, random_graph
from uopc.uop import Ops, UOp, toposort


def vector(n: int = 16) -> UOp:
    return new_buffer(np.arange(n, dtype=np.float32))


def planned(roots: Sequence[UOp], homes: dict[int, UOp] | None = None) -> Plan:
    with overriding(UOPC_OPT=1):
        return make_plan(roots, None, backend="interp", homes=homes)[0]


def joined(plan: Plan) -> list[bool]:
    return [k.joined for k in plan.kernels]


def run_nests(plan: Plan, data: Sequence[Any]) -> list[Any]:
    """The memory of a plan after its nests, each as a plain loop program.

    A nest that stays apart is an error. What is only passed on is NaN.
    """
    memory = [np.array(x) for x in data]
    memory += [np.full(b.size, np.nan, np.float32) for b in plan.buffers[len(data) :]]
    for k in plan.kernels:
        if k.over is not None:
            memory[k.out] = memory[k.over]
    with overriding(UOPC_OPT=1, UOPC_CHECK=3):
        for nest in nests_of(plan.kernels):
            lowered = lower_nest(nest, nest.name)
            assert lowered is not None
            run_nest(nest, lowered.sink, memory)
    return memory


def run_nest(nest: Nest, sink: UOp, memory: Sequence[Any]) -> None:
    """One nest of a plan on its memory, as a loop program."""
    nodes = toposort([sink])
    written = {u.src[0] for u in nodes if u.op is Ops.STORE}
    place = {
        b.arg.slot: nest.buffer(b.arg.slot, b in written)
        for b in nodes
        if b.op is Ops.BUFFER and b.arg.space == "global"
    }
    # So that pointers to them are `restrict`.
    assert len({id(memory[b]) for b in place.values()}) == len(place)
    given = {slot: memory[b] for slot, b in place.items()}
    for slot, array in run_loops(sink, given).items():
        memory[place[slot]][:] = array


def moments(
    p: UOp, m: UOp, v: UOp, g: UOp, rate: UOp | float = 0.5
) -> tuple[list[UOp], dict[int, UOp]]:
    """What an optimizer computes of one parameter, and where it goes."""
    new_m = m * 0.9 + g * 0.1
    new_v = v * 0.99 + g * g * 0.01
    # Materialized, as a state is: else they would be computed twice.
    stages = [UOp(Ops.STAGE, (u,), "contiguous") for u in (new_m, new_v)]
    new_p = p - stages[0] * rate / (stages[1].sqrt() + 1.0)
    return [*stages, new_p], {0: m, 1: v, 2: p}


def test_an_update_in_place_is_one_nest() -> None:
    p, m, v, g = (vector() for _ in range(4))
    roots, homes = moments(p, m, v, g)
    plan = planned(roots, homes)
    assert joined(plan) == [False, True, True]
    assert all(k.over is not None for k in plan.kernels)
    (nest,) = nests_of(plan.kernels)
    assert nest.name == "e_16_x3"
    data = [np.linspace(0, 1 + i, 16, dtype=np.float32) for i in range(4)]
    got = run_nests(plan, data)
    order = {b: i for i, b in enumerate(make_inputs(roots, homes))}
    x = {name: data[order[b]] for name, b in zip("pmvg", (p, m, v, g), strict=True)}
    new_m = x["m"] * np.float32(0.9) + x["g"] * np.float32(0.1)
    new_v = x["v"] * np.float32(0.99) + x["g"] ** 2 * np.float32(0.01)
    new_p = x["p"] - new_m * np.float32(0.5) / (np.sqrt(new_v) + 1)
    for out, expected in zip(plan.outputs, (new_m, new_v, new_p), strict=True):
        np.testing.assert_allclose(got[out], expected, rtol=1e-6)


def make_inputs(roots: Sequence[UOp], homes: dict[int, UOp]) -> list[UOp]:
    with overriding(UOPC_OPT=1):
        return make_plan(roots, None, backend="interp", homes=homes)[1]


def test_level_zero_joins_nothing() -> None:
    roots, homes = moments(*(vector() for _ in range(4)))
    with overriding(UOPC_OPT=0):
        plan, _ = make_plan(roots, None, backend="interp", homes=homes)
        assert not any(joined(plan))
        assert len(nests_of(planned(roots, homes).kernels)) == 3


def test_an_old_value_and_the_new_one_are_in_one_place() -> None:
    p, g = vector(), vector()
    plan = planned([p + g, p * g], {1: p})
    assert joined(plan) == [False, True]
    data = [np.linspace(1, 2 + i, 16, dtype=np.float32) for i in range(2)]
    got = run_nests(plan, data)
    assert got[plan.outputs[0]].tolist() == (data[0] + data[1]).tolist()
    assert got[plan.outputs[1]].tolist() == (data[0] * data[1]).tolist()


def test_a_value_that_reads_what_is_replaced_stays_in_memory() -> None:
    """Three kernels read it, the first one writes over what it was made of."""
    t = vector(24)
    e = UOp(Ops.STAGE, (UOp(Ops.EXP, (t * 0.125,)),), "contiguous")
    plan = planned([e * 2.0, e + 1.0, e * e - 2.0], {0: t})
    assert joined(plan) == [False, True, True, True]
    data = [np.linspace(0, 8, 24, dtype=np.float32)]
    got = run_nests(plan, data)
    made = np.exp(data[0] * np.float32(0.125))
    expected = (made * 2, made + 1, made * made - 2)
    for out, right in zip(plan.outputs, expected, strict=True):
        np.testing.assert_allclose(got[out], right, rtol=1e-6)


def test_equal_nests_are_one_program() -> None:
    first, homes = moments(*(vector() for _ in range(4)))
    second, more = moments(*(vector() for _ in range(4)))
    plan = planned([*first, *second], homes | {i + 3: b for i, b in more.items()})
    assert sum(joined(plan)) == 4
    a, b = nests_of(plan.kernels)
    assert a.key == b.key
    assert a.kernels != b.kernels


def test_kernels_between_are_moved_over() -> None:
    """A sum needs the old value, so the updates wait for it, and for each other."""
    p, m, g = (vector(64) for _ in range(3))
    new_m = UOp(Ops.STAGE, (m * 0.9 + g,), "contiguous")
    roots = [new_m, (p * p).reduce(Ops.ADD, 1), p - new_m]
    plan = planned(roots, {0: m, 2: p})
    assert [k.name for k in plan.kernels] == ["r", "e_64", "e_64"]
    assert joined(plan) == [False, False, True]
    data = [np.linspace(0, 1 + i, 64, dtype=np.float32) for i in range(3)]
    assert np.isfinite(run_nests(plan, data)[plan.outputs[2]]).all()


def other_places() -> tuple[list[UOp], dict[int, UOp]]:
    """The second kernel reads what the first one makes, from the other end."""
    x, y = vector(), vector()
    made = UOp(Ops.STAGE, (x * y,), "contiguous")
    return [made, made.reshape((16,)).flip((0,)) + x], {}


def old_values() -> tuple[list[UOp], dict[int, UOp]]:
    """The first kernel reads from the other end what the second one replaces."""
    x, y = vector(), vector()
    return [x.flip((0,)) + y, x + y], {1: x}


def nothing_shared() -> tuple[list[UOp], dict[int, UOp]]:
    return [vector() + 1.0, vector() * 2.0], {}


def transposed() -> tuple[list[UOp], dict[int, UOp]]:
    x = vector().reshape((4, 4))
    return [x + 1.0, x.permute((1, 0)) * 2.0], {}


def columns() -> tuple[list[UOp], dict[int, UOp]]:
    x = vector().reshape((4, 4))
    return [x.permute((1, 0)).reduce(op, 1) for op in (Ops.ADD, Ops.MAX)], {}


def needed_between() -> tuple[list[UOp], dict[int, UOp]]:
    """A sum reads what the first kernel makes and what the last one writes over."""
    p, m, g = (vector() for _ in range(3))
    new_m = UOp(Ops.STAGE, (m * 0.9 + g,), "contiguous")
    return [new_m, (p * new_m).reduce(Ops.ADD, 1), p - new_m], {0: m, 2: p}


def kept_for_longer() -> tuple[list[UOp], dict[int, UOp]]:
    """If one elementwise kernel waited for the other, what it reads would, too."""
    p, y = vector(), vector()
    sums = vector(64).reshape((4, 16)).permute((1, 0)).reduce(Ops.ADD, 1)
    made = UOp(Ops.STAGE, (sums,), "contiguous").reshape((16,)) * y
    made = UOp(Ops.STAGE, (made,), "contiguous")
    return [made, (p * p).reduce(Ops.ADD, 1), p - made], {2: p}


@pytest.mark.parametrize(
    ("case", "kernels"),
    [
        (other_places, 2),
        (old_values, 2),
        (nothing_shared, 2),
        (transposed, 2),
        (columns, 2),
        (needed_between, 3),
        (kept_for_longer, 4),
    ],
)
def test_these_stay_apart(case: Any, kernels: int) -> None:
    roots, homes = case()
    plan = planned(roots, homes)
    assert joined(plan) == [False] * kernels


def test_what_nobody_reads_is_not_passed_on() -> None:
    """An array without elements has copies of a sum, which is computed for it."""
    total = vector().reduce(Ops.ADD, 1).sin()
    copies = total.reshape((1, 1)).expand((2, 0))
    plan = planned([copies + copies.sin()])
    assert [(k.name, k.passing) for k in plan.kernels] == [("r", False)]


def test_a_temporary_is_kept_no_longer() -> None:
    """Joined, the first and the last would hold all three of them at once."""
    x = vector(1024)
    wave = x
    for _ in range(6):
        wave = UOp(Ops.STAGE, (wave.sin(),), "contiguous")
    roots = [wave.reduce(Ops.ADD, 1)]
    with overriding(UOPC_OPT=0):
        plain, _ = make_plan(roots, None, backend="interp")
    plan = planned(roots)
    assert plan_memory(plan).live_bytes <= plan_memory(plain).live_bytes


def test_what_a_nest_touches_has_memory_of_its_own() -> None:
    """The sum that one kernel reads last is no place for what the next one makes."""
    x = vector(64)
    total = UOp(Ops.STAGE, (x.reduce(Ops.ADD, 1),), "contiguous")
    a = UOp(Ops.STAGE, (x * total.reshape((1,)).expand((64,)),), "contiguous")
    b = UOp(Ops.STAGE, (a + x,), "contiguous")
    plan = planned([a, b.reduce(Ops.MAX, 1), b.flip((0,)).reduce(Ops.ADD, 1)])
    (nest,) = (n for n in nests_of(plan.kernels) if len(n.kernels) > 1)
    offsets = plan_memory(plan).offsets
    touched = {i for k in nest.kernels for i in (*k.args, k.out) if i in offsets}
    assert len(touched) == 2
    low, high = sorted(touched, key=lambda i: offsets[i])
    assert offsets[low] + plan.buffers[low].nbytes <= offsets[high]


def test_nests_of_random_plans_compute_what_their_kernels_do() -> None:
    found = 0
    for seed in range(60):
        graph = random_graph(seed)
        with overriding(UOPC_OPT=1):
            plan, _ = make_plan(graph.roots)
        for nest in nests_of(plan.kernels):
            if len(nest.kernels) == 1:
                continue
            with overriding(UOPC_OPT=1, UOPC_CHECK=3):
                found += lower_nest(nest, nest.name) is not None
    assert found


# -- the loops ----------------------------------------------------------------


def program(*values: UOp) -> UOp:
    """Loop nests in turn; what one stores has the next free number for those after."""
    sinks = [rangeify([v], "k") for v in values]
    return UOp(Ops.SINK, tuple(s for sink in sinks for s in sink.src), "k")


def outputs(sink: UOp, *inputs: Any) -> list[list[float]]:
    found = run_loops(sink, dict(enumerate(inputs)))
    return [found[slot].tolist() for slot in sorted(found)]


X = np.arange(12, dtype=np.float32)


def test_values_are_passed_on() -> None:
    x = buf(0, 12).reshape((3, 4))
    made = buf(1, 12).reshape((3, 4))
    before = program(x * 2.0, made + x)
    after = fuse(before)
    assert after is not None
    assert len(after.src) == 1
    assert outputs(after, X) == outputs(before, X)
    read = {u.src[0].arg.slot for u in toposort([after]) if u.op is Ops.INDEX}
    assert read == {0}
    assert outputs(without_stores(after, [1]), X) == outputs(before, X)[1:]


def test_what_is_written_over_is_read_from_memory() -> None:
    """``a`` is 2 a, then ``b`` is a + 1: of the new ``a``, which is in its place."""
    at = UOp(Ops.RANGE, (), (0, 12, program(buf(0, 2)).src[0].src[0].dtype))
    a, b = buf(0, 12), buf(1, 12)
    old = UOp(Ops.INDEX, (a, at))
    first = UOp(Ops.END, (at, UOp(Ops.STORE, (a, at, old * 2.0))))
    second = UOp(Ops.END, (at, UOp(Ops.STORE, (b, at, old + 1.0))))
    before = UOp(Ops.SINK, (first, second), "k")
    after = fuse(before)
    assert after is not None
    assert outputs(after, X) == [(2 * X).tolist(), (2 * X + 1).tolist()]
    assert without_stores(after, [0]) is after


def test_a_value_is_passed_on_until_what_it_reads_is_written_over() -> None:
    """``b`` is 2 a, then ``a`` is a + 1, then ``c`` is b + 1."""
    at = UOp(Ops.RANGE, (), (0, 12, program(buf(0, 2)).src[0].src[0].dtype))
    a, b, c = (buf(i, 12) for i in range(3))
    values = (
        (b, UOp(Ops.INDEX, (a, at)) * 2.0),
        (a, UOp(Ops.INDEX, (a, at)) + 1.0),
        (c, UOp(Ops.INDEX, (b, at)) + 1.0),
    )
    ends = (UOp(Ops.END, (at, UOp(Ops.STORE, (to, at, x)))) for to, x in values)
    after = fuse(UOp(Ops.SINK, tuple(ends), "k"))
    assert after is not None
    expected = [X + 1, 2 * X, 2 * X + 1]
    assert outputs(after, X) == [x.tolist() for x in expected]


def test_rows_may_have_loops_of_their_own() -> None:
    """A sum of each row, and the row divided by it."""
    x = buf(0, 12).reshape((3, 4))
    total = buf(1, 3).reshape((3, 1)).expand((3, 4))
    before = program(x.reduce(Ops.ADD, 1), x * total)
    after = fuse(before)
    assert after is not None
    (row,) = after.src
    assert [s.op for s in row.src[1:]] == [Ops.STORE, Ops.END, Ops.STORE, Ops.END]
    assert outputs(after, X) == outputs(before, X)
    numbers = [u.arg.number for u in toposort([after]) if u.op is Ops.RANGE]
    assert len(set(numbers)) == 3


@pytest.mark.parametrize(
    "second",
    [
        buf(1, 12).flip((0,)).reshape((3, 4)),
        buf(1, 12).reshape((4, 3)).permute((1, 0)).shrink(((0, 3), (0, 4))),
        buf(0, 12) * 2.0,
        buf(0, 8).reshape((2, 4)),
    ],
    ids=["from the end", "transposed", "another shape", "fewer rows"],
)
def test_other_elements_or_other_loops_stay_apart(second: UOp) -> None:
    x = buf(0, 12).reshape((3, 4))
    assert fuse(program(x * 2.0, second + 1.0)) is None


def test_one_place_for_all_rounds_stays_apart() -> None:
    """Each round writes the same element, which the second nest reads at the end."""
    at = UOp(Ops.RANGE, (), (0, 12, program(buf(0, 2)).src[0].src[0].dtype))
    zero = at.const_like(0)
    a, b, x = buf(1, 1), buf(2, 12), buf(0, 12)
    first = UOp(Ops.STORE, (a, zero, UOp(Ops.INDEX, (x, at))))
    second = UOp(Ops.STORE, (b, at, UOp(Ops.INDEX, (a, zero))))
    ends = (UOp(Ops.END, (at, first)), UOp(Ops.END, (at, second)))
    assert fuse(UOp(Ops.SINK, ends, "k")) is None
    assert fuse(UOp(Ops.SINK, ends[:1], "k")) is None

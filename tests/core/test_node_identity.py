"""Structurally equal nodes are one object, for as long as somebody holds it."""

from __future__ import annotations

import gc
import math
import sys
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from uopc.dtype import boolean, f32, f64, i8, i32, i64, u8
from uopc.uop import BufferArg, Literal, Ops, UOp, live_nodes, toposort
from uopc.uop import node as node_module


def x(n: int = 6) -> UOp:
    return UOp.buffer(n, f32, 0)


FIVE = [(1, i32), (1.0, f32), (True, boolean), (0.0, f32), (-0.0, f32)]


def test_five_constants_are_five_nodes() -> None:
    nodes = [UOp.const(v, d) for v, d in FIVE]
    assert len(set(nodes)) == 5
    for u, (value, dtype) in zip(nodes, FIVE, strict=True):
        assert u is UOp.const(value, dtype)
        assert u.dtype is dtype
        assert type(u.value) is type(value)
        assert u.value == value
        assert math.copysign(1, u.value) == math.copysign(1, value)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_there_is_one_nan_and_one_of_each_infinity(dtype) -> None:
    odd_nan = np.array([0x7FC12345], "u4").view("f4")[0]
    nans = [math.nan, -math.nan, float("nan"), np.float32("nan"), odd_nan]
    assert len({UOp.const(v, dtype) for v in nans}) == 1
    assert math.isnan(UOp.const(math.nan, dtype).value)
    plus, minus = UOp.const(math.inf, dtype), UOp.const(-math.inf, dtype)
    assert plus is not minus
    assert plus is UOp.const(np.float64("inf"), dtype)
    assert (plus.value, minus.value) == (math.inf, -math.inf)


def test_a_constant_is_rounded_to_its_type() -> None:
    assert UOp.const(0.1, f32) is UOp.const(float(np.float32(0.1)), f32)
    assert UOp.const(0.1, f32).value == float(np.float32(0.1))
    assert UOp.const(1e300, f32) is UOp.const(math.inf, f32)
    assert UOp.const(1e-60, f32) is UOp.const(0.0, f32)
    assert UOp.const(2**24 + 1, f32).value == 2**24


@pytest.mark.parametrize(
    ("value", "dtype", "error"),
    [
        (128, i8, OverflowError),
        (-129, i8, OverflowError),
        (-1, u8, OverflowError),
        (2**63, i64, OverflowError),
        (math.inf, i32, OverflowError),
        (0.5, i32, TypeError),
        (math.nan, i32, ValueError),
    ],
)
def test_a_constant_that_its_type_cannot_hold_is_an_error(value, dtype, error) -> None:
    with pytest.raises(error):
        UOp.const(value, dtype)


def test_an_overflow_names_the_number_and_the_range() -> None:
    with pytest.raises(OverflowError, match=r"300 does not fit u8 \(0 to 255\)"):
        UOp.const(300, u8)


# Each pair of builders must give one node: what NumPy hands over is normalised.
TWINS: dict[str, tuple[Callable[[], UOp], Callable[[], UOp]]] = {
    "const": (lambda: UOp.const(3, i32), lambda: UOp.const(np.int64(3), i32)),
    "const float": (
        lambda: UOp.const(0.5, f32), lambda: UOp.const(np.float64(0.5), f32)),
    "const bool": (
        lambda: UOp.const(True, boolean), lambda: UOp.const(np.True_, boolean)),
    "buffer": (lambda: UOp.buffer(917, f32, 3),
               lambda: UOp.buffer(np.int64(917), f32, np.uint8(3))),
    "param": (lambda: UOp.param(5, f32, (917, 2)),
              lambda: UOp.param(np.int8(5), f32, np.array([917, 2]))),
    "iota": (lambda: UOp(Ops.IOTA, (), 917),
             lambda: UOp(Ops.IOTA, (), np.int32(917))),
    "reshape": (lambda: x().reshape((3, 2)), lambda: x().reshape(np.array([3, 2]))),
    "reshape ones": (lambda: x(1).reshape((1, 1)), lambda: x(1).reshape((True, True))),
    "expand": (lambda: x(1).expand((917,)), lambda: x(1).expand([np.int16(917)])),
    "permute": (lambda: x().reshape((3, 2)).permute((1, 0)),
                lambda: x().reshape((3, 2)).permute(np.array([1, 0]))),
    "shrink": (lambda: x().shrink([(1, 5)]), lambda: x().shrink(np.array([[1, 5]]))),
    "flip": (lambda: UOp(Ops.FLIP, (x(),), (0,)),
             lambda: UOp(Ops.FLIP, (x(),), (np.int64(0),))),
    "reduce": (lambda: x().reduce(Ops.ADD, 1),
               lambda: x().reduce(Ops.ADD, np.int64(1))),
    "index": (lambda: x().index(4), lambda: x().index(np.int64(4))),
    "range": (lambda: UOp(Ops.RANGE, (), (1, 917, i32)),
              lambda: UOp(Ops.RANGE, (), (np.int64(1), np.int64(917), i32))),
}  # fmt: skip


def plain(value: object) -> bool:
    """Whether every number inside is one of Python's own, not NumPy's or a bool."""
    if isinstance(value, tuple):
        return all(map(plain, value))
    return not isinstance(value, (np.generic, bool))


@pytest.fixture(scope="module")
def little_to_collect() -> None:
    """What other tests left alive is not scanned again for each of these."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("little_to_collect")
@pytest.mark.parametrize("first", [0, 1], ids=["python first", "numpy first"])
@pytest.mark.parametrize("name", TWINS)
def test_numpy_scalars_in_arguments_are_normalised(name: str, first: int) -> None:
    gc.collect()  # so that the node is really made by the builder that comes first
    one, other = TWINS[name][first](), TWINS[name][1 - first]()
    assert one is other
    assert plain(one.arg)
    assert all(type(n) is int for n in one.shape)


def test_leaves_differ_by_every_part_of_their_argument() -> None:
    base = (4, f32, 0, 0, "global")
    others = [(5, *base[1:]), (4, f64, *base[2:]), (4, f32, 1, 0, "global"),
              (4, f32, 0, 1, "global"), (4, f32, 0, 0, "local")]  # fmt: skip
    assert len({UOp(Ops.BUFFER, (), a) for a in (base, *others)}) == 6


def test_arguments_of_several_fields_have_names_and_equal_plain_tuples() -> None:
    local = UOp(Ops.BUFFER, (), (3, f64, 8, 2, "local"))
    assert local.arg == (3, f64, 8, 2, "local")
    assert UOp(Ops.BUFFER, (), BufferArg(3, f64, 8, 2, "local")) is local
    assert (local.arg.size, local.arg.slot, local.arg.space) == (3, 8, "local")
    param = UOp(Ops.PARAM, (), (41, f32, (2, 3)))
    assert (param.arg.slot, param.arg.shape) == (41, (2, 3))
    loop = UOp(Ops.RANGE, (), (9, 37, i64))
    assert (loop.arg.number, loop.arg.extent, loop.arg.dtype) == (9, 37, i64)
    total = x().reduce(Ops.MAX, 1)
    assert (total.arg.op, total.arg.n) == (Ops.MAX, 1)
    assert UOp(Ops.REDUCE, (x(),), (Ops.MAX, 1)) is total


def test_constructors_never_simplify() -> None:
    u = x()
    assert u.reshape((6,)).op is Ops.RESHAPE
    assert u.reshape((2, 3)).reshape((6,)).src[0].op is Ops.RESHAPE
    assert (u + 0.0).op is Ops.ADD
    assert (u * 1.0).op is Ops.MUL
    assert (u * -1.0 * -1.0).op is Ops.MUL
    assert UOp(Ops.CAST, (u,), f32).op is Ops.CAST
    assert u.permute((0,)) is not u


def test_nodes_are_immutable() -> None:
    u = x() + 1.0
    for name in ("op", "src", "arg", "shape", "dtype", "anything"):
        with pytest.raises(AttributeError, match=f"immutable; cannot set '{name}'"):
            setattr(u, name, None)
    with pytest.raises(AttributeError, match="immutable; cannot delete 'src'"):
        del u.src
    assert u is x() + 1.0


def test_a_node_has_no_truth_value_and_no_length() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(x() < 1.0)
    with pytest.raises(TypeError, match="not iterable"):
        list(x())
    with pytest.raises(TypeError):
        len(x())


def test_unreferenced_nodes_are_freed() -> None:
    gc.collect()
    before = live_nodes()
    u = x(12345)
    for _ in range(50):
        u = (u + 1.0) * u
    watch = weakref.ref(u)
    assert live_nodes() >= before + 100
    del u
    gc.collect()
    assert watch() is None
    assert live_nodes() <= before
    # What comes back is a new object under the old key.
    assert (x(12345) + 1.0).shape == (12345,)


def test_sharing_keeps_a_graph_small() -> None:
    u = x()
    for _ in range(60):
        u = u + u
    assert len(toposort([u])) == 61


def test_a_literal_is_its_bits() -> None:
    assert Literal.of(-0.0, f32).bits == 0x80000000
    assert Literal.of(1.0, f64).bits == 0x3FF0000000000000
    assert Literal.of(-1, i8) == Literal(i8, 0xFF)
    assert Literal.of(True, boolean) == Literal(boolean, 1)
    assert [Literal.of(v, boolean).value for v in (2, 0.5, 0, -0.0)] == [
        True, True, False, False]  # fmt: skip


def test_threads_that_build_the_same_graph_get_the_same_objects() -> None:
    workers, rounds = 8, 60
    barrier = threading.Barrier(workers, timeout=20)
    results: list[list[UOp]] = [[] for _ in range(workers)]

    def build(mine: list[UOp]) -> None:
        for k in range(rounds):
            barrier.wait()  # all at once, over a key that nobody has yet
            u = UOp.buffer(1000 + k, f32, 7)
            for j in range(20):
                u = (u + float(j)) * u
            mine.append(u)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=build, args=(r,)) for r in results]
        for t in threads:
            t.start()
        for t in threads:
            t.join(30)
    finally:
        sys.setswitchinterval(interval)
    for k in range(rounds):
        assert len({r[k] for r in results}) == 1
    roots = results[0]
    assert len({(u.op, u.src, u.arg) for u in toposort(roots)}) == len(toposort(roots))


class _Pausing(dict):
    """An intern table that lets another thread act between a look and a removal."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.between: Callable[[], None] | None = None

    def get(self, key: object, default: object = None) -> object:
        found = super().get(key, default)
        act, self.between = self.between, None
        if act is not None:
            act()
        return found


def test_forgetting_a_dead_node_spares_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = _Pausing(node_module._table)
    monkeypatch.setattr(node_module, "_table", table)
    old = UOp.buffer(4321, f32, 9)
    key = (old.op, old.src, old.arg)
    entry = table[key]
    del old  # forgotten: the entry is gone
    table[key] = entry  # as it was, just before a second look at it
    made: list[UOp] = []
    thread = threading.Thread(target=lambda: made.append(UOp.buffer(4321, f32, 9)))

    def rival() -> None:
        thread.start()
        thread.join(0.2)  # either done, or waiting for its turn

    table.between = rival
    node_module._forget(entry)
    thread.join(10)
    assert UOp.buffer(4321, f32, 9) is made[0]


@pytest.mark.parametrize(
    "arg", [Literal(f32, 1.5), Literal(i8, 300), Literal(i8, -1), 3, x()], ids=repr
)
def test_a_constant_has_the_bits_of_its_type(arg) -> None:
    with pytest.raises(TypeError, match=r"const.*expected a Literal"):
        UOp(Ops.CONST, (), arg)


NOT_LENGTHS = {
    "reshape": lambda u, two: u.reshape((two, 3)),
    "shrink": lambda u, two: u.shrink([(0, two)]),
    "expand": lambda u, two: u.reshape((6, 1)).expand((6, two)),
    "reduce": lambda u, two: UOp(Ops.REDUCE, (u.reshape((2, 3)),), (Ops.ADD, two)),
    "iota": lambda u, two: UOp(Ops.IOTA, (), two),
    "buffer": lambda u, two: UOp(Ops.BUFFER, (), (two, f32, 0, 0, "global")),
}


@pytest.mark.parametrize("name", NOT_LENGTHS)
def test_what_equals_an_integer_is_none_although_a_node_has_that(name: str) -> None:
    build, u = NOT_LENGTHS[name], x()
    alive = build(u, 2)
    with pytest.raises(TypeError, match="integer"):
        build(u, 2.0)
    assert build(u, np.int64(2)) is alive

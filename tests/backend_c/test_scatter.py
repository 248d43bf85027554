"""SCATTER_ADD: its loops, and in C every type, repeated indices, nothing outside."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import DTYPES, DType, bf16, boolean, f16, f32, i8, i32, i64, u8
from uopc.interp import evaluate, run_loops
from uopc.kernelize import make_plan
from uopc.rangeify import rangeify
from uopc.runtime import backend_named, lower, new_buffer, realize
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]
INDEX_TYPES = [d for d in DTYPES.values() if d.is_int]
SUMMED = [d for d in DTYPES.values() if d is not boolean]


def leaf(array: Array, dtype: DType | None = None) -> UOp:
    flat = np.asarray(array).reshape(-1).copy()
    stored = flat if dtype is None else dtype.store(flat)
    return new_buffer(stored, dtype).reshape(np.shape(array))


def scatter(g: UOp, lengths: tuple[int, ...], *idx: UOp) -> UOp:
    return UOp(Ops.SCATTER_ADD, (g, *idx), lengths)


def run(roots: Sequence[UOp], opt: int = 1, backend: str = "c") -> list[Array]:
    with overriding(UOPC_OPT=opt):
        flat = realize(list(roots), None, backend_named(backend))
    return [r.dtype.load(x).reshape(r.shape) for x, r in zip(flat, roots, strict=True)]


def in_order(g: Array, lengths: tuple[int, ...], *idx: Array) -> Array:
    """What is meant: from zeros on, one position after the other."""
    at = idx[0].shape
    out = np.zeros((*lengths, *g.shape[len(at) :]), g.dtype)
    for place in np.ndindex(at):
        to = tuple(int(i[place]) for i in idx)
        if all(0 <= t < n for t, n in zip(to, lengths, strict=True)):
            out[to] = out[to] + g[place]
    return out


def same_bits(got: Array, want: Array) -> None:
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def everywhere(roots: Sequence[UOp], expected: Sequence[Array]) -> None:
    """The same bits at both levels and on the reference backend."""
    for opt, backend in ((0, "c"), (1, "c"), (1, "interp")):
        for got, want in zip(run(roots, opt, backend), expected, strict=True):
            same_bits(got, want)


def numbers(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Array:
    """Of sizes so different that the order of a sum shows."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 5, shape)
    return np.asarray(x, dtype)


@pytest.mark.parametrize("at", [(), (1,), (300,), (20, 15)], ids=str)
def test_sums_are_in_the_order_of_the_index(at: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    roots, expected = [], []
    for rest in ((), (1,), (5,), (2, 3)):
        for lengths in ((1,), (7,), (3, 4)):
            g = numbers((*at, *rest))
            idx = [rng.integers(-1, n + 1, at).astype(np.int32) for n in lengths]
            roots.append(scatter(leaf(g), lengths, *map(leaf, idx)))
            expected.append(in_order(g, lengths, *idx))
    everywhere(roots, expected)


def test_the_order_shows() -> None:
    """The data above would tell another order."""
    g, idx = numbers((300,)), np.zeros(300, np.int32)
    forth = in_order(g, (1,), idx)
    assert forth != in_order(g[::-1], (1,), idx)
    assert forth != g.sum()


@pytest.mark.parametrize("opt", [0, 1])
def test_every_index_type_and_length(opt: int) -> None:
    rows = (1, 127, 128, 129, 255, 256, 257)
    near = {n + d for n in (0, *rows) for d in (-2, -1, 0, 1)} | {2**31, 2**32 + 1}
    roots, expected = [], []
    for dtype in INDEX_TYPES:
        ends = {dtype.min, dtype.min + 1, dtype.max - 1, dtype.max}
        fits = sorted(v for v in near | ends if dtype.min <= v <= dtype.max)
        idx = np.array([*fits, *fits[::-1]], dtype.numpy)
        g = np.arange(1, len(idx) + 1, dtype=np.float32)
        for n in rows:
            roots.append(scatter(leaf(g), (n,), leaf(idx)))
            expected.append(in_order(g, (n,), idx))
    for got, want in zip(run(roots, opt), expected, strict=True):
        same_bits(got, want)


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_every_type_of_data(dtype: DType) -> None:
    rng = np.random.default_rng(2)
    g = (rng.integers(0, 100, (64, 3)) / (8 if dtype.is_float else 1)).astype(
        dtype.numpy
    )
    idx = rng.integers(-1, 4, 64).astype(np.int32)
    root = scatter(leaf(g, dtype), (3,), leaf(idx))
    wide = g.astype(np.float32) if dtype.is_half else g
    want = dtype.round(in_order(wide, (3,), idx)) if dtype.is_float else None
    everywhere([root], [in_order(g, (3,), idx) if want is None else want])


def test_half_types_are_summed_in_f32_and_rounded_once() -> None:
    zeros = leaf(np.zeros(4096, np.int32))
    for dtype in (f16, bf16):
        ones = leaf(np.ones(4096, dtype.numpy), dtype)
        everywhere([scatter(ones, (2,), zeros)], [np.array([4096, 0], dtype.numpy)])


def test_integers_wrap() -> None:
    g, idx = leaf(np.full(3, 100, np.int8)), leaf(np.zeros(3, np.int32))
    everywhere([scatter(g, (1,), idx)], [np.array([44], np.int8)])
    assert scatter(g, (1,), idx).dtype is i8


def test_special_values_stay_where_they_are_put() -> None:
    """What is out of range adds nothing, a NaN neither; a sum is never -0.0."""
    g = np.array([np.nan, np.inf, -0.0, np.inf, -np.inf, np.nan, 1.0], np.float32)
    idx = np.array([-1, 9, 1, 2, 3, 4, 0], np.int32)
    want = np.array([1.0, 0.0, np.inf, -np.inf, np.nan], np.float32)
    everywhere([scatter(leaf(g), (5,), leaf(idx))], [want])


def test_nothing_to_add_and_nowhere_to_put_it() -> None:
    none = leaf(np.zeros((0, 3), np.float32))
    some, where = leaf(np.ones((2, 3), np.float32)), leaf(np.array([0, 1], np.int32))
    no_places = leaf(np.zeros((0,), np.int32))
    roots = [
        scatter(none, (4,), no_places),
        scatter(some, (0,), where),
        scatter(some.shrink([(0, 2), (1, 1)]), (4,), where),
        scatter(none, (2,), no_places) + 1.0,
        scatter(some, (2, 0), where, where),
    ]
    shapes = [(4, 3), (0, 3), (4, 0), (2, 3), (2, 0, 3)]
    everywhere(roots, [np.full(s, i == 3, np.float32) for i, s in enumerate(shapes)])
    for u in roots[:3]:
        sink = rangeify([u], "k")
        assert sum(x.size for x in run_loops(sink, {}).values()) == np.prod(u.shape)


# -- what goes in and what comes out ------------------------------------------


def test_sources_and_indices_are_expressions() -> None:
    rng = np.random.default_rng(4)
    x, table = numbers((6, 4)), rng.integers(-1, 5, 9).astype(np.int32)
    i = rng.integers(0, 9, 6).astype(np.int32)
    a, t, k = leaf(x), leaf(table), leaf(i)
    turned = a.permute((1, 0)).reshape((6, 4)) * 2.0
    roots = [
        scatter(turned, (5,), t.index(k)),  # an index that is gathered
        scatter(a.index(k % 6), (5,), k + -2),  # what is added is gathered
        scatter(a, (9, 4), k, (k * 7) % 4),
        scatter(a, (2,), (a.reduce(Ops.ADD, 1) < 0.0).cast(u8)),  # a reduction in it
        scatter(a.reduce(Ops.MAX, 1), (5,), t.index(k)),
        scatter(k, (4,), k % 4),  # one node in both places
        scatter(a.exp2().reduce(Ops.ADD, 1), (3,), k % 3),
    ]
    expected = [
        in_order(x.T.reshape(6, 4) * np.float32(2), (5,), table[i]),
        in_order(x[i % 6], (5,), i - 2),
        in_order(x, (9, 4), i, (i * 7) % 4),
        None,
        in_order(x.max(1), (5,), table[i]),
        in_order(i, (4,), i % 4),
        None,
    ]
    for opt, backend in ((0, "c"), (1, "c"), (1, "interp")):
        for got, want, u in zip(run(roots, opt, backend), expected, roots, strict=True):
            if want is not None:
                same_bits(got, want)
            else:
                data = [(x, a), (table, t), (i, k)]
                (value,) = evaluate([u], {n.src[0]: v.reshape(-1) for v, n in data})
                np.testing.assert_allclose(got, value, rtol=1e-5)


def test_results_feed_other_kernels_and_other_scatters() -> None:
    """An update of a table, a scatter of a scatter, and several in one plan."""
    rng = np.random.default_rng(5)
    w, g = numbers((5, 2), seed=1), numbers((8, 2), seed=2)
    i = rng.integers(-1, 6, 8).astype(np.int32)
    j = rng.integers(-1, 4, 5).astype(np.int32)
    table, rows, a, b = map(leaf, (w, g, i, j))
    once = scatter(rows, (5,), a)
    roots = [table + once * -0.5, scatter(once, (4,), b), once.index(a), once]
    first = in_order(g, (5,), i)
    ok = ((i >= 0) & (i < 5))[:, None]
    expected = [
        w + first * np.float32(-0.5),
        in_order(first, (4,), j),
        np.where(ok, first[np.where(ok[:, 0], i, 0)], 0),
        first,
    ]
    everywhere(roots, expected)
    plan, _ = make_plan(roots)
    kinds = [u.op for k in plan.kernels for u in toposort([k.ast])]
    assert kinds.count(Ops.SCATTER_ADD) == 2
    for k in plan.kernels:
        scatters = [u for u in toposort([k.ast]) if u.op is Ops.SCATTER_ADD]
        assert scatters in ([], [k.ast])
        assert k.name.startswith("s_") == bool(scatters)


def test_what_follows_reads_the_result() -> None:
    """Nothing is fused after a scatter, which adds in place."""
    g, i, table = leaf(numbers((6,))), leaf(np.zeros(6, np.int32)), leaf(numbers((4,)))
    plan, _ = make_plan([table + scatter(g, (4,), i) * -0.5])
    assert [k.name for k in plan.kernels] == ["s_4", "e_4"]


def test_a_costly_index_is_computed_once_for_a_row() -> None:
    rows, x = leaf(numbers((6, 64))), leaf(numbers((6,)))
    places = (x.sin() * 2.0 + 2.0).cast(i32)
    plan, _ = make_plan([scatter(rows, (4,), places)])
    assert [k.name for k in plan.kernels] == ["e_6", "s_4_64"]
    plan, _ = make_plan([scatter(rows, (4,), x.cast(i64) % 4)])
    assert [k.name for k in plan.kernels] == ["s_4_64"]


def test_every_run_gives_the_same_bits() -> None:
    g, idx = numbers((4096, 3)), np.random.default_rng(6).integers(0, 5, 4096)
    root = scatter(leaf(g), (5,), leaf(idx.astype(np.int32)))
    first, *others = (run([root])[0].tobytes() for _ in range(5))
    assert {first} == set(others)


# -- its loops ----------------------------------------------------------------


def test_the_loops_fill_and_then_add() -> None:
    g, i = UOp.buffer(12, f32, 0).reshape((4, 3)), UOp.buffer(4, i32, 1)
    sink = rangeify([scatter(g, (5,), i)], "k")
    fill, outer = sink.src
    assert fill.src[0].arg.extent == 15
    assert [s.op for s in fill.src[1:]] == [Ops.STORE]
    assert (outer.src[0].arg.extent, outer.src[1].src[0].arg.extent) == (4, 3)
    hostile = np.array([2**31 - 1, -(2**31), 5, 1], np.int32)
    data = {0: np.arange(12, dtype=np.float32), 1: hostile}
    (out,) = run_loops(sink, data).values()  # raises for a place outside
    want = in_order(data[0].reshape(4, 3), (5,), hostile)
    same_bits(out.reshape(5, 3), want)
    with overriding(UOPC_CHECK=3):
        lower(scatter(g, (5,), i), "k")


def test_inside_a_kernel_it_is_a_reduction_with_the_same_sums() -> None:
    """A plan has none there; who makes loops of a graph himself may."""
    g, i = numbers((40, 2)), np.random.default_rng(7).integers(-1, 4, 40)
    a, b = UOp.buffer(80, f32, 0).reshape((40, 2)), UOp.buffer(40, i64, 1)
    first = scatter(a, (3,), b)
    want = in_order(g, (3,), i)
    data = {0: g.reshape(-1), 1: i}
    cases = {
        first * 2.0: want * np.float32(2),
        scatter(first, (3,), b.shrink([(0, 3)])): in_order(want, (3,), i[:3]),
    }
    for root, value in cases.items():
        (out,) = run_loops(rangeify([root], "k"), data).values()
        same_bits(out.reshape(value.shape), value)
    outputs = run_loops(rangeify([first, a.shrink([(0, 3), (0, 2)])], "k"), data)
    same_bits(outputs[2].reshape(3, 2), want)

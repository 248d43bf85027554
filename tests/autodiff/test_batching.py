"""Batching rules against a Python loop: each op, then random graphs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import NoBatchingRule, batched, batching, gradient
from uopc.autodiff.batching import repeated
from uopc.composite import broadcast_to, iota, one_hot_index
from uopc.dtype import DTYPES, DType, boolean, f32, f64, i32
from uopc.interp import evaluate
from uopc.plugins import PluginHost, PluginWarning, hookimpl, registry, use
from uopc.testing import (
    differences,
    evaluate_bounded,
    op_samples,
    random_graph,
)
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp, cast_array, elementwise, toposort

Array = np.ndarray[Any, Any]
Data = dict[UOp, Array]
N = 3
PURE = [op for op in BUILTIN_OPS if op.kind not in ("loop", "leaf")]


def drawn(u: UOp, shape: Sequence[int], domain: str, seed: int) -> Array:
    """Values for a placeholder; of integers, some that are out of range as indices."""
    rng = np.random.default_rng(seed)
    if not u.dtype.is_float:
        low, high = max(u.dtype.min, -4), min(u.dtype.max, 7)
        return cast_array(rng.integers(low, high, shape, endpoint=True), u.dtype)
    x = rng.standard_normal(shape)
    return cast_array(abs(x) + 0.25 if domain == "positive" else x, u.dtype)


def one(data: Data, whole: Data, b: int) -> Data:
    """The values for one element of the batch."""
    return {**data, **{u: x[b] for u, x in whole.items()}}


def agree(roots: Sequence[UOp], data: Data, whole: Data, n: int) -> None:
    """Batched graphs give what a loop over the elements gives."""
    inputs = {
        u: UOp.param(500 + i, u.dtype, (n, *u.shape)) for i, u in enumerate(whole)
    }
    found = batched(roots, inputs)
    given = {**data, **{inputs[u]: x for u, x in whole.items()}}
    values = evaluate([u for u, _ in found], given)
    loop = [evaluate_bounded(roots, one(data, whole, b)) for b in range(n)]
    for k, (value, (u, has)) in enumerate(zip(values, found, strict=True)):
        root = roots[k]
        assert has == (not whole.keys().isdisjoint(toposort([root])))
        assert u.dtype is root.dtype
        assert value.shape == ((n, *root.shape) if has else root.shape)
        for b in range(n):
            got = value[b] if has else value
            assert not differences(got, loop[b][k]).any(), (root, b, got, loop[b][k])


def on_placeholders(u: UOp, constants: bool) -> UOp:
    """An example of an op with a placeholder for every source, or all but constants."""
    places = [
        s if constants and s.op is Ops.CONST else UOp.param(100 + i, s.dtype, s.shape)
        for i, s in enumerate(u.src)
    ]
    return u.with_src(tuple(places))


def examples(op: OpDef, dtype: DType) -> Iterator[UOp]:
    for u in op_samples(op, dtype):
        whole = on_placeholders(u, constants=False)
        yield whole
        other = on_placeholders(u, constants=True)
        if other is not whole:
            yield other


def subsets(places: Sequence[UOp]) -> Iterator[tuple[UOp, ...]]:
    for k in range(1, len(places) + 1):
        yield from itertools.combinations(places, k)


@pytest.mark.parametrize("op", PURE, ids=str)
def test_an_op_over_a_batch_of_any_of_its_sources_is_a_loop(op: OpDef) -> None:
    count = 0
    for dtype in DTYPES.values():
        for u in examples(op, dtype):
            places = [s for s in u.src if s.op is Ops.PARAM]
            data = {p: drawn(p, p.shape, op.domain, i) for i, p in enumerate(places)}
            for chosen in subsets(places):
                whole = {
                    p: drawn(p, (N, *p.shape), op.domain, 9 + i)
                    for i, p in enumerate(chosen)
                }
                agree([u], data, whole, N)
                count += 1
    assert count > 0


@pytest.mark.parametrize("op", PURE, ids=str)
def test_an_op_over_no_elements(op: OpDef) -> None:
    for u in (u for dtype in (f64, i32, boolean) for u in examples(op, dtype)):
        places = [s for s in u.src if s.op is Ops.PARAM]
        data = {p: drawn(p, p.shape, op.domain, 0) for p in places}
        for chosen in subsets(places):
            agree([u], data, {p: np.zeros((0, *p.shape), p.dtype.numpy)
                              for p in chosen}, 0)  # fmt: skip


def test_ops_on_axes_of_length_zero() -> None:
    x, i = UOp.param(0, f64, (0, 3)), UOp.param(1, i32, (2,))
    g = UOp.param(2, f64, (2, 0))
    roots = [
        x.reshape((3, 0)),
        x.permute((1, 0)),
        x.flip((0, 1)),
        x.reduce(Ops.ADD, 2),
        x.permute((1, 0)).reduce(Ops.MUL, 1),
        x.index(i),
        UOp(Ops.SCATTER_ADD, (g, i), (4,)),
        UOp(Ops.SCATTER_ADD, (UOp.param(3, f64, (2, 3)), i), (0,)),
        UOp.stack((x, x + 1)),
        x.shrink(((0, 0), (1, 1))),
    ]
    leaves = [u for u in toposort(roots) if u.op is Ops.PARAM]
    for n, chosen in itertools.product((0, 2), subsets(leaves)):
        data = {p: drawn(p, p.shape, "real", 0) for p in leaves}
        agree(roots, data, {p: drawn(p, (n, *p.shape), "real", 1) for p in chosen}, n)


def test_indices_out_of_range_read_zero_also_where_the_next_element_begins() -> None:
    # One past the end of an element is where the next one lies in memory.
    x, i = UOp.param(0, f64, (4,)), UOp.param(1, i32, (3,))
    g = UOp.param(2, f64, (3,))
    roots = [x.index(i), UOp(Ops.SCATTER_ADD, (g, i), (4,))]
    data = {
        x: np.arange(1.0, 5.0), i: np.array([4, -1, 0], np.int32), g: np.ones(3),
    }  # fmt: skip
    for chosen in subsets([x, i, g]):
        agree(roots, data, {p: np.stack([data[p]] * N) for p in chosen}, N)


# -- graphs -----------------------------------------------------------------------


def batch_of(x: Array, rng: np.random.Generator) -> Array:
    """The values, and then the same ones in other orders."""
    return np.stack([x, *(rng.permutation(x) for _ in range(N - 1))])


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_random_graphs_over_a_batch_are_a_loop(first: int) -> None:
    for seed in range(first, first + 100):
        g = random_graph(seed, max_elements=200)
        rng = np.random.default_rng(seed)
        inputs = list(g.inputs)
        chosen = [u for u in inputs if rng.random() < 0.6] or inputs[:1]
        if chosen:
            data = {u: g.inputs[u] for u in inputs}
            whole = {u: batch_of(data[u], rng) for u in chosen}
            agree(g.roots, data, whole, N)


def test_gradients_of_random_graphs_over_a_batch_are_a_loop() -> None:
    for seed in range(60):
        g = random_graph(seed, differentiable=True, max_elements=60)
        root = next(r for r in g.roots if r.dtype.is_float)
        targets = [u for u in g.inputs if u.dtype.is_float]
        rng = np.random.default_rng(seed)
        data = dict(g.inputs)
        whole = {u: batch_of(x, rng) for u, x in data.items() if rng.random() < 0.7}
        if whole and targets:
            roots = [root, *gradient(root, targets)]
            agree(roots, data, whole, N)


def test_what_does_not_depend_on_the_batch_stays_as_it_is() -> None:
    x, w = UOp.param(0, f32, (3,)), UOp.param(1, f32, (3,))
    v, long = w.sin() + 1.0, UOp.param(2, f32, (5, 3))
    (same, has), (y, yes) = batched([v, x * v], {x: long})
    assert same is v and not has
    assert yes and v in toposort([y])
    assert batched([], {x: long}) == []


def test_shared_nodes_stay_shared_and_depth_is_no_matter() -> None:
    x = u = UOp.param(0, f32, ())
    for _ in range(20_000):
        u = u * u + 1.0
    ((y, _),) = batched([u], {x: UOp.param(1, f32, (2,))})
    assert len(toposort([y])) <= len(toposort([u])) + 8


def test_a_repeated_constant_is_written_as_const_like_writes_it() -> None:
    c = UOp.const(2.0, f32).broadcast_scalar((3, 4))
    assert repeated(c, 5) is UOp.const(2.0, f32).broadcast_scalar((5, 3, 4))
    i = UOp.param(0, i32, (6,))
    wide = i.reshape((6, 1)).expand((6, 4))
    hot = wide.eq(broadcast_to(iota(4), (6, 4))).cast(f32)
    ((whole, _),) = batched([hot], {i: UOp.param(1, i32, (2, 6))})
    found = one_hot_index(whole)
    assert found is not None and found.shape == (2, 6)


# -- plugins and mistakes -----------------------------------------------------------


def movement(op: OpDef, src: tuple[UOp, ...], arg: Any) -> Any:
    return arg, src[0].shape, src[0].dtype


def made_op(name: str, **more: Any) -> OpDef:
    kind = more.pop("kind", "movement")
    infer = more.pop("infer", movement)
    return OpDef(name, kind, 1, infer, "An op.", numpy=lambda u, x: x, **more)


X, WIDE = UOp.param(0, f64, (3,)), UOp.param(1, f64, (2, 3))


def rule_of(op: OpDef, rule: Any, **more: Any) -> SimpleNamespace:
    @hookimpl
    def uopc_register_batchings(register: Any) -> None:
        register(op, rule, **more)

    return SimpleNamespace(uopc_register_batchings=uopc_register_batchings)


def test_an_op_without_a_rule_is_named_with_the_hook() -> None:
    u = UOp(made_op("still"), (X,))
    with pytest.raises(NoBatchingRule, match=r"still; register .*uopc_register_batch"):
        batched([u.reduce(Ops.ADD, 1)], {X: WIDE})
    batched([u], {UOp.param(9, f64): UOp.param(8, f64, (2,))})  # needs none


def test_the_plugin_that_failed_is_named_too() -> None:
    @hookimpl
    def uopc_register_batchings(register: Any) -> None:
        raise OSError("no room")

    failing = SimpleNamespace(uopc_register_batchings=uopc_register_batchings)
    host = PluginHost()
    with use(host):
        with pytest.warns(PluginWarning, match="no room"):
            host.register_module(failing, "broken")
        with pytest.raises(NoBatchingRule, match="plugin 'broken' failed in uopc_reg"):
            batched([UOp(made_op("still"), (X,))], {X: WIDE})


def test_loops_have_no_rule() -> None:
    b = UOp.buffer(3, f64, 0)
    store = UOp(Ops.STORE, (UOp.buffer(3, f64, 1), UOp.const(0, i32), b.index(0)))
    with pytest.raises(NoBatchingRule, match=r"store: .* before it is lowered"):
        batched([store], {b: WIDE})


def test_a_rule_from_a_plugin_comes_before_what_is_derived() -> None:
    op = made_op("twice", kind="elementwise", infer=elementwise(("float",)))
    host = PluginHost()
    with use(host):
        host.register_module(rule_of(op, lambda u, src, has: src[0] + src[0]), "twice")
        assert batched([UOp(op, (X,))], {X: WIDE}) == [(WIDE + WIDE, True)]
        assert registry().owners["batchings", op] == "twice"


def test_an_op_with_a_lower_needs_no_rule() -> None:
    def lower(u: UOp) -> UOp:
        a, b = u.src
        return (a * 2.0 + b.sin()).reduce(Ops.ADD, 1).reshape((1,)).expand((3,))

    op = OpDef("mixed", "movement", 2, movement, "An op.", lower=lower)
    w = UOp.param(5, f64, (3,))
    u = UOp(op, (X * 3.0, w)) + X
    ((y, has),) = batched([u], {X: WIDE})
    assert has and op not in {v.op for v in toposort([y])}
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    want = [np.full(3, (6 * row + np.sin(b)).sum()) + row for row in a]
    np.testing.assert_allclose(evaluate([y], {WIDE: a, w: b})[0], want, rtol=1e-12)


def test_a_lower_is_walked_no_further_than_its_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked = []

    def counted(*args: Any) -> list[UOp]:
        order = toposort(*args)
        walked.append(len(order))
        return order

    monkeypatch.setattr(batching, "toposort", counted)
    added = OpDef(
        "added", "movement", 2, movement, "An op.", lower=lambda u: u.src[0] + u.src[1]
    )
    u, long = X, UOp.param(5, f64, (3,))
    for _ in range(300):
        long = long.sin()
    for _ in range(30):
        u = UOp(added, (u, long))
    batched([u], {X: WIDE})
    assert sum(walked) < 500


def test_what_waits_for_a_batch_still_waits_and_is_not_copied() -> None:
    w = UOp.param(5, f64, (3,))
    for u in (w.after(X), UOp(Ops.STAGE, (w, X), "checkpoint")):
        ((y, has),) = batched([u], {X: WIDE})
        assert has and y is repeated(u.with_src((w, WIDE)), 2)


def test_a_lower_that_is_one_of_the_sources_or_depends_on_none() -> None:
    first = OpDef("first", "movement", 2, movement, "An op.", lower=lambda u: u.src[0])
    w = UOp.param(5, f64, (3,))
    assert batched([UOp(first, (X, w))], {X: WIDE}) == [(WIDE, True)]
    assert batched([UOp(first, (w, X))], {X: WIDE}) == [(repeated(w, 2), True)]


@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [
        (lambda u, src, has: u, ValueError, r"gave f64\[3\], expected f64\[2, 3\]"),
        (lambda u, src, has: src[0].cast(f32), ValueError, r"gave f32\[2, 3\]"),
        (lambda u, src, has: None, TypeError, r"gave None; expected a node"),
    ],
)
def test_what_a_rule_returns_is_checked(rule: Any, error: Any, text: str) -> None:
    op, host = made_op("odd"), PluginHost()
    with use(host):
        host.register_module(rule_of(op, rule), "odd")
        with pytest.raises(error, match=f"batching rule of odd {text}"):
            batched([UOp(op, (X,))], {X: WIDE})


def test_inputs_must_fit() -> None:
    w = UOp.param(5, f64, (3,))
    for wide in (UOp.param(1, f64, (2, 4)), UOp.param(1, f32, (2, 3)), X):
        with pytest.raises(ValueError, match=r"no batch of f64\[3\]"):
            batched([X], {X: wide})
    with pytest.raises(ValueError, match="one length of the first axis"):
        batched([X], {X: WIDE, w: UOp.param(6, f64, (4, 3))})
    with pytest.raises(ValueError, match="no inputs"):
        batched([X], {})

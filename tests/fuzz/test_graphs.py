"""The generator of random graphs and the error bounds, as plugin authors use them."""

from typing import Any

import numpy as np
import pytest

from uopc.dtype import boolean, f32, f64, i32, u8
from uopc.interp import evaluate
from uopc.runtime import backend_named, realize
from uopc.testing import Bounded, buf, differences, evaluate_bounded, random_graph
from uopc.uir import parse_uir
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp, infer, toposort

INF, NAN = np.inf, np.nan

# What a plugin would define.
SOFTSIGN = OpDef(
    "softsign", "elementwise", 1, infer.elementwise(("float",)),
    "x / (1 + |x|).", numpy=lambda u, x: x / (1 + np.abs(x)),
)  # fmt: skip


def test_a_seed_is_a_graph():
    first, again, other = random_graph(5), random_graph(5), random_graph(6)
    assert first.roots == again.roots != other.roots
    assert [u.arg[2] for u in first.inputs] == list(range(len(first.inputs)))
    for u, data in first.inputs.items():
        np.testing.assert_array_equal(data, again.inputs[u])
        assert (data.shape, data.dtype) == (u.shape, u.dtype.numpy)
    read = {u for u in toposort(first.roots) if u.op is Ops.BUFFER}
    assert read <= set(first.inputs)


def test_expected_is_what_the_graph_means():
    for seed in range(30):
        g = random_graph(seed)
        values = evaluate(g.roots, dict(g.inputs), contract=False)
        assert len(g.expected) == len(g.roots) > 0
        for value, (want, error) in zip(values, g.expected, strict=True):
            np.testing.assert_array_equal(value, want)
            assert error.shape == want.shape


def test_a_graph_runs_on_live_buffers():
    g = random_graph(8)
    flat = realize(g.bound(), None, backend_named("interp"))
    for got, root, want in zip(flat, g.roots, g.expected, strict=True):
        assert not differences(got.reshape(root.shape), want).any()


def test_text_names_the_seed_and_parses():
    g = random_graph(9)
    text = g.text()
    assert text.startswith("# random_graph(9)\n")
    assert parse_uir(text).src == g.roots


def test_size_and_types_can_be_chosen():
    for seed in range(40):
        g = random_graph(seed, steps=8, max_elements=12, dtypes=(f64, u8))
        order = toposort(g.roots)
        assert max(np.prod(u.shape) for u in g.roots) <= 12
        assert {u.dtype for u in order} <= {f64, u8, boolean, i32}
    longer = [len(toposort(random_graph(s, steps=60).roots)) for s in range(5)]
    assert max(longer) > 40


def test_an_op_of_a_plugin_takes_part():
    graphs = [random_graph(s, ops=(*BUILTIN_OPS, SOFTSIGN)) for s in range(200)]
    assert any(u.op is SOFTSIGN for g in graphs for u in toposort(g.roots))
    few = (Ops.CONST, Ops.BUFFER, Ops.ADD, Ops.RESHAPE, Ops.EXPAND, SOFTSIGN)
    for seed in range(20):
        order = toposort(random_graph(seed, ops=few).roots)
        assert not {u.op.kind for u in order} & {"reduce", "select"}


# Comparing


@pytest.mark.parametrize(
    ("value", "error", "actual", "ok"),
    [
        (1.0, 0, 1.0, True),
        (1.0, 0, np.nextafter(1, 2), False),
        (1.0, 1e-15, np.nextafter(1, 2), True),
        (1.0, INF, 7.0, True),
        (0.0, 0, -0.0, False),
        (0.0, 5e-324, -0.0, True),
        (NAN, 0, NAN, True),
        (NAN, 1.0, 0.0, False),
        (INF, 0, INF, True),
        (INF, 1.0, -INF, False),
        (3, 0, 3, True),
        (3, 0, 4, False),
        (3, INF, 4, True),
        (True, 0, False, False),
    ],
)
def test_differences(value: Any, error: float, actual: Any, ok: bool):
    want = Bounded(np.array([value]), np.array([error], float))
    assert differences(np.array([actual]), want).tolist() == [not ok]


def test_differences_of_another_kind_are_an_error():
    want = Bounded(np.zeros(3, np.float32), np.zeros(3))
    for wrong in (np.zeros(3), np.zeros((3, 1), np.float32)):
        with pytest.raises(TypeError, match=r"expected float32\[3\], got float"):
            differences(wrong, want)


# Bounds

X = np.array([0.5, -3.0, 1e3, 7.0, 0.0, -0.0, 2.0, 1e-3])


def bound(root: UOp, *data: np.ndarray) -> Bounded:
    leaves = [u for u in toposort([root]) if u.op is Ops.BUFFER]
    inputs = {u: data[u.arg[2]].astype(u.dtype.numpy) for u in leaves}
    return evaluate_bounded([root], inputs)[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x + x * x,
        lambda x: (x / x.recip()).sqrt(),
        lambda x: x.maximum(-x).reshape((2, 4)).permute((1, 0)),
        lambda x: (x < 1.0).where(x, x * 2.0),
        lambda x: x.cast(f64).cast(i32).cast(f32),
        lambda x: x.index(UOp(Ops.IOTA, (), 3)),
        lambda x: UOp.stack([x, x]),
        lambda x: x // 3.0 % 2.0,
    ],
)
def test_what_is_rounded_correctly_or_copied_is_exact(make: Any):
    assert not bound(make(buf(0, 8)), X).error.any()


def test_functions_may_be_four_ulps_off():
    value, error = bound(buf(0, 8).exp2(), X / 1000)
    np.testing.assert_array_equal(error, 4 * np.spacing(value).astype(float))


def test_sums_may_be_added_in_any_order():
    rng = np.random.default_rng(1)
    data = rng.standard_normal(1000) * 10.0 ** rng.integers(-3, 4, 1000)
    value, error = bound(buf(0, 1000).reduce(Ops.ADD, 1), data)
    orders = [rng.permutation(data.astype(np.float32)) for _ in range(20)]
    sums = [np.add.accumulate(x, dtype=np.float32)[-1] for x in orders]
    assert np.abs(np.array(sums, float) - value).max() <= error
    # Not a licence to be wrong: one missing term of middling size is found.
    assert error < 1e-2 * np.abs(data).max()
    assert len(set(sums)) > 1


def test_errors_pass_through_what_follows():
    x = buf(0, 8)
    first = bound(x.sin(), X)
    scaled = bound(x.sin() * 1024.0, X)
    moved = bound(UOp(Ops.FLIP, (x.sin(),), (0,)), X)
    assert (scaled.error >= 1024 * first.error).all()
    assert (scaled.error <= 4096 * first.error).all()
    np.testing.assert_array_equal(moved.error, first.error[::-1])


def test_what_hangs_on_a_rounding_is_left_open():
    x = buf(0, 4)
    data = np.array([1.0, 4.0, -2.0, 8.0])
    back = x.maximum(-x).log2().exp2()  # |x|, up to rounding
    equal = back.eq(x.maximum(-x))
    assert np.isinf(bound(equal, data).error).all()
    far = back < x.maximum(-x) * 0.5
    assert not bound(far, data).error.any()
    # So is an integer made of it, what an index picks by it, a choice by it.
    assert np.isinf(bound(back.cast(i32), data).error).all()
    assert np.isinf(bound(x.index(back.cast(i32)), data).error).all()
    assert np.isinf(bound(equal.where(x, x * 2.0), data).error).all()
    chosen = bound((x < 1.0).where(x, back), data)
    assert chosen.error.astype(bool).tolist() == [True, True, False, True]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x % 0.25,  # a remainder goes round many times
        lambda x: x.sin(),
        lambda x: (x - x).recip(),
        lambda x: x.const_like(1.0) / (x - x),
        lambda x: (x - x).log2(),
    ],
)
def test_what_swings_or_has_a_pole_inside_the_error_is_left_open(make: Any):
    data = np.linspace(9.0, 11.0, 8)
    product = buf(0, 8).exp2() * 1e6  # off by some hundreds
    assert np.isinf(bound(make(product), data).error).all()
    assert (bound(make(buf(0, 8)), data).error < 1e-3).all()


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX])
def test_reductions_of_special_values_are_the_same_in_any_order(op: OpDef):
    data = np.array([[1.0, INF, 2.0], [NAN, 1.0, 1.0], [-0.0, 0.0, -0.0]])
    x = buf(0, 9).reshape((3, 3))
    value, error = bound(x.reduce(op, 1), data.reshape(-1))
    assert value[0] == INF
    assert np.isnan(value[1])
    assert (error[:2] < 1e-40).all()
    # Which zero comes out depends on the order in a maximum only: sums start from 0.0.
    other = differences(-value[2:], Bounded(value[2:], error[2:]))
    assert other.all() == (op is not Ops.MAX)


def test_integer_reductions_are_exact():
    x = buf(0, 8, u8).reshape((2, 4))
    value, error = bound(x.reduce(Ops.MUL, 1), np.arange(1, 9))
    assert value.tolist() == [24, 1680 % 256]
    assert not error.any()

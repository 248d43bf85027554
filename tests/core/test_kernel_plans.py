"""Which kernels a graph becomes, and when two graphs share a plan."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uopc import kernelize
from uopc.composite import (
    cat,
    gelu,
    log_softmax,
    matmul,
    mean,
    relu,
    softmax,
    square,
    sum_to,
    variance,
)
from uopc.config import overriding
from uopc.dtype import f32, f64, i32
from uopc.interp import ReferenceBackend, evaluate
from uopc.kernelize import explain, make_plan, plan_graph
from uopc.runtime import new_buffer, realize
from uopc.spec import SpecError
from uopc.tensor import Tensor
from uopc.testing.bounded import differences, evaluate_bounded
from uopc.testing.graphs import random_graph
from uopc.uir import parse_uir, to_uir
from uopc.uop import Ops, UOp, toposort


def buf(slot: int, *shape: int, dtype=f32) -> UOp:
    flat = UOp.buffer(int(np.prod(shape)), dtype, slot)
    return flat if len(shape) == 1 else flat.reshape(shape)


def names(*roots: UOp) -> list[str]:
    return [k.name for k in make_plan(roots)[0].kernels]


X = buf(0, 64, 64)

COUNTS: dict[str, tuple[Callable[[], list[UOp]], list[str]]] = {
    "elementwise chain": (lambda: [relu(X * 2.0 + 1.0) * 3.0], ["e_64_64"]),
    "softmax": (lambda: [softmax(X, 1)], ["r_64", "r_64", "e_64_64"]),
    "log_softmax": (lambda: [log_softmax(X, 1)], ["r_64", "r_64_1", "e_64_64"]),
    "sum": (lambda: [X.reduce(Ops.ADD, 2)], ["r"]),
    "mean of squares": (lambda: [mean(square(X), [0, 1], False)], ["r"]),
    "variance": (lambda: [variance(X, [1], False)], ["r_64", "r_64"]),
    "matmul": (lambda: [matmul(X, X)], ["r_64_64"]),
    "matmul, bias, gelu": (
        lambda: [gelu(matmul(X, X) + buf(1, 64).reshape((1, 64)).expand((64, 64)))],
        ["r_64_64"]),
    "two matmuls": (lambda: [matmul(matmul(X, X), X)], ["r_64_64", "r_64_64"]),
    "movement": (lambda: [X.permute((1, 0)).shrink([(0, 3), (1, 4)])], ["e_3_3"]),
    "cat": (lambda: [cat([X, X], 0)], ["e_128_64"]),
    "reduce, then elementwise": (lambda: [X.reduce(Ops.ADD, 1) * 2.0 + 1.0], ["r_64"]),
    "reduction twice": (
        lambda: [X.reduce(Ops.ADD, 1) * X.reduce(Ops.MAX, 1)], ["r_64", "r_64"]),
    "reduction of a reduction": (
        lambda: [(X.reduce(Ops.ADD, 1) * 2.0).reduce(Ops.MAX, 1)], ["r_64", "r"]),
    "shared work": (lambda: [X + 1.0, (X + 1.0) * 2.0], ["e_64_64", "e_64_64"]),
    "one root twice": (lambda: [X + 1.0, X + 1.0], ["e_64_64"]),
    "an input": (lambda: [X, X.reshape((4096,))], []),
    "a copy": (lambda: [X.permute((1, 0))], ["e_64_64"]),
    "nothing": (lambda: [X.shrink([(3, 3), (0, 64)])], []),
    "detached": (lambda: [(X + 1.0).detach() * 2.0], ["e_64_64"]),
    "contiguous": (
        lambda: [UOp(Ops.STAGE, (X + 1.0,), "contiguous") * 2.0],
        ["e_64_64", "e_64_64"]),
    "scalar constant": (lambda: [UOp.const(1.0, f32)], ["e"]),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_kernels_by_kind_and_shape(name: str) -> None:
    build, expected = COUNTS[name]
    assert names(*build()) == expected


def test_detach_markers_vanish() -> None:
    marked, _ = make_plan([(X.exp2().detach() * 2.0).detach() + X.detach()])
    plain, _ = make_plan([X.exp2() * 2.0 + X])
    assert [k.ast for k in marked.kernels] == [k.ast for k in plain.kernels]


def training_step() -> tuple[UOp, UOp]:
    """The loss relu(X @ W).square().mean(), and dloss/dW as the rules build it."""
    x, w = buf(0, 32, 64), buf(1, 64, 10)
    y = matmul(x, w)
    h = relu(y)
    loss = mean(square(h), [0, 1], False)
    g = UOp.const(1 / 320, f32).reshape((1, 1)).expand((32, 10))
    gh = g * h + g * h
    gy = (y > 0).where(gh, gh.const_like(0))
    full = (32, 10, 64)
    xe = x.reshape((32, 1, 64)).expand(full)
    ge = gy.reshape((32, 10, 1)).expand(full)
    dw = sum_to(ge * xe, (1, 10, 64)).reshape((10, 64)).permute((1, 0))
    return loss, dw


def test_a_training_step_shares_its_forward_product() -> None:
    loss, dw = training_step()
    assert names(loss) == ["r_32_10", "r"]
    plan, inputs = make_plan([loss, dw])
    expected = ["e_64_10", "r", "r_10_64", "r_32_10"]
    assert sorted(k.name for k in plan.kernels) == expected
    assert [b.arg[2] for b in inputs] == [0, 1]
    product = plan.kernels[0]
    assert product.name == "r_32_10"
    readers = [k.name for k in plan.kernels if product.out in k.args]
    assert sorted(readers) == ["r", "r_10_64"]
    # The backward of relu and square sits inside the weight gradient's loop.
    (inner,) = (k for k in plan.kernels if k.name == "r_10_64")
    assert Ops.WHERE in {u.op for u in toposort([inner.ast])}


def test_a_training_step_is_right() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("f4") for s in ((32, 64), (64, 10)))
    loss, dw = training_step()
    data = {UOp.buffer(2048, f32, 0): x.ravel(), UOp.buffer(640, f32, 1): w.ravel()}
    got = evaluate([loss, dw], data)
    y = x.astype(float) @ w
    np.testing.assert_allclose(got[0], (np.maximum(y, 0) ** 2).mean(), rtol=1e-5)
    gy = 2 * np.maximum(y, 0) / 320
    np.testing.assert_allclose(got[1], x.T.astype(float) @ gy, rtol=1e-4, atol=1e-5)


def graph(a: UOp, b: UOp) -> UOp:
    return (a * b + a).reduce(Ops.ADD, 1)


def test_equal_structure_shares_a_plan_whatever_the_buffers() -> None:
    first, inputs = make_plan([graph(buf(0, 7), buf(1, 7))])
    count = len(kernelize._plans)
    for slots in [(5, 3), (1, 0), (2**20, 2**21)]:
        again, others = make_plan([graph(*(buf(s, 7) for s in slots))])
        assert again is first
        assert [b.arg[2] for b in others] == list(slots)
    version = UOp.buffer(7, f32, 0, 3)
    assert make_plan([graph(version, buf(1, 7))])[0] is first
    assert len(kernelize._plans) == count
    assert [b.arg[2] for b in inputs] == [0, 1]


DIFFERENT: dict[str, Callable[[], object]] = {
    "alias": lambda: make_plan([graph(buf(0, 7), buf(0, 7))])[0],
    "versions are no alias": lambda: make_plan(
        [graph(UOp.buffer(7, f32, 0), UOp.buffer(7, f32, 0, 1)) * 1.0])[0],
    "shape": lambda: make_plan([graph(buf(0, 8), buf(1, 8))])[0],
    "dtype": lambda: make_plan([graph(buf(0, 7, dtype=f64), buf(1, 7, dtype=f64))])[0],
    "order": lambda: make_plan(
        [(buf(0, 7) * buf(1, 7) + buf(1, 7)).reduce(Ops.ADD, 1)])[0],
    "constant": lambda: make_plan([graph(buf(0, 7) * 2.0, buf(1, 7))])[0],
    "other constant": lambda: make_plan([graph(buf(0, 7) * 3.0, buf(1, 7))])[0],
    "roots": lambda: make_plan([graph(buf(0, 7), buf(1, 7))] * 2)[0],
    "backend": lambda: make_plan([graph(buf(0, 7), buf(1, 7))], backend="other")[0],
    "computed": lambda: make_plan(
        [graph(buf(0, 7), buf(1, 7))], {buf(0, 7) * buf(1, 7): buf(4, 7)})[0],
}  # fmt: skip


def test_computed_nodes_may_share_a_buffer_or_not() -> None:
    a, b = buf(0, 7).exp2(), buf(1, 7).exp2()
    one, inputs = make_plan([a - b], {a: buf(4, 7), b: buf(4, 7)})
    two, others = make_plan([a - b], {a: buf(4, 7), b: buf(5, 7)})
    assert one is not two
    assert (len(inputs), len(others)) == (1, 2)
    assert one.kernels[0].ast is not two.kernels[0].ast


def test_whatever_matters_is_in_the_key() -> None:
    plans = [make_plan([graph(buf(0, 7), buf(1, 7))])[0]]
    plans += [build() for build in DIFFERENT.values()]
    with overriding(UOPC_OPT=0):
        plans.append(make_plan([graph(buf(0, 7), buf(1, 7))])[0])
    assert len({id(p) for p in plans}) == len(plans)


def test_aliases_are_read_through_one_pointer() -> None:
    plan, inputs = make_plan([graph(buf(6, 7), buf(6, 7))])
    assert len(inputs) == 1
    assert [k.args for k in plan.kernels] == [(0,)]


def test_computed_nodes_are_read_not_computed() -> None:
    x = buf(0, 8)
    inner = x.exp2()
    plan, inputs = make_plan([inner * 2.0], {inner: buf(9, 8)})
    assert [b.arg[2] for b in inputs] == [9]
    assert Ops.EXP2 not in {u.op for k in plan.kernels for u in toposort([k.ast])}
    assert names(inner * 2.0) == ["e_8"]
    # A computed root is its buffer, without a kernel.
    plan, inputs = make_plan([inner], {inner: buf(9, 8)})
    assert (len(plan.kernels), plan.outputs, inputs) == (0, (0,), [buf(9, 8)])


def test_equal_kernels_of_a_plan_are_one_object() -> None:
    x = buf(0, 8, 8)
    plan, _ = make_plan([matmul(matmul(matmul(x, x), x), x)])
    asts = [k.ast for k in plan.kernels]
    assert len(asts) == 3
    assert asts[1] is asts[2]


@pytest.mark.parametrize("length", [400, 1200, 5000])
def test_long_chains_are_cut(length: int) -> None:
    u, two = buf(0, 3), buf(0, 3).const_like(2.0)
    for i in range(length):
        u = u + two if i % 2 else u * two
    plan, _ = make_plan([u])
    assert (len(plan.kernels) == 1) == (length < 500)
    assert length / 500 <= len(plan.kernels) <= length / 250 + 1
    for k in plan.kernels:
        assert sum(n.op.kind != "leaf" for n in toposort([k.ast])) <= 500 + 5


def test_wide_graphs_are_cut_and_keep_their_value() -> None:
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(4).astype("f4") for _ in range(60)]
    leaves = [new_buffer(d) for d in data]
    level = [(u * float(i + 1)).sin() * v for i, u in enumerate(leaves) for v in leaves]
    total = level[0]
    for u in level[1:700]:
        total = total + u
    plan, _ = make_plan([total])
    assert len(plan.kernels) > 1
    (expected,) = evaluate([total], dict(zip(leaves, data, strict=True)))
    np.testing.assert_array_equal(realize([total])[0], expected)


@pytest.mark.parametrize("seed", range(40))
def test_plans_of_random_graphs_compute_the_same(seed: int) -> None:
    random = random_graph(seed, steps=20)
    expected = evaluate_bounded(random.roots, random.inputs)
    roots = random.bound()
    for root, flat, bounded in zip(roots, realize(roots), expected, strict=True):
        got = root.dtype.load(flat).reshape(root.shape)
        assert not differences(got, bounded).any(), random.text()


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_is_in_order_and_its_graph_reads_back(seed: int) -> None:
    plan, inputs = make_plan(random_graph(seed, steps=20).roots)
    known = set(range(len(inputs)))
    for k in plan.kernels:
        assert set(k.args) <= known
        assert k.out not in known
        known.add(k.out)
        leaves = [u for u in toposort([k.ast]) if u.op is Ops.BUFFER]
        assert sorted(u.arg[2] for u in leaves) == list(range(len(k.args)))
        for u in leaves:
            b = plan.buffers[k.args[u.arg[2]]]
            assert (b.size, b.dtype) == (u.arg[0], u.dtype)
        assert plan.buffers[k.out].size == int(np.prod(k.ast.shape))
        assert plan.buffers[k.out].dtype is k.ast.dtype
    roles = [b.role for b in plan.buffers]
    assert roles[: len(inputs)] == ["input"] * len(inputs)
    assert all(roles[o] != "temporary" for o in plan.outputs)
    whole = plan_graph(plan)
    assert whole.op is Ops.SINK
    assert parse_uir(to_uir(whole)) is whole


def test_the_text_of_a_plan() -> None:
    plan, _ = make_plan([(buf(0, 3) * 2.0).reduce(Ops.ADD, 1)])
    assert to_uir(plan_graph(plan)).splitlines() == [
        "%0 = buffer 1 : dtype=f32 slot=1",
        "%1 = buffer 3 : dtype=f32 slot=0",
        "%2 = reshape %1, (3,)",
        "%3 = reshape 2.0, (1,)",
        "%4 = expand %3, (3,)",
        "%5 = mul %2, %4",
        "%6 = reduce %5, add, 1",
        "%7 = sink %6, r",
        "%8 = call %7, %0, %1",
        "%9 = after %0, %8",
        "%10 = sink %9, plan",
    ]


def test_unsupported_ops_are_lowered_and_the_rest_is_an_error() -> None:
    reference = ReferenceBackend()

    def few(op) -> bool:
        return reference.supports(op) and op not in (Ops.TANH, Ops.DIV, Ops.EXP)

    u = UOp(Ops.TANH, (buf(0, 3),)) / (UOp(Ops.EXP, (buf(0, 3),)) + 1.0)
    plan, _ = make_plan([u], supports=few, backend="few")
    used = {n.op for k in plan.kernels for n in toposort([k.ast])}
    assert not used & {Ops.TANH, Ops.DIV, Ops.EXP}
    with pytest.raises(NotImplementedError, match=r"no spelling for sin.*'lower'"):
        make_plan([buf(0, 3).sin()], supports=lambda op: op is not Ops.SIN,
                  backend="sinless")  # fmt: skip


@pytest.mark.parametrize("op", [Ops.DIV, Ops.EXP, Ops.LOG, Ops.TANH, Ops.COS], ids=str)
def test_a_lowered_op_is_close_to_its_meaning(op) -> None:
    x = np.linspace(0.1, 4, 50)
    src = tuple(UOp.param(i, f64, x.shape) for i in range(op.arity))
    u = UOp(op, src)
    lowered = op.lower(u)
    assert op not in {n.op for n in toposort([lowered])}
    got, expected = evaluate([lowered, u], dict.fromkeys(src, x))
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_what_is_no_graph_is_refused_with_its_neighbourhood() -> None:
    u = UOp.param(0, f32, (3,)) + 1.0
    with pytest.raises(SpecError, match="depends on a placeholder"):
        make_plan([u])
    store = UOp(Ops.STORE, (buf(0, 3), UOp.const(0, i32), UOp.const(1.0, f32)))
    with pytest.raises(SpecError, match="no loop ops in a graph") as error:
        make_plan([store])
    assert "%1 = store %0, 0, 1.0" in str(error.value)


def test_a_repeating_loop_makes_no_new_plans() -> None:
    w = Tensor(np.ones(5, np.float32))
    x = Tensor(np.arange(5, dtype=np.float32))

    def step() -> None:
        w.assign(w - (w * x).sum() * 0.01)
        w.realize()

    step()
    step()
    count = len(kernelize._plans)
    for _ in range(5):
        step()
    assert len(kernelize._plans) == count


def test_the_choice_of_buffers_is_explained() -> None:
    """The exp of a softmax is computed again; what a product repeats is stored."""
    x = buf(0, 64).reshape((8, 8))
    e = UOp(Ops.EXP, (x,))
    total = e.reduce(Ops.ADD, 1).reshape((8, 1)).expand((8, 8))
    (again,) = explain([e / total])
    assert (again.node, again.again, again.expanded) == (e, 1, False)
    assert "computed again" in str(again)
    stored = [c for c in explain([matmul(e, x)]) if c.stored]
    assert [c.node for c in stored] == [e]
    assert str(stored[0]) == (
        "exp f32[8, 8]: 17 additions an element, 0 times more and for repeated "
        "elements, 256 bytes: stored"
    )

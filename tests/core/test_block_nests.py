"""Contractions in one nest with what precedes and follows them: blocks of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from test_row_nests import lowered, nests, touched

from uopc.config import overriding
from uopc.interp import run_loops
from uopc.kernelize import joining
from uopc.runtime import lower_nest, validate
from uopc.schedule import Parallel, Target, choose_schedule, contraction, model
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, toposort

# Eight rows of 16 scores, twice, and of what is one per row.
SMALL_L2 = Target(16, 16, True, 32 << 10, 1200, 32 << 20, 2)


def do_for_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is worth it for megabytes is done for little arrays."""
    monkeypatch.setattr(joining, "FAR_BYTES", 1)
    monkeypatch.setattr(contraction, "SMALL", 0)
    monkeypatch.setattr(contraction, "WASTE", 100)
    monkeypatch.setattr(validate, "MAX_WORK", 10**7)
    monkeypatch.setattr(model, "PAYS_NS", 50)
    monkeypatch.setattr(model, "ROUND_NS", 10)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    do_for_little(monkeypatch)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose()).softmax() @ v


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n = q.shape[-2]
    before = Tensor.arange(n).unsqueeze(1) >= Tensor.arange(n)
    return before.where(q @ k.transpose(), -np.inf).softmax() @ v


def squares(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """No softmax: the largest square of a row, and the row's products with values."""
    scores = (q @ k.transpose()).tanh()
    return (scores / scores.square().max(axis=-1, keepdim=True)) @ v


def norm_then_project(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A product, its norm, and a projection of that."""
    x = q @ k.transpose()
    return (x / (x.square().mean(axis=-1, keepdim=True) + 0.1).sqrt()) @ v


@pytest.mark.parametrize("f", [attention, causal, squares, norm_then_project])
@pytest.mark.parametrize("heads", [(), (2,)])
def test_no_matrix_of_scores_is_in_memory(
    f: Callable[[Tensor, Tensor, Tensor], Tensor], heads: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(3)
    shape = (*heads, 16, 4)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for _ in range(3))
    with overriding(UOPC_OPT=0):
        expected = f(Tensor(q), Tensor(k), Tensor(v)).numpy().reshape(-1)
    tensors = [Tensor(a) for a in (q, k, v)]
    (nest,), inputs = nests(f(*tensors))
    assert len(nest.kernels) >= 3
    sink = lowered(nest, SMALL_L2, check=1 if heads else 3)
    arrays = touched(sink)
    assert {b.arg.size for b in arrays} == {q.size}
    scratch = [u for u in toposort([sink]) if u.op is Ops.BUFFER and u not in arrays]
    assert max(u.arg.size for u in scratch) <= 8 * 16
    data = {buffer_of(t): a for t, a in zip(tensors, (q, k, v), strict=True)}
    written = {u.src[0] for u in toposort([sink]) if u.op is Ops.STORE}
    given = {
        b.arg.slot: data[inputs[nest.buffer(b.arg.slot, False)]].reshape(-1)
        for b in arrays - written
    }
    (got,) = run_loops(sink, given).values()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def buffer_of(t: Tensor) -> UOp:
    (found,) = (u for u in toposort([t.uop]) if u.op is Ops.BUFFER)
    return found


@pytest.mark.parametrize(
    ("length", "l2"),
    [(17, 1200), (16, 600)],
    ids=["no even blocks", "too small a cache"],
)
def test_without_good_blocks_the_kernels_run_one_by_one(length: int, l2: int) -> None:
    q, k, v = (Tensor(np.ones((length, 4), np.float32)) for _ in range(3))
    (nest,), _ = nests(attention(q, k, v))
    with overriding(UOPC_OPT=1):
        assert lower_nest(nest, "k", replace(SMALL_L2, l2=l2)) is None


def test_little_scores_are_left_to_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    q, k, v = (Tensor(np.ones((32, 8), np.float32)) for _ in range(3))
    found, _ = nests(attention(q, k, v))
    assert [len(n.kernels) for n in found] == [1, 3, 1]


def test_a_huge_cache_makes_no_huge_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread's stack does not grow with the processor's caches."""
    monkeypatch.undo()
    q, k, v = (Tensor(np.ones((4096, 4), np.float32)) for _ in range(3))
    (nest, *_), _ = nests(attention(q, k, v))
    assert len(nest.kernels) >= 3
    sink = lowered(nest, replace(SMALL_L2, l2=64 << 20), check=1)
    own = [u for u in toposort([sink]) if u.op is Ops.BUFFER and u not in touched(sink)]
    assert sum(u.arg.size * u.dtype.itemsize for u in own) < 4 << 20


def test_several_rows_of_blocks_make_one_loop_of_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two heads would be two rounds; the blocks of both are enough for all cores."""
    monkeypatch.setattr(model, "PAYS_NS", 50)
    monkeypatch.setattr(model, "ROUND_NS", 10)
    q, k, v = (Tensor(np.ones((2, 16, 4), np.float32)) for _ in range(3))
    (nest,), _ = nests(attention(q, k, v))
    rounds = [
        u.arg.extent
        for u in toposort([lowered(nest, SMALL_L2, check=1)])
        if u.op is Ops.RANGE and u.arg.kind == "parallel"
    ]
    assert len(rounds) == 1
    assert rounds[0] > 2


def test_a_number_that_is_promised_is_given_to_no_other_loop() -> None:
    """A contraction's own loops are numbered while the parallel one is yet to come."""
    q, k, v = (Tensor(np.ones((2, 16, 4), np.float32)) for _ in range(3))
    (nest,), _ = nests(attention(q, k, v))
    with overriding(UOPC_OPT=1):
        found = lower_nest(nest, "k", SMALL_L2)
    assert found is not None
    assert found.plain is not None
    sink = found.plain
    for step in choose_schedule(sink, SMALL_L2):
        if isinstance(step, Parallel):
            numbers = {u.arg.number for u in toposort([sink]) if u.op is Ops.RANGE}
            assert step.inner not in numbers
            break
        sink = step.apply(sink)
    else:
        raise AssertionError("no parallel loop")


def test_products_that_run_in_one_nest_remain_contractions() -> None:
    """Their columns are their own, though both have as many: a round is some rows."""
    a, b, c, d = (Tensor(np.ones((64, 64), np.float32)) for _ in range(4))
    (nest,), _ = nests(a @ b + c @ d)
    assert len(nest.kernels) == 2
    with overriding(UOPC_OPT=1):
        found = lower_nest(nest, "k", replace(SMALL_L2, l2=8 << 10, vector_bytes=32))
    assert found is not None
    assert found.schedule.count("contract(") == 2

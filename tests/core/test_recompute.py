"""Large arrays that are made again in the nests that read them, and so never stored."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from test_block_nests import SMALL_L2, buffer_of, do_for_little
from test_carried_sums import asking, weights
from test_joined_kernels import run_nest
from test_row_nests import lowered

from uopc.config import overriding
from uopc.kernelize import Plan, make_plan, recompute
from uopc.kernelize.recompute import InOneNest
from uopc.runtime import nests_of, plan_memory
from uopc.tensor import Tensor
from uopc.uop import UOp

Array = np.ndarray[Any, Any]
HEADS, ROWS, KEYS = 4, 16, 12
SCORES = HEADS * ROWS * KEYS
TARGET = SMALL_L2
COUNT = itertools.count()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    do_for_little(monkeypatch)
    monkeypatch.setattr("uopc.kernelize.joining.FAR_BYTES", SCORES * 4)


def drawn(heads: int = HEADS) -> list[Array]:
    rng = np.random.default_rng(5)
    shapes = ((heads, ROWS, 4), (heads, KEYS, 4), (heads, KEYS, 4), (heads, KEYS, ROWS))
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def read_twice(q: Tensor, k: Tensor, v: Tensor, mix: Tensor) -> list[Tensor]:
    """The weights are read for a value, and again by what depends on all of its rows.

    So the second time cannot be in the nest of the first.
    """
    w = weights(q, k)
    y = w @ v
    later = (mix @ y).tanh()  # of all rows: one for each key
    return [y, w @ later]


def read_by_sums(q: Tensor, k: Tensor, v: Tensor, mix: Tensor) -> list[Tensor]:
    """As in a gradient, sums over the rows are among what reads them again."""
    w = weights(q, k)
    y = w @ v
    back = (y - (mix @ y).sum(axis=1, keepdim=True)).tanh()
    return [y, w.transpose() @ back]


def plan_of(
    roots: Sequence[Tensor],
    one: InOneNest | None,
    homes: dict[int, UOp] | None = None,
) -> tuple[Plan, list[UOp]]:
    name = f"none of this name, {next(COUNT)}"  # so no plan is found
    uops = [t.uop for t in roots]
    with overriding(UOPC_OPT=1):
        return make_plan(uops, None, backend=name, homes=homes, in_one_nest=one)


@pytest.mark.parametrize("f", [read_twice, read_by_sums])
def test_no_matrix_is_kept_for_later(f: Callable[..., list[Tensor]]) -> None:
    arrays = drawn()
    with overriding(UOPC_OPT=0):
        expected = [t.numpy() for t in f(*map(Tensor, arrays))]
    tensors = [Tensor(a) for a in arrays]
    plan, inputs = plan_of(f(*tensors), asking(TARGET))
    (again,) = plan.recomputed
    assert len(again.kernels) == 2  # a product, and the weights of that
    assert again.nbytes == SCORES * 4
    memory = {buffer_of(t): a for t, a in zip(tensors, arrays, strict=True)}
    given = [memory[b].reshape(-1) for b in inputs]
    given += [np.full(b.size, np.nan, np.float32) for b in plan.buffers[len(given) :]]
    for nest in nests_of(plan.kernels):
        sink = lowered(nest, TARGET, check=1)
        run_nest(nest, sink, given)
    for at, right in zip(plan.outputs, expected, strict=True):
        np.testing.assert_allclose(
            given[at].reshape(right.shape), right, rtol=1e-4, atol=1e-5
        )
    for b, data in zip(plan.buffers, given, strict=True):
        if b.role == "temporary" and b.size >= SCORES:
            assert np.isnan(data).all()  # nobody wrote there: it was in scratch


def kernels_of(plan: Plan) -> list[Any]:
    return [(k.name, k.args, k.out, k.joined, k.passing) for k in plan.kernels]


@pytest.mark.parametrize("f", [read_twice, read_by_sums])
def test_a_backend_that_refuses_changes_nothing(
    f: Callable[..., list[Tensor]],
) -> None:
    roots = f(*map(Tensor, drawn()))
    plain, _ = plan_of(roots, None)
    refused, _ = plan_of(roots, lambda kernels: None)
    assert kernels_of(refused) == kernels_of(plain)
    assert refused.recomputed == plain.recomputed == ()


def test_nothing_is_repeated_that_costs_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roots = read_twice(*map(Tensor, drawn()))
    plan, _ = plan_of(roots, asking(TARGET))
    (again,) = plan.recomputed
    assert str(again) == (
        f"{', '.join(again.kernels)}: {again.additions / again.nbytes:.1f} additions "
        f"for each of {again.nbytes} bytes"
    )
    limit = again.additions / again.nbytes
    monkeypatch.setattr(recompute, "AGAIN_COST", limit * 0.99)
    assert plan_of(roots, asking(TARGET))[0].recomputed == ()


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("f", [read_twice, read_by_sums])
def test_no_more_is_alive_at_once(f: Callable[..., list[Tensor]], heads: int) -> None:
    """Than where nothing is moved or repeated for the sake of memory."""
    roots = f(*map(Tensor, drawn(heads)))
    plain, _ = plan_of(roots, None)
    asked, _ = plan_of(roots, asking(TARGET))
    assert in_memory(asked) <= in_memory(plain)


def in_memory(plan: Plan) -> int:
    """The most bytes alive at once, without those in scratch."""
    scratch = set()
    for nest in nests_of(plan.kernels):
        scratch |= (
            set(asking(TARGET)(nest.kernels) or ()) if len(nest.kernels) > 1 else set()
        )
    buffers = [
        b if i not in scratch else type(b)(0, b.dtype, b.role)
        for i, b in enumerate(plan.buffers)
    ]
    return plan_memory(Plan(plan.kernels, tuple(buffers), plan.outputs)).live_bytes


def test_what_is_written_over_is_not_read_again() -> None:
    """The keys get a new value in between; the second reading wants the old one."""
    q, k, v, mix = (Tensor(a).realize() for a in drawn())
    roots = [*read_twice(q, k, v, mix), k * 2]
    plan, _ = plan_of(roots, asking(TARGET), {2: buffer_of(k)})
    written = [k.over for k in plan.kernels if k.over is not None]
    assert written
    assert plan.recomputed == ()


def test_many_layers_are_planned_at_once() -> None:
    """What the backend is asked grows with the layers, and not with their square."""

    def asks(layers: int) -> int:
        count = 0

        def one(kernels: Sequence[Any]) -> set[int] | None:
            nonlocal count
            count += 1
            return asking(TARGET)(kernels)

        q, k, v, mix = map(Tensor, drawn())
        roots = [t for i in range(layers) for t in read_twice(q + i, k, v, mix)]
        plan, _ = plan_of(roots, one)
        assert len(plan.recomputed) == layers
        return count

    assert asks(8) <= 4 * asks(2)

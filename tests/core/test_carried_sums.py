"""Contractions that sum over the rows of a nest: round by round, added to an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_block_nests import SMALL_L2, buffer_of, do_for_little
from test_joined_kernels import run_nest
from test_row_nests import lowered, touched

from uopc.config import overriding
from uopc.kernelize import Kernel, make_plan
from uopc.rangeify import rangeify
from uopc.runtime import Nest, nests_of
from uopc.runtime.nests import in_scratch
from uopc.schedule import Target
from uopc.schedule.carry import FEWEST_ROUNDS, find_carried
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]
Function = Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    do_for_little(monkeypatch)


def weights(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.transpose()).softmax()


def by_keys(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """What each key gets of all rows."""
    return [weights(q, k).transpose() @ v]


def by_both(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Each row's sum over the keys, too, from the same weights."""
    w = weights(q, k)
    return [w @ v[..., : k.shape[-2], :], w.transpose() @ v]


def finished(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Something is done with the sum when it is complete."""
    return [(weights(q, k).transpose() @ v).tanh() * 3 + 1]


def turned(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """The sum's rows are the columns of the other factor."""
    return [v.transpose() @ weights(q, k)]


def two_products(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Rows that two contractions make are one factor; as in gradients of attention."""
    w, u = weights(q, k), q.tanh() @ k.transpose()
    s = w * (u - (u * w).sum(axis=-1, keepdim=True))
    return [s.transpose() @ q, w.transpose() @ v]


FUNCTIONS = [by_keys, by_both, finished, turned, two_products]


def drawn(heads: tuple[int, ...], rows: int, keys: int) -> list[Array]:
    rng = np.random.default_rng(3)
    shapes = ((*heads, rows, 4), (*heads, keys, 4), (*heads, rows, 4))
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def asking(target: Target) -> Callable[[Sequence[Kernel]], set[int] | None]:
    """What a backend for a target says of kernels that might be one nest."""

    def in_one_nest(kernels: Sequence[Kernel]) -> set[int] | None:
        with overriding(UOPC_OPT=1):
            found = in_scratch(Nest(tuple(kernels)), target)
        if found is None:
            return None
        return {k.out for k, inside in zip(kernels, found, strict=True) if inside}

    return in_one_nest


def nests(
    roots: Sequence[Tensor], target: Target = SMALL_L2
) -> tuple[list[Nest], list[UOp], Any]:
    uops = [t.uop for t in roots]
    with overriding(UOPC_OPT=1):
        plan, inputs = make_plan(
            uops, None, backend=f"{target}", in_one_nest=asking(target)
        )
        return nests_of(plan.kernels), inputs, plan


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("heads", [(4,), (2, 3)])
@pytest.mark.parametrize("keys", [16, 12])
def test_a_sum_over_rows_is_in_the_nest_of_the_rows(
    f: Function, heads: tuple[int, ...], keys: int
) -> None:
    arrays = drawn(heads, 16, keys)
    with overriding(UOPC_OPT=0):
        expected = [t.numpy() for t in f(*map(Tensor, arrays))]
    tensors = [Tensor(a) for a in arrays]
    target = replace(SMALL_L2, l2=3600) if f is two_products else SMALL_L2
    found, inputs, plan = nests(f(*tensors), target)
    memory = {buffer_of(t): a for t, a in zip(tensors, arrays, strict=True)}
    given = [memory[b].reshape(-1) for b in inputs]
    given += [np.full(b.size, np.nan, np.float32) for b in plan.buffers[len(given) :]]
    scores = np.prod(heads) * 16 * keys
    for nest in found:
        once = f is by_both and keys == 12 and len(heads) == 1
        sink = lowered(nest, target, check=3 if once else 1)
        assert all(b.arg.size < scores for b in touched(sink))
        run_nest(nest, sink, given)
    for at, right in zip(plan.outputs, expected, strict=True):
        got = given[at].reshape(right.shape)
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
    assert len(found[0].kernels) >= 4


def test_rows_of_one_head_follow_one_another_and_heads_may_not() -> None:
    roots = by_keys(*map(Tensor, drawn((4,), 16, 12)))
    ((nest,), *_) = nests(roots)
    sink = lowered(nest, SMALL_L2, check=1)
    loops = [u for u in toposort([sink]) if u.op is Ops.RANGE]
    assert [u.arg.extent for u in loops if u.arg.kind == "parallel"] == [4]


@pytest.mark.parametrize("heads", [(), (FEWEST_ROUNDS - 1,)])
def test_too_few_heads_keep_their_weights(heads: tuple[int, ...]) -> None:
    """Else there would be nothing to do at once."""
    roots = by_keys(*map(Tensor, drawn(heads, 16, 12)))
    (nest, *_), *_ = nests(roots)
    assert not find_carried(program(nest)).sums


def test_a_sum_of_whole_rows_is_left_alone() -> None:
    """Its rows are those of the nest: nothing is carried from one to the next."""
    q, k, v = map(Tensor, drawn((4,), 16, 16))
    ((nest,), *_) = nests([weights(q, k) @ v])
    assert not find_carried(program(nest)).sums


def program(nest: Nest) -> UOp:
    """The loops of a nest's kernels, one after the other."""
    parts = [
        nest.renumbered(i, rangeify([k.ast], k.name))
        for i, k in enumerate(nest.kernels)
    ]
    return UOp(Ops.SINK, tuple(s for p in parts for s in p.src), "program")


def test_a_sum_that_is_stored_as_a_half_is_not_carried() -> None:
    """What is stored between rounds has to be all of it."""
    q, k, v = map(Tensor, drawn((4,), 16, 12))
    w = weights(q, k)
    (nest, *_), *_ = nests([(w.transpose() @ v).cast("float16")])
    assert not find_carried(program(nest)).sums


def test_a_sum_over_columns_is_not_carried() -> None:
    """The loop that it runs over is not that of the rows, though it is as long."""
    q, k = (
        Tensor(np.ones((4, 8, 8), np.float32)),
        Tensor(np.ones((4, 8, 8), np.float32)),
    )
    w = (q @ k.transpose()).tanh()
    high = w.square().max(axis=-1, keepdim=True)
    (nest, *_), *_ = nests([(w / high) @ k])
    assert not find_carried(program(nest)).sums

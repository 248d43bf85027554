"""Gathers in training: on both backends with the same bits, and how much they do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import gradient
from uopc.config import overriding
from uopc.dtype import bf16, f16, f32, f64, i32
from uopc.nn import SGD, Embedding
from uopc.tensor import Tensor
from uopc.testing import iterations, plan_iterations
from uopc.uop import Ops, UOp

Array = np.ndarray[Any, Any]


def both(build: Callable[[], Tensor]) -> Array:
    """One value on both backends and at both levels, with the same bits."""
    found = []
    for backend, opt in (("c", 0), ("c", 1), ("interp", 1)):
        with overriding(UOPC_BACKEND=backend, UOPC_OPT=opt):
            found.append(build().numpy())
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    return found[0]


@pytest.mark.parametrize("dtype", [f32, f64, f16, bf16], ids=str)
@pytest.mark.parametrize(
    "index", [np.uint8, np.int32, np.int64], ids=lambda t: t.__name__
)
def test_repeats_add_up_and_what_is_outside_gets_nothing(
    dtype: Any, index: type
) -> None:
    places = np.array([2, 0, 2, 7, 2, 255]).astype(index)
    weight = np.array([[1.0], [2.0], [4.0], [8.0], [16.0], [32.0]])

    def build() -> Tensor:
        x = Tensor(np.ones((3, 2)), dtype=dtype, requires_grad=True)
        (x[Tensor(places)] * Tensor(weight).cast(dtype)).sum().backward([x])
        assert x.grad is not None
        assert x.grad.dtype is dtype
        return x.grad

    assert both(build).tolist() == [[2, 2], [0, 0], [21, 21]]


def test_half_gradients_are_summed_in_f32() -> None:
    def build() -> Tensor:
        x = Tensor(np.zeros((2,)), dtype=f16, requires_grad=True)
        x[Tensor(np.zeros(4096, np.int32))].sum().backward([x])
        assert x.grad is not None
        return x.grad

    assert both(build).tolist() == [4096, 0]


def test_zero_means_zero_for_rows_that_nobody_reads() -> None:
    """sqrt has an infinite slope at 0: rows left out get 0, not NaN."""

    def build() -> Tensor:
        x = Tensor(np.array([[0.0, 4.0], [0.0, 0.0], [1.0, 9.0]]), requires_grad=True)
        x.sqrt()[Tensor([2, 2, -4])].sum().backward([x])
        assert x.grad is not None
        return x.grad

    np.testing.assert_allclose(both(build), [[0, 0], [0, 0], [1, 1 / 3]])


def test_many_kinds_in_one_step_of_training() -> None:
    """Several scatters in one plan, and an update that reads them."""

    def build() -> Tensor:
        w = Tensor(np.arange(12.0).reshape(4, 3) / 8, requires_grad=True)
        i, j = Tensor([0, 3, 3, 5]), Tensor(np.array([[1], [2]], np.int64))
        cubes = w.take_along_axis(j.expand(2, 3), 0) ** 3
        loss = (w[i].square().sum() + cubes).sum()
        (loss + (w[j, i[:2]] * 2).sum()).backward([w])
        assert w.grad is not None
        return w - w.grad * 0.5

    x = np.arange(12.0).reshape(4, 3) / 8
    g = np.zeros((4, 3))
    for row in (0, 3, 3):
        g[row] += 2 * x[row] * 6  # the sum is repeated over six elements
    for row in (1, 2):
        g[row] += 3 * x[row] ** 2
        g[row, 0] += 2
    np.testing.assert_allclose(both(build), x - g / 2)


def test_an_embedding_learns_the_rows_in_use_and_no_others() -> None:
    def build() -> Tensor:
        Tensor.manual_seed(0)
        layer = Embedding(6, 4)
        opt = SGD([layer.weight], lr=0.5)
        for _ in range(3):
            loss = (layer(Tensor([4, 1, 4, -1, 6])) - 1.0).square().sum()
            loss.backward()
            opt.step(loss)
            opt.zero_grad()
        return layer.weight

    Tensor.manual_seed(0)
    before = Embedding(6, 4).weight.numpy()
    after = both(build)
    changed = (after != before).any(axis=1)
    assert changed.tolist() == [False, True, False, False, True, False]


# -- how much is done ---------------------------------------------------------

ROWS, WIDTH, TOKENS = 50_000, 256, 4096
FORMS: dict[str, Callable[[UOp, UOp], UOp]] = {
    "index": lambda table, i: table.index(i),
    "take": lambda table, i: Tensor(table).take(Tensor(i)).uop,
    "[...]": lambda table, i: Tensor(table)[Tensor(i)].uop,
    "one-hot": lambda table, i: (Tensor(i).one_hot(ROWS) @ Tensor(table)).uop,
}


@pytest.mark.parametrize("opt", [0, 1])
@pytest.mark.parametrize("name", FORMS)
def test_the_work_is_that_of_the_rows_in_use(name: str, opt: int) -> None:
    """Counted from the loops; it does not depend on what the indices are."""
    table = UOp.buffer(ROWS * WIDTH, f32, 0).reshape((ROWS, WIDTH))
    tokens = UOp.buffer(TOKENS, i32, 1)
    rows = FORMS[name](table, tokens)
    weight = UOp.buffer(TOKENS * WIDTH, f32, 2).reshape((TOKENS, WIDTH))
    (g,) = gradient(rows, [table], weight)
    with overriding(UOPC_OPT=opt):
        assert plan_iterations([rows]) == {"e_4096_256": [TOKENS * WIDTH]}
        assert plan_iterations([g]) == {
            "s_50000_256": [ROWS * WIDTH, TOKENS * WIDTH]  # zeros, then sums
        }


def test_another_axis_costs_no_copy() -> None:
    """The axes before it are indexed as well, so nothing has to be transposed."""
    x = UOp.buffer(8000, f32, 0).reshape((5, 100, 16))
    for index, one, lengths in (
        (UOp.buffer(32, i32, 1), lambda x, i: x.take(i, 1), (5, 32, 16)),
        (
            UOp.buffer(240, i32, 1).reshape((5, 3, 16)),
            lambda x, i: x.gather(1, i),
            (5, 3, 16),
        ),
    ):
        rows = one(Tensor(x), Tensor(index)).uop
        (g,) = gradient(rows, [x])
        n = math.prod(lengths)
        assert list(plan_iterations([rows]).values()) == [[n]]
        assert plan_iterations([g]) == {"s_5_100_16": [8000, n]}


def test_iterations_are_counted_per_innermost_loop() -> None:
    x = UOp.buffer(24, f32, 0)
    product = UOp.buffer(6, f32, 1).reshape((1, 6)).expand((4, 6))
    sums = {
        "e": (x + 1.0, [24]),
        "r": ((x.reshape((4, 6)) * product).reduce(Ops.ADD, 1), [24]),
        "one": (x.index(3), [1]),
        "none": (x.shrink([(2, 2)]).reshape((0, 3)).reduce(Ops.ADD, 1), None),
    }
    for root, expected in sums.values():
        with overriding(UOPC_OPT=0):
            counts = plan_iterations([root])
        assert list(counts.values()) == ([] if expected is None else [expected])
    both_roots = plan_iterations([x + 1.0, x + 2.0])
    assert sorted(both_roots) == ["e_24", "e_24_n2"]
    fill = UOp(Ops.RANGE, (), (0, 3, i32))
    store = UOp(Ops.STORE, (x, fill, UOp.const(0.0, f32)))
    inner = UOp(Ops.END, (fill, store))
    outer = UOp(Ops.RANGE, (), (1, 5, i32))
    nested = UOp(
        Ops.END, (outer, inner, UOp(Ops.STORE, (x, outer, store.src[2])), inner)
    )
    assert iterations(UOp(Ops.SINK, (nested, store), "k")) == [15, 15, 1]

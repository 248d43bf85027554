"""A sum over several products of matrices is a contraction for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from test_row_nests import nests

from uopc.config import overriding
from uopc.runtime import lower_nest
from uopc.runtime.nests import Nest
from uopc.schedule import Target
from uopc.tensor import Tensor

LARGE = Target(16, 32, True, 32 << 10, 1 << 20, 32 << 20, 2)


def products(a: Tensor, b: Tensor) -> Tensor:
    """All terms of a product of matrices, by row, column and the axis summed over."""
    return a.unsqueeze(1) * b.transpose().unsqueeze(0)


def two(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return (products(a, b) + products(c, d)).sum(axis=-1)


def turned(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return (products(a, b) + products(c, d)).permute(2, 0, 1).sum(axis=0)


def three_and_a_rest(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    terms = products(a, b) + products(c, d) + products(a, d) + a.unsqueeze(1).exp()
    return terms.sum(axis=-1).tanh()


def schedules(y: Tensor) -> list[str]:
    """How each kernel is scheduled, alone."""
    found = []
    with overriding(UOPC_OPT=1):
        for nest in nests(y)[0]:
            for k in nest.kernels:
                lowered = lower_nest(Nest((k,)), "k", LARGE)
                assert lowered is not None
                found.append(lowered.schedule)
    return found


@pytest.mark.parametrize(("f", "count"), [(two, 2), (turned, 2), (three_and_a_rest, 3)])
def test_each_product_is_a_contraction(f: Callable[..., Tensor], count: int) -> None:
    tensors = [Tensor(np.ones((64, 64), np.float32)) for _ in range(4)]
    found = schedules(f(*tensors))
    assert sum("contract(" in s for s in found) == count


@pytest.mark.parametrize(
    ("f", "dtype"),
    [
        *itertools.product([two, turned], ["float64", "float16", "int32"]),
        *itertools.product([three_and_a_rest], ["float64", "float16"]),
    ],
)
def test_the_sum_is_the_same(f: Callable[..., Tensor], dtype: str) -> None:
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-8, 8, (6, 6)).astype(dtype) for _ in range(4)]
    a, b, c, d = (x.astype(np.float64) for x in arrays)
    right = a @ b + c @ d
    if f is three_and_a_rest:
        right = np.tanh(right + a @ d + np.exp(a).sum(axis=1, keepdims=True))
    got = f(*map(Tensor, arrays)).numpy()
    assert got.dtype == dtype
    np.testing.assert_allclose(got, right, rtol=1e-2 if dtype == "float16" else 1e-12)


def test_terms_that_are_no_products_of_matrices_are_added_up_as_they_come() -> None:
    x, y = (Tensor(np.ones((40, 50), np.float32)) for _ in range(2))
    v = Tensor(np.ones(50, np.float32))
    for f in (x * y + x, x * v + y * v, x * y + v):
        (nest,), _ = nests(f.sum(axis=-1))
        assert len(nest.kernels) == 1
    outer = x.unsqueeze(2) * y.unsqueeze(1)  # a matrix per row: nothing is read again
    (nest,), _ = nests((outer + outer.exp()).sum(axis=-1))
    assert len(nest.kernels) == 1

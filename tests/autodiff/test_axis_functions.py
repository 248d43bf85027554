"""Functions over axes: gradients to second order against differences, in f64."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from uopc import composite
from uopc.autodiff import gradient
from uopc.dtype import f64, i32
from uopc.uop import Ops, UOp, toposort

RNG = np.random.default_rng(0)
LABELS = UOp.param(50, i32, (3,))
FIXED = {LABELS: np.array([2, -100, 9], np.int32)}


def apart(*shape: int) -> np.ndarray:
    """Numbers in no order, none of them near another or near 0."""
    x = RNG.permutation(np.arange(1.0, math.prod(shape) + 1)) / 3
    return (x * RNG.choice([-1, 1], x.shape)).reshape(shape)


def small(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape)


def with_zeros(n: int, *at: int) -> np.ndarray:
    x = RNG.uniform(0.5, 1.5, n)
    x[list(at)] = 0
    return x


def soft(x: UOp, p: UOp) -> UOp:
    return composite.soft_cross_entropy(x, p, 0.1)


FUNCTIONS: dict[str, tuple[Callable[..., UOp], list[np.ndarray]]] = {
    "norm": (lambda x: composite.norm(x, 2, [1], False), [small(3, 4)]),
    "norm 1": (lambda x: composite.norm(x, 1, [0], True), [apart(3, 4)]),
    "norm inf": (lambda x: composite.norm(x, math.inf, [0, 1], False), [apart(3, 4)]),
    "variance": (lambda x: composite.variance(x, [0], False), [small(4, 3)]),
    "variance of a sample": (
        lambda x: composite.variance(x, [0, 1], False, 1), [small(4, 3)]),
    "deviation": (lambda x: composite.deviation(x, [1], True), [small(3, 4)]),
    "logsumexp": (lambda x: composite.logsumexp(x, [1], False), [small(3, 4)]),
    "sum scan": (lambda x: composite.cumulative(x, Ops.ADD, 0), [small(19, 2)]),
    "product scan": (lambda x: composite.cumulative(x, Ops.MUL, 0), [with_zeros(20)]),
    "product scan, a zero": (
        lambda x: composite.cumulative(x, Ops.MUL, 0), [with_zeros(12, 4)]),
    "product scan, zeros": (
        lambda x: composite.cumulative(x, Ops.MUL, 0), [with_zeros(12, 3, 10)]),
    "product": (lambda x: x.reduce(Ops.MUL, 1), [with_zeros(20)]),
    "product, a zero": (lambda x: x.reduce(Ops.MUL, 1), [with_zeros(20, 5)]),
    "product, zeros": (lambda x: x.reduce(Ops.MUL, 1), [with_zeros(20, 5, 6)]),
    "product, many zeros": (lambda x: x.reduce(Ops.MUL, 1), [with_zeros(20, 1, 5, 13)]),
    "sorted": (
        lambda x: composite.along_last(x, composite.argsort(x, False, 5)),
        [apart(2, 5)]),
    "sorted by merging": (
        lambda x: composite.along_last(x, composite.argsort(x, True, 9)),
        [apart(70)]),
    "cross-entropy": (
        lambda x: composite.cross_entropy(x, LABELS, -100), [small(3, 4)]),
    "smoothed, one each": (
        lambda x: composite.cross_entropy(x, LABELS, -100, 0.3, "none"), [small(3, 4)]),
    "of probabilities": (soft, [small(3, 4), RNG.dirichlet(np.ones(4), 3)]),
    "diagonal": (composite.diagonal, [small(2, 3, 4)]),
    "einsum": (
        lambda x, y: composite.einsum(["aba", "bc"], ["c", "a"], [x, y]),
        [small(3, 2, 3), small(2, 4)]),
    "einsum of three": (
        lambda x, y, z: composite.einsum(["ab", "bc", "c"], ["a"], [x, y, z]),
        [small(2, 3), small(3, 4), small(4)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_to_second_order(checker: SimpleNamespace, name: str) -> None:
    build, arrays = FUNCTIONS[name]
    checker.check(build, arrays, fixed=FIXED)


SINGULAR: dict[str, tuple[Callable[[UOp], UOp], np.ndarray]] = {
    "norm": (lambda x: composite.norm(x, 2, [0], False), np.zeros(3)),
    "deviation": (lambda x: composite.deviation(x, [0], False), np.full(3, 0.1)),
    "logsumexp": (lambda x: composite.logsumexp(x, [0], False), np.full(3, -np.inf)),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_where_there_is_no_derivative_it_is_zero_to_second_order(
    checker: SimpleNamespace, name: str
) -> None:
    build, array = SINGULAR[name]
    x = UOp.param(0, f64, array.shape)
    v = UOp.param(1, f64, array.shape)
    (first,) = gradient(build(x), [x])
    (second,) = gradient(checker.dot([first], [v]), [x])
    data = {x: array, v: np.ones(array.shape)}
    np.testing.assert_array_equal(checker.value(first, data), np.zeros(array.shape))
    np.testing.assert_array_equal(checker.value(second, data), np.zeros(array.shape))


def test_the_work_for_a_product_grows_with_its_length() -> None:

    def largest(n: int) -> int:
        x = UOp.param(0, f64, (n,))
        nodes = toposort(gradient(x.reduce(Ops.MUL, 1), [x]))
        return max(math.prod(u.shape) for u in nodes)

    assert largest(80_000) <= 10 * largest(8_000)

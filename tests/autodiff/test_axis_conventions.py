"""Gradients of functions over axes, at zeros, kinks and infinities."""

from __future__ import annotations

import math

import numpy as np
import pytest

from uopc.tensor import Tensor

NAN, INF = np.nan, np.inf


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("n", [6, 100])
def test_gradients_go_where_elements_came_from(n: int) -> None:
    x = np.random.default_rng(2).integers(0, 4, n).astype(np.float64)
    weights = np.arange(1.0, n + 1)
    t = Tensor(x, requires_grad=True)
    right = np.empty(n)
    right[np.argsort(x, kind="stable")] = weights
    (t.sort() * Tensor(weights)).sum().backward([t])
    np.testing.assert_array_equal(t.grad.numpy(), right)
    t.grad = None
    values, places = t.topk(3)
    (values * values).sum().backward([t])
    right = np.zeros(n)
    right[places.numpy()] = 2 * x[places.numpy()]
    np.testing.assert_array_equal(t.grad.numpy(), right)
    assert not places.requires_grad


@pytest.mark.parametrize("n", [1, 3, 1000])
def test_equal_elements_have_no_spread(n: int) -> None:
    for value in (0.1, 1e6 + 0.1, 3e-20):
        t = Tensor(np.full((2, n), value, np.float32), requires_grad=True)
        assert t.var(1).tolist() == t.std(1).tolist() == [0, 0]
        t.std().backward([t])
        np.testing.assert_array_equal(t.grad.numpy(), np.zeros((2, n)))


def test_gradients_at_kinks_are_the_least_subgradients() -> None:
    for p, x, right in (
        (2, [0.0, 0, 0], [0, 0, 0]), (1, [-2.0, 0, 3], [-1, 0, 1]),
        (INF, [2.0, -2, 1], [0.5, -0.5, 0]), (INF, [0.0, 0], [0, 0]),
        (2, [1e-30, 0], [1, 0]), (2, [-3e30, 4e30], [-0.6, 0.8]),
    ):  # fmt: skip
        t = Tensor(np.array(x, np.float32), requires_grad=True)
        t.norm(p).backward([t])
        np.testing.assert_allclose(t.grad.numpy(), right, rtol=3e-7)


def test_logsumexp_at_the_ends() -> None:
    x = [[-INF, -INF], [INF, 0], [-INF, 5], [1e4, 1e4], [NAN, 0], [-1e4, -2e4]]
    t = Tensor(np.array(x, np.float32), requires_grad=True)
    y = t.logsumexp(1)
    right = [-INF, INF, 5, 1e4 + math.log(2), NAN, -1e4]
    np.testing.assert_allclose(y.numpy(), right, rtol=1e-7)
    y.sum().backward([t])
    grads = [[0, 0], [NAN, 0], [0, 1], [0.5, 0.5], [NAN, NAN], [1, 0]]
    np.testing.assert_array_equal(t.grad.numpy(), grads)
    assert Tensor.zeros(2, 0).logsumexp(1).tolist() == [-INF, -INF]


@pytest.mark.parametrize("zeros", [(), (3,), (3, 17), (0, 8, 24)])
def test_products_with_zeros_have_exact_gradients(zeros) -> None:
    x = np.random.default_rng(2).integers(1, 3, 25).astype(float)
    x[list(zeros)] = 0
    t = Tensor(x, requires_grad=True)
    t.prod().backward([t])
    others = [np.delete(x, i).prod() for i in range(25)]
    np.testing.assert_array_equal(t.grad.numpy(), others)
    t.grad = None
    t.cumprod().sum().backward([t])
    right = [
        sum(np.delete(x[: k + 1], i).prod() for k in range(i, 25)) for i in range(25)
    ]
    np.testing.assert_array_equal(t.grad.numpy(), right)


def test_ignored_labels_have_no_gradient_and_do_not_count() -> None:
    t = Tensor(data(3, 4), requires_grad=True)
    loss = t.cross_entropy(Tensor([-100, -100, -100]))
    assert loss.item() == 0
    loss.backward([t])
    assert not t.grad.numpy().any()
    t.grad = None
    t.cross_entropy(Tensor([-100, 1, -100])).backward([t])
    p = np.exp(log_softmax(t.numpy()[1])) - np.eye(4)[1]
    np.testing.assert_allclose(
        t.grad.numpy(), [np.zeros(4), p, np.zeros(4)], atol=1e-15
    )


def test_probabilities_as_labels() -> None:
    x, p = data(5, 4), np.random.default_rng(3).dirichlet(np.ones(4), 5)
    for smoothing in (0.0, 0.2):
        target = p * (1 - smoothing) + smoothing / 4
        each = -(target * log_softmax(x)).sum(-1)
        for how, right in (("none", each), ("sum", each.sum()), ("mean", each.mean())):
            got = Tensor(x).cross_entropy(Tensor(p), -100, smoothing, how)
            np.testing.assert_allclose(got.numpy(), right, rtol=1e-12)
    t = Tensor([[-INF, 0.0, 0.0]], requires_grad=True)
    target = Tensor([[0.0, 0.5, 0.5]], requires_grad=True)
    loss = t.cross_entropy(target)
    np.testing.assert_allclose(loss.item(), math.log(2), rtol=1e-6)
    loss.backward([t, target])
    np.testing.assert_allclose(t.grad.numpy(), [[0, 0, 0]], atol=1e-7)
    np.testing.assert_allclose(
        target.grad.numpy(), [[0, *[math.log(2)] * 2]], rtol=1e-6
    )


def test_huge_logits() -> None:
    x = Tensor([[1e4, 0.0, -INF], [3e38, -3e38, 0.0]], requires_grad=True)
    loss = x.cross_entropy(Tensor([1, 0]), reduction="none")
    assert loss.tolist() == [1e4, 0.0]
    loss.sum().backward([x])
    np.testing.assert_array_equal(x.grad.numpy(), [[1, -1, 0], [0, 0, 0]])


def test_a_diagonal_takes_nothing_from_elsewhere() -> None:
    x = np.full((3, 3), np.nan)
    np.fill_diagonal(x, [1, 2, 3])
    t = Tensor(x, requires_grad=True)
    loss = Tensor.einsum("ii", t)
    assert loss.item() == 6
    loss.backward([t])
    np.testing.assert_array_equal(t.grad.numpy(), np.eye(3))


@pytest.mark.parametrize("n, correction", [(1, 1), (2, 2), (3, 5)])
def test_a_spread_over_too_few_elements_has_no_derivative(
    n: int, correction: int
) -> None:
    """Neither zero nor finite: the value is not, so its gradient shows it as well."""
    for how in ("std", "var"):
        t = Tensor(data(n), requires_grad=True)
        value = getattr(t, how)(correction=correction)
        assert not np.isfinite(value.item())
        value.backward()
        assert not np.isfinite(t.grad.numpy()).any()

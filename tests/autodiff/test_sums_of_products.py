"""Derivatives that are several products of matrices: a sum for each of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from uopc.autodiff import jvp, vjp
from uopc.autodiff.products import distributed
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, toposort

N = 6


def drawn(count: int, dtype: str = "float64") -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [rng.standard_normal((N, N)).astype(dtype) for _ in range(count)]


def joint_sums(roots: Sequence[Tensor]) -> list[UOp]:
    """Sums over terms that are sums themselves."""
    found = []
    for u in toposort([t.uop for t in roots]):
        if u.op is Ops.REDUCE and u.arg.op is Ops.ADD:
            terms = u.src[0]
            while terms.op is Ops.PERMUTE:
                terms = terms.src[0]
            if terms.op is Ops.ADD:
                found.append(u)
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_enters_three_products_has_three_in_its_gradient(dtype: str) -> None:
    x, a, b, c, g = drawn(5, dtype)

    def f(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return x @ a + (x @ b) * 2 + c @ x

    _, back = vjp(f, *map(Tensor, (x, a, b, c)))
    grads = back(Tensor(g))
    assert not joint_sums(grads)
    wanted = [g @ a.T + 2 * g @ b.T + c.T @ g, x.T @ g, 2 * x.T @ g, g @ x.T]
    for got, right in zip(grads, wanted, strict=True):
        tolerance = 1e-12 if dtype == "float64" else 1e-5
        np.testing.assert_allclose(got.numpy(), right, rtol=tolerance, atol=tolerance)


def test_the_tangent_of_a_product_is_two() -> None:
    a, b, s, t = drawn(4)
    _, tangent = jvp(lambda a, b: a @ b, (Tensor(a), Tensor(b)), (Tensor(s), Tensor(t)))
    assert not joint_sums([tangent])
    np.testing.assert_allclose(tangent.numpy(), s @ b + a @ t, rtol=1e-12)


def test_second_derivatives_as_well() -> None:
    x, a, g, h = drawn(4)

    def first(x: Tensor) -> Tensor:
        _, back = vjp(lambda x: (x @ Tensor(a)) @ x, x)
        return back(Tensor(g))[0]

    _, back = vjp(first, Tensor(x))
    (second,) = back(Tensor(h))
    assert not joint_sums([second])
    eps = 1e-6
    numeric = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        d = np.zeros_like(x)
        d[i] = eps
        up, down = (first(Tensor(x + s * d)).numpy() for s in (1, -1))
        numeric[i] = ((up - down) * h).sum() / (2 * eps)
    np.testing.assert_allclose(second.numpy(), numeric, rtol=1e-6, atol=1e-6)


def terms(a: Tensor, b: Tensor) -> Tensor:
    return a.unsqueeze(1) * b.transpose().unsqueeze(0)


def test_a_sum_that_the_user_wrote_stays_as_it_is() -> None:
    """Taken apart it would be inf - inf."""
    a = Tensor(np.full((N, N), 1e19, np.float32))
    both = (terms(a, a) + terms(-a, a)).sum(axis=-1)
    assert joint_sums([both])
    np.testing.assert_array_equal(both.numpy(), 0)


def test_other_terms_are_added_up_as_they_come() -> None:
    x, y = (Tensor(v).uop for v in drawn(2))
    for t in (x * y + x, x * y + y * y, x + y):
        u = t.reduce(Ops.ADD, 1)
        assert distributed(u) is u
    rows = (Tensor(drawn(1)[0]).unsqueeze(2) * Tensor(drawn(1)[0]).unsqueeze(1)).uop
    u = (rows + rows * rows).reduce(Ops.ADD, 1)  # nothing is read again
    assert distributed(u) is u


def test_a_sum_of_very_many_is_left_alone() -> None:
    a, b = map(Tensor, drawn(2))
    t = terms(a, b).uop
    few = (t + t * 2 + t).reduce(Ops.ADD, 1)
    assert distributed(few) is not few
    for _ in range(60):  # as a tree, more than could be written down
        t = t + t
    many = t.reduce(Ops.ADD, 1)
    assert distributed(many) is many

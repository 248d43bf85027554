"""A value that was read on the way hides nothing from ``backward``."""

from __future__ import annotations

import numpy as np
import pytest

from uopc.tensor import Tensor


def vector(*values: float, grad: bool = True) -> Tensor:
    return Tensor(np.array(values, np.float32), requires_grad=grad)


@pytest.mark.parametrize("read", [False, True])
def test_a_gradient_that_was_read_has_a_gradient(read: bool) -> None:
    x = vector(1, 2, 3)
    (x * x * x).sum().backward([x])
    g, x.grad = x.grad, None
    assert g is not None
    if read:
        assert g.tolist() == [3, 12, 27]
    g.sum().backward([x])
    assert x.grad is not None and x.grad.tolist() == [6, 12, 18]


@pytest.mark.parametrize("reads", [(), (0,), (1,), (0, 1)])
def test_intermediate_values_without_requires_grad(reads: tuple[int, ...]) -> None:
    x = vector(1, 2, grad=False)
    y = x * x
    z = None
    if 0 in reads:
        y.numpy()
    z = y * 2
    if 1 in reads:
        z.numpy()
    z.sum().backward([x, y])
    assert x.grad is not None and x.grad.tolist() == [4, 8]
    assert y.grad is not None and y.grad.tolist() == [2, 2]


def test_a_target_that_cannot_be_reached_must_require_a_gradient() -> None:
    x, other = vector(1, 2), vector(5)
    (x * 2).sum().backward([other])
    assert other.grad is not None and other.grad.tolist() == [0]
    with pytest.raises(RuntimeError, match=r"parameter 0, f32\[2\], does not require"):
        (x * 2).sum().backward([vector(1, 2, grad=False)])


def test_float_modulo_has_the_gradient_of_a_minus_b_floor_a_over_b() -> None:
    a, b = vector(1.25, -2.5, 7), vector(1, 2, -4)
    (a % b).sum().backward([a, b])
    assert a.grad is not None and a.grad.tolist() == [1, 1, 1]
    assert b.grad is not None and b.grad.tolist() == [-1, 2, 2]


@pytest.mark.parametrize("read", [False, True])
def test_without_a_list_a_value_that_was_read_hides_no_parameter(read: bool) -> None:
    x = vector(1, 2)
    (x * x * x).sum().backward()
    g, x.grad = x.grad, None
    assert g is not None
    if read:
        g.numpy()
    (g * g).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [36, 288]


def test_a_loss_that_depends_on_no_parameter_says_so() -> None:
    with pytest.raises(RuntimeError, match="no tensor with requires_grad=True"):
        vector(1, 2, grad=False).sum().backward()

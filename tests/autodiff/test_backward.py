"""Tensor.backward: what it leaves in ``grad``, whenever values are computed."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from uopc.kernelize.plan import _plans
from uopc.tensor import Tensor, realize_all
from uopc.uop.node import live_nodes


def tensor(*values: float, grad: bool = True) -> Tensor:
    return Tensor(np.array(values, np.float32), requires_grad=grad)


def grad_of(p: Tensor) -> list[float]:
    assert p.grad is not None
    return p.grad.tolist()


def test_it_returns_the_tensor_and_computes_nothing() -> None:
    w = tensor(1, 2)
    loss = (w * w).sum()
    assert loss.backward([w]) is loss
    assert w.grad is not None
    assert "lazy" in repr(w.grad) and "lazy" in repr(loss)
    assert (w.grad.shape, w.grad.dtype) == (w.shape, w.dtype)


@pytest.mark.parametrize("shape", [(2,), (1,), (2, 2), (0,)])
def test_it_needs_a_scalar(shape: tuple[int, ...]) -> None:
    w = Tensor.ones(*shape)
    with pytest.raises(AssertionError, match="backward needs a scalar"):
        (w * w).backward([w])


def test_an_integer_parameter_or_loss_is_an_error_that_names_the_type() -> None:
    w, k = tensor(1, 2), Tensor(np.array([1, 2], np.int32))
    with pytest.raises(TypeError, match="i32"):
        (w * k).sum().backward([w, k])
    with pytest.raises(TypeError, match="i32"):
        k.max().backward([w])
    assert w.grad is None


# -- values computed before, between and after --------------------------------

READS: dict[str, Callable[[Tensor], object]] = {
    "nothing": lambda t: None,
    "item": lambda t: t.sum().item() if t.shape else t.item(),
    "numpy": lambda t: t.numpy(),
    "realize": lambda t: t.realize(),
    "twice": lambda t: (t.numpy(), t.realize()),
    "realize_all": lambda t: realize_all([t]),
    "print": lambda t: (t.realize(), repr(t)),
}


@pytest.mark.parametrize("needs", [True, False], ids=["marked", "not marked"])
@pytest.mark.parametrize("read", READS)
def test_reading_the_loss_first_keeps_its_graph(read: str, needs: bool) -> None:
    w = tensor(1, 2, grad=needs)
    loss = (w * w).sum()
    READS[read](loss)
    loss.backward([w])
    assert grad_of(w) == [2, 4]
    assert loss.item() == 5


def test_the_gradient_can_be_read_before_the_loss() -> None:
    w = tensor(1, 2)
    loss = (w * w).sum()
    loss.backward([w])
    assert grad_of(w) == [2, 4] and loss.item() == 5


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("when", ["before its use", "after its use"])
def test_reading_an_intermediate_keeps_the_graph_below_it(read: str, when: str) -> None:
    w = tensor(1, 2)
    h = w * w
    if when == "before its use":
        READS[read](h)
    loss = (h * h).sum()
    if when == "after its use":
        READS[read](h)
    loss.item()
    loss.backward([w, h])
    assert grad_of(w) == [4, 32] and grad_of(h) == [2, 8]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("needs", [True, False], ids=["marked", "not marked"])
def test_reading_a_parameter_between_building_and_backward(
    read: str, needs: bool
) -> None:
    # The parameter is lazy when the loss is built, and a buffer when it is read.
    w = Tensor.ones(2) * tensor(1, 2, grad=False)
    w.requires_grad = needs
    early = (w * w).sum()
    READS[read](w)
    early.backward([w])
    assert grad_of(w) == [2, 4]
    w.grad = None
    (early + (w * 3).sum()).backward([w])
    assert grad_of(w) == [5, 7]


def test_backward_works_again_and_again_through_one_graph() -> None:
    w = tensor(1, 2)
    loss = (w * w).sum()
    for n in (1, 2, 3):
        loss.backward([w])
        assert grad_of(w) == [2 * n, 4 * n]


def test_second_derivatives_through_lazy_gradients() -> None:
    w = tensor(1, 2)
    (w * w * w).sum().backward([w])
    g, w.grad = w.grad, None
    assert g is not None
    g.sum().backward([w])
    assert grad_of(w) == [6, 12] and g.tolist() == [3, 12]


# -- accumulation -------------------------------------------------------------


def test_gradients_add_up_until_they_are_forgotten() -> None:
    w = tensor(1, 2)
    (w * w).sum().backward([w])
    (w * 3).sum().backward([w])
    assert grad_of(w) == [5, 7]
    w.grad = None
    (w * 3).sum().backward([w])
    assert grad_of(w) == [3, 3]


def test_a_parameter_listed_twice_gets_its_gradient_once() -> None:
    w = tensor(1, 2)
    (w * w).sum().backward([w, w])
    assert grad_of(w) == [2, 4]


def test_a_failing_backward_leaves_all_gradients_as_they_were() -> None:
    w, stale = tensor(1, 2), tensor(3, 4)
    loss = (w * stale).sum()
    stale.assign(tensor(5, 6)).realize()
    with pytest.raises(RuntimeError):
        loss.backward([w, stale])
    assert w.grad is None and stale.grad is None


# -- which tensors ------------------------------------------------------------


def test_without_a_list_every_leaf_that_wants_a_gradient_gets_one() -> None:
    w, v, data = tensor(1, 2), tensor(3, 4), tensor(5, 6, grad=False)
    unused, held_back = tensor(7, 8), tensor(9, 10)
    h = w * v
    (h * data + held_back.detach()).sum().backward()
    assert grad_of(w) == [15, 24] and grad_of(v) == [5, 12]
    for t in (data, unused, held_back, h):
        assert t.grad is None


def test_without_a_list_after_reading() -> None:
    w = Tensor.ones(2) * 3
    w.requires_grad = True
    loss = (w * w).sum()
    loss.item()
    w.realize()
    loss.backward()
    assert grad_of(w) == [6, 6]


def test_detach_holds_a_factor_constant() -> None:
    w = tensor(1, 2)
    (w.detach() * w).sum().backward([w])
    assert grad_of(w) == [1, 2]
    assert not w.detach().requires_grad and w.detach().tolist() == [1, 2]


def test_an_unrelated_parameter_gets_zeros() -> None:
    w, z = tensor(1, 2), tensor(3, 4, 5)
    (w * w).sum().backward([w, z])
    assert grad_of(z) == [0, 0, 0]


# -- parameters that have moved on --------------------------------------------


def updated(p: Tensor, realize: bool) -> Tensor:
    p.assign(p.detach() + 1)
    return p.realize() if realize else p


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "found"])
@pytest.mark.parametrize("realize", [True, False], ids=["realized", "lazy"])
def test_a_graph_older_than_an_update_is_refused_and_the_parameter_named(
    realize: bool, listed: bool
) -> None:
    v, w = tensor(3, 4), tensor(1, 2)
    loss = (v * w).sum()
    assert loss.item() == 11
    updated(w, realize)
    with pytest.raises(RuntimeError, match=r"parameter \d+, f32\[2\], .* new value"):
        loss.backward([v, w] if listed else None)


@pytest.mark.parametrize("realize", [True, False], ids=["realized", "lazy"])
def test_a_graph_built_after_an_update_is_differentiated_at_the_new_value(
    realize: bool,
) -> None:
    w = updated(tensor(1, 2), realize)
    loss = (w * w).sum()
    w.realize()
    loss.backward([w])
    assert grad_of(w) == [4, 6]


def test_an_old_value_that_was_detached_is_no_obstacle() -> None:
    w = tensor(1, 2)
    before = w.detach()
    updated(w, realize=True)
    (w * before).sum().backward([w])
    assert grad_of(w) == [1, 2]
    w.grad = None
    (before * 2).sum().backward([w])
    assert grad_of(w) == [0, 0]


def test_graphs_of_losses_and_gradients_are_freed_with_them() -> None:
    w = Tensor.ones(2) * 3
    w.requires_grad = True
    sizes = []
    for _ in range(4):
        loss = (w * w).exp().sum()
        loss.item()
        loss.backward()
        assert w.grad is not None
        w.assign(w.detach() - w.grad.detach() * 1e-6)
        realize_all([w, w.grad])
        w.grad = loss = None
        gc.collect()
        sizes.append(live_nodes())
    assert sizes[1] == sizes[2] == sizes[3]  # the first left its plan behind


TWINS: dict[str, Callable[[Tensor], Tensor]] = {
    "computed": lambda b: b * 0.5,
    "another shape": lambda b: b.reshape(1, 2),
    "another order": lambda b: b.reshape(2, 1).T,
    "constant": lambda b: Tensor.ones(2),
    "the same buffer": lambda b: b.detach(),
}


@pytest.mark.parametrize("realize", [False, True])
@pytest.mark.parametrize("name", TWINS)
def test_a_leaf_is_not_what_is_computed_like_it(name: str, realize: bool) -> None:
    """Equal graphs are one node, but a leaf is a place of its own."""
    b = tensor(1.0, 2.0, grad=False)
    w, after = TWINS[name](b), TWINS[name]
    if realize:
        w.realize()
    before = after(b)
    w.requires_grad = True
    (w * 2.0 + before * 3.0 + after(b) * 5.0).sum().backward()
    assert w.grad is not None
    assert w.grad.numpy().ravel().tolist() == [2.0, 2.0]
    np.testing.assert_array_equal(w.numpy(), after(b).numpy())


def test_making_a_leaf_computes_nothing_and_shares_plans() -> None:
    def train() -> int:
        w = Tensor.rand(3)
        w.requires_grad = True
        assert "lazy" in repr(w)
        (w * w).sum().backward()
        assert w.grad is not None
        realize_all([w.grad, w])
        np.testing.assert_array_equal(w.grad.numpy(), 2 * w.numpy())
        return len(_plans)

    assert train() == train()


def test_a_result_that_reads_nothing_has_a_gradient_before_and_after_reading() -> None:
    w = tensor(1.0, 2.0)
    zeros = w.apply(lambda u: u.const_like(0))
    for total in (1.0, 2.0):
        (w + zeros).sum().backward([w])
        assert grad_of(w) == [total, total]
        assert zeros.tolist() == [0.0, 0.0]

"""What ``backward`` asks of a gradient engine, which core itself does not have."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from uopc.plugins import PluginHost, hookimpl, use
from uopc.tensor import Tensor, realize_all
from uopc.uop import UOp


@pytest.fixture
def asked() -> Iterator[list[tuple[UOp, list[UOp]]]]:
    """An engine whose every gradient is ones, and what it was asked."""
    calls: list[tuple[UOp, list[UOp]]] = []

    @hookimpl
    def uopc_gradient(root: UOp, seed: object, targets: list[UOp]) -> list[UOp]:
        calls.append((root, list(targets)))
        return [t.const_like(1) for t in targets]

    host = PluginHost(block=("autodiff", "c"))
    host.register_module(SimpleNamespace(uopc_gradient=uopc_gradient), "ones")
    with use(host):
        yield calls


def test_backward_without_an_engine_says_what_to_install() -> None:
    w = Tensor([1.0], requires_grad=True)
    loss = w.sum()
    with (
        use(PluginHost(block=("autodiff",))),
        pytest.raises(
            RuntimeError,
            match="backward needs a gradient engine: pip install uopc-autodiff",
        ),
    ):
        loss.backward([w])


def test_backward_is_of_a_scalar(asked) -> None:
    with pytest.raises(AssertionError, match=r"backward needs a scalar.*\(2,\)"):
        Tensor([1.0, 2.0], requires_grad=True).backward()
    assert not asked


def test_gradients_add_up_and_backward_returns_the_tensor(asked) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum()
    assert loss.backward([w]) is loss
    assert w.grad.tolist() == [1, 1]
    loss.backward([w])
    assert w.grad.tolist() == [2, 2]
    w.grad = None
    loss.backward([w])
    assert w.grad.tolist() == [1, 1]


def test_without_a_list_every_leaf_that_wants_one_gets_a_gradient(asked) -> None:
    a, b, c = (Tensor([float(i)], requires_grad=i < 2) for i in range(3))
    other = Tensor([1.0], requires_grad=True)
    (a * b * c).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert c.grad is other.grad is None


READS = {
    "item": lambda loss: loss.item(),
    "twice": lambda loss: (loss.item(), loss.numpy()),
    "together": lambda loss: realize_all([loss]),
    "the same tensor twice": lambda loss: realize_all([loss, loss]),
    "not": lambda loss: None,
}


@pytest.mark.parametrize("name", READS)
def test_a_value_that_was_read_still_has_its_graph(asked, name: str) -> None:
    w = Tensor(np.array([1.0, 2.0], np.float32), requires_grad=True)
    loss = (w * w).sum()
    graph = loss.uop
    READS[name](loss)
    loss.backward([w])
    assert asked == [(graph, [w.uop])]

"""The gradient of softmax and cross-entropy beside what one writes by hand."""

from __future__ import annotations

import pytest

from uopc.autodiff import gradient
from uopc.composite import cross_entropy, one_hot, softmax
from uopc.dtype import f32, i32
from uopc.kernelize import make_plan
from uopc.rangeify import rangeify
from uopc.testing import buf
from uopc.uop import Ops, UOp, toposort

ROWS, CLASSES = 8, 10
SHAPE = (ROWS, CLASSES)
X = buf(0, ROWS * CLASSES).reshape(SHAPE)
Y = buf(1, ROWS, i32)


def by_hand(factor: UOp) -> UOp:
    """(softmax - one-hot) times what the mean divides by."""
    zero, minus_one = X.const_like(0.0), X.const_like(-1.0)
    return (softmax(X, 1) + one_hot(Y, CLASSES).where(minus_one, zero)) * factor


def size(root: UOp) -> tuple[int, int]:
    """Kernels, and the nodes of their simplified loop programs."""
    plan, _ = make_plan([root])
    programs = [rangeify([k.ast], "k") for k in plan.kernels]
    return len(programs), sum(len(toposort([p])) for p in programs)


@pytest.mark.parametrize("ignored", [None, -100])
def test_it_is_at_most_half_larger(ignored: int | None) -> None:
    (g,) = gradient(cross_entropy(X, Y, ignored), [X])
    factor = X.const_like(1 / ROWS)
    if ignored is not None:
        counted = Y.ne(ignored).cast(f32).reduce(Ops.ADD, 1).maximum(1.0).recip()
        factor = counted.reshape((1, 1)).expand(SHAPE)
    kernels, nodes = size(g)
    by_hand_kernels, by_hand_nodes = size(by_hand(factor))
    assert kernels == by_hand_kernels
    assert nodes <= 1.5 * by_hand_nodes

"""Gradients of convolutions: right to second order, and as cheap as the convolution."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from uopc.autodiff import gradient, vmap
from uopc.composite import conv, relu
from uopc.config import overriding
from uopc.dtype import f32
from uopc.kernelize import make_plan
from uopc.rangeify import rangeify
from uopc.runtime import backend_named
from uopc.tensor import Tensor
from uopc.testing import check_vjp
from uopc.uop import Ops, UOp, toposort

Plan = tuple[list[UOp], int]
GEOMETRIES = {
    "a step and padding": ((5, 6), (3, 2), (2, 1), [(1, 1), (0, 2)], (1, 1), 1),
    "a step larger than the kernel": ((7, 5), (2, 1), (3, 2), [(0, 0)] * 2, (1, 1), 1),
    "a step and gaps that share a divisor": (
        (9, 6), (3, 2), (4, 2), [(2, 1), (1, 1)], (2, 2), 1),
    "gaps": ((6, 7), (2, 3), (1, 1), [(1, 0), (2, 2)], (3, 2), 1),
    "kernel as large as the input": ((4, 3), (4, 3), (1, 1), [(0, 0)] * 2, (1, 1), 1),
    "1x1": ((3, 4), (1, 1), (1, 1), [(0, 0)] * 2, (1, 1), 2),
    "each channel by itself": ((4, 5), (3, 3), (1, 2), [(1, 1)] * 2, (1, 1), 4),
    "more padding than kernel": ((3, 2), (2, 2), (1, 3), [(4, 3), (5, 0)], (1, 1), 2),
}  # fmt: skip


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_derivatives(name: str) -> None:
    lengths, kernel, stride, padding, dilation, groups = GEOMETRIES[name]
    x, w, b = drawn(2, 4, *lengths), drawn(4, 4 // groups, *kernel), drawn(4)
    with overriding(UOPC_OPT=0):  # the C that compiles fastest
        check_vjp(
            lambda x, w, b: x.conv2d(w, b, stride, padding, dilation, groups),
            [(x, w, b)],
            backends=("interp", "c"),
            directions=1,
        )


# -- what is computed ---------------------------------------------------------------


def planned(roots: list[UOp]) -> Plan:
    """The reductions of each kernel in C, and the largest buffer between kernels."""
    backend = backend_named("c")
    plan, _ = make_plan(roots, supports=backend.supports, backend=backend.name)
    between = [b.size for b in plan.buffers if b.role == "temporary"]
    return [k.ast for k in plan.kernels], max(between, default=0)


def leaf(slot: int, *shape: int) -> UOp:
    return UOp.buffer(math.prod(shape), f32, slot).reshape(shape)


def reductions(ast: UOp) -> int:
    return sum(u.op is Ops.REDUCE for u in toposort([ast]))


@pytest.mark.parametrize(
    ("stride", "dilation", "groups"), [*itertools.product((1, 2), (1, 2), (1, 4))]
)
def test_each_gradient_is_one_kernel_that_stores_no_windows(
    stride: int, dilation: int, groups: int
) -> None:
    x, w = leaf(0, 2, 4, 16, 16), leaf(1, 8, 4 // groups, 3, 3)
    padding = [(dilation, dilation)] * 2
    u = conv(x, w, [stride] * 2, padding, [dilation] * 2, groups)
    g = leaf(2, *u.shape)
    for root in [u, *gradient(u, [x, w], g)]:
        (kernel,), _ = planned([root])
        assert reductions(kernel) == 1
    # So is each of second order, but for a copy that turns axes.
    gx, gw = gradient(u, [x, w], g)
    for first, wrt in ((gx, [g, w]), (gw, [x, g])):
        for target, root in zip(
            wrt, gradient(first, wrt, leaf(3, *first.shape)), strict=True
        ):
            kernels, largest = planned([root])
            assert sum(map(reductions, kernels)) == 1 and len(kernels) <= 2
            assert largest <= math.prod(target.shape)


def test_a_training_step_of_two_layers() -> None:
    x, w, v = leaf(0, 8, 3, 32, 32), leaf(1, 16, 3, 3, 3), leaf(2, 16, 16, 3, 3)
    bias = leaf(3, 16)
    around = [1, 1], [(1, 1), (1, 1)], [1, 1]
    hidden = conv(x, w, *around)
    hidden = relu(hidden + bias.reshape((1, 16, 1, 1)).expand(hidden.shape))
    out = conv(hidden, v, *around)
    loss = (out * out).reduce(Ops.ADD, 4)
    kernels, largest = planned([loss, *gradient(loss, [w, v, bias])])
    # Two convolutions, the loss, what flows to the hidden layer, three gradients.
    assert len(kernels) == 7
    assert largest == 8 * 16 * 32 * 32


def test_terms_that_a_step_skips_are_not_computed() -> None:
    """A step of s leaves one in s * s products of the transposed convolution."""
    x, w = leaf(0, 1, 1, 12, 12), leaf(1, 1, 1, 4, 4)
    u = conv(x, w, [2, 2], [(1, 1), (1, 1)], [1, 1])
    gx = gradient(u, [x], leaf(2, *u.shape))[0]
    (kernel,), _ = planned([gx])
    loops = [n.arg.extent for n in toposort([rangeify([kernel], "k")])
             if n.op is Ops.RANGE]  # fmt: skip
    assert math.prod(loops) == 12 * 12 * 2 * 2


# -- over a batch -------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)], ids=str)
def test_a_batch_is_a_loop_and_one_convolution(axes: tuple[int | None, ...]) -> None:
    shapes = [(2, 4, 5, 6), (6, 2, 3, 2)]
    x, w = (
        drawn(3, *shape) if axis == 0 else drawn(*shape)
        for axis, shape in zip(axes, shapes, strict=True)
    )

    def f(x: Tensor, w: Tensor) -> Tensor:
        return x.conv2d(w, stride=2, padding=1, groups=2)

    got = vmap(f, axes)(Tensor(x), Tensor(w))
    assert sum(u.op is Ops.CONV for u in toposort([got.uop])) == 1
    assert not any(u.op is Ops.INDEX for u in toposort([got.uop]))
    pairs = list(zip(axes, (x, w), strict=True))
    for i in range(3):
        a, b = (v if axis is None else v[i] for axis, v in pairs)
        np.testing.assert_allclose(
            got.numpy()[i], f(Tensor(a), Tensor(b)).numpy(), atol=1e-12
        )


def test_gradients_of_each_example() -> None:
    """Of a shared weight, which is a batch of second-placed axes."""
    x, w = drawn(3, 1, 2, 6), drawn(4, 2, 3)

    def grads(x: Tensor) -> Tensor:
        weight = Tensor(w)
        out = x.conv1d(weight, padding=1)
        (g,) = gradient(out.square().sum().uop, [weight.uop])
        return Tensor(g)

    got = vmap(grads)(Tensor(x)).numpy()
    for i in range(3):
        np.testing.assert_allclose(got[i], grads(Tensor(x[i])).numpy(), atol=1e-12)

"""Gradients as text: the graphs of the worked examples, to the character."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from uopc.autodiff import gradient
from uopc.composite import matmul
from uopc.testing import buf
from uopc.uir import parse_uir, to_uir
from uopc.uop import OpDef, Ops, UOp


def _product_plus_x() -> list[UOp]:
    x, y = buf(0, 3), buf(1, 3)
    return gradient((x * y + x).reduce(Ops.ADD, 1), [x, y])


def _slice() -> list[UOp]:
    v = buf(0, 5)
    return gradient(v.shrink(((1, 3),)).reduce(Ops.ADD, 1), [v])


def _unrelated() -> list[UOp]:
    x, z = buf(0, 3), buf(1, 4)
    return gradient(x.reduce(Ops.ADD, 1), [z])


def _turned_sum() -> list[UOp]:
    x = buf(0, 6)
    return gradient(x.reshape((2, 3)).permute((1, 0)).reduce(Ops.ADD, 2), [x])


def _second_of_cube() -> list[UOp]:
    x = buf(0, 4)
    (g,) = gradient((x * x * x).reduce(Ops.ADD, 1), [x])
    return [g, *gradient(g.reduce(Ops.ADD, 1), [x])]


def _max_of_all() -> list[UOp]:
    x = buf(0, 3)
    return gradient(x.reduce(Ops.MAX, 1), [x])


PRINTED: dict[str, tuple[Callable[[], list[UOp]], int, str]] = {
    "sum(x * y + x) by x": (
        _product_plus_x,
        0,
        """\
%0 = reshape 1.0, (1,)
%1 = expand %0, (3,)
%2 = buffer 3 : dtype=f32 slot=1
%3 = mul %1, %2
%4 = add %1, %3""",
    ),
    "sum(x * y + x) by y": (
        _product_plus_x,
        1,
        """\
%0 = reshape 1.0, (1,)
%1 = expand %0, (3,)
%2 = buffer 3 : dtype=f32 slot=0
%3 = mul %1, %2""",
    ),
    "sum(v[1:3])": (
        _slice,
        0,
        """\
%0 = reshape 0.0, (1,)
%1 = expand %0, (4,)
%2 = reshape 1.0, (1,)
%3 = expand %2, (2,)
%4 = expand %0, (2,)
%5 = stack %3, %4
%6 = reshape %5, (4,)
%7 = stack %1, %6
%8 = reshape %7, (8,)
%9 = shrink %8, ((3, 8),)""",
    ),
    "an unrelated target": (
        _unrelated,
        0,
        """\
%0 = reshape 0.0, (1,)
%1 = expand %0, (4,)""",
    ),
    "a transposed sum reads nothing": (
        _turned_sum,
        0,
        """\
%0 = reshape 1.0, (1, 1)
%1 = expand %0, (3, 2)
%2 = permute %1, (1, 0)
%3 = reshape %2, (6,)""",
    ),
    "sum(x * x * x)": (
        _second_of_cube,
        0,
        """\
%0 = reshape 1.0, (1,)
%1 = expand %0, (4,)
%2 = buffer 4 : dtype=f32 slot=0
%3 = mul %2, %2
%4 = mul %1, %3
%5 = mul %1, %2
%6 = mul %5, %2
%7 = add %4, %6
%8 = add %7, %6""",
    ),
    "the maximum": (
        _max_of_all,
        0,
        """\
%0 = buffer 3 : dtype=f32 slot=0
%1 = reduce %0, max, 1
%2 = reshape %1, (1,)
%3 = expand %2, (3,)
%4 = cmplt %0, %3
%5 = reshape 0.0, (1,)
%6 = expand %5, (3,)
%7 = reshape 1.0, (1,)
%8 = expand %7, (3,)
%9 = cmpne %0, %3
%10 = reshape true:bool, (1,)
%11 = expand %10, (3,)
%12 = cmpne %9, %11
%13 = cast %12 : dtype=f32
%14 = mul %8, %13
%15 = reduce %13, add, 1
%16 = recip %15
%17 = reshape %16, (1,)
%18 = expand %17, (3,)
%19 = mul %14, %18
%20 = where %4, %6, %19""",
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_the_text_of_a_gradient(name: str) -> None:
    build, which, text = PRINTED[name]
    g = build()[which]
    assert to_uir(g) == text
    assert parse_uir(text) is g


def test_the_same_gradient_is_the_same_node() -> None:
    assert _second_of_cube()[1] is _second_of_cube()[1]


def _ops(root: UOp) -> list[OpDef]:
    return [u.op for u in root.toposort()]


def test_a_linear_slice_does_not_read_what_it_slices() -> None:
    assert Ops.BUFFER not in _ops(_slice()[0])
    assert Ops.BUFFER not in _ops(_turned_sum()[0])


def test_backward_refers_to_forward_nodes_themselves() -> None:
    x, y = buf(0, 3), buf(1, 3)
    h = (x * y).exp2()
    gx, gy = gradient(h.reduce(Ops.ADD, 1), [x, y])
    assert all(h in g.toposort() for g in (gx, gy))
    assert y in gx.toposort() and x in gy.toposort()


M, N, K = 2, 3, 4


def _matmul() -> tuple[UOp, UOp, UOp, list[UOp]]:
    x = UOp.param(0, buf(0, 1).dtype, (M, K))
    w = UOp.param(1, buf(0, 1).dtype, (K, N))
    y = matmul(x, w)
    return x, w, y, gradient(y, [x, w], UOp.param(2, y.dtype, y.shape))


def test_a_matmul_is_expand_multiply_and_sum() -> None:
    _, _, y, _ = _matmul()
    assert (
        to_uir(y)
        == """\
%0 = param 0 : dtype=f32 shape=(2, 4)
%1 = reshape %0, (2, 1, 4)
%2 = expand %1, (2, 3, 4)
%3 = param 1 : dtype=f32 shape=(4, 3)
%4 = permute %3, (1, 0)
%5 = reshape %4, (1, 3, 4)
%6 = expand %5, (2, 3, 4)
%7 = mul %2, %6
%8 = reduce %7, add, 1"""
    )


def test_the_gradient_of_a_matmul_is_two_matmuls() -> None:
    x, w, _, (gx, gw) = _matmul()
    assert (gx.shape, gw.shape) == (x.shape, w.shape)
    for g in (gx, gw):
        products = [u for u in g.toposort() if u.op is Ops.MUL]
        sums = [u for u in g.toposort() if u.op is Ops.REDUCE]
        assert [u.shape for u in products] == [(M, N, K)]
        assert [u.arg for u in sums] == [(Ops.ADD, 1)]
    assert next(u for u in gx.toposort() if u.op is Ops.REDUCE).shape == (M, K)
    # X^T @ G comes out as (N, K); the last node turns it around.
    assert next(u for u in gw.toposort() if u.op is Ops.REDUCE).shape == (N, K)
    assert gw.op is Ops.PERMUTE and gw.arg == (1, 0)

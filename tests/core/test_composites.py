"""Functions over ops: the graphs they build, to the character, and their values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uopc.composite import (
    absolute,
    broadcast_shape,
    broadcast_to,
    cat,
    full,
    iota,
    matmul,
    one_hot,
    pad,
    reduce_axes,
    relu,
    sum_to,
    zeros_like,
)
from uopc.dtype import boolean, f32, i32, u8
from uopc.interp import evaluate
from uopc.testing import buf
from uopc.uir import to_uir
from uopc.uop import Ops, UOp, toposort

B = "%0 = buffer 6 : dtype=f32 slot=0\n"
ONES = "%0 = reshape 1.0, (1,)\n%1 = expand %0, (2,)\n"

GRAPHS: dict[str, tuple[Callable[[], UOp], str]] = {
    "buf": (lambda: buf(1, 3), "%0 = buffer 3 : dtype=f32 slot=1"),
    "buf of": (lambda: buf(1, 3, i32), "%0 = buffer 3 : dtype=i32 slot=1"),
    "scalar constant": (lambda: full((), 2.0, f32), "%0 = const 2.0"),
    "shaped constant": (lambda: full((2, 3), 0.5, f32),
        "%0 = reshape 0.5, (1, 1)\n%1 = expand %0, (2, 3)"),
    "zeros": (lambda: zeros_like(buf(0, 6, u8)),
        "%0 = reshape 0:u8, (1,)\n%1 = expand %0, (6,)"),
    # What places a gradient back at the window [1, 3) of five elements.
    "pad": (lambda: pad(full((2,), 1.0, f32), [(1, 2)]),
        "%0 = reshape 0.0, (1,)\n%1 = expand %0, (4,)\n%2 = reshape 1.0, (1,)\n"
        "%3 = expand %2, (2,)\n%4 = expand %0, (2,)\n%5 = stack %3, %4\n"
        "%6 = reshape %5, (4,)\n%7 = stack %1, %6\n%8 = reshape %7, (8,)\n"
        "%9 = shrink %8, ((3, 8),)"),
    "pad nothing": (lambda: pad(full((2,), 1.0, f32), [(0, 0)]), ONES.strip()),
    "sum_to": (lambda: sum_to(buf(0, 6).reshape((2, 3)), (1, 3)),
        B + "%1 = reshape %0, (2, 3)\n%2 = permute %1, (1, 0)\n"
        "%3 = reduce %2, add, 1\n%4 = reshape %3, (1, 3)"),
    "sum_to leaves ones": (lambda: sum_to(buf(0, 6).reshape((1, 6)), (1, 1)),
        B + "%1 = reshape %0, (1, 6)\n%2 = permute %1, (0, 1)\n"
        "%3 = reduce %2, add, 1\n%4 = reshape %3, (1, 1)"),
    "sum_to itself": (lambda: sum_to(buf(0, 6), (6,)), B.strip()),
    "reduce first": (lambda: reduce_axes(buf(0, 6).reshape((2, 3)), Ops.MAX, [0], True),
        B + "%1 = reshape %0, (2, 3)\n%2 = permute %1, (1, 0)\n"
        "%3 = reduce %2, max, 1\n%4 = reshape %3, (1, 3)"),
    "reduce last": (lambda: reduce_axes(buf(0, 6).reshape((2, 3)), Ops.ADD, [1], False),
        B + "%1 = reshape %0, (2, 3)\n%2 = reduce %1, add, 1"),
    "relu": (lambda: relu(buf(0, 6)),
        "%0 = reshape 0.0, (1,)\n%1 = expand %0, (6,)\n"
        "%2 = buffer 6 : dtype=f32 slot=0\n%3 = cmplt %1, %2\n%4 = where %3, %2, %1"),
    "absolute": (lambda: absolute(buf(0, 6)),
        B + "%1 = reshape -1.0, (1,)\n%2 = expand %1, (6,)\n%3 = mul %0, %2\n"
        "%4 = max %0, %3\n%5 = reshape 0.0, (1,)\n%6 = expand %5, (6,)\n"
        "%7 = add %4, %6"),
    "absolute of integers": (lambda: absolute(UOp.buffer(6, i32, 0)),
        "%0 = buffer 6 : dtype=i32 slot=0\n%1 = reshape -1, (1,)\n"
        "%2 = expand %1, (6,)\n%3 = mul %0, %2\n%4 = max %0, %3"),
    "matmul": (lambda: matmul(buf(0, 6).reshape((2, 3)), buf(1, 12).reshape((3, 4))),
        B + "%1 = reshape %0, (2, 3)\n%2 = reshape %1, (2, 1, 3)\n"
        "%3 = expand %2, (2, 4, 3)\n%4 = buffer 12 : dtype=f32 slot=1\n"
        "%5 = reshape %4, (3, 4)\n%6 = permute %5, (1, 0)\n"
        "%7 = reshape %6, (1, 4, 3)\n%8 = expand %7, (2, 4, 3)\n"
        "%9 = mul %3, %8\n%10 = reduce %9, add, 1"),
    "broadcast": (lambda: broadcast_to(buf(0, 6), (2, 6)),
        B + "%1 = reshape %0, (1, 6)\n%2 = expand %1, (2, 6)"),
    "broadcast itself": (lambda: broadcast_to(buf(0, 6), (6,)), B.strip()),
    "detach": (lambda: buf(0, 6).detach(), B + "%1 = stage %0, detach"),
    "sum(x * y + x)": (
        lambda: (buf(0, 3) * buf(1, 3) + buf(0, 3)).reduce(Ops.ADD, 1),
        "%0 = buffer 3 : dtype=f32 slot=0\n%1 = buffer 3 : dtype=f32 slot=1\n"
        "%2 = mul %0, %1\n%3 = add %2, %0\n%4 = reduce %3, add, 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_the_graph(name: str) -> None:
    build, text = GRAPHS[name]
    assert to_uir(build()) == text


SHAPES = [
    ([(2, 3), (3,)], (2, 3)), ([(2, 1), (1, 3)], (2, 3)), ([()], ()), ([], ()),
    ([(), (4,)], (4,)), ([(0,), (1,)], (0,)), ([(1, 0), (3, 1)], (3, 0)),
    ([(2, 1, 1), (3, 1), (4,)], (2, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("shapes", "result"), SHAPES)
def test_broadcast_shapes(shapes, result) -> None:
    assert broadcast_shape(*shapes) == result == np.broadcast_shapes(*shapes)


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(4,\) do not broadcast.*3, 4"):
        broadcast_shape((2, 3), (4,))
    with pytest.raises(ValueError, match="equal or 1"):
        broadcast_shape((0,), (2,))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("before", [0, 1, 4, 9])
@pytest.mark.parametrize("after", [0, 2, 7, 16])
def test_pad_of_any_width(n: int, before: int, after: int) -> None:
    x = np.arange(1, 2 * n + 1, dtype=np.float32).reshape(2, n)
    u = UOp.param(0, f32, x.shape)
    (got,) = evaluate([pad(u, [(0, 0), (before, after)])], {u: x})
    np.testing.assert_array_equal(got, np.pad(x, [(0, 0), (before, after)]))
    (got,) = evaluate([pad(u, [(before, after), (1, 0)])], {u: x})
    np.testing.assert_array_equal(got, np.pad(x, [(before, after), (1, 0)]))


def test_pad_is_of_logarithmic_size() -> None:
    nodes = [len(toposort([pad(buf(0, 1), [(0, w)])])) for w in (2**6, 2**12, 2**18)]
    assert nodes[2] - nodes[1] == nodes[1] - nodes[0]
    assert nodes[2] < 100


def test_joining_many_parts_changes_no_value() -> None:
    x = np.array([-0.0, np.nan, np.inf], np.float32)
    parts = [UOp.param(i, f32, (3,)) for i in range(7)]
    (got,) = evaluate([cat(parts, 0)], dict.fromkeys(parts, x))
    assert got.tobytes() == np.tile(x, 7).tobytes()


def test_one_hot_of_small_index_types() -> None:
    idx = UOp.param(0, u8, (3,))
    u = one_hot(idx, 300)
    assert u.dtype is boolean
    (got,) = evaluate([u], {idx: np.array([0, 44, 255], np.uint8)})
    assert np.argwhere(got).tolist() == [[0, 0], [1, 44], [2, 255]]


def test_iota() -> None:
    assert iota(3) is UOp(Ops.IOTA, (), 3)

"""Index expressions of chains of movement ops, as a careful person would write them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from uopc.composite import cat, pad, stack
from uopc.dtype import i32
from uopc.interp import evaluate
from uopc.rangeify import rangeify
from uopc.uop import Ops, UOp


def buf(*shape: int, slot: int = 0) -> UOp:
    return UOp.buffer(math.prod(shape), i32, slot).reshape(shape)


def flip(u: UOp, *axes: int) -> UOp:
    return UOp(Ops.FLIP, (u,), axes)


def strided(u: UOp, axis: int, step: int) -> UOp:
    """u[..., ::step, ...], by padding, splitting and shrinking."""
    n = u.shape[axis]
    count = -(-n // step)
    widths = [(0, 0)] * len(u.shape)
    widths[axis] = (0, count * step - n)
    before, after = u.shape[:axis], u.shape[axis + 1 :]
    split = pad(u, widths).reshape((*before, count, step, *after))
    window = [(0, 1 if a == axis + 1 else m) for a, m in enumerate(split.shape)]
    return split.shrink(window).reshape((*before, count, *after))


def windows(u: UOp, axis: int, size: int) -> UOp:
    """(..., n, ...) -> (..., size, n - size + 1, ...): repeat, then rows of n + 1."""
    n = u.shape[axis]
    before, after = u.shape[:axis], u.shape[axis + 1 :]
    copies = u.reshape((*before, 1, n, *after)).expand((*before, size + 1, n, *after))
    line = copies.reshape((*before, (size + 1) * n, *after))
    whole = [(0, m) for m in line.shape]
    whole[axis] = (0, size * (n + 1))
    rows = line.shrink(whole).reshape((*before, size, n + 1, *after))
    whole = [(0, m) for m in rows.shape]
    whole[axis + 1] = (0, n - size + 1)
    return rows.shrink(whole)


def transposed(u: UOp) -> UOp:
    return u.permute(range(len(u.shape))[::-1])


def repeat(u: UOp, times: int) -> UOp:
    return u.reshape((1, *u.shape)).expand((times, *u.shape))


def convolved(padding: int) -> UOp:
    """What a 3 x 3 convolution over 2 channels of 5 x 5 reads: C, kh, oh, kw, ow."""
    x = pad(buf(2, 5, 5), [(0, 0), (padding, padding), (padding, padding)])
    return windows(windows(x, 1, 3), 3, 3)


def text(u: UOp, binding: int = 0) -> str:
    """``u`` in usual notation: loop variables i, j, k, l, m, and buffers x, y."""
    match u.op:
        case Ops.RANGE:
            return "ijklm"[u.arg[0]]
        case Ops.CONST:
            return str(u.value)
        case Ops.INDEX if len(u.src) == 2:
            return f"{'xy'[u.src[0].arg[2]]}[{text(u.src[1])}]"
        case Ops.INDEX:
            read = UOp(Ops.INDEX, u.src[:2])
            mine, line = 0, f"{text(u.src[2], 1)} ? {text(read)} : 0"
        case Ops.WHERE:
            cond, a, b = u.src
            mine, line = 0, f"{text(cond, 1)} ? {text(a, 1)} : {text(b, 1)}"
        case Ops.ADD:
            mine, line = 3, f"{text(u.src[0], 3)} + {text(u.src[1], 3)}"
            line = line.replace("+ -", "- ")
        case Ops.MUL:
            mine, line = 4, f"{text(u.src[1])}*{text(u.src[0], 6)}".replace("-1*", "-")
        case _:
            sign, mine = {
                Ops.AND: (" & ", 1),
                Ops.CMPLT: (" < ", 2),
                Ops.FLOORDIV: ("//", 5),
                Ops.FLOORMOD: ("%", 5),
            }[u.op]
            line = sign.join(text(s, mine) for s in u.src)
    return f"({line})" if mine < binding else line


# What a chain of ops on one or two buffers reads where.
TABLE: dict[str, tuple[Callable[[], UOp], str]] = {
    "copy": (lambda: buf(4, 6), "x[6*i + j]"),
    "merge": (lambda: buf(4, 6).reshape((24,)), "x[i]"),
    "split": (lambda: buf(24).reshape((4, 6)), "x[6*i + j]"),
    "split twice": (
        lambda: buf(24).reshape((4, 6)).reshape((2, 2, 3, 2)),
        "x[12*i + 6*j + 2*k + l]",
    ),
    "regroup": (lambda: buf(4, 6).reshape((8, 3)), "x[3*i + j]"),
    "regroup across": (lambda: buf(4, 6).reshape((3, 8)), "x[8*i + j]"),
    "regroup there and back": (
        lambda: buf(4, 6).reshape((3, 8)).reshape((4, 6)),
        "x[6*i + j]",
    ),
    "regroup three times": (
        lambda: buf(6, 10).reshape((4, 15)).reshape((12, 5)).reshape((3, 20)),
        "x[20*i + j]",
    ),
    "ones in between": (
        lambda: buf(4, 6).reshape((4, 1, 6)).reshape((1, 24, 1)),
        "x[i]",
    ),
    "transpose": (lambda: transposed(buf(4, 6)), "x[6*j + i]"),
    "transpose twice": (lambda: transposed(transposed(buf(4, 6))), "x[6*i + j]"),
    "rotate axes": (lambda: buf(2, 3, 4).permute((1, 2, 0)), "x[12*k + 4*i + j]"),
    "rotate and rotate back": (
        lambda: buf(2, 3, 4).permute((1, 2, 0)).permute((2, 0, 1)),
        "x[12*i + 4*j + k]",
    ),
    "merge a transpose": (
        lambda: transposed(buf(4, 6)).reshape((24,)),
        "x[6*(i%4) + i//4]",
    ),
    "merge a transpose and split it": (
        lambda: transposed(buf(4, 6)).reshape((24,)).reshape((6, 4)),
        "x[6*j + i]",
    ),
    "a round trip through a transpose": (
        lambda: transposed(transposed(buf(4, 6)).reshape((24,)).reshape((6, 4))),
        "x[6*i + j]",
    ),
    "regroup a transpose and back": (
        lambda: transposed(buf(4, 6)).reshape((8, 3)).reshape((6, 4)),
        "x[6*j + i]",
    ),
    "heads of attention": (
        lambda: buf(5, 12).reshape((5, 3, 4)).permute((1, 0, 2)),
        "x[12*j + 4*i + k]",
    ),
    "heads put together": (
        lambda: buf(3, 5, 4).permute((1, 0, 2)).reshape((5, 12)),
        "x[20*(j//4) + 4*i + j%4]",
    ),
    "heads apart and together": (
        lambda: (
            buf(5, 12)
            .reshape((5, 3, 4))
            .permute((1, 0, 2))
            .permute((1, 0, 2))
            .reshape((5, 12))
        ),
        "x[12*i + j]",
    ),
    "blocks": (
        lambda: buf(8, 6).reshape((4, 2, 3, 2)).permute((0, 2, 1, 3)),
        "x[12*i + 6*k + 2*j + l]",
    ),
    "blocks and back": (
        lambda: (
            buf(8, 6)
            .reshape((4, 2, 3, 2))
            .permute((0, 2, 1, 3))
            .permute((0, 2, 1, 3))
            .reshape((8, 6))
        ),
        "x[6*i + j]",
    ),
    "blocks in a row": (
        lambda: buf(8, 6).reshape((4, 2, 3, 2)).permute((0, 2, 1, 3)).reshape((12, 4)),
        "x[12*(i//3) + 6*(j//2) + 2*(i%3) + j%2]",
    ),
    "pixel shuffle": (
        lambda: (
            buf(4, 3, 5).reshape((2, 2, 3, 5)).permute((2, 0, 3, 1)).reshape((6, 10))
        ),
        "x[30*(i%2) + 15*(j%2) + 5*(i//2) + j//2]",
    ),
    "expand": (lambda: buf(4, 1).expand((4, 6)), "x[i]"),
    "expand and merge": (lambda: buf(4, 1).expand((4, 6)).reshape((24,)), "x[i//6]"),
    "repeat": (lambda: repeat(buf(5), 3), "x[j]"),
    "tile": (lambda: repeat(buf(5), 3).reshape((15,)), "x[i%5]"),
    "tile and split again": (
        lambda: repeat(buf(5), 3).reshape((15,)).reshape((3, 5)),
        "x[j]",
    ),
    "repeat each": (lambda: buf(5, 1).expand((5, 3)).reshape((15,)), "x[i//3]"),
    "expand a transpose": (
        lambda: repeat(transposed(buf(4, 6)), 2).reshape((12, 4)),
        "x[6*j + i%6]",
    ),
    "a row of ones": (lambda: buf(1, 6).expand((4, 6)).reshape((2, 2, 6)), "x[k]"),
    "slice": (lambda: buf(24).shrink([(5, 17)]), "x[i + 5]"),
    "slice of rows": (lambda: buf(4, 6).shrink([(1, 3), (0, 6)]), "x[6*i + j + 6]"),
    "slice of columns": (lambda: buf(4, 6).shrink([(0, 4), (2, 5)]), "x[6*i + j + 2]"),
    "slice of a slice": (
        lambda: buf(24).shrink([(5, 17)]).shrink([(3, 9)]),
        "x[i + 8]",
    ),
    "slice of a merge": (
        lambda: buf(4, 6).reshape((24,)).shrink([(6, 18)]),
        "x[i + 6]",
    ),
    "rows of a merge": (
        lambda: buf(4, 6).reshape((24,)).shrink([(6, 18)]).reshape((2, 6)),
        "x[6*i + j + 6]",
    ),
    "slice of a split": (
        lambda: buf(24).reshape((4, 6)).shrink([(1, 3), (2, 4)]).reshape((4,)),
        "x[6*(i//2) + i%2 + 8]",
    ),
    "slice of a transpose": (
        lambda: transposed(buf(4, 6)).shrink([(1, 5), (2, 4)]),
        "x[6*j + i + 13]",
    ),
    "one element of each row": (
        lambda: buf(4, 6).shrink([(0, 4), (3, 4)]).reshape((4,)),
        "x[6*i + 3]",
    ),
    "one row": (lambda: buf(4, 6).index(2), "x[i + 12]"),
    "flip": (lambda: flip(buf(6), 0), "x[-i + 5]"),
    "flip twice": (lambda: flip(flip(buf(6), 0), 0), "x[i]"),
    "flip rows": (lambda: flip(buf(4, 6), 0), "x[-6*i + j + 18]"),
    "flip both": (lambda: flip(buf(4, 6), 0, 1), "x[-6*i - j + 23]"),
    "flip of a merge": (lambda: flip(buf(4, 6).reshape((24,)), 0), "x[-i + 23]"),
    "flip, merged and split": (
        lambda: flip(buf(4, 6).reshape((24,)), 0).reshape((4, 6)),
        "x[-6*i - j + 23]",
    ),
    "flip of a slice": (lambda: flip(buf(24).shrink([(5, 17)]), 0), "x[-i + 16]"),
    "flip of a transpose": (lambda: flip(transposed(buf(4, 6)), 1), "x[-6*j + i + 18]"),
    "turned by half": (
        lambda: flip(buf(4, 6).reshape((24,)), 0).reshape((4, 6)).permute((1, 0)),
        "x[-6*j - i + 23]",
    ),
    "every second": (lambda: strided(buf(12), 0, 2), "x[2*i]"),
    "every third of eleven": (lambda: strided(buf(11), 0, 3), "x[3*i]"),
    "every second row": (lambda: strided(buf(6, 4), 0, 2), "x[8*i + j]"),
    "every second of every second": (
        lambda: strided(strided(buf(16), 0, 2), 0, 2),
        "x[4*i]",
    ),
    "every second backwards": (lambda: strided(flip(buf(12), 0), 0, 2), "x[-2*i + 11]"),
    "odd places": (lambda: strided(buf(12).shrink([(1, 12)]), 0, 2), "x[2*i + 1]"),
    "pad": (lambda: pad(buf(6), [(1, 2)]), "0 < i & i < 7 ? x[i - 1] : 0"),
    "pad after": (lambda: pad(buf(6), [(0, 3)]), "i < 6 ? x[i] : 0"),
    "pad widely": (lambda: pad(buf(3), [(10, 20)]), "9 < i & i < 13 ? x[i - 10] : 0"),
    "pad one element": (lambda: pad(buf(1), [(2, 3)]), "1 < i & i < 3 ? x[0] : 0"),
    "pad both axes": (
        lambda: pad(buf(4, 6), [(1, 1), (2, 3)]),
        "1 < j & j < 8 & 0 < i & i < 5 ? x[6*i + j - 8] : 0",
    ),
    "pad a transpose": (
        lambda: pad(transposed(buf(4, 6)), [(1, 0), (0, 2)]),
        "j < 4 & 0 < i ? x[6*j + i - 1] : 0",
    ),
    "pad and merge": (
        lambda: pad(buf(4, 6), [(0, 0), (0, 2)]).reshape((32,)),
        "i%8 < 6 ? x[6*(i//8) + i%8] : 0",
    ),
    "pad and transpose": (
        lambda: transposed(pad(buf(4, 6), [(1, 1), (0, 0)])),
        "0 < j & j < 5 ? x[6*j + i - 6] : 0",
    ),
    "pad and take away": (lambda: pad(buf(6), [(2, 3)]).shrink([(2, 8)]), "x[i]"),
    "pad and keep a part": (
        lambda: pad(buf(6), [(2, 3)]).shrink([(0, 6)]),
        "1 < i ? x[i - 2] : 0",
    ),
    "pad twice": (
        lambda: pad(pad(buf(6), [(1, 1)]), [(2, 2)]),
        "2 < i & i < 9 ? x[i - 3] : 0",
    ),
    "pad a slice": (
        lambda: pad(buf(12).shrink([(3, 9)]), [(3, 3)]),
        "2 < i & i < 9 ? x[i] : 0",
    ),
    "pad a flip": (
        lambda: pad(flip(buf(6), 0), [(1, 2)]),
        "0 < i & i < 7 ? x[-i + 6] : 0",
    ),
    "flip what is padded": (
        lambda: flip(pad(buf(6), [(1, 2)]), 0),
        "i < 8 & 1 < i ? x[-i + 7] : 0",
    ),
    "pad a sum": (
        lambda: pad(buf(6) + buf(6, slot=1), [(1, 1)]),
        "0 < i & i < 7 ? (0 < i & i < 7 ? x[i - 1] : 0) + (0 < i & i "
        "< 7 ? y[i - 1] : 0) : 0",
    ),
    "a sum of padded ones": (
        lambda: pad(buf(6), [(1, 0)]) + pad(buf(6, slot=1), [(0, 1)]),
        "(0 < i ? x[i - 1] : 0) + (i < 6 ? y[i] : 0)",
    ),
    "every second, put back": (
        lambda: pad(strided(buf(12), 0, 2).reshape((6, 1)), [(0, 0), (0, 1)]).reshape(
            (12,)
        ),
        "i%2 < 1 ? x[2*(i//2)] : 0",
    ),
    "windows": (lambda: windows(buf(8), 0, 3), "x[i + j]"),
    "windows of padded": (
        lambda: windows(pad(buf(8), [(1, 1)]), 0, 3),
        "0 < i + j & i + j < 9 ? x[i + j - 1] : 0",
    ),
    "every second window": (lambda: strided(windows(buf(9), 0, 3), 1, 2), "x[2*j + i]"),
    "windows of rows": (lambda: windows(buf(6, 4), 0, 3), "x[4*i + 4*j + k]"),
    "image to columns": (lambda: convolved(0), "x[25*i + 5*j + 5*k + l + m]"),
    "image to columns, padded": (
        lambda: convolved(1),
        "0 < l + m & l + m < 6 & 0 < j + k & j + k < 6 ? x[25*i + "
        "5*j + 5*k + l + m - 6] : 0",
    ),
    "image to columns, in a line": (
        lambda: convolved(0).permute((0, 1, 3, 2, 4)).reshape((18, 9)),
        "x[25*(i//9) + 5*(i//3%3) + 5*(j//3) + i%3 + j%3]",
    ),
    "pooling": (
        lambda: buf(4, 6).reshape((2, 2, 3, 2)).permute((0, 2, 1, 3)),
        "x[12*i + 6*k + 2*j + l]",
    ),
    "pooling merged": (
        lambda: buf(4, 6).reshape((2, 2, 3, 2)).permute((0, 2, 1, 3)).reshape((6, 4)),
        "x[12*(i//3) + 6*(j//2) + 2*(i%3) + j%2]",
    ),
    "stack": (lambda: stack([buf(6), buf(6, slot=1)]), "i < 1 ? x[j] : y[j]"),
    "stack inside": (lambda: stack([buf(6), buf(6, slot=1)], 1), "j < 1 ? x[i] : y[i]"),
    "interleave": (
        lambda: stack([buf(6), buf(6, slot=1)], 1).reshape((12,)),
        "i%2 < 1 ? x[i//2] : y[i//2]",
    ),
    "first of a stack": (lambda: stack([buf(6), buf(6, slot=1)]).index(0), "x[i]"),
    "second half of a stack": (
        lambda: stack([buf(6), buf(6, slot=1)]).reshape((12,)).shrink([(6, 12)]),
        "y[i]",
    ),
    "end to end": (
        lambda: cat([buf(6), buf(6, slot=1)], 0),
        "i < 6 ? (i < 6 ? x[i] : 0) : (5 < i ? y[i - 6] : 0)",
    ),
    "rows end to end": (
        lambda: cat([buf(4, 6), buf(4, 6, slot=1)], 1),
        "j < 6 ? (j < 6 ? x[6*i + j] : 0) : (5 < j ? y[6*i + j - 6] : 0)",
    ),
    "columns end to end": (
        lambda: cat([buf(4, 6), buf(4, 6, slot=1)], 0),
        "i < 4 ? (i < 4 ? x[6*i + j] : 0) : (3 < i ? y[6*i + j - 24] : 0)",
    ),
    "different lengths": (
        lambda: cat([buf(4), buf(7, slot=1)], 0),
        "i < 4 ? (i < 4 ? x[i] : 0) : (3 < i ? y[i - 4] : 0)",
    ),
    "roll": (
        lambda: cat([buf(6).shrink([(4, 6)]), buf(6).shrink([(0, 4)])], 0),
        "i < 2 ? (i < 2 ? x[i + 4] : 0) : (1 < i ? x[i - 2] : 0)",
    ),
    "rotary halves": (
        lambda: cat(
            [buf(3, 8).shrink([(0, 3), (4, 8)]), buf(3, 8).shrink([(0, 3), (0, 4)])], 1
        ),
        "j < 4 ? (j < 4 ? x[8*i + j + 4] : 0) : (3 < j ? x[8*i + j - 4] : 0)",
    ),
    "upper triangle by padding": (
        lambda: (
            pad(buf(4, 4), [(0, 0), (0, 1)])
            .reshape((20,))
            .shrink([(0, 16)])
            .reshape((4, 4))
        ),
        "(4*i + j)%5 < 4 ? x[4*((4*i + j)//5) + (4*i + j)%5] : 0",
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_an_index_is_written_as_a_person_would(name: str, run_program) -> None:
    build, expected = TABLE[name]
    root = build()
    sink = rangeify([root], "k")
    store = sink
    while store.op is not Ops.STORE:
        store = store.src[-1]
    assert text(store.src[2]) == expected
    data = {
        u: np.arange(1, u.shape[0] + 1, dtype=np.int32) * (u.arg[2] + 1)
        for u in root.toposort()
        if u.op is Ops.BUFFER
    }
    (got,) = run_program(sink, {u.arg[2]: x for u, x in data.items()}).values()
    (value,) = evaluate([root], data)
    np.testing.assert_array_equal(got, value.reshape(-1))

"""The text form says everything about a graph and reads back as the same object."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from uopc.dtype import DTYPES, boolean, f32, f64, i8, i32, i64, u8, u64
from uopc.testing.graphs import random_graph
from uopc.uir import format_literal, parse_uir, to_uir
from uopc.uop import BUILTIN_OPS, Literal, Ops, UOp


def buf(n: int = 6, dtype=f32, slot: int = 0) -> UOp:
    return UOp.buffer(n, dtype, slot)


def loop(number: int = 0, extent: int = 6) -> UOp:
    return UOp(Ops.RANGE, (), (number, extent, i32))


def store(slot: int = 1) -> UOp:
    read = UOp(Ops.INDEX, (buf(), loop()))
    return UOp(Ops.STORE, (buf(6, f32, slot), loop(), read * 2.0))


# A graph with each op, and its text.
TEXTS: dict[str, tuple[Callable[[], UOp], str]] = {
    "const": (lambda: UOp.const(1.5, f32), "%0 = const 1.5"),
    "const typed": (lambda: UOp.const(7, u64), "%0 = const 7:u64"),
    "buffer": (lambda: buf(3, f32, 1), "%0 = buffer 3 : dtype=f32 slot=1"),
    "buffer whole": (lambda: UOp.buffer(3, f64, 1, 2, "local"),
                     "%0 = buffer 3 : dtype=f64 slot=1 version=2 space=local"),
    "param": (lambda: UOp.param(4, i8, (2, 3)),
              "%0 = param 4 : dtype=i8 shape=(2, 3)"),
    "param scalar": (lambda: UOp.param(4, i8), "%0 = param 4 : dtype=i8"),
    "iota": (lambda: UOp(Ops.IOTA, (), 5), "%0 = iota 5"),
    "constants inline": (lambda: buf() + 1.0,
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = reshape 1.0, (1,)\n"
        "%2 = expand %1, (6,)\n%3 = add %0, %2"),
    "cast": (lambda: buf().cast(i64),
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = cast %0 : dtype=i64"),
    "where": (lambda: UOp.param(0, boolean).where(
        UOp.const(1, i32), UOp.const(-1, i32)),
        "%0 = param 0 : dtype=bool\n%1 = where %0, 1, -1"),
    "reshape": (lambda: buf().reshape((2, 3)),
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = reshape %0, (2, 3)"),
    "reshape to nothing": (lambda: buf(1).reshape(()),
        "%0 = buffer 1 : dtype=f32 slot=0\n%1 = reshape %0, ()"),
    "permute": (lambda: buf().reshape((2, 3)).permute((1, 0)),
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = reshape %0, (2, 3)\n"
        "%2 = permute %1, (1, 0)"),
    "shrink": (lambda: buf().shrink([(1, 4)]),
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = shrink %0, ((1, 4),)"),
    "flip": (lambda: UOp(Ops.FLIP, (buf(),), (0,)),
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = flip %0, (0,)"),
    "reduce": (lambda: buf().reduce(Ops.MAX, 1),
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = reduce %0, max, 1"),
    "stack": (lambda: UOp.stack([buf(), buf(6, f32, 1)]),
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = buffer 6 : dtype=f32 slot=1\n"
        "%2 = stack %0, %1"),
    "index": (lambda: buf().index(3),
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = index %0, 3"),
    "stage": (lambda: buf().detach(),
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = stage %0, detach"),
    "loops": (lambda: UOp(Ops.SINK, (UOp(Ops.END, (loop(), store())),), "e_6"),
        "%0 = range 0, 6 : dtype=i32\n%1 = buffer 6 : dtype=f32 slot=1\n"
        "%2 = buffer 6 : dtype=f32 slot=0\n%3 = index %2, %0\n%4 = mul %3, 2.0\n"
        "%5 = store %1, %0, %4\n%6 = end %0, %5\n%7 = sink %6, e_6"),
    "call": (lambda: UOp(Ops.AFTER, (buf(), UOp(Ops.CALL, (store(), buf())))),
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = buffer 6 : dtype=f32 slot=1\n"
        "%2 = range 0, 6 : dtype=i32\n%3 = index %0, %2\n%4 = mul %3, 2.0\n"
        "%5 = store %1, %2, %4\n%6 = call %5, %0\n%7 = after %0, %6"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_each_op(name: str) -> None:
    build, text = TEXTS[name]
    graph = build()
    assert to_uir(graph) == text
    assert parse_uir(text) is graph


def sample(op) -> UOp:
    """The first example of the op, of the first type that it takes."""
    placeholders = (UOp.param(0, dtype, (2, 3)) for dtype in DTYPES.values())
    return next(u for x in placeholders for u in op.examples(x))


@pytest.mark.parametrize("op", BUILTIN_OPS, ids=str)
def test_every_op_reads_back(op) -> None:
    graph = sample(op)
    assert graph.op is op
    assert parse_uir(to_uir(graph)) is graph
    assert f"= {op.name}" in to_uir(graph).splitlines()[-1]


NUMBERS = (0.0, -0.0, 1.0, -2.5, 0.1, 1e-45, 1e-40, 3.4028235e38, 1e16, 123456789.0,
           1 / 3, 1 / 320, math.inf, -math.inf, math.nan, 2**24 + 1)  # fmt: skip


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_constants_of_every_type_read_back(dtype) -> None:
    if dtype.is_float:
        rng = np.random.default_rng(0)
        bits = rng.integers(0, 2 ** (8 * dtype.itemsize - 1), 200, np.uint64)
        word = bits.astype(f"u{dtype.itemsize}").view(dtype.numpy).tolist()
        values = [*NUMBERS, *word, 5e-324, 1.7976931348623157e308]
    else:
        middle = [v for v in (-1, 0, 1) if dtype.min <= v <= dtype.max]
        values = [dtype.min, *middle, dtype.max]
    for value in values:
        node = UOp.const(value, dtype)
        assert parse_uir(to_uir(node)) is node
        # As a source it is written in place.
        assert parse_uir(to_uir(node.cast(f64 if dtype is f32 else f32))).src == (node,)


LITERALS = [
    (1.0, f32, "1.0"), (-0.0, f32, "-0.0"), (0.1, f32, "0.1"), (1e20, f32, "1e+20"),
    (math.inf, f32, "inf"), (math.nan, f32, "nan"), (1, i32, "1"), (-7, i32, "-7"),
    (1.0, f64, "1.0:f64"), (0.1, f64, "0.1:f64"), (1, u8, "1:u8"), (3, i64, "3:i64"),
    (True, boolean, "true:bool"), (False, boolean, "false:bool"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "dtype", "text"), LITERALS)
def test_bare_numbers_are_f32_and_i32(value, dtype, text: str) -> None:
    assert format_literal(Literal.of(value, dtype)) == text
    assert parse_uir(f"%0 = const {text}") is UOp.const(value, dtype)


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_read_back(seed: int) -> None:
    graph = random_graph(seed, steps=18, max_elements=64)
    for root in graph.roots:
        assert parse_uir(to_uir(root)) is root
    joined = UOp(Ops.SINK, graph.roots, "roots")
    assert parse_uir(graph.text()) is joined


def test_shared_nodes_are_written_once_and_children_come_first() -> None:
    x = buf()
    twice = x * x
    lines = to_uir(twice + twice).splitlines()
    assert lines[1:] == ["%1 = mul %0, %0", "%2 = add %1, %1"]


def test_layout_and_comments_do_not_matter() -> None:
    text = """
    # a comment
      %7=buffer   6 : dtype = f32   slot=0   # three

    %3 =  reshape %7 ,(2 ,3,)
    %10 = reduce %3,add,1   # the root
    """
    assert parse_uir(text) is buf().reshape((2, 3)).reduce(Ops.ADD, 1)
    assert parse_uir(text.replace("\n", "\r\n")) is parse_uir(text)


def test_large_sizes_read_back() -> None:
    for size in (2**31 - 1, 2**31, 2**40):
        graph = UOp.buffer(size, f32, 2**33).reshape((size, 1))
        assert parse_uir(to_uir(graph)) is graph
    wide = UOp(Ops.RANGE, (), (0, 2**40, i64))
    assert parse_uir(to_uir(wide)) is wide


def test_unused_lines_are_allowed_and_the_last_is_the_root() -> None:
    text = "%0 = iota 4\n%1 = iota 5\n%2 = cast %0 : dtype=f32"
    assert parse_uir(text) is UOp(Ops.IOTA, (), 4).cast(f32)


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.is_float], ids=str)
def test_a_float_is_printed_with_the_fewest_digits(dtype) -> None:
    for text in ("0.1", "-0.3", "1.0", "0.7", "20.0", "1e-05", "1.5", "3.1"):
        literal = Literal.of(float(text), dtype)
        assert format_literal(literal).partition(":")[0] == text

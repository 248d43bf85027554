"""Blocks of strided reads, turned in registers, against the interpreter."""

import math
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from loop_programs import (
    Array,
    buf,
    compare,
    compiled,
    end,
    local,
    loop,
    printed,
    read,
    sink,
    source,
    store,
)

from uopc.backend_c.toolchain import find_compiler
from uopc.dtype import DType, boolean, f16, f32, f64, i32, i64
from uopc.rangeify import rangeify
from uopc.schedule import Target, apply_schedule, choose_schedule
from uopc.uop import UOp

Case = tuple[UOp, dict[int, Array]]
ROUNDS = 3


def block(
    name: str, width: int, stride: int, columns: Sequence[int], dtype: DType = f32
) -> Case:
    """``out[i, c, lane] = x[first + i + stride*lane + c]`` for each of the columns.

    Of the buffer, not one element more is there than is read.
    """
    i, lane = loop(0, ROUNDS), loop(1, width, "vector")
    first = max(0, -stride * (width - 1)) - min(columns)
    size = ROUNDS + abs(stride) * (width - 1) + max(columns) - min(columns)
    x, out = buf(0, size, dtype), buf(1, ROUNDS * len(columns) * width, dtype)
    body = [
        store(
            out,
            i * (len(columns) * width) + lane + n * width,
            read(x, i + lane * stride + (c + first)),
        )
        for n, c in enumerate(columns)
    ]
    rng = np.random.default_rng(size)
    return sink(name, end(i, end(lane, *body))), {
        0: rng.integers(0, 2 if dtype is boolean else 1000, size).astype(dtype.numpy)
    }


def turned() -> Iterator[Case]:
    for dtype, widths in (
        (f32, (2, 4, 8, 16)),
        (f64, (2, 4, 8)),
        (i32, [8]),
        (i64, [4]),
    ):
        for width in widths:
            for stride in (2, 37, -19):
                name = f"{dtype.name}_{width}_{stride}".replace("-", "back")
                yield block(name, width, stride, range(width), dtype)
    yield block("backwards", 8, 9, range(8)[::-1])
    yield block("mixed", 8, 9, [3, 7, 1, 0, 2, 6, 5, 4])
    yield block("more", 4, 11, range(7))
    yield block("twice", 4, 11, [*range(8), 2, 3])
    yield block("elsewhere", 4, 11, [20, 1, 2, 3, 4, 9])
    yield arithmetic()


def arithmetic() -> Case:
    """Two blocks with the same lanes, added up; and one of them twice."""
    lane = loop(0, 4, "vector")
    x, y, out = buf(0, 40, f32), buf(1, 40, f32), buf(2, 16, f32)
    body = [
        store(out, lane + 4 * c, read(x, lane * 7 + c) * read(y, lane * 5 + (c + 2)))
        for c in range(4)
    ]
    rng = np.random.default_rng(1)
    data = {n: rng.standard_normal(40).astype(np.float32) for n in (0, 1)}
    return sink("arithmetic", end(lane, *body)), data


def left_alone() -> Iterator[Case]:
    yield block("too_few", 8, 9, range(7))
    yield block("hole", 4, 9, [0, 1, 3, 4])
    yield block("no_power", 3, 9, range(3))
    yield block("beside", 4, 1, range(4))
    yield block("bytes", 4, 9, range(4), boolean)
    yield block("halves", 4, 9, range(4), f16)
    yield in_place()
    yield gated()
    yield in_registers()


def in_place() -> Case:
    """What a store writes, later ones read."""
    lane, x = loop(0, 4, "vector"), buf(0, 40, f32)
    body = [
        store(x, lane * 5 + c, read(x, lane * 5 + (c + 1) % 4) + 1.0) for c in range(4)
    ]
    return sink("in_place", end(lane, *body)), {0: np.arange(40, dtype=np.float32)}


def gated() -> Case:
    lane, x, out = loop(0, 4, "vector"), buf(0, 9, f32), buf(1, 16, f32)
    body = [
        store(out, lane + 4 * c, read(x, lane * 5 + c, lane * 5 + c < 9))
        for c in range(4)
    ]
    return sink("gated", end(lane, *body)), {0: np.arange(9, dtype=np.float32)}


def in_registers() -> Case:
    """A local array that is read by its elements and so is no array."""
    lane, x = loop(0, 2, "vector"), local(9, 4, f32)
    out = buf(1, 4, f32)
    filled = [store(x, n, UOp.const(n * 1.5, f32)) for n in range(4)]
    body = [store(out, lane + 2 * c, read(x, lane * 2 + c)) for c in range(2)]
    return sink("in_registers", *filled, end(lane, *body)), {}


@pytest.mark.parametrize("flags", [("-O2", "-march=native"), ("-O1",)])
def test_blocks_are_turned(flags: tuple[str, ...], tmp_path: Path) -> None:
    cases = dict(turned())
    for program in cases:
        assert "uopc_transpose_" in printed(program).body, program.arg
    if "-O1" in flags:
        cases = dict(list(cases.items())[::3])
    wrong = compare(cases, tmp_path, *flags)
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:10]])


def test_other_reads_are_left_alone(tmp_path: Path) -> None:
    cases = dict(left_alone())
    for program in cases:
        if program.arg != "in_registers":
            assert "uopc_transpose_" not in printed(program).body, program.arg
    assert not compare(cases, tmp_path, "-O2", "-march=native")


def transposes(target: Target) -> Iterator[Case]:
    """Scheduled, with rows and columns that are left over."""
    rng = np.random.default_rng(0)
    for dtype in (f32, f64):
        for shape in ((64, 48), (37, 91), (3, 50, 21), (20, 2, 16)):
            word = "x".join(map(str, shape))
            x = UOp.buffer(math.prod(shape), dtype, 0).reshape(shape)
            order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
            order = order[::-1] if shape[1] == 2 else order
            kernel = rangeify([x.permute(order) * 3.0], f"{dtype.name}_{word}")
            steps = choose_schedule(kernel, target)
            data = rng.standard_normal(math.prod(shape)).astype(dtype.numpy)
            yield apply_schedule(kernel, steps), {0: data}


@pytest.mark.parametrize("size", [16, 32])
def test_transposes(size: int, tmp_path: Path) -> None:
    cases = dict(transposes(Target(vector_bytes=size, registers=16, fma=False)))
    for program in cases:
        assert "uopc_transpose_" in printed(program).body, program.arg
    assert not compare(cases, tmp_path, "-O2", "-march=native")


def test_a_shuffle_that_older_compilers_have(tmp_path: Path) -> None:
    command = find_compiler().argv
    if "__clang__" in source([]) or "clang" in " ".join(command):
        return  # clang has the other one only, since long ago
    cases = [
        block(f"{d.name}_{n}", n, 17, range(n), d)
        for n in (2, 4, 8)
        for d in (f32, f64)
    ]
    older = ("-O2", "-march=native", "-U__GNUC__", "-D__GNUC__=11")
    assert not compare(dict(cases), tmp_path, *older)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="targets of x86-64")
def test_a_block_is_loaded_and_turned_by_few_instructions(tmp_path: Path) -> None:
    """Eight loads, 24 shuffles or blends and eight stores, for 64 elements."""
    program, _ = block("few", 8, 100, range(8))
    flags = ("-O2", "-march=x86-64-v3", "-S", "-c")
    text = compiled(source([program]), tmp_path, *flags).read_text()
    loads = [t for t in text.splitlines() if "vmovss" in t or "vinsertps" in t]
    assert "few:" in text and not loads

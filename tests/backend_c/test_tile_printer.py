"""Tiles as shared functions, and stores past the cache, against the interpreter."""

import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from loop_programs import (
    Array,
    buf,
    compare,
    end,
    local,
    loop,
    read,
    sink,
    source,
    store,
)

from uopc.backend_c.toolchain import BASE_FLAGS, find_compiler
from uopc.dtype import DType, boolean, f32, f64, i32, u8
from uopc.uop import Ops, UOp

Case = tuple[UOp, dict[int, Array]]


def whole(n: int, dtype: DType, seed: int) -> Array:
    """Numbers of which every sum of products is exact."""
    return np.random.default_rng(seed).integers(-4, 5, n).astype(dtype.numpy)


def tile(
    name: str, rows: int, vectors: int, lanes: int, depth: int, panels: int,
    dtype: DType = f32, kind: str = "serial", fma: bool = True,
) -> Case:  # fmt: skip
    """Blocks of ``rows`` by ``vectors`` of sums over ``depth``, from packed panels."""
    width, blocks = vectors * lanes, 2
    o, p = loop(0, blocks, kind), loop(1, panels, "tile")
    k, lane = loop(2, depth), loop(3, lanes, "vector")
    left = buf(0, blocks * depth * rows, dtype)
    right = buf(1, panels * depth * width, dtype)
    out = buf(2, blocks * panels * rows * width, dtype)
    packed = local(0, depth * rows, dtype)
    sums = local(1, panels * rows * width, dtype)
    acc = local(2, rows * width, dtype)
    places = [lane + n * lanes for n in range(rows * vectors)]
    start = [store(acc, a, UOp.const(0, dtype)) for a in places]
    add = []
    for n, a in enumerate(places):
        i, v = divmod(n, vectors)
        x = read(packed, k * rows + i)
        y = read(right, (p * depth + k) * width + v * lanes + lane)
        sum_ = read(acc, a)
        value = UOp(Ops.FMA, (x, y, sum_)) if fma else sum_ + x * y
        add.append(store(acc, a, value))
    keep = [store(sums, p * (rows * width) + a, read(acc, a)) for a in places]
    body = [end(lane, *start), end(k, end(lane, *add)), end(lane, *keep)]
    j, q = loop(4, depth * rows), loop(5, panels * rows * vectors)
    at = q * lanes + lane
    program = end(
        o,
        end(j, store(packed, j, read(left, o * (depth * rows) + j))),
        end(p, *body),
        end(q, end(lane, store(out, o * (panels * rows * width) + at, read(sums, at)))),
    )
    data = {0: whole(left.arg.size, dtype, 0), 1: whole(right.arg.size, dtype, 1)}
    return sink(name, program), data


def tiles() -> Iterator[Case]:
    yield tile("plain", 6, 2, 8, 4, 2)
    yield tile("deeper", 6, 2, 8, 5, 3, kind="parallel")
    yield tile("single", 1, 1, 8, 3, 1)
    yield tile("doubles", 4, 3, 4, 5, 2, f64)
    yield tile("unfused", 2, 2, 4, 5, 2, f32, fma=False)
    yield tile("integers", 3, 1, 8, 4, 2, i32, fma=False)
    yield from others()


def others() -> Iterator[Case]:
    """Nests that need more than pointers: numbers, conditions, gates, remainders."""
    data = {0: whole(200, f32, 2), 1: whole(200, f32, 3)}
    x, y, out = buf(0, 200, f32), buf(1, 200, f32), buf(2, 200, f32)
    o, t, k = loop(0, 3), loop(1, 4, "tile"), loop(2, 5)
    lane, rest = loop(3, 8, "vector"), loop(4, 3, "vector")
    at = o * 40 + t * 8 + lane
    # A number from memory, one from a loop outside, and one that the nest changes.
    number = read(y, o) * 2.0 + o.cast(f32)
    count = local(0, 1, f32)
    step = store(count, 0, read(count, 0) + 1.0)
    value = read(x, at) * number + read(count, 0)
    nest = end(t, step, end(lane, store(out, at, value)))
    yield sink("numbers", store(count, 0, UOp.const(0.0, f32)), end(o, nest)), data
    # Statements under a condition, and reads with gates that know the outer loop.
    gate = o * 8 + t * 2 + lane < 20
    body = end(lane, store(out, at, read(x, at + 3, gate)))
    strided = store(out, t * 3 + rest + 150, read(y, rest * 2 + o))
    nest = end(t, body, end(o + t < 4, end(rest, strided)))
    yield sink("gates", end(o, nest)), data
    # Positions that are no sums: gathered, and divided.
    place = (o * 7 + t * 5) // 3
    table = buf(3, 40, i32)
    rows = {3: np.arange(40, dtype=np.int32)[::-1].copy() * 4}
    gathered = read(x, read(table, place) + k)
    nest = end(t, end(k, store(out, o * 20 + t * 5 + k, gathered)))
    yield sink("gathered", end(o, nest)), {**data, **rows}
    # One buffer at two places, of which one is written.
    before = end(k, end(lane, store(out, k * 8 + lane, read(y, k * 8 + lane))))
    sum_ = read(out, o * 8 + lane) + read(x, at)
    moved = end(o, end(t, end(lane, store(out, t * 8 + lane + 120, sum_))))
    yield sink("moved", before, moved), data
    # A condition that keeps a read inside its buffer, wherever that is done.
    short = buf(5, 2, f32)
    unread = end(t, end(o < 2, store(out, o * 40 + t * 8, read(short, o) + read(x, t))))
    yield sink("unread", end(o, unread)), {**data, 5: whole(2, f32, 6)}
    flags = buf(4, 200, boolean)
    scaled = end(t, end(lane, store(flags, at, read(x, at) < read(y, o))))
    yield sink("flags", end(o, scaled)), data


def test_tiles_do_what_loops_do(tmp_path: Path) -> None:
    wrong = compare(dict(tiles()), tmp_path, "-O2", "-march=native")
    assert not wrong, "\n".join(wrong)


def functions(programs: list[UOp]) -> list[str]:
    return re.findall(r"void (uopc_tile_\w+)\(", source(programs))


def test_tiles_of_one_form_share_a_function() -> None:
    alike = [tile("a", 6, 2, 8, 9, 2)[0], tile("b", 6, 2, 8, 64, 3, kind="parallel")[0]]
    assert len(functions(alike)) == 1
    assert len(functions([*alike, tile("c", 4, 2, 8, 9, 2)[0]])) == 2
    # How far apart tiles are may be the same for several pointers.
    assert len(functions([*alike, tile("d", 6, 2, 8, 6, 2)[0]])) == 1
    # What the function is given: pointers, how far apart tiles are, how many rounds.
    text = source(alike)
    name = functions(alike)[0]
    calls = re.findall(rf"  {name}\((.*)\);", text)
    assert calls == [
        "&acc0[0], &data1[0], &acc1[0], 144LL, 96LL, 2, 9",
        "&acc0[0], &data1[0], &acc1[0], 1024LL, 96LL, 3, 64",
    ]
    body = text[text.index(name) :].partition("\n}\n")[0]
    assert "f32x8 acc0_0, acc0_1," in body
    assert "acc0_11 = uopc_fma_f32x8(" in body
    assert "#pragma" not in body


def test_two_pointers_into_one_buffer_may_meet() -> None:
    text = source([program for program, _ in others() if program.arg == "moved"])
    (pointers,) = re.findall(r"void uopc_tile_\w+\((.*?), long", text)
    assert sorted(pointers.split(", ")) == [
        "const float* data0",
        "const float* restrict data1",
        "float* data2",
    ]


def test_what_a_condition_keeps_from_being_read_is_not_read_before() -> None:
    text = source([program for program, _ in others() if program.arg == "unread"])
    assert "&data5[ridx0]" in text
    assert "= data5[" not in text


@pytest.mark.parametrize(
    ("march", "rows", "vectors", "lanes"),
    [("x86-64-v3", 6, 2, 8), ("x86-64-v4", 14, 2, 16), ("x86-64-v4", 6, 4, 16)],
)
def test_sums_of_a_tile_stay_in_registers(
    march: str, rows: int, vectors: int, lanes: int, tmp_path: Path
) -> None:
    if platform.machine() != "x86_64":
        return  # the registers of other machines are not looked at
    file = tmp_path / "tile.c"
    file.write_text(source([tile("k", rows, vectors, lanes, 64, 2)[0]]))
    flags = [f for f in BASE_FLAGS if f != "-shared"]
    command = [*find_compiler().argv, *flags, "-O3", f"-march={march}", "-S"]
    done = subprocess.run(
        [*command, str(file), "-o", "-"], capture_output=True, text=True, check=True
    )
    found = re.search(r"^uopc_tile_[\w.]+:(.*?)\.cfi_endproc", done.stdout, re.S | re.M)
    assert found is not None
    # Unless it is unrolled: one instruction for each vector of sums.
    assert found[1].count("vfmadd") % (rows * vectors) == 0
    register = "zmm" if lanes == 16 else "ymm"
    assert not re.findall(rf"%{register}\d+, -?\d*\(%r[sb]p\)", found[1])


def streams() -> Iterator[Case]:
    """Aligned or not, in tasks and outside, whole vectors and what is left."""
    for dtype in (f32, f64, u8, boolean):
        lanes = 32 // dtype.itemsize
        data = {0: whole(200, dtype, 5).astype(dtype.numpy)}
        x, out = buf(0, 200, dtype), buf(1, 240, dtype)
        for first in (0, 1):
            lane, rest = loop(1, lanes, "stream"), loop(2, 5, "stream")
            p = loop(0, 4, "parallel" if first else "serial")
            at = p * lanes + lane
            body = end(lane, store(out, at + first, read(x, at)))
            tail = end(rest, store(out, rest + 200, read(x, rest)))
            yield sink(f"stream_{dtype}_{first}", end(p, body), tail), data


def test_stores_past_the_cache(tmp_path: Path) -> None:
    cases = dict(streams())
    wrong = compare(cases, tmp_path, "-O2", "-march=native")
    assert not wrong, "\n".join(wrong)
    text = source(cases)
    # In every task, and at the end of every function that has such a store itself.
    assert text.count("  uopc_fence();\n}\n") == len(cases)
    assert "uopc_stream_f32x8((data1+" in text

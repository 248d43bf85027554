"""Parallel loops as tasks, and conditions, against the interpreter."""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from loop_programs import (
    Array,
    bits_equal,
    buf,
    compiled,
    end,
    local,
    loop,
    read,
    run_native,
    sink,
    source,
    store,
)

from uopc.dtype import f32, i64
from uopc.interp import run_loops
from uopc.uop import UOp

Case = tuple[UOp, dict[int, Array]]
# Runs the rounds from the last to the first: they must not depend on their order.
BACKWARDS = """
static void backwards(void (*task)(void**, long), void** table, long rounds) {
  while (rounds--) task(table, rounds);
}
void reverse(void) { uopc_parallel = backwards; }
"""


def zero(dtype=f32) -> UOp:
    return UOp.const(0, dtype)


def programs() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    data = {0: rng.standard_normal(64).astype(np.float32)}
    p, q, k = loop(0, 8, "parallel"), loop(1, 4, "parallel"), loop(2, 8)
    lane = loop(3, 8, "vector")
    x, out, last = buf(0, 64, f32), buf(1, 64, f32), buf(2, 4, f32)
    yield (
        sink(
            "copy",
            end(p, end(lane, store(out, p * 8 + lane, read(x, p * 8 + lane) * 2.0))),
        ),
        data,
    )
    # Sums by round, which the second loop and the rest read; a scalar for all.
    part, scale, own = local(0, 8, f32), local(1, 1, f32), local(2, 1, f32)
    first = end(
        p,
        store(own, 0, zero()),
        end(k, store(own, 0, read(own, 0) + read(x, p * 8 + k))),
        store(part, p, read(own, 0)),
    )
    second = end(q, store(last, q, read(part, q) * read(scale, 0) + read(part, q + 4)))
    after = store(out, 1, read(part, 3) + read(scale, 0))
    yield sink("sums", store(scale, 0, read(x, 5)), first, second, after), data
    # Variables and arrays of a round's own; a loop that is not used; 64-bit numbers.
    rows, sums = local(3, 64, f32), local(4, 8, f32)
    wide = loop(4, 3, "parallel", i64)
    body = [
        end(k, end(lane, store(rows, k * 8 + lane, read(x, k * 8 + lane) + 1.0))),
        end(lane, store(sums, lane, zero())),
        end(
            k, end(lane, store(sums, lane, read(sums, lane) + read(rows, k * 8 + lane)))
        ),
        end(
            lane,
            store(out, wide * UOp.const(8, i64) + lane.cast(i64), read(sums, lane)),
        ),
    ]
    yield sink("rows", end(wide, *body)), data
    again = end(loop(5, 3, "parallel"), end(lane, store(out, lane, read(x, lane))))
    yield sink("unused", again), data
    # Conditions of statements: of a loop's number, of data, and nested.
    big = UOp.const(3, k.dtype) < k
    inside = end(
        big, store(out, k, read(x, k)), end(k < 6, store(out, k + 8, read(x, 2)))
    )
    yield sink("if_index", end(k, inside, store(out, k + 16, read(x, k)))), data
    positive = zero() < read(x, p)
    task = end(p, end(positive, end(lane, store(out, p * 8 + lane, read(x, lane)))))
    yield sink("if_data", task), data


def test_tasks_do_what_loops_do(tmp_path: Path) -> None:
    cases = dict(programs())
    text = source(cases)
    path = compiled(text + BACKWARDS, tmp_path, "-O2", "-march=native")
    library = ctypes.CDLL(str(path))
    for order in ("forwards", "backwards"):
        if order == "backwards":
            library.reverse()
        for program, data in cases.items():
            got, want = run_native(library, program, data), run_loops(program, data)
            for slot, x in want.items():
                assert bits_equal(got[slot], x), (program.arg, order)

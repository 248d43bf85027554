"""Vector loops as C: memory, gates, tails, variables, against the interpreter."""

import platform
import re
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

from uopc.dtype import (
    DTYPES,
    DType,
    bf16,
    boolean,
    f16,
    f32,
    f64,
    i32,
    i64,
    u8,
)
from uopc.uop import Ops, UOp

Case = tuple[UOp, dict[int, Array]]


def numbers(n: int, dtype: DType, seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, n])
    if dtype is boolean:
        return rng.integers(0, 2, n).astype(bool)
    if dtype.is_int:
        return rng.integers(0, 100, n).astype(dtype.numpy)
    return dtype.round((rng.standard_normal(n) * 9).astype(dtype.numpy))


def copies(name: str, dtype: DType, width: int, index, gate=None, n: int = 200) -> Case:
    """``out[i*width + lane] = x[index(i, lane)]`` where the gate holds."""
    outer, lane = loop(0, 3), loop(1, width, "vector")
    x, out = buf(0, n, dtype), buf(1, 3 * width, dtype)
    value = read(x, index(outer, lane), None if gate is None else gate(outer, lane))
    body = end(outer, end(lane, store(out, outer * width + lane, value)))
    return sink(name, body), {0: numbers(n, dtype)}


STRIDES = {
    "one": lambda i, v: i * 5 + v + 3,
    "same": lambda i, v: i * 5 + 3,
    "two": lambda i, v: v * 2 + i,
    "back": lambda i, v: v * -1 + (i + 40),
    "back3": lambda i, v: v * -3 + 99 + i,
    "wide": lambda i, v: v.cast(i64) * UOp.const(4, i64) + 1,
    "quotient": lambda i, v: (i * 16 + v) // 16,
    "edge": lambda i, v: (i * 16 + v + 9) // 16,
    "remainder": lambda i, v: (i * 16 + v + 32) % 16,
    "crossing": lambda i, v: (i * 5 + v) // 3,
    "square": lambda i, v: v * v % 200,
}
GATES = {
    "uniform": lambda i, v: i < 2,
    "never": lambda i, v: i + v < 0,
    "always": lambda i, v: UOp.const(-1, i32) < v,
    "left": lambda i, v: UOp.const(7, i32) < i * 5 + v,
    "right": lambda i, v: i * 5 + v < 12,
    "both": lambda i, v: (UOp.const(2, i32) < i * 5 + v) & (v * 2 + i < 15),
    "negated": lambda i, v: (i * 5 + v < 7).logical_not(),
    "odd": lambda i, v: (v % 2).ne(0),
    "either": lambda i, v: (v < 2) | (UOp.const(4, i32) < v),
}


def reads() -> Iterator[Case]:
    """Every dtype, width, stride and gate, though not every combination."""
    types = list(DTYPES.values())
    for width in range(1, 18):
        for k in range(0, len(types), 3):
            dtype = types[(width + k) % len(types)]
            yield copies(f"tail_{dtype}_{width}", dtype, width, STRIDES["one"])
    for stride, index in STRIDES.items():
        for dtype, width in ((f32, 8), (boolean, 5), (u8, 16), (f16, 3), (f64, 4)):
            yield copies(f"{stride}_{dtype}", dtype, width, index)
    for k, (gate, condition) in enumerate(GATES.items()):
        for j, (stride, index) in enumerate(STRIDES.items()):
            n, skipped = divmod(k + j, 2)
            if not skipped:
                dtype, width = (f32, boolean, f64, u8, bf16)[n % 5], 8 - n % 2
                yield copies(f"{gate}_{stride}", dtype, width, index, condition)


def outside() -> Iterator[Case]:
    """Gates that alone keep a read inside its buffer, at both ends."""

    def padded(i: UOp, v: UOp) -> UOp:
        return i * 8 + v + -5

    def inside(i: UOp, v: UOp) -> UOp:
        return (UOp.const(4, i32) < i * 8 + v) & (i * 8 + v < 17)

    for dtype in (f32, boolean, i64):
        for width in (4, 8, 3):
            yield copies(f"pad_{dtype}_{width}", dtype, width, padded, inside, 12)
            # An index from memory, wild where the gate says no.
            lane, at = loop(0, width, "vector"), buf(1, width, i32)
            wild = np.array(
                [5, -(2**31), 3, 11, 2**31 - 1, 0, -1, 12][:width], np.int32
            )
            safe = (wild >= 0) & (wild < 12)
            gate = read(buf(2, width, boolean), lane)
            value = read(buf(0, 12, dtype), read(at, lane), gate)
            body = end(lane, store(buf(3, width, dtype), lane, value))
            data = {0: numbers(12, dtype), 1: wild, 2: safe}
            yield sink(f"wild_{dtype}_{width}", body), data


def writes() -> Iterator[Case]:
    """Stores with strides, gathered places, one place for all, and in place."""
    for dtype in (f32, boolean, f64, u8, f16):
        for width in (8, 5):
            lane, x = loop(0, width, "vector"), buf(0, 40, dtype)
            out = buf(1, 60, dtype)
            value = read(x, lane + 2)
            places = {
                "row": lane + 1, "column": lane * 3 + 2, "back": lane * -2 + 40,
                "jumps": lane * lane % 60, "last": UOp.const(7, i32),
            }  # fmt: skip
            for name, at in places.items():
                body = end(lane, store(out, at, value))
                yield sink(f"{name}_{dtype}_{width}", body), {0: numbers(40, dtype)}
            same = end(lane, store(out, lane, UOp.const(1, dtype)))
            yield sink(f"same_{dtype}_{width}", same), {}
            # Read and written at once; the second store sees what the first wrote.
            both = [
                store(out, lane, read(x, lane)),
                store(out, lane + 8, read(out, lane)),
                store(out, lane, read(x, lane + 9)),
                store(out, lane + 16, read(out, lane)),
            ]
            yield (
                sink(f"twice_{dtype}_{width}", end(lane, *both)),
                {0: numbers(40, dtype)},
            )


def masks() -> Iterator[Case]:
    """Truth values found by operands of different widths, together."""
    for width in (8, 6):
        lane = loop(0, width, "vector")
        types = (f32, f64, u8, boolean, i64)
        data = {
            k: numbers(24, t, k) % 5 if t.is_int else numbers(24, t, k)
            for k, t in enumerate(types)
        }
        xs = [read(buf(k, 24, t), lane) for k, t in enumerate(types)]
        ys = [read(buf(k, 24, t), lane + 8) for k, t in enumerate(types)]
        less = [x < y for x, y in zip(xs, ys, strict=True)]
        flag = read(buf(3, 24, boolean), 3)
        values = {
            "and": less[0] & less[1], "or": less[2] | less[0], "xor": less[1] ^ less[2],
            "unequal": less[4].ne(less[2]), "before": less[0] < less[4],
            "max": UOp(Ops.MAX, (less[1], xs[3])), "not": less[0].logical_not(),
            "flag": (xs[3] & flag) | less[1], "choice": less[0].where(less[1], xs[3]),
            "uniform": flag.where(less[2], less[4]),
        }  # fmt: skip
        for name, value in values.items():
            out = buf(9, 24, boolean)
            yield sink(f"mask_{name}_{width}", end(lane, store(out, lane, value))), data
            for dtype in (f64, u8):
                a, b = (read(buf(7, 24, dtype), lane + k) for k in (0, 5))
                body = store(buf(9, 24, dtype), lane, value.where(a, b))
                more = {**data, 7: numbers(24, dtype, 7)}
                yield sink(f"where_{name}_{dtype}_{width}", end(lane, body)), more
                body = store(buf(9, 24, dtype), lane, value.cast(dtype))
                yield sink(f"cast_{name}_{dtype}_{width}", end(lane, body)), data


def variables() -> Iterator[Case]:
    """Accumulators: sums over rows in vectors, and across the lanes at the end."""
    for dtype in (f32, f64, i32, u8):
        for width, rest in ((8, 3), (4, 1)):
            n = 2 * width + rest
            lane, tail = loop(0, width, "vector"), loop(1, rest, "vector")
            k, zero = loop(2, 5), UOp.const(0, dtype)
            acc, x = local(0, n, dtype), buf(0, 5 * n, dtype)
            out = buf(1, n + 2, dtype)
            places = [(lane, lane), (lane, lane + width), (tail, tail + 2 * width)]
            start = [end(o, store(acc, p, zero)) for o, p in places]
            step = [
                end(o, store(acc, p, read(acc, p) + read(x, k * n + p)))
                for o, p in places
            ]
            finish = [end(o, store(out, p, read(acc, p))) for o, p in places]
            total = read(acc, 0)
            for i in range(1, width):
                total = total + read(acc, i)
            finish.append(store(out, n, total))
            finish.append(store(acc, 1, UOp.const(3, dtype)))
            finish.append(store(out, n + 1, read(acc, 1) + read(acc, 2)))
            name = f"rows_{dtype}_{width}"
            yield sink(name, *start, end(k, *step), *finish), {0: numbers(5 * n, dtype)}
    # Vectors that overlap have no variables of their own.
    lane, acc, out = loop(0, 8, "vector"), local(0, 12, f32), buf(1, 16, f32)
    x = buf(0, 32, f32)
    body = [
        end(lane, store(acc, lane, read(x, lane))),
        end(lane, store(acc, lane + 4, read(x, lane + 9))),
        end(
            lane, store(out, lane, read(acc, lane)), store(out, lane + 8, read(acc, 2))
        ),
    ]
    yield sink("overlapping", *body), {0: numbers(32, f32)}
    yield from flags()


def flags() -> Iterator[Case]:
    """Truth values in variables and in arrays."""
    lane, i = loop(0, 8, "vector"), loop(1, 8)
    x, out, acc = buf(0, 16, f32), buf(1, 24, boolean), local(0, 8, boolean)
    each = [end(i, store(out, i + 8, read(acc, i)))]
    for name, extra in (("kept", []), ("array", each)):
        body = [
            end(lane, store(acc, lane, read(x, lane) < read(x, lane + 8))),
            store(acc, 2, UOp.const(True, boolean)),
            end(lane, store(out, lane, read(acc, lane).logical_not())),
            store(out, 16, read(acc, 1)),
            *extra,
        ]
        yield sink(f"flags_{name}", *body), {0: numbers(16, f32)}


@pytest.mark.parametrize("cases", [reads, outside, writes, masks, variables])
def test_vector_loops_do_what_the_interpreter_does(cases, tmp_path: Path) -> None:
    wrong = compare(dict(cases()), tmp_path, "-O2", "-march=native")
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:20]])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="targets of x86-64")
def test_text_is_for_any_width_of_registers(tmp_path: Path) -> None:
    cases = [c for f in (reads, outside, writes, masks, variables) for c in f()][::12]
    narrow, flags = dict(cases), ("-O1", "-march=x86-64")
    assert not compare(narrow, tmp_path, *flags)
    for march in ("x86-64-v3", "x86-64-v4"):
        compiled(source(narrow), tmp_path, "-O1", f"-march={march}", "-c")


def test_a_lane_cannot_hand_a_value_on() -> None:
    lane, total, x = loop(0, 8, "vector"), buf(1, 1, f32), buf(0, 8, f32)
    program = sink("k", end(lane, store(total, 0, read(total, 0) + read(x, lane))))
    with pytest.raises(ValueError, match=r"hands a value of .* on from lane to lane"):
        printed(program)


def test_printed_text_of_a_vector_loop() -> None:
    i, lane = loop(0, 4), loop(1, 4, "vector")
    x, out = buf(0, 32, f32), buf(1, 16, f32)
    at = i * 4 + lane
    value = read(x, at) * 2.0 + read(x, i)
    text = printed(sink("k", end(i, end(lane, store(out, at, value))))).body
    assert text.splitlines() == [
        "void k(float* restrict data0, float* restrict data1) {",
        "  for (int ridx0 = 0; ridx0 < 4; ridx0++) {",
        "    f32x4 val1 = *(f32x4_mem*)(data0+(ridx0*4));",
        "    float val2 = data0[ridx0];",
        "    *(f32x4_mem*)(data1+(ridx0*4)) = ((val1*uopc_all_f32x4(2.0f))"
        "+uopc_all_f32x4(val2));",
        "  }",
        "}",
    ]


@pytest.mark.parametrize("kind", ["serial", "vector"])
def test_what_a_register_has_is_not_stored_into_it(kind: str) -> None:
    """Of a sum whose terms are all known to be 0, say."""
    i, lane, every = loop(0, 4), loop(1, 4, kind), loop(2, 4, kind)
    total, out = local(0, 4, f32), buf(0, 4, f32)
    start = end(every, store(total, every, every.cast(f32)))
    add = end(i, end(lane, store(total, lane, read(total, lane))))
    finish = end(every, store(out, every, read(total, every)))
    text = printed(sink("k", start, add, finish)).body
    assert not re.search(r"^ *(\S+) = \1;", text, re.M)
    assert "data0" in text

"""Every elementwise op on vectors, for every dtype, special values first."""

import ctypes
import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from loop_programs import (
    Array,
    bits_equal,
    buf,
    compiled,
    end,
    loop,
    read,
    run_native,
    sink,
    source,
    store,
)

from uopc.backend_c.cpu import features
from uopc.dtype import DTYPES, DType, bf16, boolean, f16, f32, f64
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp

LANES = 8
EXACT = [op for op in BUILTIN_OPS if op.kind == "elementwise" and op.exact]
EXACT = [op for op in EXACT if op is not Ops.CAST] + [Ops.MAX]
BY_CONSTANT = [Ops.FLOORDIV, Ops.FLOORMOD, Ops.SHL, Ops.SHR]


def special(dtype: DType) -> list[Any]:
    """The values of a type at which mistakes show."""
    if dtype is boolean:
        return [False, True]
    if dtype.is_int:
        near = {0, 1, 2, 3, 7, 8, 16, 31, 32, 63, 64, 100, -1, -2, -7, -100}
        ends = {dtype.min, dtype.min + 1, dtype.max, dtype.max - 1, dtype.max // 2}
        return sorted(v for v in near | ends if dtype.min <= v <= dtype.max)
    info = np.finfo(dtype.numpy)
    tiny, least = float(info.tiny), float(info.smallest_subnormal)
    most, digits = float(info.max), info.nmant
    if dtype is bf16:
        least, most, digits = 2.0**-133, (2 - 2.0**-7) * 2.0**127, 7
    positive = [0.0, 1.0, 0.5, 1.5, 2.5, 7.0, math.pi, 1e-3, math.inf]
    positive += [most, tiny, 0.75 * tiny, least, 2.0**digits + 1]
    return [*positive, *(-v for v in positive), math.nan]


def array(values: Any, dtype: DType) -> Array:
    kind = object if dtype.is_int else None  # NumPy would make floats of large ones
    with np.errstate(over="ignore"):
        return dtype.round(np.array(list(values), kind).astype(dtype.numpy))


def grid(dtype: DType, count: int) -> list[Array]:
    """Every combination of special values; for three, one after the other."""
    values = special(dtype)
    if count == 3:
        return [array(values[k * 5 :] + values[: k * 5], dtype) for k in range(3)]
    columns = zip(*itertools.product(values, repeat=count), strict=True)
    return [array(column, dtype) for column in columns]


def accepted(op: OpDef) -> Iterator[DType]:
    for dtype in DTYPES.values():
        kinds = [boolean if op is Ops.WHERE else dtype, *[dtype] * (op.arity - 1)]
        try:
            UOp(op, tuple(UOp.const(0, d) for d in kinds))
        except TypeError:
            continue
        # Half types are computed in f32; what is left are choices and casts.
        if not dtype.is_half or op is Ops.WHERE:
            yield dtype


def over_vectors(name: str, n: int, value: Any, out: UOp, width: int = LANES) -> UOp:
    """A loop over whole vectors and one over the rest; ``value`` is of an index."""
    whole, rest = divmod(n, width)
    outer, lane = loop(0, whole), loop(1, width, "vector")
    body = []
    if whole:
        i = outer * width + lane
        body.append(end(outer, end(lane, store(out, i, value(i)))))
    if rest:
        i = loop(2, rest, "vector")
        body.append(end(i, store(out, i + whole * width, value(i + whole * width))))
    return sink(name, *body)


def elementwise(
    name: str, op: OpDef, arrays: list[Array], types: list[DType], arg: Any = None,
    width: int = LANES, constant: Any = None,
) -> tuple[UOp, dict[int, Array]]:  # fmt: skip
    """An op on arrays, the last of which may be a constant instead."""
    n = len(arrays[0])
    buffers = [buf(k, n, dtype) for k, dtype in enumerate(types)]

    def value(i: UOp) -> UOp:
        operands = [read(b, i) for b in buffers]
        if constant is not None:
            operands[-1] = UOp.const(constant, types[-1])
        return UOp(op, tuple(operands), arg)

    out = buf(len(types), n, value(loop(0, n)).dtype)
    program = over_vectors(name, n, value, out, width)
    return program, dict(enumerate(arrays))


def exact_cases() -> Iterator[tuple[str, OpDef, list[Array], list[DType], Any, Any]]:
    for op in EXACT:
        for dtype in accepted(op):
            types = [boolean if op is Ops.WHERE else dtype, *[dtype] * (op.arity - 1)]
            arrays = grid(dtype, op.arity)
            if op is Ops.WHERE:
                arrays[0] = np.resize(np.array([True, False, False]), len(arrays[0]))
            yield f"{op.name}_{dtype}", op, arrays, types, None, None
            if op in BY_CONSTANT and dtype.is_int:
                few = {-3, -1, 0, 1, 6, dtype.bits, dtype.min, dtype.max}
                for k, v in enumerate(sorted(few)):
                    if dtype.min <= v <= dtype.max:
                        one = grid(dtype, 1) * 2
                        yield f"{op.name}_{dtype}_by{k}", op, one, types, None, v


def cast_values(source: DType, target: DType) -> Array:
    """Special values of the source and whatever lies around the target's ends."""
    values = special(source)
    if source.is_float and not target.is_float:
        for edge in (float(target.min), float(target.max)):
            near = [edge, edge - 0.5, edge + 0.5, edge - 1, edge + 1, 2 * edge]
            cell = array([edge], source)[0]
            for way in (-math.inf, math.inf):
                near.append(float(np.nextafter(cell, array([way], source)[0])))
            values += near
    if source.is_int:
        for width in (24, 53):
            near = [2**width + k for k in (-1, 0, 1, 2, 3)] + [2**width * 5 + 1]
            near += [3 * 2**width + 2 ** (width - 25), (1 << 63) - (1 << 9), 2**63 + 1]
            near += [-v for v in near]
            values += [v for v in near if source.min <= v <= source.max]
    rng = np.random.default_rng(3)
    if source.is_float:
        values += list(rng.standard_normal(200) * rng.choice([1e-6, 1, 1e4], 200))
    return array(values, source)


def cast_cases() -> Iterator[tuple[str, OpDef, list[Array], list[DType], Any, Any]]:
    for a, b in itertools.permutations(DTYPES.values(), 2):
        wide = {f16: (f32, f64), bf16: (f32, f64)}
        if (b.is_half and a not in wide[b]) or (a.is_half and b is not f32):
            continue  # such a cast is two of these
        yield f"cast_{a}_{b}", Ops.CAST, [cast_values(a, b)], [a], b, None


@pytest.mark.parametrize("cases", [exact_cases, cast_cases])
def test_every_op_on_vectors_is_what_numpy_says(cases, tmp_path: Path) -> None:
    programs = {}
    for name, op, arrays, types, arg, constant in cases():
        program, data = elementwise(name, op, arrays, types, arg, constant=constant)
        if constant is not None:
            arrays = [arrays[0], array([constant] * len(arrays[0]), types[1])]
        node = UOp(op, tuple(UOp.const(0, d) for d in types), arg)
        with np.errstate(all="ignore"):
            programs[program] = data, op.compute(node, *arrays)
    library = ctypes.CDLL(
        str(compiled(source(programs), tmp_path, "-O2", "-march=native"))
    )
    wrong = []
    for program, (data, want) in programs.items():
        (got,) = run_native(library, program, data).values()
        if not bits_equal(got, want):
            where = [
                i
                for i in range(len(want))
                if not bits_equal(got[i : i + 1], want[i : i + 1])
            ]
            i = where[0]
            args = [x[i] for x in data.values()]
            wrong.append(f"{program.arg}: {got[i]!r} instead of {want[i]!r} for {args}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(programs)}", *wrong])


def functions() -> Iterator[tuple[str, OpDef, DType, list[Array]]]:
    """Ops that are not correctly rounded, and those without a vector spelling."""
    for op, dtype in ((Ops.EXP2, f32), (Ops.SIN, f64), (Ops.POW, f32), (Ops.FMA, f32)):
        yield f"{op.name}_{dtype}", op, dtype, grid(dtype, op.arity)


def test_an_element_does_not_depend_on_the_width_of_its_vector(tmp_path: Path) -> None:
    programs: dict[str, list[UOp]] = {}
    data: dict[str, dict[int, Array]] = {}
    for name, op, dtype, arrays in functions():
        arrays = [x[:: max(1, len(x) // 60)] for x in arrays]
        for width in (1, 4, 8, 7):
            program, data[name] = elementwise(
                f"{name}_{width}", op, arrays, [dtype] * op.arity, width=width
            )
            programs.setdefault(name, []).append(program)
    text = source(p for several in programs.values() for p in several)
    library = ctypes.CDLL(str(compiled(text, tmp_path, "-O2", "-march=native")))
    for name, several in programs.items():
        first, *rest = (run_native(library, p, data[name]) for p in several)
        for other in rest:
            for slot, x in first.items():
                assert bits_equal(x, other[slot]), name


def test_multiply_add_on_vectors_is_that_of_scalars(tmp_path: Path) -> None:
    exact = "fma" in features() or "asimd" in features()
    rng = np.random.default_rng(1)
    for dtype in (f32, f64):
        arrays = [rng.standard_normal(203).astype(dtype.numpy) for _ in range(2)]
        arrays.append(-arrays[0] * arrays[1])  # what is left is what was cut off
        program, data = elementwise("vectors", Ops.FMA, arrays, [dtype] * 3)
        i = loop(0, 203)
        value = UOp(Ops.FMA, tuple(read(buf(k, 203, dtype), i) for k in range(3)))
        scalar = sink("scalars", end(i, store(buf(3, 203, dtype), i, value)))
        text = source([program, scalar])
        library = ctypes.CDLL(str(compiled(text, tmp_path, "-O2", "-march=native")))
        got, want = (run_native(library, p, data)[3] for p in (program, scalar))
        assert np.any(want != 0)
        if exact:
            assert bits_equal(got, want)
        else:
            assert np.allclose(got, want, atol=1e-6)

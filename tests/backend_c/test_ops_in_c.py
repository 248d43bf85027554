"""Every elementwise op in C against its NumPy meaning, special values first.

All cases of a level are one plan, so that one file is compiled per level.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import DTYPES, DType, bf16, boolean, f16, f32, f64
from uopc.runtime import backend_named, new_buffer, realize
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp, cast_array

Array = np.ndarray[Any, Any]

ELEMENTWISE = {op.name: op for op in BUILTIN_OPS if op.kind == "elementwise"}
# Not correctly rounded; all others must agree to the bit.
FUNCTIONS = ("exp2", "log2", "sin", "exp", "log", "log1p", "tanh", "sigmoid", "cos",
             "pow")  # fmt: skip
TRUE = {
    "pow": np.power,
    "sigmoid": lambda x: np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x))),
}
ULPS = 4
INTEGERS = [d.name for d in DTYPES.values() if d.is_int]
NARROW = [name for name in INTEGERS if DTYPES[name].bits < 32]


class Case(NamedTuple):
    root: UOp
    expected: Array


def special(dtype: DType) -> list[Any]:
    """The values of a type at which mistakes show."""
    if dtype is boolean:
        return [False, True]
    if dtype.is_int:
        near = {0, 1, 2, 3, 5, 7, 8, 16, 31, 32, 63, 64, 100, -1, -2, -3, -7, -100}
        ends = {dtype.min, dtype.min + 1, dtype.max, dtype.max - 1, dtype.max // 2}
        return sorted(v for v in near | ends if dtype.min <= v <= dtype.max)
    info = np.finfo(dtype.numpy)
    tiny, least = float(info.tiny), float(info.smallest_subnormal)
    most, digits = float(info.max), info.nmant
    if dtype is bf16:
        least, most, digits = 2.0**-133, (2 - 2.0**-7) * 2.0**127, 7
    positive = [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 7.0, math.pi, 100.0, 1e-3, 0.1, math.inf]
    positive += [most, tiny, 0.75 * tiny, least, 2.0**digits + 1]
    return [*positive, *(-v for v in positive), math.nan]


def array(values: Any, dtype: DType) -> Array:
    kind = object if dtype.is_int else None  # NumPy would make floats of large ones
    with np.errstate(over="ignore"):
        return dtype.round(np.array(list(values), kind).astype(dtype.numpy))


def drawn(dtype: DType, count: int, seed: int) -> Array:
    rng = np.random.default_rng([seed, *dtype.name.encode()])
    if dtype.is_float:
        scale = rng.choice([0.1, 1.0, 30.0], count)
        return dtype.round((rng.standard_normal(count) * scale).astype(dtype.numpy))
    raw = rng.integers(0, 256, count * dtype.itemsize, np.uint8)
    return (raw % 2).astype(bool) if dtype is boolean else raw.view(dtype.numpy)


def grid(dtype: DType, count: int) -> list[Array]:
    """``count`` arrays with every combination of special values, and more."""
    columns = zip(*itertools.product(special(dtype), repeat=count), strict=True)
    return [
        np.concatenate([array(column, dtype), drawn(dtype, 300, k)])
        for k, column in enumerate(columns)
    ]


def leaf(data: Array, dtype: DType) -> UOp:
    return new_buffer(dtype.store(data.copy()), dtype)


def case(op: OpDef, dtype: DType, *arrays: Array, arg: Any = None) -> Case:
    """An op on arrays of a type, and of bool."""
    types = [boolean if a.dtype == bool else dtype for a in arrays]
    root = UOp(op, tuple(map(leaf, arrays, types)), arg)
    with np.errstate(all="ignore"):
        return Case(root, op.compute(root, *arrays))


def accepted(op: OpDef) -> Iterator[DType]:
    for dtype in DTYPES.values():
        first = boolean if op is Ops.WHERE else dtype
        kinds = [first, *[dtype] * (op.arity - 1)]
        try:
            UOp(op, tuple(UOp.const(0, d) for d in kinds))
        except TypeError:
            continue
        yield dtype


def plain_cases() -> Iterator[tuple[str, Case]]:
    for op in ELEMENTWISE.values():
        if op in (Ops.CAST, Ops.FMA):  # FMA is no part of user arithmetic
            continue
        for dtype in accepted(op):
            if op is Ops.WHERE:
                a, b = grid(dtype, 2)
                for cond in ([False, True], [True, False]):
                    data = np.resize(np.array(cond), a.shape)
                    yield f"where {dtype} {cond[0]}", case(op, dtype, data, a, b)
            else:
                yield f"{op.name} {dtype}", case(op, dtype, *grid(dtype, op.arity))


def cast_values(source: DType, target: DType) -> Array:
    """Special values of the source and whatever lies around the target's ends."""
    values = special(source)
    if source.is_float and not target.is_float:
        for end in (float(target.min), float(target.max)):
            near = [end, end - 0.5, end + 0.5, end - 1, end + 1, 2 * end]
            cell = array([end], source)[0]
            for way in (-math.inf, math.inf):
                near.append(float(np.nextafter(cell, array([way], source)[0])))
            values += near
    # Integers that a float cannot hold, on both sides of a tie.
    if source.is_int:
        for width in (24, 53):
            near = [2**width + k for k in (-1, 0, 1, 2, 3)] + [2**width * 5 + 1]
            near += [3 * 2**width + 2 ** (width - 25), (1 << 63) - (1 << 9), 2**63 + 1]
            near += [-v for v in near]
            values += [v for v in near if source.min <= v <= source.max]
    return np.concatenate([array(values, source), drawn(source, 300, 9)])


def cast_cases() -> Iterator[tuple[str, Case]]:
    for source, target in itertools.permutations(DTYPES.values(), 2):
        data = cast_values(source, target)
        yield f"cast {source} {target}", case(Ops.CAST, source, data, arg=target)


def constant_cases() -> Iterator[tuple[str, Case]]:
    """Second operands known at compile time: other code, the same meaning."""
    names = ("floordiv", "floormod", "shl", "shr", "cmplt", "cmpne", "max", "mul")
    for op in map(ELEMENTWISE.__getitem__, names):
        for dtype in accepted(op):
            if not dtype.is_int:
                continue
            (data,) = grid(dtype, 1)
            few = {-3, -1, 0, 1, 6, dtype.bits, dtype.min, dtype.max}
            x = leaf(data, dtype)
            values = sorted(v for v in few if dtype.min <= v <= dtype.max)
            root = UOp.stack([UOp(op, (x, x.const_like(v))) for v in values])
            others = [np.full(data.shape, v, dtype.numpy) for v in values]
            cases = [case(op, dtype, data, other) for other in others]
            expected = np.stack([c.expected for c in cases])
            yield f"{op.name} {dtype} by constants", Case(root, expected)


def float_cases() -> Iterator[tuple[str, Case]]:
    """What looks like an identity is one for all values, or stays."""
    for dtype in (f16, bf16, f32, f64):
        (data,) = grid(dtype, 1)
        x, one, r = leaf(data, dtype), dtype.numpy.type, dtype.round
        with np.errstate(all="ignore"):
            pairs = [
                ("+ 0", x + 0.0, data + one(0)),
                ("+ -0", x + -0.0, data + one(-0.0)),
                ("* 1", x * 1.0, data),
                ("* -1", x * -1.0, -data),
                ("* 0", x * 0.0, data * one(0)),
                ("/ 1", x / 1.0, data),
                ("- x", x - x, data - data),
                ("/ x", x / x, data / data),
                ("* 2 / 2", x * 2.0 / 2.0, r(data * one(2)) / one(2)),
                ("+ 1 - 1", x + 1.0 + -1.0, r(data + one(1)) + one(-1)),
                ("< x", x < x, data < data),
                ("!= x", x.ne(x), data != data),
                ("== x", x.eq(x), data == data),
                ("max x", x.maximum(x), data),
                ("not <", (x < 1.0).logical_not(), ~(data < one(1))),
                ("< inf", x < math.inf, data < one(math.inf)),
                ("< nan", x < math.nan, data < one(math.nan)),
            ]
        for label, root, expected in pairs:
            yield f"x {label} {dtype}", Case(root, root.dtype.round(expected))


def truncated_cases() -> Iterator[tuple[str, Case]]:
    """An integer has no sign of zero, though gcc may not go through one."""
    floats = [d for d in DTYPES.values() if d.is_float]
    whole = [DTYPES[name] for name in INTEGERS]
    for source, middle, target in itertools.product(floats, whole, floats):
        data = array([-0.5, -0.0, -0.25, 0.5, -1.5, 2.5, -1 + 1e-12, 0.0], source)
        x = leaf(data, source).cast(middle).cast(target)
        expected = cast_array(cast_array(data, middle), target)
        yield f"{source} by way of {middle} {target}", Case(x, expected)


def literal_cases() -> Iterator[tuple[str, Case]]:
    for dtype in DTYPES.values():
        values = special(dtype)
        root = UOp.stack([UOp.const(v, dtype) for v in values])
        yield f"literal {dtype}", Case(root, array(values, dtype))


def narrow_cases() -> Iterator[tuple[str, Case]]:
    """C computes these types as int; every step must wrap on its own."""
    for name in NARROW:
        dtype = DTYPES[name]
        a, b = grid(dtype, 2)
        x, y = leaf(a, dtype), leaf(b, dtype)
        with np.errstate(all="ignore"):
            pairs = [
                ("sum // ", (x + y) // y, (a + b) // b),
                ("product < ", x * y < y, a * b < b),
                ("sum != ", (x + y).ne(x * 3), (a + b) != a * dtype.numpy.type(3)),
                ("to i64", (x * x + y).cast(DTYPES["i64"]), (a * a + b).astype("i8")),
                ("max", (x + y).maximum(x * y), np.maximum(a + b, a * b)),
                ("-x", -x, -a),
            ]
            if dtype.kind == "uint":
                pairs.append(("shift", (x + y) >> 1, (a + b) >> dtype.numpy.type(1)))
                pairs.append(("shifted", (x << 3) % y, (a << dtype.numpy.type(3)) % b))
        for label, root, expected in pairs:
            yield f"{label} {dtype}", Case(root, np.asarray(expected))


CASES: dict[str, Case] = {
    label: one
    for group in (
        plain_cases,
        cast_cases,
        constant_cases,
        float_cases,
        truncated_cases,
        literal_cases,
        narrow_cases,
    )
    for label, one in group()
}


@pytest.fixture(scope="module", params=[0, 1], ids=["opt0", "opt1"])
def computed(request: pytest.FixtureRequest) -> dict[str, Array]:
    with overriding(UOPC_OPT=request.param):
        arrays = realize([c.root for c in CASES.values()], None, backend_named("c"))
    return {
        label: c.root.dtype.load(flat).reshape(c.root.shape)
        for (label, c), flat in zip(CASES.items(), arrays, strict=True)
    }


def same_bits(got: Array, want: Array) -> Array:
    """Equal, with zeros of one sign; one NaN is as good as another."""
    if want.dtype.kind != "f":
        return got == want
    return (got == want) & (np.signbit(got) == np.signbit(want)) | (
        np.isnan(got) & np.isnan(want)
    )


def shown(bad: Array, *arrays: Array) -> str:
    picked = [a[bad][:5] if a.ndim else a for a in arrays]
    return f"{int(bad.sum())} differ; got, expected: {picked}"


EXACT = [label for label in CASES if label.partition(" ")[0] not in FUNCTIONS]


@pytest.mark.parametrize("label", EXACT)
def test_exact(label: str, computed: dict[str, Array]):
    got, want = computed[label], CASES[label].expected
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    same = same_bits(got, want)
    if label.startswith(("max f", "max bf")):
        same |= got == want  # which zero is the larger one is left open
    assert same.all(), shown(~same, got, want)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [f32, f64], ids=["f32", "f64"])
def test_functions_within_4_ulp(
    name: str, dtype: DType, computed: dict[str, Array]
) -> None:
    got = computed[f"{name} {dtype}"]
    x = grid(dtype, ELEMENTWISE[name].arity)
    wide = np.float64 if dtype is f32 else np.longdouble
    assert np.finfo(wide).nmant > np.finfo(dtype.numpy).nmant
    with np.errstate(all="ignore"):
        true = TRUE.get(name, getattr(np, name, None))(*(a.astype(wide) for a in x))
        want = true.astype(dtype.numpy)
        ulp = np.spacing(np.abs(want)).astype(wide)
        near = np.abs(got.astype(wide) - true) <= ULPS * ulp
    ok = near | same_bits(got, want)
    assert ok.all(), shown(~ok, *x, got, want)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_functions_of_half_types_within_1_ulp(
    name: str, dtype: DType, computed: dict[str, Array]
) -> None:
    got, want = computed[f"{name} {dtype}"], CASES[f"{name} {dtype}"].expected
    with np.errstate(all="ignore"):
        ulp = np.spacing(np.abs(want)).astype(float) * (2**16 if dtype is bf16 else 1)
        near = np.abs(got.astype(float) - want) <= ulp
    ok = near | same_bits(got, want)
    assert ok.all(), shown(~ok, got, want)


# The meanings themselves, in numbers: a mistake that NumPy's row and the C share
# would not show above.


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_division(name: str, computed: dict[str, Array]):
    dtype = DTYPES[name]
    a, b = (column.tolist() for column in grid(dtype, 2))
    divided = computed[f"floordiv {name}"].tolist()
    left = computed[f"floormod {name}"].tolist()
    for x, y, q, r in zip(a, b, divided, left, strict=True):
        if y == 0:
            assert (q, r) == (0, 0)
        elif x == dtype.min and y == -1:
            assert (q, r) == (dtype.min, 0)
        else:
            assert (q, r) == divmod(x, y)


@pytest.mark.parametrize("name", [n for n in INTEGERS if n.startswith("u")])
def test_shifts_by_the_width_and_more_give_zero(
    name: str, computed: dict[str, Array]
) -> None:
    dtype = DTYPES[name]
    a, b = (column.tolist() for column in grid(dtype, 2))
    assert any(n >= dtype.bits for n in b)
    left = [
        (x << n) & dtype.max if n < dtype.bits else 0 for x, n in zip(a, b, strict=True)
    ]
    right = [x >> n if n < dtype.bits else 0 for x, n in zip(a, b, strict=True)]
    assert computed[f"shl {name}"].tolist() == left
    assert computed[f"shr {name}"].tolist() == right


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("target", INTEGERS)
def test_floats_saturate_on_the_way_to_integers(
    source: str, target: str, computed: dict[str, Array]
) -> None:
    dtype = DTYPES[target]
    data = cast_values(DTYPES[source], dtype).tolist()
    got = computed[f"cast {source} {target}"].tolist()
    for x, y in zip(data, got, strict=True):
        if math.isnan(x):
            assert y == 0
        else:
            limited = min(max(x, float(dtype.min)), float(dtype.max))
            assert y == min(max(int(limited), dtype.min), dtype.max)


@pytest.mark.parametrize("target", ["f32", "f64"])
def test_unsigned_64_to_float_rounds_to_nearest_even(
    target: str, computed: dict[str, Array]
) -> None:
    data = cast_values(DTYPES["u64"], DTYPES[target]).tolist()
    got = computed[f"cast u64 {target}"].tolist()
    digits = 24 if target == "f32" else 53
    assert any(x.bit_length() == 64 and x & 0xFF for x in data)
    for x, y in zip(data, got, strict=True):
        low = max(x.bit_length() - digits, 0)
        below = x >> low << low
        twice = 2 * (x - below)
        up = twice > 1 << low or (twice == 1 << low and low > 0 and x >> low & 1)
        assert y == float(below + (up << low))


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_nan_in_maxima_comparisons_and_choices(name: str, computed: dict[str, Array]):
    a, b = grid(DTYPES[name], 2)
    either = np.isnan(a) | np.isnan(b)
    assert np.isnan(a[either]).any() and np.isnan(b[either]).any()
    assert np.isnan(computed[f"max {name}"][either]).all()
    assert not np.isnan(computed[f"max {name}"][~either]).any()
    assert not computed[f"cmplt {name}"][either].any()
    assert computed[f"cmpne {name}"][either].all()
    chosen = computed[f"where {name} False"]
    picked = np.where(np.resize([False, True], a.shape), a, b)
    assert (np.isnan(chosen) == np.isnan(picked)).all()


def test_every_op_and_type_is_covered():
    """What an op accepts is what the tests above have run."""
    assert set(ELEMENTWISE) - {"where", "cast", "fma"} == {
        label.split()[0] for label, _ in plain_cases() if not label.startswith("where")
    }
    assert {d.name for d in accepted(Ops.SHL)} == {"u8", "u16", "u32", "u64"}
    assert len(list(accepted(Ops.CMPLT))) == len(list(accepted(Ops.WHERE))) == 13
    assert [d.name for d in accepted(Ops.DIV)] == ["f32", "f64", "f16", "bf16"]
    assert len([label for label in CASES if label.startswith("cast ")]) == 156

"""Every elementwise row against a statement of its meaning written apart from it.

Integers are checked against Python's own, wrapped; floats against Python's
doubles or NumPy. Operands are all combinations of awkward values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.dtype import DTYPES, bf16, boolean, f32, f64, u8
from uopc.interp import evaluate
from uopc.uop import BUILTIN_OPS, Ops, UOp

ALL = tuple(DTYPES.values())
ELEMENTWISE = [op for op in BUILTIN_OPS if op.kind == "elementwise"]

# Which kinds of dtype an op takes: b(ool), i(nt), u(int), f(loat).
TAKES = {
    **dict.fromkeys(["add", "mul", "floordiv", "floormod"], "iuf"),
    **dict.fromkeys(["max", "cmplt", "cmpne", "cast"], "biuf"),
    **dict.fromkeys(["and", "or", "xor"], "biu"),
    **dict.fromkeys(["shl", "shr"], "u"),
    **dict.fromkeys(["div", "recip", "exp2", "log2", "sqrt", "sin", "exp", "log",
                     "tanh", "sigmoid", "cos", "log1p", "pow", "fma"], "f"),
    "where": "biuf",
}  # fmt: skip


def wrap(value: int, dtype) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if value > dtype.max else value


def nan_or(value: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: math.nan if a != a or b != b else value(a, b)


def float_floordiv(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * (
            math.copysign(1, b))  # fmt: skip
    return a // b


INT_MEANING: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": max,
    "floordiv": lambda a, b: a // b if b else 0,
    "floormod": lambda a, b: a % b if b else 0,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, n: a << min(n, 128),
    "shr": lambda a, n: a >> n,
}
# On Python doubles, to be rounded to the type once.
FLOAT_MEANING: dict[str, Callable[..., float]] = {
    "max": nan_or(max),
    "floordiv": float_floordiv,
    "floormod": lambda a, b: a % b if b else math.nan,
}
# Correctly rounded by IEEE 754, so NumPy has no choice either.
IEEE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "div": np.divide,
    "recip": lambda x: x.dtype.type(1) / x,
    "sqrt": np.sqrt,
}
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp2": math.exp2, "log2": math.log2, "sin": math.sin, "exp": math.exp,
    "sigmoid": lambda x: math.exp(min(x, 0)) / (1 + math.exp(-abs(x))),
    "log": math.log, "tanh": math.tanh, "cos": math.cos, "log1p": math.log1p,
}  # fmt: skip


def test_the_tables_here_cover_every_row() -> None:
    names = {op.name for op in ELEMENTWISE}
    assert names == set(TAKES)
    others = {"cast", "where", "cmplt", "cmpne", "pow", "fma"}
    assert names == {*INT_MEANING, *FLOAT_MEANING, *IEEE, *FUNCTIONS, *others}


def operands(special, dtype, n: int) -> list[np.ndarray]:
    """All combinations of ``n`` special values, as ``n`` arrays."""
    rows = list(itertools.product(special(dtype), repeat=n))
    return [np.array(column, dtype.numpy) for column in zip(*rows, strict=True)]


def rounded(values: Any, dtype) -> np.ndarray:
    """Numbers as values of a float type, rounded once."""
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        return dtype.round(values) if dtype.is_half else values.astype(dtype.numpy)


def ulp(values: np.ndarray, dtype) -> np.ndarray:
    return np.spacing(np.abs(values)) * np.float32(2**16 if dtype is bf16 else 1)


def run(op, arrays: list[np.ndarray], dtypes: list, arg: Any = None) -> np.ndarray:
    src = tuple(
        UOp.param(i, d, a.shape)
        for i, (a, d) in enumerate(zip(arrays, dtypes, strict=True))
    )
    (value,) = evaluate([UOp(op, src, arg)], dict(zip(src, arrays, strict=True)))
    return value


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("op", ELEMENTWISE, ids=str)
def test_which_dtypes_an_op_takes(op, dtype) -> None:
    src = (UOp.param(0, dtype, (2,)),) * op.arity
    if op is Ops.WHERE:
        src = (UOp.param(1, boolean, (2,)), *src[1:])
    arg = u8 if op is Ops.CAST else None
    if dtype.kind[0] in TAKES[op.name]:
        result = u8 if op is Ops.CAST else dtype
        if op in (Ops.CMPLT, Ops.CMPNE):
            result = boolean
        assert UOp(op, src, arg).dtype is result
    else:
        with pytest.raises(TypeError, match=f"{op.name}.*expected a dtype of kind"):
            UOp(op, src, arg)


def cases(table: dict[str, Any], kinds: str) -> list[Any]:
    return [
        pytest.param(op, d, id=f"{op.name}-{d}")
        for op in ELEMENTWISE
        for d in ALL
        if op.name in table and d.kind[0] in kinds and d.kind[0] in TAKES[op.name]
    ]


@pytest.mark.parametrize(("op", "dtype"), cases(INT_MEANING, "biu"))
def test_integers_and_bools(op, dtype, special, same_bits) -> None:
    arrays = operands(special, dtype, op.arity)
    pairs = zip(*(a.tolist() for a in arrays), strict=True)
    exact = [INT_MEANING[op.name](*map(int, pair)) for pair in pairs]
    expected = np.array([wrap(v, dtype) for v in exact], dtype.numpy)
    same_bits(run(op, arrays, [dtype] * op.arity), expected)


@pytest.mark.parametrize(("op", "dtype"), cases(IEEE, "f"))
def test_correctly_rounded_floats(op, dtype, special, same_bits) -> None:
    arrays = operands(special, dtype, op.arity)
    with np.errstate(all="ignore"):
        expected = rounded(IEEE[op.name](*arrays), dtype)
    same_bits(run(op, arrays, [dtype] * op.arity), expected)


@pytest.mark.parametrize(("op", "dtype"), cases(FLOAT_MEANING, "f"))
def test_maximum_and_floored_division(op, dtype, special) -> None:
    arrays = operands(special, dtype, 2)
    pairs = zip(*(a.tolist() for a in arrays), strict=True)
    with np.errstate(all="ignore"):
        doubles = np.array([FLOAT_MEANING[op.name](*pair) for pair in pairs])
        expected = rounded(doubles, dtype)
    got = run(op, arrays, [dtype] * 2)
    # A quotient with more digits than the type has is rounded more than once.
    eps = 2.0**-7 if dtype is bf16 else np.finfo(dtype.numpy).eps
    np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=eps)
    if op is Ops.FLOORMOD:
        signed = ~np.isnan(expected)
        assert np.array_equal(np.signbit(got[signed]), np.signbit(arrays[1][signed]))
    whole = np.abs(doubles) < 2**20
    np.testing.assert_array_equal(got[whole], expected[whole])


def exactly(name: str, x: float) -> float:
    try:
        return FUNCTIONS[name](x)
    except OverflowError:
        return math.inf
    except ValueError:  # a pole, or outside the domain
        pole = {"log": 0, "log2": 0, "log1p": -1}.get(name)
        return -math.inf if x == pole else math.nan


@pytest.mark.parametrize(("op", "dtype"), cases(FUNCTIONS, "f"))
def test_functions_within_four_ulp(op, dtype, special) -> None:
    rng = np.random.default_rng(1)
    wide = np.concatenate([rng.uniform(-9, 9, 400), rng.uniform(0, 90, 200)])
    x = rounded(np.concatenate([special(dtype), wide, special(f32)]), dtype)
    if op in (Ops.SIN, Ops.COS):
        x = x[~(np.abs(x.astype(float)) > 1e6)]
    expected = rounded([exactly(op.name, v) for v in x.tolist()], dtype)
    got = run(op, [x], [dtype])
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    allowed = (1 if dtype.is_half else 4) * ulp(expected[finite], dtype)
    assert np.all(np.abs(got[finite] - expected[finite]) <= allowed)
    zero = x == 0
    if op in (Ops.SIN, Ops.TANH, Ops.LOG1P):
        assert np.array_equal(np.signbit(got[zero]), np.signbit(x[zero]))


def power(x: float, y: float) -> float:
    """C's pow; Python raises where that is infinite or NaN."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        return math.copysign(math.inf, x if y % 2 == 1 else 1) if x == 0 else math.nan


@pytest.mark.parametrize("low", [False, True], ids=["row", "lower"])
@pytest.mark.parametrize("dtype", [d for d in ALL if d.is_float], ids=str)
def test_powers(dtype, low: bool, special) -> None:
    """All special values, whole exponents of both parities and fractions."""
    few = rounded([-1.0, 2.0, -3.0, 3.0, 0.5, -0.5, 1.25, -7.0, 100.0, -2.5], dtype)
    values = np.concatenate([special(dtype), few, rounded(special(f32), dtype)])
    x, y = (m.reshape(-1) for m in np.meshgrid(values, values))
    exact = [power(*pair) for pair in zip(x.tolist(), y.tolist(), strict=True)]
    expected = rounded(exact, dtype)
    src = tuple(UOp.param(i, dtype, x.shape) for i in (0, 1))
    u = UOp(Ops.POW, src)
    root = Ops.POW.lower(u) if low else u
    (got,) = evaluate([root], dict(zip(src, (x, y), strict=True)))
    assert got.dtype == expected.dtype
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    zero = expected == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))
    ulps = 1 if dtype.is_half else 2000 if low and dtype is f64 else 4
    with np.errstate(over="ignore"):  # NumPy has no distance above the largest number
        allowed = ulps * ulp(expected[finite], dtype)
    assert np.all(np.abs(got[finite] - expected[finite]) <= allowed)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_comparisons(dtype, special) -> None:
    a, b = operands(special, dtype, 2)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    less, differ = (run(op, [a, b], [dtype] * 2) for op in (Ops.CMPLT, Ops.CMPNE))
    assert less.dtype == differ.dtype == bool
    assert less.tolist() == [x < y for x, y in pairs]
    assert differ.tolist() == [x != y for x, y in pairs]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_where_chooses_bits(dtype, special, same_bits) -> None:
    a, b = operands(special, dtype, 2)
    for cond in (np.ones(a.shape, bool), np.zeros(a.shape, bool),
                 np.arange(a.size) % 3 == 0):  # fmt: skip
        expected = b.copy()
        expected[cond] = a[cond]
        same_bits(run(Ops.WHERE, [cond, a, b], [boolean, dtype, dtype]), expected)


def round_int(value: int, dtype) -> float:
    """An integer as f32 or f64, rounded once: to nearest, ties to even.

    A half type gets the f32.
    """
    if dtype is f64:
        return float(value)
    size = abs(value)
    extra = max(0, size.bit_length() - 24)
    top, rest = size >> extra, size & ((1 << extra) - 1)
    half = (1 << extra) >> 1
    if extra and (rest > half or (rest == half and top & 1)):
        top += 1
    return math.copysign(float(top << extra), value)


def converted(value: Any, source, target) -> Any:
    """The one documented rule of CAST."""
    if target is boolean:
        return value != 0
    if target.is_float:
        if source.is_float:
            return value  # rounding is NumPy's, when the array is made
        return round_int(int(value), target)
    if not source.is_float:
        return wrap(int(value), target)
    if value != value:
        return 0
    if math.isinf(value):
        return target.max if value > 0 else target.min
    return min(max(math.trunc(value), target.min), target.max)


@pytest.mark.parametrize("target", ALL, ids=str)
@pytest.mark.parametrize("source", ALL, ids=str)
def test_casts(source, target, special, same_bits) -> None:
    x = special(source)
    if source.is_float:
        ends = [float(v) for d in ALL if d.is_int for v in (d.min, d.max)]
        near = [np.nextafter(v, w) for v in ends for w in (-math.inf, math.inf)]
        more = [*ends, *near, 0.99, -0.99, 1.5, -1.5, 255.5, -128.5, 300.0]
        x = np.concatenate([x, rounded(more, source)])
    elif source.bits == 64:
        # Ties when rounding to 24 or 53 bits.
        more = [(1 << k) + (1 << j) for k in (24, 30, 53, 62) for j in (0, 1, 6, 8, 9)]
        x = np.concatenate([x, np.array(more, source.numpy)])
    with np.errstate(all="ignore"):
        values = [converted(v, source, target) for v in x.tolist()]
        expected = np.array(values).astype(target.numpy)
        if target.is_half:
            expected = rounded(np.array(values, float), target)
        if target.is_int:
            expected = np.array(values, target.numpy)
    same_bits(run(Ops.CAST, [x], [source], target), expected)


def test_scalar_operands_mean_the_same(same_bits) -> None:
    a, b = UOp.param(0, u8), UOp.param(1, u8)
    data = {a: np.asarray(200, np.uint8), b: np.asarray(100, np.uint8)}
    got = evaluate([a + b, a * b, -a, a - b, a % b, a.cast(f32) / 3.0], data)
    for value, expected in zip(got, [44, 32, 56, 100, 0], strict=False):
        same_bits(value, np.asarray(expected, np.uint8))
    same_bits(got[-1], np.asarray(np.float32(200) / np.float32(3)))


def test_a_fused_multiply_add_keeps_what_the_product_would_lose() -> None:
    a = np.array([1 + 2**-20, 3.0, np.inf, -0.0], np.float32)
    c = np.array([-(1 + 2**-19), 0.5, -np.inf, -0.0], np.float32)
    result = run(Ops.FMA, [a, a, c], [f32] * 3)
    assert result[:2].tolist() == [2**-40, 9.5]
    assert np.isnan(result[2]) and result[3] == 0

"""Tensor's operators and functions against NumPy: values, dtypes, broadcasting."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.dtype import (
    DTYPES,
    bf16,
    boolean,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
    promote,
    u8,
    u32,
)
from uopc.tensor import Tensor

ALL = tuple(DTYPES.values())
NUMBERS = [d for d in ALL if d is not boolean]


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: float) -> float:
    if math.isinf(x):
        return float(x > 0)
    return 1 / (1 + math.exp(-x)) if x > -700 else math.exp(x)


# Method, the same on one double, and how many ulp of error it may have.
UNARY: dict[str, tuple[Callable[[float], float], int]] = {
    "exp": (math.exp, 4), "log": (math.log, 4), "exp2": (math.exp2, 4),
    "log2": (math.log2, 4), "sqrt": (math.sqrt, 0), "sin": (math.sin, 4),
    "cos": (math.cos, 4), "tanh": (math.tanh, 4), "sigmoid": (sigmoid, 4),
    "relu": (lambda x: x if x > 0 or x != x else 0.0, 0), "abs": (abs, 0),
    "square": (lambda x: x * x, 1), "reciprocal": (lambda x: 1 / x, 0),
}  # fmt: skip


def reference(name: str, x: float) -> float:
    try:
        return UNARY[name][0](x)
    except OverflowError:
        return math.inf
    except ZeroDivisionError:
        return math.copysign(math.inf, x)
    except ValueError:
        return -math.inf if name.startswith("log") and x == 0 else math.nan


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_floats(name: str, dtype, special) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([special(dtype), rng.uniform(-20, 20, 300).astype(dtype.numpy)])
    if name in ("sin", "cos"):
        x = x[~(np.abs(x) > 1e6)]
    with np.errstate(all="ignore"):
        exact = np.array([reference(name, v) for v in x.tolist()])
        expected = exact.astype(dtype.numpy)
    if name == "relu":
        expected[np.isnan(x)] = 0  # (x > 0).where(x, 0)
    got = getattr(Tensor(x), name)()
    assert got.dtype is dtype
    value = got.numpy()
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(value[~finite], expected[~finite])
    off = np.abs(value[finite] - expected[finite])
    with np.errstate(all="ignore"):
        allowed = UNARY[name][1] * np.spacing(np.abs(expected[finite]))
    assert np.all((off == 0) | (off <= allowed))


def relative(x: np.ndarray, expected: np.ndarray) -> float:
    return float(np.max(np.abs(x - expected) / np.abs(expected)))


def test_gelu() -> None:
    """Also where 1 + tanh is nothing but rounding: gelu(-8) is -2.2e-20."""
    x = np.random.default_rng(0).uniform(-8, 6, 500)
    expected = np.array([gelu(v) for v in x])
    near = x > -3
    assert relative(Tensor(x[near]).gelu().numpy(), expected[near]) < 1e-13
    z = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    expected = x / (1 + np.exp(-z))
    assert relative(Tensor(x).gelu().numpy(), expected) < 1e-13
    assert relative(Tensor(x.astype(np.float32)).gelu().numpy().astype(float),
                    x.astype(np.float32) / (1 + np.exp(-z))) < 1e-5  # fmt: skip


# At -inf, -200.0, -0.0, 0.0, 200.0, inf and NaN.
ENDS = (-math.inf, -200.0, -0.0, 0.0, 200.0, math.inf, math.nan)
AT_ENDS = {
    "sigmoid": [0, 1.383896526736737e-87, 0.5, 0.5, 1, 1, math.nan],
    "softplus": [0, 1.383896526736737e-87, math.log(2), math.log(2), 200, math.inf,
                 math.nan],
    "logsigmoid": [-math.inf, -200, -math.log(2), -math.log(2),
                   -1.383896526736737e-87, 0, math.nan],
    "silu": [-0.0, -2.767793053473475e-85, -0.0, 0, 200, math.inf, math.nan],
    "gelu": [-0.0, -0.0, -0.0, 0, 200, math.inf, math.nan],
    "tanh": [-1, -1, -0.0, 0, 1, 1, math.nan],
    "relu": [0, 0, 0, 0, 200, math.inf, 0],
    "abs": [math.inf, 200, 0, 0, 200, math.inf, math.nan],
    "log1p": [math.nan, math.nan, -0.0, 0, math.log(201), math.inf, math.nan],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [f32, f64, f16, bf16], ids=str)
@pytest.mark.parametrize("name", AT_ENDS)
def test_ends_of_functions(name: str, dtype) -> None:
    got = getattr(Tensor(list(ENDS), dtype=dtype), name)()
    assert got.dtype is dtype
    digits = {f16: 1e-3, bf16: 1e-2, f32: 3e-7, f64: 1e-14}[dtype]
    value, expected = got.numpy().astype(float), np.array(AT_ENDS[name])
    np.testing.assert_allclose(value, expected, rtol=digits, atol=1e-80)
    zero = value == expected
    np.testing.assert_array_equal(np.signbit(value[zero]), np.signbit(expected[zero]))


KEEPS = ("relu", "abs", "square")


@pytest.mark.parametrize("dtype", [d for d in ALL if not d.is_float], ids=str)
@pytest.mark.parametrize("name", [*UNARY, "gelu"])
def test_functions_of_integers_are_f32(name: str, dtype, special) -> None:
    x = special(dtype)
    if name == "square" and dtype is boolean:
        with pytest.raises(TypeError, match=r"mul\(bool\[2\], bool\[2\]\)"):
            Tensor(x).square()
        return
    got = getattr(Tensor(x), name)()
    if name in KEEPS:
        assert got.dtype is dtype
        with np.errstate(all="ignore"):
            wide = {"relu": lambda v: np.where(v > 0, v, 0).astype(v.dtype),
                    "abs": np.abs, "square": np.square}[name](x)  # fmt: skip
        np.testing.assert_array_equal(got.numpy(), wide)
        return
    assert got.dtype is f32
    same = getattr(Tensor(x.astype(np.float32)), name)()
    np.testing.assert_array_equal(got.numpy(), same.numpy())


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": operator.floordiv, "mod": operator.mod,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
TRUTHS = ("lt", "le", "gt", "ge", "eq", "ne")


def tensor(x: np.ndarray, dtype) -> Tensor:
    """Of a NumPy array, whose dtype does not tell bf16 from f32."""
    return Tensor(x, dtype=dtype)


def pairs(special, dtype) -> tuple[np.ndarray, np.ndarray]:
    mesh = np.meshgrid(special(dtype), special(dtype), indexing="ij")
    return mesh[0].reshape(-1), mesh[1].reshape(-1)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str, dtype, special, same_bits) -> None:
    x, y = pairs(special, dtype)
    call = OPERATORS[name]
    if dtype is boolean and name not in TRUTHS:
        with pytest.raises(TypeError, match="bool"):
            call(Tensor(x), Tensor(y))
        return
    got = call(tensor(x, dtype), tensor(y, dtype))
    assert got.dtype is (boolean if name in TRUTHS else dtype)
    with np.errstate(all="ignore"):
        if dtype.is_half:  # f32, rounded once
            x, y = x.astype(np.float32), y.astype(np.float32)
        same_bits(got.numpy(), got.dtype.round(call(x, y)))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_true_division(dtype, special, same_bits) -> None:
    x, y = pairs(special, dtype)
    got = tensor(x, dtype) / tensor(y, dtype)
    wanted = dtype if dtype.is_float else f32
    assert got.dtype is wanted
    with np.errstate(all="ignore"):
        exact = x.astype(wanted.numpy) / y.astype(wanted.numpy)
        same_bits(got.numpy(), wanted.round(exact))


@pytest.mark.parametrize("dtype", [d for d in ALL if not d.is_float], ids=str)
@pytest.mark.parametrize("call", [operator.and_, operator.or_, operator.xor])
def test_bit_operators(call, dtype, special, same_bits) -> None:
    x, y = pairs(special, dtype)
    same_bits(call(Tensor(x), Tensor(y)).numpy(), call(x, y))
    same_bits((~Tensor(x)).numpy(), ~x)


def test_shifts() -> None:
    x = Tensor(np.array([1, 5, 2**31], np.uint32))
    assert (x << 1).tolist() == [2, 10, 0]
    assert (x >> 1).tolist() == [0, 2, 2**30]
    assert (x << 32).tolist() == (x >> 40).tolist() == [0, 0, 0]
    assert (x << Tensor(np.array([0, 31, 3], np.uint32))).tolist() == [1, 2**31, 0]


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_larger_and_smaller(name: str, dtype, special) -> None:
    x, y = pairs(special, dtype)
    got = getattr(tensor(x, dtype), name)(tensor(y, dtype))
    assert got.dtype is dtype
    np.testing.assert_array_equal(got.numpy(), getattr(np, name)(x, y))


@pytest.mark.parametrize("a", ALL, ids=str)
@pytest.mark.parametrize("b", ALL, ids=str)
def test_operands_are_promoted(a, b) -> None:
    x, y = np.array([1, 0, 1], a.numpy), np.array([0, 1, 1], b.numpy)
    try:
        dtype = promote(a, b)
    except TypeError:
        with pytest.raises(TypeError, match=rf"add\({a}\[3\], {b}\[3\]\).*no common"):
            Tensor(x) + Tensor(y)
        return
    s, t = tensor(x, a), tensor(y, b)
    for call in (operator.lt, operator.eq):
        assert call(s, t).tolist() == call(x, y).tolist()
    where = Tensor(np.array([True, False, True])).where(s, t)
    assert where.dtype is s.maximum(t).dtype is dtype
    assert [int(v) for v in where.tolist()] == [1, 1, 1]
    if dtype is not boolean:
        total = s + t
        assert total.dtype is dtype
        assert total.tolist() == [1, 1, 2]


SCALARS = [
    (i32, 2, i32), (i32, 0.5, f32), (i32, True, i32), (i64, 0.5, f32), (u8, 3, u8),
    (f32, 2, f32), (f32, 0.5, f32), (f64, 0.5, f64), (boolean, 2, i32),
    (boolean, 0.5, f32), (i8, np.int64(3), i8), (f32, np.float64(0.5), f32),
    (i32, np.float32(0.5), f32), (i32, np.True_, i32), (f32, np.array(2), f32),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "scalar", "result"), SCALARS)
def test_python_numbers_are_weak(dtype, scalar, result) -> None:
    x = np.array([1, 0, 1], dtype.numpy)
    t = Tensor(x)
    for got in (t * scalar, scalar * t, t.maximum(scalar)):
        assert got.dtype is result
    plain = x.astype(result.numpy)
    number = result.numpy.type(scalar)
    np.testing.assert_array_equal((t * scalar).numpy(), plain * number)
    np.testing.assert_array_equal((t + scalar).numpy(), plain + number)
    np.testing.assert_array_equal((scalar + t).numpy(), plain + number)
    if result.kind != "uint":
        np.testing.assert_array_equal((scalar - t).numpy(), number - plain)
    np.testing.assert_array_equal((t < scalar).numpy(), plain < number)
    chosen = Tensor(np.array([True, False, True])).where(t, scalar)
    assert chosen.dtype is result
    np.testing.assert_array_equal(chosen.numpy(), [plain[0], number, plain[2]])


def test_reflected_operators_keep_the_order() -> None:
    t = Tensor([2.0, 4.0])
    assert (1 - t).tolist() == [-1, -3]
    assert (8 / t).tolist() == [4, 2]
    assert (7 // t).tolist() == [3, 1]
    assert (7 % t).tolist() == [1, 3]
    assert (np.float32(8) / t).tolist() == [4, 2]
    i = Tensor([5, 3])
    assert (6 & i).tolist() == [4, 2]
    assert (6 | i).tolist() == [7, 7]
    assert (6 ^ i).tolist() == [3, 5]
    assert (np.int64(6) ^ i).tolist() == [3, 5]
    assert (True & (t > 2)).tolist() == [False, True]


def test_negation_wraps() -> None:
    assert (-Tensor(np.array([1, 0, 200], np.uint8))).tolist() == [255, 0, 56]
    assert (-Tensor(np.array([-128, 5], np.int8))).tolist() == [-128, -5]
    assert math.copysign(1, (-Tensor([0.0])).item()) == -1


POWERS = [
    0, 1, 2, 3, 4, 5, 10, -1, -2, -7, 0.5, 2.0, 2.5, -0.5, 1e10, math.inf, -math.inf,
    math.nan, np.int64(3), np.float32(2), True,
]  # fmt: skip


@pytest.mark.parametrize("exponent", POWERS, ids=repr)
def test_powers_of_floats(exponent, special) -> None:
    x = np.concatenate([np.linspace(0.5, 4, 20), -np.linspace(1, 3, 4), special(f64)])
    got = Tensor(x) ** exponent
    assert got.dtype is f64
    with np.errstate(all="ignore"):
        expected = x ** float(exponent)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-14)


def test_powers_of_tensors(special, same_bits) -> None:
    x, y = pairs(special, f32)
    got = Tensor(x) ** Tensor(y)
    assert got.dtype is f32
    with np.errstate(all="ignore"):
        same_bits(got.numpy(), np.power(x, y))
    assert (Tensor([2.0, 3.0]) ** Tensor([[2], [3]])).tolist() == [[4, 9], [8, 27]]
    assert (Tensor([2, 3]) ** Tensor([0.5])).dtype is f32


def test_powers_of_a_number() -> None:
    x = Tensor([0.0, 2.0, -1.0, 0.5])
    assert (4**x).tolist() == (4.0**x).tolist() == [1, 16, 0.25, 2]
    assert (4**x).dtype is f32
    assert (2.0 ** Tensor([3, -1])).tolist() == [8, 0.5]
    assert (2 ** Tensor([3, 0, -1])).tolist() == [8, 1, 0]
    assert (2 ** Tensor([3])).dtype is i32
    assert (np.float32(2) ** Tensor([3.0])).tolist() == [8]
    assert ((-2) ** Tensor([3.0, 0.5])).tolist()[0] == -8


def test_constant_powers_of_integers_and_negative_numbers() -> None:
    i = Tensor([-3, 0, 5])
    assert (i**3).tolist() == [-27, 0, 125]
    assert (i**3).dtype is i32
    assert (i**0).tolist() == [1, 1, 1]
    assert (i**2.0).dtype is (i**0.5).dtype is f32
    assert (Tensor([-2.0]) ** 3).tolist() == [-8]
    assert (Tensor([-2.0]) ** 2.0).tolist() == [4]
    assert (Tensor([2]) ** -1).tolist() == [0.5]
    assert (Tensor([100000]) ** -2).tolist() == [np.float32(1e-10)]  # 10**10 wraps
    assert math.isnan((Tensor([-2.0]) ** 0.5).item())
    assert (Tensor([3], dtype=i8) ** 300).tolist() == [wrapped(3**300, i8)]
    assert (Tensor([True, False]) ** 2).dtype is i32


def wrapped(value: int, dtype) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if value > dtype.max else value


@pytest.mark.parametrize("dtype", [d for d in NUMBERS if d.is_int], ids=str)
def test_powers_of_integers_are_exact_and_wrap(dtype, special, same_bits) -> None:
    x, y = pairs(special, dtype)
    got = Tensor(x) ** Tensor(y)
    modulus = 1 << dtype.bits

    def power(a: int, b: int) -> int:
        if b < 0:  # rounded toward zero; an integer divided by 0 is 0
            return (a if b % 2 else 1) if a in (1, -1) else 0
        return wrapped(pow(a, b, modulus), dtype)

    exact = [power(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    same_bits(got.numpy(), np.array(exact, dtype.numpy))
    assert got.dtype is dtype


def test_bools_have_no_powers() -> None:
    t = Tensor([True, False])
    with pytest.raises(TypeError, match="bool"):
        t**t


SHAPES = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (1, 3)), ((), (2, 3)),
    ((2, 3), ()), ((1,), (4,)), ((2, 1, 4), (3, 1)), ((0,), (1,)), ((2, 0), (2, 1)),
    ((1, 0), (3, 1)), ((), ()), ((5, 1, 2, 1), (3, 1, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_broadcasting(a, b) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in (a, b))
    x, y = np.asarray(x), np.asarray(y)
    for call in (operator.add, operator.mul, operator.sub, operator.lt):
        got = call(Tensor(x), Tensor(y)).numpy()
        np.testing.assert_array_equal(got, call(x, y))
        assert got.shape == np.broadcast_shapes(a, b)
    cond = Tensor(x) > 0
    np.testing.assert_array_equal(
        cond.where(Tensor(y), 7.0).numpy(), np.where(x > 0, y, np.float32(7))
    )


def test_where_of_two_numbers() -> None:
    cond = Tensor([True, False])
    for a, b, dtype in [(1.0, 0.0, f32), (1, 0, i32), (1, 2.5, f32), (2.5, 1, f32),
                        (True, False, boolean), (np.int64(1), 0, i32)]:  # fmt: skip
        got = cond.where(a, b)
        assert got.dtype is dtype
        assert got.tolist() == [a, b]


def test_casts_between_tensors() -> None:
    x = Tensor([1.9, -1.9, math.nan, 300.0, -5.0])
    assert x.cast(i32).tolist() == [1, -1, 0, 300, -5]
    assert x.cast(u8).tolist() == [1, 0, 0, 255, 0]
    assert x.cast(boolean).tolist() == [True] * 5
    assert x.cast(f64).cast(f32).dtype is f32
    assert Tensor([-1]).cast(u32).tolist() == [2**32 - 1]

"""f16 and bf16: how they round, what they are stored as, what is done in f32."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from uopc.composite import full
from uopc.dtype import DTYPES, as_dtype, bf16, f16, f32, f64, from_numpy, i32
from uopc.dtype.bf16 import bf16_from_bits, bf16_to_bits, round_bf16
from uopc.interp import ReferenceBackend, evaluate
from uopc.kernelize import make_plan
from uopc.simplify import Simplifier
from uopc.tensor import Tensor
from uopc.uop import Literal, Ops, UOp, toposort

HALVES = [d for d in DTYPES.values() if d.is_half]
EVERY = np.arange(2**16, dtype=np.uint16)


def test_all_bits_of_bf16_go_there_and_back() -> None:
    values = bf16_from_bits(EVERY)
    assert values.dtype == np.float32
    finite = np.isfinite(values)
    np.testing.assert_array_equal(bf16_to_bits(values)[finite], EVERY[finite])
    np.testing.assert_array_equal(round_bf16(values), values)


def between() -> Iterator[tuple[float, float, float]]:
    """Neighbours among bf16 numbers, and a number from one to the other."""
    bits = [*range(0, 300), 0x3F7F, 0x3F80, 0x3F81, 0x7F7D, 0x7F7E, 0x0080, 0x4123]
    for b in bits:
        low, high = (float(v) for v in bf16_from_bits(EVERY[[b, b + 1]]))
        for part in (0, 1, 2**20 - 1, 2**20, 2**20 + 1, 2**21 - 1):
            yield low, high, low + (high - low) * part / 2**21


@pytest.mark.parametrize("sign", [1, -1])
def test_bf16_rounds_to_nearest_ties_to_even(sign: int) -> None:
    for low, high, x in between():
        below, above = Fraction(x) - Fraction(low), Fraction(high) - Fraction(x)
        even = low if int(bf16_to_bits(np.float32([low]))[0]) % 2 == 0 else high
        want = low if below < above else high if above < below else even
        got = round_bf16(np.array([sign * x]))
        assert got.tolist() == [sign * want], (low, high, x)
        assert Literal.of(sign * x, bf16).value == sign * want


def test_beyond_the_largest_number_lies_infinity() -> None:
    most = float(bf16_from_bits(EVERY[[0x7F7F]])[0])
    half = 2.0**119  # of the unit there
    x = np.array([most, most + half * 0.999, most + half, 1e300, -1e300])
    assert round_bf16(x).tolist() == [most, most, np.inf, np.inf, -np.inf]
    over = np.array([65504.0, 65519.99, 65520.0, 1e30])
    assert f16.round(over).tolist() == [65504, 65504, np.inf, np.inf]
    assert Literal.of(65520.0, f16).value == np.inf
    assert Literal.of(65519.0, f16).value == 65504


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_constants_are_keyed_by_their_16_bits(dtype) -> None:
    values = dtype.load(EVERY if dtype is bf16 else EVERY.view(np.float16))
    for bits in range(0, 2**16, 37):
        value = float(values[bits])
        if value == value:
            assert Literal.of(value, dtype) == (dtype, bits)
            assert np.array_equal(Literal(dtype, bits).value, value)
    nodes = {UOp.const(v, dtype) for v in (0.0, -0.0, 1, True, 1.0)}
    assert len(nodes) == 3


@pytest.mark.parametrize("name", ["bf16", "bfloat16", "f16", "float16", np.float16])
def test_names(name: Any) -> None:
    assert as_dtype(name) is (bf16 if "b" in str(name)[:1] else f16)


def test_a_numpy_type_called_bfloat16_is_one() -> None:
    """As the package ml_dtypes registers it; NumPy itself has none."""

    class Foreign:
        name = "bfloat16"

        def newbyteorder(self, _: str) -> Foreign:
            return self

    class Module:
        dtype = staticmethod(lambda d: d)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uopc.dtype.types.np", Module)
        assert from_numpy(Foreign()) is bf16


def test_a_bf16_tensor_reads_as_f32_and_takes_two_bytes() -> None:
    t = Tensor([1.0, 0.1, -3.0], dtype=bf16)
    assert t.dtype is bf16
    assert t.numpy().dtype == np.float32
    assert t.tolist() == [1.0, 0.10009765625, -3.0]
    assert t._memory().dtype == np.uint16
    again = (t + 1).realize()
    assert again._memory().nbytes == 6
    assert again.tolist() == [2.0, 1.1015625, -2.0]
    assert repr(again).endswith("dtype=bf16)")
    t.assign(t * 2)
    assert t.tolist() == [2.0, 0.2001953125, -6.0]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_sums_and_products_are_accumulated_in_f32(dtype) -> None:
    ones = Tensor(np.ones(4096, np.float32), dtype=dtype)
    assert ones.sum().item() == 4096  # one by one, f16 stops at 2048, bf16 at 256
    x = Tensor(np.float32([[300.0, 300.0, -300.0, -300.0]]), dtype=dtype)
    # 90,000 is no f16, the sum is.
    assert (x @ Tensor(np.float32([300, 1, 300, 1]), dtype=dtype)).tolist() == [0]
    many = Tensor(np.full(70000, 2.0, np.float32), dtype=dtype)
    assert many.mean().item() == 2.0  # 140,000 is no f16
    assert many.var().item() == 0.0
    small = Tensor(np.float32([1 + 2**-7, 1.0]), dtype=dtype)
    assert small.prod().dtype is small.mean().dtype is dtype


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_softmax_of_many_classes_sums_to_one(dtype) -> None:
    x = Tensor(np.zeros((1, 5000), np.float32), dtype=dtype)
    p = x.softmax()
    assert p.dtype is x.log_softmax().dtype is dtype
    assert p.numpy()[0, 0] == dtype.round(np.array(1 / 5000))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_step_is_rounded(dtype) -> None:
    x = UOp.param(0, dtype, (3,))
    given = dtype.round(np.array([1.0, 1.5, 3.0])).astype(dtype.numpy)
    unit = 2.0**-7 if dtype is bf16 else 2.0**-10
    third = (x + unit * 0.25) + unit * 0.25  # each lost, together not
    (got,) = evaluate([third], {x: given})
    assert got.tolist() == given.tolist()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_rounding_is_never_folded_away(dtype) -> None:
    x = UOp.param(0, f32)
    there_and_back = x.cast(dtype).cast(f32)
    assert Simplifier()(there_and_back) is there_and_back
    exact = UOp.const(1.2345, f32).cast(dtype).cast(f32)
    assert Simplifier()(exact).value == float(dtype.round(np.array(1.2345)))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_plans_compute_half_types_in_f32(dtype) -> None:
    a = UOp.buffer(8, dtype, 0)
    root = ((a + a) * a).reduce(Ops.ADD, 1).cast(i32)
    plan, _ = make_plan([root], None, ReferenceBackend().supports, "interp")
    work = [
        u
        for k in plan.kernels
        for u in toposort([k.ast])
        if u.op.kind in ("elementwise", "reduce") and u.op is not Ops.CAST
    ]
    assert work
    assert all(not s.dtype.is_half for u in work for s in (u, *u.src))
    casts = {(u.src[0].dtype, u.dtype) for k in plan.kernels
             for u in toposort([k.ast]) if u.op is Ops.CAST}  # fmt: skip
    assert casts == {(dtype, f32), (f32, dtype), (f32, i32)}


def test_mixed_with_others() -> None:
    h, b = Tensor([1.5], dtype=f16), Tensor([1.5], dtype=bf16)
    assert (h + b).dtype is f32
    assert (h + Tensor([1])).dtype is (h * 0.1).dtype is (h + True).dtype is f16
    assert (b + Tensor(np.float64([1]))).dtype is f64
    assert (h / 3).tolist() == [0.5]
    assert Tensor(full((2,), 0.1, bf16)).tolist() == [0.10009765625] * 2


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_uniform_numbers_lie_in_0_to_1_and_do_not_reach_it(dtype) -> None:
    if not dtype.is_float:
        for draw in (Tensor.rand, Tensor.randn):
            with pytest.raises(TypeError, match=f"expected a float type, got {dtype}"):
                draw(3, dtype=dtype)
        return
    x = Tensor.rand(50_000, dtype=dtype).numpy().astype(float)
    assert x.min() >= 0
    assert x.max() < 1
    assert abs(x.mean() - 0.5) < 0.01
    assert abs(Tensor.randn(50_000, dtype=dtype).numpy().astype(float).std() - 1) < 0.02


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_range_is_rounded_once_per_number(dtype) -> None:
    for start, stop, step in [(2049, 2053, 1), (-70000, 0, 1), (0, 10**6, 3 * 10**5)]:
        got = Tensor.arange(start, stop, step, dtype=dtype)
        want = dtype.round(np.arange(start, stop, step, dtype=np.float64))
        np.testing.assert_array_equal(got.numpy(), want)

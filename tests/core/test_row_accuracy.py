"""What is measured of functions over an axis, and that errors stay below a bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from uopc.testing.accuracy import Array, ulps
from uopc.testing.rows import (
    FACTORS,
    KINDS,
    LARGEST,
    ROW_FUNCTIONS,
    RowFunction,
    RowMeasurement,
    measure_rows,
    rows_of,
)

# Added up or multiplied one after the other, also by NumPy.
IN_SEQUENCE = ("prod", "scatter_add")
# What is exp of a rounded difference.
ROUNDED_EXPONENT = "softmax, each"
# Added up by NumPy's BLAS, on some processors one after the other.
SUMS_OF_PRODUCTS = ("x @ y", "einsum", "x.softmax() @ y")


@pytest.mark.parametrize("function", ROW_FUNCTIONS, ids=lambda f: f.name)
def test_short_rows_are_within_four_ulp(function: RowFunction) -> None:
    if function.name in SUMS_OF_PRODUCTS:
        for n in (1, 3, 64, 1000):
            assert one(function, n).error <= max(4, n / 2)
        return
    (found,) = measure_rows([function], "interp", (1, 3, 64, 1000))
    allowed = 4
    if function.name in IN_SEQUENCE:
        allowed = 500  # half an ulp for each of 1000
    if function.name == ROUNDED_EXPONENT:
        allowed = 104  # as many ulp as the exponent is long, until exp is 0
    assert found.error <= allowed, found


def one(function: RowFunction, *lengths: int) -> RowMeasurement:
    (found,) = measure_rows([function], "interp", lengths)
    return found


def test_an_error_is_seen() -> None:
    off = RowFunction(
        "off", (), lambda t: t.cumsum() * (1 + 2**-20), lambda x: x.cumsum(-1),
        LARGEST,
    )  # fmt: skip
    for n in (3, 64):
        assert 4 < one(off, n).error < 40
    right = RowFunction("right", (), lambda t: t * 1, lambda x: x)
    assert one(right, 3, 5) == RowMeasurement(0.0, "normal", 12 * 32 * 8)
    odd = RowFunction("odd", (), lambda t: t.maximum(-1e38), lambda x: x)
    found = one(odd, 3)
    assert found.kind.endswith("-inf") and found.error > 2**22
    lost = RowFunction("lost", (), lambda t: t.eq(t).where(t, 0.0), lambda x: x)
    assert one(lost, 3) == RowMeasurement(np.inf, "one NaN", 12 * 32 * 3)


def test_a_definition_has_the_shape_of_the_result() -> None:
    flat = RowFunction("flat", (), lambda t: t.sum(-1), lambda x: x.sum((-1, -2)))
    with pytest.raises(ValueError, match=r"flat: \(12, 32\) instead of \(12,\)"):
        one(flat, 2)


WRONG = {
    "norm": lambda t: t.square().sum(-1).sqrt(),
    "var": lambda t: (t * t).mean(-1) - t.mean(-1).square(),
    "logsumexp": lambda t: t.exp().sum(-1).log(),
    "log_softmax": lambda t: t.softmax().log(),
    "softmax": lambda t: t.exp() / t.exp().sum(-1, keepdim=True),
    "cumprod": lambda t: t.log().cumsum().exp(),
    "prod": lambda t: t.log().sum(-1).exp(),
    "mean": lambda t: t.sum(-1) * 0.0009,
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_less_exact_is_noticed(name: str) -> None:
    (right,) = (f for f in ROW_FUNCTIONS if f.name == name)
    wrong = replace(right, call=WRONG[name])
    assert one(wrong, 64, 1000).error > 1000


def test_rows_are_of_their_kinds_and_the_same_each_time() -> None:
    for kinds in (KINDS, FACTORS):
        rows = rows_of(kinds, 4, 50)
        assert rows.shape == (len(kinds), 4, 50) and rows.dtype == np.float32
        assert np.array_equal(rows, rows_of(kinds, 4, 50), equal_nan=True)
    row = dict(zip(KINDS, rows_of(KINDS, 4, 50), strict=True))
    assert (np.isneginf(row["half -inf"]).sum(-1) > 10).all()
    assert np.isneginf(row["all -inf"]).all()
    for kind, test in (("one inf", np.isposinf), ("one NaN", np.isnan)):
        assert (test(row[kind]).sum(-1) == 1).all()
    assert (np.ptp(row["constant"], -1) == 0).all()
    assert np.ptp(np.log10(np.abs(row["of all sizes"]))) > 6


def test_errors_in_ulp_of_another_number() -> None:
    def error(got: float, exact: float, size: float) -> float:
        value: Array = np.array([got], np.float32)
        return float(ulps(value, np.array([exact]), size=np.array([size]))[0])

    assert error(1 + 2**-23, 1.0, 8.0) == 1 / 8
    assert error(0.0, 2**-24, 1.0) == 0.5
    assert error(np.nan, 1.0, 8.0) == np.inf
    assert error(np.inf, np.inf, np.inf) == error(np.nan, np.nan, np.nan) == 0

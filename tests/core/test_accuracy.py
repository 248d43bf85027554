"""Functions of elements are within 4 ulp, none is forgotten, and the page says so.

Neither is a function over an axis; how far these are off stands on the page.
"""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

import numpy as np
import pytest

from uopc.tensor import Tensor
from uopc.tensor.arithmetic import Arithmetic
from uopc.tensor.einsum import Einsum
from uopc.tensor.order import Order
from uopc.tensor.reduction import Reduction
from uopc.testing.accuracy import ALLOWED, Function, measure, points, ulps
from uopc.testing.functions import (
    EXACT,
    FUNCTIONS,
    OTHERS,
    measured,
    names_of,
    parts,
    unlisted,
)
from uopc.testing.rows import FACTORS, KINDS, LENGTHS, ROW_FUNCTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text()
grid = functools.cache(functools.partial(points, count=30_000))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.name)
def test_a_function_is_within_4_ulp(function: Function) -> None:
    (found,) = measure([function], "interp", grid(function.arity))
    assert found.inputs >= 30_000
    assert found.error <= ALLOWED, found


def test_every_element_is_compared_in_whatever_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("uopc.testing.accuracy.BLOCK", 8)
    off = Function("off", (), lambda x: x, lambda x: x + (x == 17))
    (found,) = measure([off], "interp", [np.arange(20, dtype=np.float32)])
    assert (found.worst, found.inputs) == ((17.0,), 20)


def test_no_function_of_elements_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unlisted() == []
    monkeypatch.setattr(Arithmetic, "cbrt", lambda self: self, raising=False)
    monkeypatch.setattr(Arithmetic, "__divmod__", lambda *a: a, raising=False)
    assert unlisted() == ["Arithmetic.__divmod__", "Arithmetic.cbrt"]


@pytest.mark.parametrize("part", [Reduction, Einsum, Order], ids=lambda p: p.__name__)
def test_no_function_over_an_axis_is_forgotten(
    part: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "median", lambda self: self, raising=False)
    assert unlisted() == [f"{part.__name__}.median"]
    monkeypatch.undo()
    few = tuple(f for f in ROW_FUNCTIONS if f.name != "logsumexp")
    monkeypatch.setattr("uopc.testing.functions.ROW_FUNCTIONS", few)
    assert unlisted() == ["Reduction.logsumexp"]


def test_only_names_that_there_are_stand_in_the_lists() -> None:
    names = measured()
    names |= {name for listed in EXACT.values() for name in listed}
    assert all(hasattr(Tensor, name) for name in names)
    assert {kind for kinds in OTHERS.values() for kind in kinds} <= set(parts())


def table(title: str) -> list[list[str]]:
    """The cells of the table under a title of the page, by lines."""
    part = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| `(.*?)` \| (.*) \|$", part, re.MULTILINE)
    return [[name, *rest.split(" | ")] for name, rest in lines]


def test_the_page_has_every_function_and_no_error_above_4_ulp() -> None:
    """`uopc accuracy -o docs/accuracy.md` writes it."""
    rows = table("Functions of elements")
    assert [row[0] for row in rows] == [f.name for f in FUNCTIONS]
    for name, c, _, interp, _, inputs in rows:
        assert 0 <= float(c) <= ALLOWED and 0 <= float(interp) <= ALLOWED, name
        assert int(inputs.replace(",", "")) >= 4_000_000


def test_the_page_has_every_function_over_an_axis_in_each_length() -> None:
    lengths = [", ".join(f"{n:,}" for n in group) for group in LENGTHS]
    rows = table("Functions over an axis")
    assert [row[:3] for row in rows] == [
        [f.name, f.unit.name, length] for f in ROW_FUNCTIONS for length in lengths
    ]
    for name, _, _, c, _, interp, _, numbers in rows:
        assert 0 <= float(c) < math.inf and 0 <= float(interp) < math.inf, name
        assert int(numbers.replace(",", "")) >= len(FACTORS)
    text = " ".join(PAGE.split())
    assert [kind for kind in {*KINDS, *FACTORS} if kind not in text] == []


def test_the_page_names_all_that_tensor_has() -> None:
    missing = [
        name
        for kind in parts().values()
        for name in names_of(kind)
        if name not in measured() and f"`{name}`" not in PAGE
    ]
    assert missing == []


# -- the measure itself -------------------------------------------------------


def error(got: float, exact: float) -> float:
    return float(ulps(np.float32([got]), np.float64([exact]))[0])


def test_errors_in_ulp() -> None:
    ulp = 2.0**-23
    assert error(1.0, 1.0) == 0
    assert error(1.0, 1 + ulp / 2) == 0.5
    assert error(1 + 3 * ulp, 1.0) == 3
    assert error(1.0, 1 - ulp) == 2  # below 1 they are half as far apart
    assert error(3e-45, 1.5 * 2**-149) == 0.5
    assert error(0.0, 2**-150) == error(-0.0, 2**-150) == 0.5
    assert error(5 * 2**-149, 0.0) == 5
    assert error(math.inf, 2.0**200) == error(-math.inf, -math.inf) == 0
    assert error(math.inf, 2.0**128 * (1 - 2**-24)) == 1
    assert error(1.0, math.inf) == 2**23
    assert error(math.nan, math.nan) == 0
    for got, exact in ((math.nan, 1), (1, math.nan), (0.0, -0.0), (-0.0, 0.0)):
        assert error(got, exact) == math.inf
    assert ulps(np.float32([0.0]), np.float64([-0.0]), signed=False)[0] == 0


def test_errors_are_of_f32() -> None:
    with pytest.raises(TypeError, match="float64 and float64"):
        ulps(np.float64([1]), np.float64([1]))


def test_inputs_are_dense_and_special() -> None:
    (x,) = grid(1)
    assert {*range(-125, 129)} <= set(np.frexp(x[np.isfinite(x)])[1].tolist())
    assert np.count_nonzero((np.abs(x) < 2.0**-126) & (x != 0)) > 50
    assert {0.0, math.inf, -math.inf, 1.0, float(np.float32(math.pi / 2))} <= set(
        x.tolist()
    )
    assert np.isnan(x).any() and np.signbit(x[x == 0]).any()
    a, b = grid(2)
    with np.errstate(all="ignore"):
        power = np.power(a.astype(float), b)
    assert np.mean((np.abs(power) > 2**-149) & (np.abs(power) < 2**128)) > 0.4
    assert np.mean(a < 0) > 0.2 and np.mean(b < 0) > 0.2
    assert all(np.array_equal(m, n, equal_nan=True) for m, n in zip(
        points(2, 1000), points(2, 1000), strict=True))  # fmt: skip


WRONG = {
    "gelu": lambda x: x * 0.5 * (
        ((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).tanh() + 1),
    "silu": lambda x: x * x.sigmoid(),
    "softplus": lambda x: (x.exp() + 1).log(),
    "x ** 2.4": lambda x: (x.log() * 2.4).exp(),
    "x ** 10": lambda x: (x**4) ** 2 * x**2,
    "exp": lambda x: (x * (1 / math.log(2))).exp2(),
    "log1p": lambda x: (x + 1).log(),
    "abs": lambda x: x.maximum(-x),
    "-x": lambda x: 0 - x,
    "reciprocal": lambda x: 1 / x + 1e-44,
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_less_exact_is_noticed(name: str) -> None:
    (right,) = (f for f in FUNCTIONS if f.name == name)
    wrong = Function(name, right.methods, WRONG[name], right.exact)
    (found,) = measure([wrong], "interp", grid(1))
    assert found.error > ALLOWED

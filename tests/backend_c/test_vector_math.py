"""Functions on vectors: exact enough, exact where they must be, alike in every lane."""

import ctypes
import math
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uopc.backend_c import cache
from uopc.backend_c.load import load
from uopc.backend_c.toolchain import find_compiler
from uopc.backend_c.types import C_TYPES
from uopc.backend_c.vector_math import FUNCTIONS, VECTOR_MATH, Function, definitions
from uopc.backend_c.vector_math.measure import can_measure, measure
from uopc.backend_c.vector_math.table import _spelling
from uopc.cli.main import main
from uopc.config import overriding
from uopc.dtype import f32
from uopc.simplify import Bounds
from uopc.uop import UOp

Array = Any
Compute = Callable[[Function, str, Array], list[Array]]

NAMED = {function.name: function for function in FUNCTIONS.values()}
NUMPY: dict[str, type[np.floating[Any]]] = {"f32": np.float32, "f64": np.float64}
WIDTHS = {"f32": (4, 8), "f64": (2, 4)}

LOOP = """\
static void run_{t}({c}* x, {c}* y, long long n) {{
  for (long long i = 0; i < n; i += {w}) {{
    {t} v;
    for (int k = 0; k < {w}; k++) v[k] = x[i+k];
    v = uopc_{name}_{t}(v);
    for (int k = 0; k < {w}; k++) y[i+k] = v[k];
  }}
}}
"""


def program(function: Function, element: str) -> str:
    """C that computes in vectors of each width, and as scalars."""
    scalar = _spelling(function, element)
    c, parts = C_TYPES[element], [h.format() for h in scalar.helpers]
    calls = []
    for k, w in enumerate(WIDTHS[element]):
        fields = {"t": f"{element}x{w}", "c": c, "w": w, "name": function.name}
        parts += [*definitions(function, element, w), LOOP.format(**fields)]
        calls.append(f"  run_{element}x{w}(p[0], p[{k + 2}], *(long long*)p[1]);")
    one = scalar.expression.format(f"(({c}*)p[0])[i]")
    last = f"(({c}*)p[{len(calls) + 2}])[i] = {one};"
    loop = f"  for (long long i = 0; i < *(long long*)p[1]; i++) {last}"
    body = "\n".join(["void f(void** p) {", *calls, loop, "}\n"])
    return "\n".join([*dict.fromkeys(parts), body])


def compute(function: Function, element: str, x: Array) -> list[Array]:
    """The function of ``x``, whose length is a multiple of 16, in every width."""
    count = ctypes.c_longlong(x.size)
    found = [np.empty_like(x) for _ in range(len(WIDTHS[element]) + 1)]
    places = [x.ctypes.data, ctypes.addressof(count), *(y.ctypes.data for y in found)]
    table = (ctypes.c_void_p * len(places))(*places)
    path = cache.build(program(function, element), 0, is_program=False)
    with load(path) as library:
        library.function("f")(ctypes.addressof(table))
    return found


def inputs(element: str) -> Array:
    """All kinds of numbers, also those for the slow ways."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 1 << int(element[1:]), 2000, np.uint64)
    patterns = bits.astype(f"u{int(element[1:]) // 8}").view(NUMPY[element])
    ends = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 3e5, -3e30])
    values = [rng.uniform(-20, 20, 2000), rng.uniform(-800, 800, 983), ends]
    # Not cast: numpy warns of some NaNs among the patterns.
    parts = [patterns, *(v.astype(NUMPY[element]) for v in values)]
    whole: Array = np.concatenate(parts)
    return whole[: whole.size // 16 * 16]


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_error_is_within_the_bound(name: str, element: str) -> None:
    if can_measure(element):
        m = measure(NAMED[name], element, 100_000)
        assert m.good, m
        assert m.error > 0.3, "nothing was measured"
        assert m.inputs > 100_000


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("name", NAMED)
def test_a_lane_does_not_depend_on_the_others(name: str, element: str) -> None:
    x = inputs(element)
    first, *others = compute(NAMED[name], element, x)
    assert np.isfinite(first).sum() > 500
    for other in others:
        np.testing.assert_array_equal(first.view("u1"), other.view("u1"))


@pytest.mark.parametrize("command", [c for c in ("gcc", "clang") if shutil.which(c)])
def test_compilers_agree(
    command: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = inputs("f32")
    usual = compute(NAMED["tanh"], "f32", x)[0]
    monkeypatch.setenv("UOPC_CC", command)
    other = compute(NAMED["tanh"], "f32", x)[0]
    np.testing.assert_array_equal(usual.view("u1"), other.view("u1"))


@pytest.mark.parametrize("name", ["exp", "log2", "tanh"])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_error_without_multiply_add(
    name: str, element: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = " ".join(find_compiler().argv)
    if platform.machine() == "x86_64":
        monkeypatch.setenv("UOPC_CC", f"{compiler} -march=x86-64")
    if can_measure(element):
        m = measure(NAMED[name], element, 50_000)
        assert m.good, m


def exactly(name: str, element: str, x: list[float]) -> list[float]:
    padded = np.full(-len(x) % 16 + len(x), 1, NUMPY[element])
    padded[: len(x)] = x
    found: list[float] = compute(NAMED[name], element, padded)[1][: len(x)].tolist()
    return found


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_exact_values(element: str) -> None:
    info = np.finfo(NUMPY[element])
    low, high = int(info.minexp) - int(info.nmant), int(info.maxexp)
    powers = [*range(low, high)]
    values = [2.0**n for n in powers]
    inf, nan = math.inf, math.nan
    assert exactly("exp2", element, [float(n) for n in powers]) == values
    assert exactly("exp2", element, [high, low - 1, inf, -inf]) == [inf, 0, inf, 0]
    assert exactly("log2", element, values) == powers
    assert exactly("log2", element, [0.0, -0.0, inf]) == [-inf, -inf, inf]
    assert exactly("exp", element, [0.0, -0.0, inf, -inf]) == [1, 1, inf, 0]
    assert exactly("log", element, [1, 0.0, -0.0, inf]) == [0, -inf, -inf, inf]
    assert exactly("log1p", element, [-1, inf]) == [-inf, inf]
    assert exactly("tanh", element, [inf, -inf, 30, -30]) == [1, -1, 1, -1]
    assert exactly("cos", element, [0.0, -0.0]) == [1, 1]
    for name in ("sin", "tanh", "log1p"):
        zeros = exactly(name, element, [0.0, -0.0])
        assert [math.copysign(1, z) for z in zeros] == [1, -1]
    for name, undefined in (
        ("log", [-1, -inf]),
        ("log2", [-1e-30, -inf]),
        ("log1p", [-1.5, -inf]),
        ("sin", [inf, -inf]),
        ("cos", [inf, -inf]),
    ):
        assert all(map(math.isnan, exactly(name, element, undefined))), name
    for name in NAMED:
        assert math.isnan(exactly(name, element, [nan])[0]), name


def test_readable_code_calls_the_library() -> None:
    for op, function in FUNCTIONS.items():
        u = UOp(op, (UOp.param(0, f32),))
        with overriding(UOPC_OPT=0):
            plain = VECTOR_MATH[op](u, Bounds())
        assert plain.expression == f"__builtin_{function.name}{{f}}({{0}})"
        with overriding(UOPC_OPT=1):
            fast = VECTOR_MATH[op](u, Bounds())
        assert fast.vector and fast.expression.startswith("uopc_")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "ulp.md"
    words = ["ulp", "--functions", "exp,sin", "--sample", "5000", "-o", str(page)]
    assert main(words) == 0
    text = page.read_text()
    assert "| `exp` | 0." in text and "| `sin` | 0." in text
    assert "`tanh` |" not in text
    assert "exp f32: 0." in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["ulp", "--functions", "sine"])
    assert "no function 'sine'" in capsys.readouterr().err

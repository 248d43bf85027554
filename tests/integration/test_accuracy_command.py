"""`uopc accuracy` measures every backend and writes a page; the C backend is exact."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from uopc.cli.accuracy_page import accuracy_page
from uopc.cli.main import main
from uopc.config import overriding
from uopc.nn import scaled_dot_product_attention
from uopc.tensor import Tensor
from uopc.testing.accuracy import ALLOWED, Array, Function, measure, points
from uopc.testing.functions import FUNCTIONS
from uopc.testing.rows import ROW_FUNCTIONS, RowFunction, measure_rows

grid = functools.cache(functools.partial(points, count=100_000))


@pytest.mark.parametrize("level", [0, 1])
def test_functions_in_c_are_within_4_ulp(level: int) -> None:
    for arity in (1, 2):
        functions = [f for f in FUNCTIONS if f.arity == arity]
        with overriding(UOPC_OPT=level):
            found = measure(functions, "c", grid(arity))
        pairs = zip(functions, found, strict=True)
        assert [(f.name, m) for f, m in pairs if not m.error <= ALLOWED] == []


def test_functions_over_an_axis_in_c_are_no_worse_than_in_sequence() -> None:
    for n in (3, 200):
        found = measure_rows(ROW_FUNCTIONS, "c", (n,), count=10_000)
        # Half an ulp for each addition, doubled by a square.
        allowed = {f.name: ALLOWED + n for f in ROW_FUNCTIONS}
        allowed["softmax, each"] += 104  # as long as its exponent is
        pairs = zip(ROW_FUNCTIONS, found, strict=True)
        assert [(f.name, m) for f, m in pairs if not m.error <= allowed[f.name]] == []


def attention() -> RowFunction:
    """That of uopc.nn in place of core's formula; the rows are added to its scores."""
    (formula,) = (f for f in ROW_FUNCTIONS if f.name == "x.softmax() @ y")
    y = {n: np.float32(np.random.default_rng(n).normal(size=(n, 2))) for n in (1, 60)}

    def call(t: Tensor) -> Tensor:
        rows, n = t.shape[-2:]
        q, k = Tensor(np.zeros((rows, 4), np.float32)), Tensor.ones(n, 4)
        return scaled_dot_product_attention(q, k, Tensor(y[n]), mask=t)

    def weights(x: Array) -> Array:
        top = x.max(-1, keepdims=True)
        nothing = np.isneginf(top)
        e = np.exp(x - np.where(nothing, 0.0, top))
        return np.asarray(e / np.where(nothing, 1.0, e.sum(-1, keepdims=True)))

    def exact(x: Array) -> Array:
        return np.asarray(weights(x) @ y[x.shape[-1]].astype(float))

    def size(x: Array, _: Array) -> Array:
        return np.asarray(weights(x) @ np.abs(y[x.shape[-1]].astype(float)))

    unit = replace(formula.unit, size=size)
    return replace(formula, name="attention", call=call, exact=exact, unit=unit)


@pytest.mark.parametrize("backend", ["c", "interp"])
def test_attention_is_as_exact_as_its_formula(backend: str) -> None:
    """Also of masks with -inf; of nothing but -inf it is 0."""
    (found,) = measure_rows([attention()], backend, (1, 60), count=20_000)
    assert found.error <= ALLOWED + 60 / 2


def test_the_command_writes_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "accuracy.md"
    assert main(["accuracy", "--inputs", "1000", "-o", os.fspath(file)]) == 0
    assert capsys.readouterr().out == ""
    page = file.read_text()
    header = "| function | ulp, c | worst input, c | ulp, interp | worst input, interp"
    assert header in page
    assert "| `sum` | terms | 1, 3, 64 | " in page and "| 1,000 | " in page
    assert "| 100,000 | " not in page  # longer than the inputs
    docs = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text()
    assert shape(page) == shape(docs)


def shape(page: str) -> list[str]:
    """A page without what differs from machine to machine and from grid to grid."""
    lines = [
        line
        for line in page.splitlines()
        if "NumPy" not in line and "| 100,000 |" not in line
    ]
    numbers = [re.sub(r"[-+0-9.,e]{3,}.*$", "", line) for line in lines]
    return [line.split("` |")[0] for line in numbers]


def test_an_error_that_is_too_large_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Function("log1p", ("log1p",), lambda x: (x + 1).log(), np.log1p)
    monkeypatch.setattr("uopc.cli.accuracy_page.FUNCTIONS", (wrong,))
    monkeypatch.setattr("uopc.cli.accuracy_page.ROW_FUNCTIONS", ())
    assert main(["accuracy", "--inputs", "1000"]) == 1
    captured = capsys.readouterr()
    assert "| `log1p` |" in captured.out
    assert re.search(r"uopc: an error of \S+ ulp is too large", captured.err)
    with pytest.raises(SystemExit):
        main(["accuracy", "--inputs", "10"])
    assert "expected at least 1000, got 10" in capsys.readouterr().err


def test_a_page_of_one_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(f for f in FUNCTIONS if f.name in ("-x", "x + y"))
    monkeypatch.setattr("uopc.cli.accuracy_page.FUNCTIONS", few)
    rows = tuple(f for f in ROW_FUNCTIONS if f.name in ("cumsum", "prod"))
    monkeypatch.setattr("uopc.cli.accuracy_page.ROW_FUNCTIONS", rows)
    page, worst = accuracy_page(["interp"], 1000)
    assert worst == 0.5  # of elements: prod is further off, and may be
    header = (
        "| function | ulp of | length | ulp, interp | worst row, interp | numbers |"
    )
    lines = page.partition(header)[2].split("\n\n")[0].splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| `cumsum`", "| `cumsum`", "| `prod`", "| `prod`"]  # fmt: skip
    assert "| function | ulp, interp | worst input, interp | inputs |" in page


def test_backends_agree_on_the_ends_of_functions() -> None:
    x = [0.0, -0.0, np.inf, -np.inf, np.nan, 1000.0, -1000.0, 3e38, -3e38]
    names = ("silu", "gelu", "softplus", "logsigmoid", "sigmoid", "tanh", "log1p")
    results = []
    for backend in ("c", "interp"):
        with overriding(UOPC_BACKEND=backend):
            t = [Tensor(np.float32(x), requires_grad=True) for _ in names]
            y = [getattr(v, name)() for v, name in zip(t, names, strict=True)]
            for v, w in zip(t, y, strict=True):
                w.sum().backward([v])
            grads = [v.grad for v in t]
            Tensor.realize_all([*y, *grads])
            results.append([v.numpy() for v in (*y, *grads)])
    np.testing.assert_allclose(*results, rtol=1e-6)

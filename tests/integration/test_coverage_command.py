"""`uopc coverage`: what checks showed of each op, and docs/coverage.md."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from uopc.autodiff import coverage as module
from uopc.autodiff.command import run_coverage
from uopc.autodiff.coverage import BY_DESIGN, FAILED, MISSING, coverage, page
from uopc.dtype import f64
from uopc.plugins import registry
from uopc.uop import OpDef, Ops, UOp, elementwise

PAGE = Path(__file__).parents[2] / "docs/coverage.md"
# The whole table takes ten seconds and more; these have every kind of cell.
SOME = (Ops.IOTA, Ops.PARAM, Ops.SIN, Ops.CMPLT, Ops.PERMUTE, Ops.INDEX)


def row_of(op: OpDef) -> dict[str, str]:
    (row,) = coverage([op])
    names = ("forward", "gradient", "second", "jvp", "vmap", "c")
    return dict(zip(names, row.cells, strict=True))


def test_the_page_shows_what_the_checks_show() -> None:
    written = PAGE.read_text().splitlines()
    for op in SOME:
        (row,) = [line for line in page(coverage([op])).splitlines() if "`" in line][
            -1:
        ]
        assert row in written
    listed = {line.split("`")[1] for line in written if line.startswith("| `")}
    known = {op.name for op in registry().ops.values() if op.kind != "loop"}
    assert listed == known
    table = "\n".join(line for line in written if line.startswith("|"))
    assert FAILED not in table and MISSING not in table


def test_a_broken_rule_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry().vjps, Ops.SIN, lambda u, g: (g,))
    (row,) = coverage([Ops.SIN])
    assert row.cells[1] == FAILED
    assert any("sin, gradient: sin: the gradient by" in p for p in row.problems)


def plain(name: str, **more: object) -> OpDef:
    return OpDef(
        name,
        "elementwise",
        1,
        elementwise(("float",)),
        "Twice x.",
        numpy=lambda u, x: x * 2,
        **more,  # type: ignore[arg-type]
    )


def test_an_op_of_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    double = plain("double", lower=lambda u: u.src[0] + u.src[0])
    monkeypatch.setitem(registry().ops, "double", double)
    assert row_of(double)["gradient"] == "2 passed through lower"
    assert row_of(double)["c"] == "4 passed through lower"
    bare = plain("bare")
    monkeypatch.setitem(registry().ops, "bare", bare)
    assert row_of(bare)["gradient"] == MISSING
    assert UOp(bare, (UOp.param(0, f64, ()),)).op is bare
    assert row_of(Ops.CMPLT)["gradient"] == BY_DESIGN


def test_the_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    args = argparse.Namespace(output=str(tmp_path / "page.md"))
    monkeypatch.setattr(module, "coverage", lambda ops: coverage([Ops.SIN]))
    assert run_coverage(args) == 0
    monkeypatch.setitem(registry().vjps, Ops.SIN, lambda u, g: (g,))
    assert run_coverage(args) == 1
    assert "## Problems" in (tmp_path / "page.md").read_text()

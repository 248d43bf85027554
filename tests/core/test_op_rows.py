"""Every row of the op table, checked by what the row says, and the page of it."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from uopc.cli.ops import reference_page
from uopc.dtype import DTYPES, boolean, f32, u8
from uopc.plugins import registry
from uopc.testing import check_op, op_samples
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("op", BUILTIN_OPS, ids=str)
def test_a_row_keeps_its_promises(op: OpDef) -> None:
    assert check_op(op) > 0


def test_samples_are_of_every_type_that_an_op_takes() -> None:
    assert len(op_samples(Ops.ADD, u8)) == 1
    assert op_samples(Ops.ADD, boolean) == op_samples(Ops.SHL, f32) == []
    assert {u.dtype for u in op_samples(Ops.CAST, f32)} == {
        d for d in DTYPES.values() if d is not f32
    }


def broken(op: OpDef, **changes: Any) -> OpDef:
    return dataclasses.replace(op, **changes)


def lowered_wrong(u: UOp) -> UOp:
    return u.src[0] * u.src[1].recip() * 1.000001


CALLS = itertools.count()
# A wrong row, and what the check says of it.
WRONG = {
    "doc": (broken(Ops.ADD, doc="two\nlines."), "'doc' must be one line"),
    "no sentence": (broken(Ops.ADD, doc="Sum"), "'doc' must be one line"),
    "no samples": (broken(Ops.RESHAPE, samples=lambda x: ()), "no element type gives"),
    "other samples": (
        broken(Ops.FLIP, samples=lambda x: (x.permute((1, 0)),)), "a sample of it is"),
    "shape": (
        broken(Ops.PERMUTE, numpy=lambda u, x: x), r"gives .*\(2, 3\)\), and infer"),
    "dtype": (broken(Ops.CMPLT, numpy=lambda u, a, b: a), "and inference .*bool"),
    "chance": (
        broken(Ops.ADD, numpy=lambda u, a, b: (a + b + next(CALLS)).astype(a.dtype)),
        "the meaning is not repeatable"),
    "commutative": (
        broken(Ops.FLOORDIV, commutative=True), "is not commutative"),
    "commutative for some": (
        broken(Ops.MAX, commutative=True), "is not commutative"),  # of -0.0 and 0.0
    "identity": (broken(Ops.MUL, identity=lambda d: 0), "changes the other source"),
    "scalar": (
        broken(Ops.SQRT, numpy=lambda u, x: x.sum()), r"the meaning gives .*\(\)\)"),
    "lower": (broken(Ops.DIV, lower=lowered_wrong), "'lower' gives"),
    "lower's dtype": (
        broken(Ops.DIV, lower=lambda u: u.src[0].cast(f32)), "'lower' gives f32"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_row_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, message = WRONG[name]
    original = registry().ops[op.name]
    if op.samples is original.samples and op.samples is not None:
        row = original.samples
        op = broken(op, samples=lambda x: [UOp(op, u.src, u.arg) for u in row(x)])
    monkeypatch.setitem(registry().ops, op.name, op)
    with pytest.raises((AssertionError, TypeError), match=message) as error:
        check_op(op)
    assert op.name in str(error.value)


def test_a_lower_that_uses_the_op_itself_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = broken(Ops.DIV, lower=lambda u: u + 0.0)
    monkeypatch.setitem(registry().ops, "div", rounds)
    with pytest.raises(AssertionError, match="div: 'lower' uses the op"):
        check_op(rounds)


def test_the_page_of_ops_is_up_to_date() -> None:
    """`uopc ops > docs/ir.md` writes it."""
    page = (ROOT / "docs" / "ir.md").read_text()
    assert page == reference_page(BUILTIN_OPS)


def test_the_page_names_what_a_row_has() -> None:
    page = reference_page(BUILTIN_OPS)
    for op in BUILTIN_OPS:
        assert f"| `{op.name}` |" in page
    assert "| `mul` | 2 |  | numbers | exact, commutative, identity 1 |" in page
    assert "| `shl` | 2 |  | unsigned | exact, no gradient |" in page
    assert "| `tanh` | 1 |  | floats | lowered |" in page
    assert "`shrink %0, ((0, 2), (1, 3))`" in page


def test_a_kind_or_name_that_there_is_not_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="op 'add': no kind 'sum'; kinds: leaf, el"):
        broken(Ops.ADD, kind="sum")
    for name in ("Add", "a-b", "", "1st"):
        with pytest.raises(ValueError, match="a name has lower-case letters"):
            broken(Ops.ADD, name=name)

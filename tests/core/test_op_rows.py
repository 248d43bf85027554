"""Every row of the op table, checked by what the row says, and the page of it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uopc.cli.ops import reference_page
from uopc.dtype import DTYPES, boolean, f32, u8
from uopc.plugins import PluginHost, current, hookimpl, registry, use
from uopc.testing import check_op, op_samples
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp, elementwise

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
        broken(Ops.DIV, lower=lambda u: u.src[0].cast(f32)), "'lower' gave f32"),
    "lower's type": (broken(Ops.DIV, lower=lambda u: None), "'lower' gave None"),
    "identity of one source": (
        broken(Ops.SQRT, identity=lambda d: 1), "'identity' is for ops of two"),
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


class Third:
    """A plugin with one op, whose row is given."""

    def __init__(self, meaning: Callable[..., Any], **row: Any) -> None:
        self.op = OpDef(
            "special", "elementwise", 1, elementwise(("float",)), "Special.",
            numpy=meaning, **row,
        )  # fmt: skip

    @hookimpl
    def uopc_register_ops(self, register):
        register(self.op)

    def said(self) -> str:
        """What the check says of the row, with the notes."""
        with use(PluginHost()), pytest.raises(AssertionError) as caught:
            current().register_module(self, "third")
            check_op(self.op)
        return "\n".join([str(caught.value), *caught.value.__notes__])


def gamma(u: UOp, x: Any) -> Any:
    return np.vectorize(math.lgamma, otypes=[x.dtype])(x)  # raises at a pole, 0


def raising(*args: Any) -> Any:
    raise OverflowError("too much")


@pytest.mark.parametrize("commutative", [False, True])
def test_a_meaning_that_is_not_total_is_named_with_the_value(commutative: bool) -> None:
    said = Third(gamma, domain="positive", commutative=commutative).said()
    assert said.startswith("special: the meaning raises ValueError: math domain error")
    assert "at special values such as 0.0: it must be total" in said
    assert "(NaN is fine), in\n%0 = param 0 : dtype=f" in said
    assert "NumPy meaning of op 'special' (plugin 'third')" in said


ERRORS = {
    "the meaning at inputs of its domain: Over": {"meaning": raising},
    "its promises at special values: Over": {
        "meaning": lambda u, x: x if x.shape else raising(),  # of constants
        "exact": True,
    },
    "comparing 'lower' with the meaning: Over": {"lower": raising},
    "'lower' gave None, expected a node": {"lower": lambda u: None},
    "'lower' gave 1.0, expected a node": {"lower": lambda u: 1.0},
    "'lower' gave f64[3, 2], expected f64[2, 3]": {
        "lower": lambda u: u.src[0].permute((1, 0))
    },
}


@pytest.mark.parametrize("what", ERRORS)
def test_errors_of_a_row_name_op_check_and_plugin(what: str) -> None:
    said = Third(**{"meaning": lambda u, x: x, **ERRORS[what]}).said()
    assert said.startswith("special: ")
    assert what in said
    assert "%1 = special %0" in said
    owner = "'lower' of" if "lower" in ERRORS[what] else ""
    assert f"raised by the {owner}" in said
    assert "(plugin 'third')" in said


def test_a_row_of_lower_alone_is_checked_by_backends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = broken(Ops.TANH, numpy=None)
    monkeypatch.setitem(registry().ops, "tanh", alone)
    assert check_op(alone, order=0) == len([d for d in DTYPES.values() if d.is_float])


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

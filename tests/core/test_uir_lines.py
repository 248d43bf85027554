"""The names and lines of the text form: all nodes of a text, several roots, scale."""

from __future__ import annotations

import time

import pytest

from uopc.dtype import f32, i32, i64
from uopc.uir import UirError, node_lines, parse_nodes, parse_uir, to_uir
from uopc.uop import Ops, UOp


def buf(slot: int = 0) -> UOp:
    return UOp.buffer(6, f32, slot)


def test_nodes_have_the_names_of_the_text() -> None:
    text = "%7 = iota 6\n%02 = cast %7 : dtype=f32\n\n%2 = add %02, %02\n%5 = iota 3"
    nodes = parse_nodes(text)
    assert list(nodes) == ["%7", "%02", "%2", "%5"]
    number = UOp(Ops.IOTA, (), 6).cast(f32)
    assert nodes["%2"] is number + number
    assert parse_uir(text) is nodes["%5"]
    with pytest.raises(UirError, match="line 1, column 1: expected at least one node"):
        parse_nodes("# nothing")


def test_equal_lines_are_one_node_under_two_names() -> None:
    nodes = parse_nodes("%0 = iota 6\n%1 = iota 6\n%2 = stack %0, %1")
    assert nodes["%0"] is nodes["%1"]
    assert to_uir(nodes["%2"]) == "%0 = iota 6\n%1 = stack %0, %0"


def test_node_number_k_has_line_k() -> None:
    root = (buf() + buf(1)) * 2.0
    lines = node_lines(root)
    assert "\n".join(lines.values()) == to_uir(root)
    assert list(lines)[-1] is root
    for k, (u, line) in enumerate(lines.items()):
        assert line.startswith(f"%{k} = {u.op.name} ")
    scalar = UOp.const(2.0, f32)
    assert scalar not in lines
    assert list(node_lines(scalar)) == [scalar]


def test_several_roots_are_a_sink() -> None:
    a, b = buf() + buf(1), UOp.const(1.5, f32)
    both = UOp(Ops.SINK, (a, b, a, UOp.const(7, i64)), "roots")
    assert to_uir(both).splitlines()[-1] == "%3 = sink %2, 1.5, %2, 7:i64, roots"
    assert parse_uir(to_uir(both)) is both
    nothing = UOp(Ops.SINK, (), "roots")
    assert parse_uir(to_uir(nothing)) is nothing


NAMES = ("a", "_", "r_3_4", "inf", "nan", "true", "false", "add", "i32", "__class__")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_may_look_like_something_else(name: str) -> None:
    sink = UOp(Ops.SINK, (buf(),), name)
    assert parse_uir(to_uir(sink)) is sink


@pytest.mark.parametrize(
    "name", ["", "a b", "a;b", "a\nb", "ä", "1a", "a-b", '"', None, 3, ("a",)]
)
def test_a_sink_has_a_name_that_can_be_written(name) -> None:
    with pytest.raises((TypeError, ValueError), match="sink"):
        UOp(Ops.SINK, (buf(),), name)


@pytest.mark.parametrize("op", [Ops.END, Ops.CALL], ids=str)
def test_a_statement_is_about_something(op) -> None:
    with pytest.raises(ValueError, match=f"{op.name}.*needs at least one source"):
        UOp(op, ())
    with pytest.raises(TypeError, match="takes no argument"):
        UOp(op, (buf(),), "name")


def test_a_range_counts_in_its_type() -> None:
    assert UOp(Ops.RANGE, (), (0, i32.max, i32)).dtype is i32
    with pytest.raises(ValueError, match="an extent that it holds"):
        UOp(Ops.RANGE, (), (0, i32.max + 1, i32))
    assert UOp(Ops.RANGE, (), (0, i32.max + 1, i64)).dtype is i64


TYPED = "%0 = const 4:i64\n%1 = cast %0 : dtype=f32"


def test_a_type_is_glued_to_its_number() -> None:
    assert parse_uir(TYPED) is UOp.const(4, i64).cast(f32)
    assert parse_uir("%0 = iota 3 :") is UOp(Ops.IOTA, (), 3)
    with pytest.raises(UirError, match="column 11: expected n, an integer, got '3:i"):
        parse_uir("%0 = iota 3:i32")  # the argument of an op has no type
    assert parse_uir("%0 = param 4 :dtype=f32") is UOp.param(4, f32)
    with pytest.raises(UirError, match="column 12: expected an element type"):
        parse_uir("%0 = const 4:big")


@pytest.mark.parametrize("space", ["\t", "\r", "\x0b", "\x0c", "  \t "])
def test_white_space_is_ascii_and_lines_end_in_line_feeds(space: str) -> None:
    text = f"{space}%0{space}={space}iota{space}3{space}"
    assert parse_uir(text) is UOp(Ops.IOTA, (), 3)
    hidden = f"%0 = iota 3 # note{space}%0 = nothing"
    assert parse_uir(hidden) is UOp(Ops.IOTA, (), 3)


@pytest.mark.parametrize("space", ["\xa0", "\u2003", "\x1c", "\x85", "\u2028"])
def test_no_other_white_space_counts(space: str) -> None:
    with pytest.raises(UirError, match="line 1, column "):
        parse_uir(f"%0 ={space}iota 3")


@pytest.mark.parametrize("digit", ["\u0663", "\xb2", "\u2460", "\U0001d7d9"])
def test_digits_and_names_are_ascii(digit: str) -> None:
    for text in (f"%{digit} = iota 3", f"%0 = iota {digit}", f"%0 = sink a{digit}",
                 f"%0 = iota 1\n%1 = reshape %0, ({digit},)"):  # fmt: skip
        with pytest.raises(UirError, match=r"line \d, column \d+: expected"):
            parse_uir(text)


def chain(lines: int) -> str:
    """Half of the lines binary, half unary."""
    parts = ["%0 = buffer 8 : dtype=f32 slot=0"]
    for k in range(1, lines, 2):
        parts += [f"%{k} = add %{k - 1}, %{k - 1}", f"%{k + 1} = sin %{k}"]
    return "\n".join(parts)


def seconds(lines: int) -> tuple[float, float]:
    """Processor time to parse and to print."""
    text = chain(lines)
    start = time.process_time()
    root = parse_uir(text)
    parsed = time.process_time()
    assert to_uir(root) == text
    return parsed - start, time.process_time() - parsed


def test_parsing_and_printing_are_linear() -> None:
    """Four times the lines take far less than sixteen times as long."""
    few = [
        min(times) for times in zip(*(seconds(5_001) for _ in range(3)), strict=True)
    ]
    many = seconds(20_001)
    for one, four in zip(few, many, strict=True):
        assert four < 10 * one + 0.1


def test_a_wide_line_is_linear() -> None:
    wide = "%0 = iota 2\n%1 = stack " + ", ".join(["%0"] * 200_000)
    start = time.process_time()
    root = parse_uir(wide)
    assert root.shape == (200_000, 2)
    assert to_uir(root) == wide
    assert time.process_time() - start < 20

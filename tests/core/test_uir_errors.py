"""Text that is no graph: the error says where and what was expected, always."""

from __future__ import annotations

import ast
import inspect
import re

import numpy as np
import pytest

from uopc import uir
from uopc.testing.graphs import random_graph
from uopc.uir import UirError, parse_uir, to_uir
from uopc.uop import UOp

B = "%0 = buffer 6 : dtype=f32 slot=0\n"

# Text, where the error is, and what it expected or got.
MALFORMED = {
    "no mark": ("x = iota 3", (1, 1), ["a node such as %0", "'x'"]),
    "no number": ("% = iota 3", (1, 1), ["a node such as %0", "'%'"]),
    "no equals": ("%0 iota 3", (1, 4), ["'='", "'iota'"]),
    "no op": ("%0 =", (1, 5), ["the name of an op", "the end of the line"]),
    "number as op": ("%0 = 3", (1, 6), ["the name of an op", "'3'"]),
    "unknown op": ("%0 = jota 3", (1, 6), ["the name of an op", "'jota'"]),
    "op in capitals": ("%0 = IOTA 3", (1, 6), ["the name of an op"]),
    "indented": ("   %0 = jota 3", (1, 9), ["the name of an op"]),
    "second line": (B + "%1 = jota %0", (2, 6), ["the name of an op", "'jota'"]),
    "after a comment": ("# hm\n\n" + B + "%1 = jota", (4, 6), ["the name of an op"]),
    "duplicate": (B + "%0 = iota 3", (2, 1), ["a new node number", "'%0'"]),
    "undefined": (B + "%1 = add %0, %7", (2, 14), ["a node defined above", "'%7'"]),
    "itself": ("%0 = detach %0", (1, 6), ["the name of an op"]),
    "itself as source": ("%0 = sqrt %0", (1, 11), ["a node defined above"]),
    "too few": (B + "%1 = add %0", (2, 12), ["'add SOURCE, SOURCE'", "the end"]),
    "too many": (B + "%1 = sqrt %0, %0", (2, 15), ["'sqrt SOURCE'", "'%0'"]),
    "no argument": (B + "%1 = reshape %0", (2, 16), ["'reshape SOURCE, shape'"]),
    "no size": ("%0 = buffer : dtype=f32 slot=0", (1, 13), ["'buffer size'", "':'"]),
    "no comma": (B + "%1 = add %0 %0", (2, 13), ["','", "'%0'"]),
    "comma at the end": (B + "%1 = add %0, %0,", (2, 17), ["a node, a constant"]),
    "comma first": (B + "%1 = add , %0", (2, 10), ["a node, a constant"]),
    "open tuple": (B + "%1 = reshape %0, (2, 3", (2, 23), ["','", "end of the line"]),
    "no tuple": (B + "%1 = reshape %0, 6", (2, 18), ["shape, a tuple", "'6'"]),
    "float in a tuple": (B + "%1 = reshape %0, (2.0,)", (2, 19), ["an integer", "2.0"]),
    "name in a tuple": (B + "%1 = reshape %0, (a,)", (2, 19), ["an integer", "'a'"]),
    "node in a tuple": (B + "%1 = reshape %0, (%0,)", (2, 19), ["an integer", "'%0'"]),
    "deep tuple": (B + "%1 = shrink %0, (((1, 2),),)", (2, 19), ["an integer", "'('"]),
    "no dtype": ("%0 = buffer 6 : slot=0", (1, 23), ["dtype=..."]),
    "unknown dtype": ("%0 = buffer 6 : dtype=f7 slot=0", (1, 23), ["dtype", "f7"]),
    "void": ("%0 = buffer 6 : dtype=void slot=0", (1, 23), ["dtype", "void"]),
    "unknown key": ("%0 = buffer 6 : dtype=f32 slit=0", (1, 27), ["slot", "'slit'"]),
    "key twice": ("%0 = buffer 6 : dtype=f32 dtype=f32", (1, 27), ["slot", "'dtype'"]),
    "no value": ("%0 = buffer 6 : dtype= slot", (1, 24), ["dtype, an", "slot"]),
    "float slot": ("%0 = param 1 : dtype=f32 shape=.5", (1, 32), ["a tuple", "'.5'"]),
    "float number": ("%0 = param 1.5 : dtype=f32", (1, 12), ["slot, an int", "1.5"]),
    "reduce with": (B + "%1 = reduce %0, sub, 1", (2, 17), ["op, the name", "sub"]),
    "name as source": (B + "%1 = add %0, x", (2, 14), ["a node or a constant", "'x'"]),
    "tuple as source": (B + "%1 = add %0, (1, 2)", (2, 14), ["a node or", "(1, 2)"]),
    "too large": (B + "%1 = index %0, 3000000000", (2, 16), ["i32", "3000000000"]),
    "does not fit": ("%0 = const 300:u8", (1, 12), ["value of u8", "'300'"]),
    "negative": ("%0 = const -1:u64", (1, 12), ["value of u64", "'-1'"]),
    "no integer": ("%0 = const 1.5:i32", (1, 12), ["value of i32", "'1.5'"]),
    "nan as integer": ("%0 = const nan:i32", (1, 12), ["value of i32", "'nan'"]),
    "bool as float": ("%0 = const true:f32", (1, 12), ["value of f32", "'true'"]),
    "number as bool": ("%0 = const 1:bool", (1, 12), ["bool", "true and false"]),
    "type of a number": ("%0 = const 1:f7", (1, 12), ["an element type", "'f7'"]),
    "rest": ("%0 = iota 3 4", (1, 13), ["','", "'4'"]),
    "rest after keys": ("%0 = param 3 : dtype=f32 )", (1, 26), ["the end of the line"]),
    "stray sign": ("%0 = iota !", (1, 11), ["a constant", "'!'"]),
    "empty": ("", (1, 1), ["at least one node"]),
    "only comments": ("# nothing\n   \n#", (1, 1), ["at least one node"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_an_error_has_line_column_and_expectation(name: str) -> None:
    text, place, words = MALFORMED[name]
    with pytest.raises(UirError) as error:
        parse_uir(text)
    message = str(error.value)
    assert message.startswith("line {}, column {}: expected ".format(*place))
    for word in words:
        assert word in message


ILL_TYPED = {
    "shapes": (B + "%1 = add %0, 1.0", 2, ["add(f32[6], f32[])", "(6,) vs ()"]),
    "dtypes": (B + "%1 = reduce %0, add, 1\n%2 = add %1, 1", 3, ["f32 vs i32"]),
    "reshape": (B + "\n%1 = reshape %0, (7,)", 3, ["cannot reshape (6,)"]),
    "index": (B + "%1 = index %0, 6", 2, ["index 6", "length 6"]),
    "negative size": ("%0 = buffer -6 : dtype=f32 slot=0", 1, ["-6"]),
    "rank": ("%0 = iota 1\n%1 = reshape %0, (" + "1," * 99 + ")", 2, ["rank 99"]),
    "stage": (B + "%1 = stage %0, exit", 2, ["'exit'"]),
    "flat shrink": (B + "%1 = shrink %0, (1, 2)", 2, ["shrink(f32[6])"]),
    "nested reshape": (B + "%1 = reshape %0, ((2, 3),)", 2, ["tuple of integers"]),
    "reduce with mod": (B + "%1 = reduce %0, floormod, 1", 2, ["add, mul"]),
}


@pytest.mark.parametrize("name", ILL_TYPED)
def test_a_graph_that_is_not_legal_says_the_line_and_the_reason(name: str) -> None:
    text, line, words = ILL_TYPED[name]
    with pytest.raises(UirError) as error:
        parse_uir(text)
    assert str(error.value).startswith(f"line {line}, column 6: ")
    for word in words:
        assert word in str(error.value)
    assert isinstance(error.value, ValueError)


HOSTILE = {
    "zero bytes": "\0" * 50,
    "binary": bytes(range(256)).decode("latin-1"),
    "binary after a line": B + "".join(map(chr, range(128, 400))),
    "surrogates": "\ud800%0 = iota 3",
    "deep parentheses": B + "%1 = reshape %0, " + "(" * 100_000,
    "matched parentheses": B + "%1 = reshape %0, " + "(" * 9999 + ")" * 9999,
    "endless number": "%0 = const " + "9" * 1_000_000,
    "endless float": "%0 = const 1." + "0" * 1_000_000 + "1",
    "endless exponent": "%0 = const 1e" + "9" * 100_000 + ":i32",
    "endless size": "%0 = iota " + "9" * 100_000,
    "endless length": B + "%1 = reshape %0, (" + "9" * 100_000 + ",)",
    "endless name": "%0 = " + "a" * 1_000_000,
    "endless spaces": "%0 =" + " " * 200_000 + "!",
    "endless commas": "%0 = iota " + "," * 100_000,
    "code": "%0 = const __import__('os').system('false')",
    "code as key": "%0 = buffer 3 : dtype=exit() slot=0",
    "format": "%0 = const {0.__class__}",
    "lambda": "%0 = (lambda: 0)()",
    "huge iota": "%0 = iota 99999999999",
    "huge negative": "%0 = iota -99999999999999999999",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_an_error_of_one_short_line(name: str) -> None:
    with pytest.raises(UirError) as error:
        parse_uir(HOSTILE[name])
    message = str(error.value)
    assert re.match(r"line \d+, column \d+: ", message)
    assert len(message) < 600


def test_a_huge_graph_of_nothing_is_only_described() -> None:
    size = 10**18
    graph = parse_uir(f"%0 = iota 1\n%1 = expand %0, ({size},)")
    assert graph.shape == (size,)
    many = ", ".join(["%0"] * 50_000)
    assert parse_uir(f"%0 = iota 2\n%1 = stack {many}").shape == (50_000, 2)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_text_is_a_graph_or_an_error_with_a_line(seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = to_uir(random_graph(seed, steps=8, max_elements=32).roots[0])
    alphabet = [*"%=,:()0123456789.-+e #\n", "inf", "true", "f32", "add", "\x00", "é"]
    for _ in range(40):
        pieces = list(text)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(pieces)))
            new = alphabet[rng.integers(len(alphabet))]
            pieces[at : at + int(rng.integers(0, 3))] = [new] * int(rng.integers(0, 2))
        damaged = "".join(pieces)
        try:
            assert isinstance(parse_uir(damaged), UOp)
        except UirError as error:
            assert re.match(r"line \d+, column \d+: ", str(error)), damaged


@pytest.mark.parametrize("seed", range(10))
def test_truncated_text_is_a_graph_or_an_error(seed: int) -> None:
    text = to_uir(random_graph(seed, steps=6, max_elements=16).roots[0])
    for end in range(len(text)):
        try:
            assert isinstance(parse_uir(text[:end]), UOp)
        except UirError as error:
            assert re.match(r"line \d+, column \d+: ", str(error)), text[:end]


def test_the_parser_evaluates_nothing() -> None:
    for module in (uir, uir.parse, uir.print):
        tree = ast.parse(inspect.getsource(module))
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        assert not names & {"eval", "exec", "compile", "__import__", "getattr"}

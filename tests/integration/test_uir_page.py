"""The grammar in docs/uir.md is the parser's: it allows what the parser takes."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import numpy as np
import pytest

from uopc.kernelize import make_plan, plan_graph
from uopc.runtime import lower
from uopc.testing import random_graph
from uopc.uir import UirError, parse_uir, to_uir
from uopc.uop import BUILTIN_OPS, Ops, UOp
from uopc.uop.opdef import FieldType

PAGE = (Path(__file__).parents[2] / "docs/uir.md").read_text()
(EBNF,) = re.findall(r"```ebnf\n(.*?)```", PAGE, re.S)
SPACE = r"\s*"
# What the page says in words.
GIVEN = {
    "comment": r"#.*",
    "digit": r"\d",
    "letter": "[A-Za-z]",
    "op": r"[A-Za-z_]\w*",
    "key": r"[A-Za-z_]\w*",
    "dtype": r"[A-Za-z_]\w*",
}
# The rules within which no white space stands.
WORDS = {"node", "constant", "number", "decimal", "exponent", "integer", "name"}
BRACKETS = {"[": "(?:", "]": ")?", "{": "(?:", "}": ")*", "(": "(?:", ")": ")"}


def rules() -> dict[str, str]:
    """The right-hand sides, by name."""
    pairs = (rule.split("=", 1) for rule in re.split(r";\n", EBNF.strip() + "\n")[:-1])
    return {name.strip(): body.strip() for name, body in pairs}


def expression(name: str, every: dict[str, str]) -> str:
    """A rule as a regular expression; no rule refers to itself."""
    if name in GIVEN:
        return GIVEN[name]
    gap = "" if name in WORDS else SPACE
    parts: list[str] = []
    for token in re.findall(r'"[^"]*"|\w+|[][{}()|,]', every[name]):
        if token[0] == '"':
            parts.append(re.escape(token[1:-1]) + gap)
        elif token in BRACKETS:
            parts.append(BRACKETS[token])
        elif token == "|":
            parts.append("|")
        elif token != ",":
            inner = expression(token, every)
            parts.append(f"(?:{inner}){gap}")
    return "".join(parts)


LINE = re.compile(SPACE + expression("line", rules()), re.ASCII)


def stages(seed: int) -> list[str]:
    """The lines of a random graph, of its kernels as loops, and of its plan."""
    graph = random_graph(seed, steps=10, max_elements=32)
    plan, _ = make_plan(graph.roots)
    texts = [to_uir(UOp(Ops.SINK, graph.roots, "roots")), to_uir(plan_graph(plan))]
    texts += [to_uir(lower(k.ast, k.name)) for k in plan.kernels]
    return [line for text in texts for line in text.split("\n")]


@pytest.mark.parametrize("seed", range(10))
def test_the_grammar_allows_what_is_printed(seed: int) -> None:
    for line in stages(seed):
        assert LINE.fullmatch(line), line


def test_the_grammar_allows_what_is_parsed() -> None:
    rng = np.random.default_rng(0)
    alphabet = [
        *"%=,:()+-.e# \t0123_a",
        "(1,)",
        "((0, 1),)",
        "inf",
        "nan",
        "true",
        "i8",
    ]
    start = "%0 = buffer 6 : dtype=f32 slot=0\n"
    lines = [line for seed in range(4) for line in stages(seed)]
    taken = 0
    for _ in range(20_000):
        pieces = re.findall(r"\w+|.", lines[rng.integers(len(lines))])
        at = int(rng.integers(len(pieces) + 1))
        word = alphabet[rng.integers(len(alphabet))]
        pieces[at : at + int(rng.integers(2))] = [word]
        line = re.sub(r"%\d+", "%0", "".join(pieces)).replace("%0 =", "%1 =", 1)
        try:
            parse_uir(start + line)
        except UirError:
            continue
        taken += 1
        assert LINE.fullmatch(line), line
    assert taken > 500


@pytest.mark.parametrize(
    "line", ["%0", "%0 =", "%0 = add %1 %2", "= add", "%x = add", "%0 = add (1",
             "%0 = add (((1,),),)", "%0 = add : 3", "%0 = add 1 : i8", "%0 = add .5"]
)  # fmt: skip
def test_the_grammar_forbids(line: str) -> None:
    assert not LINE.fullmatch(line)
    with pytest.raises(UirError):
        parse_uir(line)


def test_the_page_shows_each_kind_of_op_and_of_argument() -> None:
    shown = set(re.findall(r"^%\d+ = (\w+)", PAGE, re.M))
    ops = [op for op in BUILTIN_OPS if op.name in shown]
    assert {op.kind for op in ops} == {op.kind for op in BUILTIN_OPS}
    types = {field.type for op in ops for field in op.arg}
    # A constant with a line of its own is mentioned in the text.
    assert types | {"literal"} == set(typing.get_args(FieldType))
    assert "`%0 = const 1.5`" in PAGE

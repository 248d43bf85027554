"""Schedules as text: what is written reads back, and nothing else does."""

from __future__ import annotations

import dataclasses
import json
import random
import typing
from dataclasses import dataclass
from typing import Any

import pytest

from uopc.schedule import Merge, Simplify, Split, Vectorize, contraction_blocks
from uopc.schedule import text as module
from uopc.schedule.rows import Rows
from uopc.schedule.step import Step
from uopc.schedule.text import VERSION, from_text, to_text
from uopc.uop import UOp

KINDS = sorted(module._STEPS)


def random_value(rng: random.Random, hint: Any, depth: int) -> Any:
    if hint is int:
        return rng.choice((0, 1, 8, 1 << 40))
    if hint is bool:
        return rng.random() < 0.5
    if typing.get_origin(hint) is typing.Literal:
        return rng.choice(typing.get_args(hint))
    if hint is contraction_blocks.Blocks:
        return random_fields(rng, hint, depth)
    count = rng.randrange(3)
    return tuple(random_schedule(rng, depth + 1) for _ in range(count))


def random_fields(rng: random.Random, kind: Any, depth: int) -> Any:
    hints = typing.get_type_hints(kind)
    return kind(**{n: random_value(rng, h, depth) for n, h in hints.items()})


def random_schedule(rng: random.Random, depth: int = 0) -> tuple[Step, ...]:
    kinds = [k for k in KINDS if depth < 2 or k != "Rows"]
    return tuple(
        random_fields(rng, module._STEPS[rng.choice(kinds)], depth)
        for _ in range(rng.randrange(5))
    )


@pytest.mark.parametrize("seed", range(40))
def test_it_reads_back(seed: int) -> None:
    steps = random_schedule(random.Random(seed))
    text = to_text(steps)
    assert text is not None
    assert "\n" not in text
    assert from_text(text) == steps


def test_every_built_in_step_has_a_form() -> None:
    for name in KINDS:
        step = random_fields(random.Random(name), module._STEPS[name], 0)
        assert dataclasses.is_dataclass(step)
        assert from_text(to_text([step]) or "") == (step,), name


@dataclass(frozen=True)
class Own:
    """A plugin's step."""

    number: int = 0

    def apply(self, sink: UOp) -> UOp:
        return sink


class Wider(Split):
    """As one that is built in, but for what it does."""


def test_what_is_not_built_in_has_none() -> None:
    assert to_text([Own()]) is None
    assert to_text([Wider(0, 8, 1)]) is None
    assert to_text([Rows(((Simplify(), Own()),))]) is None


GOOD = {"version": VERSION, "steps": [["Merge", {"outer": 0, "inner": 1}]]}
BAD: list[Any] = [
    None,
    [],
    7,
    {},
    {**GOOD, "more": 1},
    {**GOOD, "version": VERSION + 1},
    {**GOOD, "version": True},
    {**GOOD, "version": str(VERSION)},
    {**GOOD, "steps": {}},
    {**GOOD, "steps": ["Merge"]},
    {**GOOD, "steps": [["Merge"]]},
    {**GOOD, "steps": [["Merge", [0, 1]]]},
    {**GOOD, "steps": [["Merge", {"outer": 0}]]},
    {**GOOD, "steps": [["Merge", {"outer": 0, "inner": 1, "more": 2}]]},
    {**GOOD, "steps": [["Merge", {"outer": 0, "inner": 1.0}]]},
    {**GOOD, "steps": [["Merge", {"outer": 0, "inner": True}]]},
    {**GOOD, "steps": [["Merge", {"outer": 0, "inner": -1}]]},
    {**GOOD, "steps": [["Merge", {"outer": 0, "inner": 1 << 63}]]},
    {**GOOD, "steps": [["Merge", {"outer": 0, "inner": "1"}]]},
    {**GOOD, "steps": [["merge", {"outer": 0, "inner": 1}]]},
    {**GOOD, "steps": [["os.system", {}]]},
    {**GOOD, "steps": [[["Merge"], {"outer": 0, "inner": 1}]]},
    {**GOOD, "steps": [["Rows", {"parts": [["Simplify", {}]]}]]},
    {**GOOD, "steps": [["Rows", {"parts": 3}]]},
    {**GOOD, "steps": [["Contract", {"blocks": 3}]]},
]


def test_a_good_one() -> None:
    assert from_text(json.dumps(GOOD)) == (Merge(0, 1),)


@pytest.mark.parametrize("value", BAD)
def test_anything_else_says_nothing(value: Any) -> None:
    assert from_text(json.dumps(value)) is None


@pytest.mark.parametrize("text", ["", "{", "\x00", "[" * 100_000, "NaN", '{"a": 1} x'])
def test_nor_does_what_is_no_json(text: str) -> None:
    assert from_text(text) is None


def test_words_are_of_those_that_there_are() -> None:
    text = to_text([Vectorize(0, 8, 1, True)]) or ""
    assert from_text(text) == (Vectorize(0, 8, 1, True),)
    assert from_text(text.replace("true", '"true"')) is None
    blocks = contraction_blocks.Blocks(6, 2, 8, 100, 1, 1)
    step = module.contraction.Contract(blocks, 1, "in place", "by terms", True, False)
    text = to_text([step]) or ""
    assert from_text(text) == (step,)
    assert from_text(text.replace("by terms", "by magic")) is None

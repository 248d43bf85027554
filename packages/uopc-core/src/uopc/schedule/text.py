"""Schedules as text that reads back: what was measured is kept as that.

    {"version": 1, "steps": [["Merge", {"outer": 0, "inner": 1}], ["Simplify", {}]]}

Only steps that are built in have such a form. Reading makes dataclasses of checked
numbers and words, and runs nothing that the text names.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Sequence
from typing import Any

from uopc.schedule import axes, contraction, contraction_blocks, reduction
from uopc.schedule.keep import Keep
from uopc.schedule.rows import Rows
from uopc.schedule.step import Simplify, Step

VERSION = 1
"""Raised whenever the same text would mean something else."""

_STEPS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        axes.Jam, axes.Merge, axes.Narrow, axes.Parallel, axes.Reorder, axes.Split,
        axes.Unroll, axes.Vectorize, contraction.Contract, Keep, reduction.Blocks,
        reduction.Lanes, reduction.Outputs, reduction.Parts, Rows, Simplify,
    )
}  # fmt: skip
_MOST = 1 << 63


class _UnknownError(ValueError):
    """A text that says nothing here."""


def to_text(steps: Sequence[Step]) -> str | None:
    """A schedule as one line of JSON; None if a step in it is not built in."""
    try:
        return json.dumps({"version": VERSION, "steps": [_written(s) for s in steps]})
    except _UnknownError:
        return None


def from_text(text: str) -> tuple[Step, ...] | None:
    """The schedule that a text says; None for any other text than `to_text` writes."""
    try:
        found = json.loads(text)
        if not isinstance(found, dict) or set(found) != {"version", "steps"}:
            return None
        if type(found["version"]) is not int or found["version"] != VERSION:
            return None
        return _steps(found["steps"])
    except (ValueError, RecursionError):
        return None


def _written(value: Any) -> Any:
    if type(value) in _STEPS.values():
        return [type(value).__name__, _fields(value)]
    if type(value) is contraction_blocks.Blocks:
        return _fields(value)
    if isinstance(value, tuple):
        return [_written(v) for v in value]
    if type(value) in (int, bool, str):
        return value
    raise _UnknownError


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: _written(getattr(value, f.name)) for f in dataclasses.fields(value)}


def _steps(found: Any) -> tuple[Step, ...]:
    if not isinstance(found, list):
        raise _UnknownError
    return tuple(map(_step, found))


def _step(found: Any) -> Step:
    if not isinstance(found, list) or len(found) != 2:
        raise _UnknownError
    name, values = found
    if not isinstance(name, str) or name not in _STEPS:
        raise _UnknownError
    step: Step = _made(_STEPS[name], values)
    return step


def _made(kind: Any, values: Any) -> Any:
    hints = _hints(kind)
    if not isinstance(values, dict) or set(values) != set(hints):
        raise _UnknownError
    return kind(**{name: _read(hints[name], v) for name, v in values.items()})


def _read(hint: Any, value: Any) -> Any:
    """A value of the kind that a field has."""
    if hint is int and type(value) is int and 0 <= value < _MOST:
        return value
    if hint is bool and type(value) is bool:
        return value
    if typing.get_origin(hint) is typing.Literal and value in typing.get_args(hint):
        return value
    if hint is contraction_blocks.Blocks:
        return _made(hint, value)
    if typing.get_origin(hint) is tuple and isinstance(value, list):
        return tuple(map(_steps, value))  # the parts of rows
    raise _UnknownError


@functools.cache
def _hints(kind: Any) -> types.MappingProxyType[str, Any]:
    return types.MappingProxyType(typing.get_type_hints(kind))

"""The table of environment variables, and the one function that reads them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple


class Variable(NamedTuple):
    """One environment variable.

    `parse` turns the variable's text into a value, or raises a `ValueError` whose
    message says what is allowed ("an integer from 0 to 2").
    """

    name: str
    parse: Callable[[str], Any]
    default: Any
    doc: str


def _text(text: str) -> str:
    return text.strip()


def _flag(text: str) -> bool:
    if text.strip() not in ("0", "1"):
        raise ValueError("0 or 1")
    return text.strip() == "1"


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _level(highest: int) -> Callable[[str], int]:
    """A parser of integers from 0 to `highest`."""
    allowed = {str(value): value for value in range(highest + 1)}

    def parse(text: str) -> int:
        if text.strip() not in allowed:
            raise ValueError(f"an integer from 0 to {highest}")
        return allowed[text.strip()]

    return parse


def _count(text: str) -> int:
    if not text.strip().isdecimal() or not int(text):
        raise ValueError("an integer from 1 on")
    return int(text)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)", text.strip().upper())
    if match is None:
        raise ValueError("a number of bytes, such as 500M or 2G")
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")


class ConfigError(ValueError):
    """A variable has a value that is not allowed."""


VARIABLES: tuple[Variable, ...] = (
    Variable("UOPC_BACKEND", _text, "", "Backend to run on; empty: the best available"),
    Variable("UOPC_OPT", _level(2), 1, "Effort of the scheduler, 0 to 2"),
    Variable("UOPC_CHECK", _level(3), 1, "Checking between passes, 0 to 3"),
    Variable(
        "UOPC_DEBUG", _level(4), 0, "Print 1: plans, 2: schedules, 3: C, 4: rewrites"
    ),
    Variable("UOPC_DUMP", _text, "", "Folder that receives each stage's text"),
    Variable("UOPC_PLANS", _count, 256, "How many plans are remembered, and their C"),
    Variable("UOPC_NANS", _flag, False, "1: say which op made a NaN or an infinity"),
    Variable("UOPC_CC", _text, "", "C compiler command; empty: look for one"),
    Variable("UOPC_CACHE_DIR", _text, "", "Folder of compiled kernels; empty: default"),
    Variable(
        "UOPC_CACHE_SIZE", _bytes, 1 << 30, "Bytes of compiled kernels kept, as in 500M"
    ),
    Variable("UOPC_PLUGINS_STRICT", _flag, False, "1: a failing plugin is an error"),
    Variable("UOPC_PLUGINS_BLOCK", _names, (), "Plugins not to load, with commas"),
)

_BY_NAME: Mapping[str, Variable] = {variable.name: variable for variable in VARIABLES}

_overrides: ContextVar[Mapping[str, Any]] = ContextVar(
    "uopc_config_overrides", default=MappingProxyType({})
)


def get(name: str) -> Any:
    """The value of variable `name`: an override, the environment's, or the default.

    An empty variable counts as one that is not set. A value that is not allowed
    raises a `ValueError` naming the variable, the value and what is allowed.
    """
    overrides = _overrides.get()
    if name in overrides:
        return overrides[name]
    variable = _lookup(name)
    text = os.environ.get(name, "")
    return _parse(variable, text) if text.strip() else variable.default


def override(name: str) -> Any:
    """The value that a block of code has set, or None: far cheaper than `get`."""
    return _overrides.get().get(name)


def overrides() -> Mapping[str, Any]:
    """All that blocks of code have set here and now, by name."""
    return _overrides.get()


@contextmanager
def overriding(**values: Any) -> Iterator[None]:
    """Override variables in this context: `with overriding(UOPC_OPT=0): ...`.

    A value is what `get` returns, or the text one would write in the environment;
    it is checked as the environment's would be. Overrides nest, and other threads
    do not see them.
    """
    checked = dict(_overrides.get())
    for name, value in values.items():
        variable, text = _lookup(name), _as_text(value)
        checked[name] = _parse(variable, text) if text.strip() else variable.default
    token = _overrides.set(MappingProxyType(checked))
    try:
        yield
    finally:
        _overrides.reset(token)


def _lookup(name: str) -> Variable:
    if name not in _BY_NAME:
        known = ", ".join(_BY_NAME)
        raise KeyError(f"no variable {name!r}; the table has {known}")
    return _BY_NAME[name]


# Callers ask at every run, so the text is parsed once; a failure is not remembered.
@lru_cache(maxsize=256)
def _parse(variable: Variable, text: str) -> Any:
    try:
        return variable.parse(text)
    except ValueError as error:
        raise ConfigError(f"{variable.name}={text!r}: expected {error}") from None


def _as_text(value: Any) -> str:
    """The text that an environment would hold for `value`."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (tuple, list)):
        return ",".join(value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    return str(value)

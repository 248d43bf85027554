"""Warnings point at the user's line, whatever of uopc's is between."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest

from uopc.tensor import Tensor
from uopc.uop import UOp, warn_caller

SOURCES = Path(__file__).parents[2].glob("packages/*/src/uopc/**/*.py")


@contextmanager
def context() -> Iterator[None]:
    warn_caller("inside")
    yield


def from_a_with() -> int:
    # The function of a context is the nearest code that is not uopc's.
    with context():
        return inspect.getsourcelines(context)[1] + 2


def from_a_call() -> int:
    warn_caller("inside")
    return inspect.getsourcelines(from_a_call)[1] + 1


def warned(u: UOp) -> UOp:
    warn_caller("inside")
    return u


def through_uopc() -> int:
    Tensor([1.0]).apply(warned)
    return inspect.getsourcelines(warned)[1] + 1


# As if it were a part of uopc.
INSIDE = "def inner(f): f('inside')\n"


def through_uopc_and_a_cache() -> int:
    names: dict[str, object] = {"__name__": "uopc.somewhere"}
    code = compile(INSIDE, "<inside>", "single")
    inner = type(from_a_call)(code.co_consts[0], names, "inner")
    lru_cache(inner)(warn_caller)
    return inspect.getsourcelines(through_uopc_and_a_cache)[1] + 4


PLACES: list[Callable[[], int]] = [
    from_a_with, from_a_call, through_uopc, through_uopc_and_a_cache,
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
def test_a_warning_names_the_nearest_line_outside(place: Callable[[], int]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = place()
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert warning.category is RuntimeWarning


def test_a_filter_by_the_user_s_module_applies() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module=__name__.replace(".", r"\."))
        warn_caller("not seen")


def test_everything_warns_through_one_function() -> None:
    users = {
        file.name
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"warn", "warn_explicit"}
    }
    assert users == {"callers.py"}

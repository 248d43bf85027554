"""What one pass over a graph finds out once, however often it is asked.

A gradient meets the same sets of live elements again and again: in each block of a
network, and in each of the products that read one array. What is found out about them
is kept until the pass ends, and no longer, for it holds nodes, which hold data.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

Memo = dict[Any, Any]
F = TypeVar("F", bound=Callable[..., Any])

_memos: ContextVar[dict[Hashable, Memo] | None] = ContextVar(
    "uopc_gradient_memos", default=None
)


@contextlib.contextmanager
def one_pass() -> Iterator[None]:
    """What is found out inside is kept until the outermost of these ends."""
    if _memos.get() is not None:
        yield
        return
    token = _memos.set({})
    try:
        yield
    finally:
        _memos.reset(token)


def memo(of: Hashable) -> Memo:
    """What this pass knows of something; outside of a pass, nothing for long."""
    memos = _memos.get()
    return {} if memos is None else memos.setdefault(of, {})


def remembered(f: F) -> F:
    """The function, computed once per pass for the same positional arguments."""

    @functools.wraps(f)
    def once(*args: Any) -> Any:
        known = memo(f)
        if args not in known:
            known[args] = f(*args)
        return known[args]

    return once  # type: ignore[return-value]

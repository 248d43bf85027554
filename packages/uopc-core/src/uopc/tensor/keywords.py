"""Functions over axes that name their keywords to whoever uses another library's."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

T = TypeVar("T")


def explain_keywords(cls: type[T]) -> type[T]:
    """Have each public function with an ``axis`` say which keywords it takes."""
    members = [(c, *item) for c in cls.__mro__ for item in vars(c).items()]
    for owner, name, member in members:
        if name.startswith("_"):
            continue
        of_class = isinstance(member, (staticmethod, classmethod))
        function = member.__func__ if of_class else member
        if not isinstance(function, FunctionType):
            continue
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if "axis" in names:
            own = names if isinstance(member, staticmethod) else names[1:]
            explained = _explained(function, name, own)
            setattr(owner, name, type(member)(explained) if of_class else explained)
    return cls


def _explained(
    function: Callable[..., Any], name: str, names: tuple[str, ...]
) -> Callable[..., Any]:
    known = frozenset(names)

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        if not named.keys() <= known:
            from uopc.tensor.missing import no_keyword  # for start-up's sake

            wrong = next(k for k in named if k not in known)
            raise TypeError(no_keyword(name, wrong, names))
        return function(*given, **named)

    return call

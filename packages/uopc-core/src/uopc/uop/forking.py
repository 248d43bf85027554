"""Locks in a process that forks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar


class _Lock(Protocol):
    def acquire(self) -> bool: ...

    def release(self) -> None: ...


L = TypeVar("L", bound=_Lock)
T = TypeVar("T")


def fork_safe(lock: L) -> L:
    """The lock, never held by another thread at a fork: a child would wait for ever.

    A fork takes such locks in the reverse of the order in which they were made so.
    Whoever takes one while holding another must have made the first one so earlier,
    which is the order of the layers.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire,
            after_in_parent=lock.release,
            after_in_child=lock.release,
        )
    return lock


class lazy(Generic[T]):
    """A property that is computed when it is first asked for.

    Unlike `functools.cached_property` of Python 3.11 it has no lock, which a child
    would find held if another thread was computing one at the fork. Two threads may
    compute it at once then; the first result is kept.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            raise AttributeError(f"{self._name} belongs to the instances")
        found: T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return found

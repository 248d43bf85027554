"""Locks in a process that forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar


class _Lock(Protocol):
    def acquire(self) -> bool: ...

    def release(self) -> None: ...


L = TypeVar("L", bound=_Lock)
T = TypeVar("T")


# In the order in which they were made so.
_locks: list[_Lock] = []
# What the fork that is under way has taken; there is one at a time.
_taken: list[_Lock] = []
_forking = threading.Lock()


def fork_safe(lock: L) -> L:
    """The lock, never held by another thread at a fork: a child would wait for ever.

    A fork takes such locks in the reverse of the order in which they were made so.
    Whoever takes one while holding another must have made the first one so earlier,
    which is the order of the layers.
    """
    _locks.append(lock)
    return lock


def _before_fork() -> None:
    _forking.acquire()
    while True:
        known = list(_locks)
        for lock in reversed(known):
            lock.acquire()
            _taken.append(lock)
        if len(known) == len(_locks):
            return
        _release()  # a thread has made others since, and may hold them


def _after_fork() -> None:
    _release()
    _forking.release()


def _release() -> None:
    while _taken:
        _taken.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )


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

"""Locks in a process that forks."""

from __future__ import annotations

import os
from typing import Protocol, TypeVar


class _Lock(Protocol):
    def acquire(self) -> bool: ...

    def release(self) -> None: ...


L = TypeVar("L", bound=_Lock)


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

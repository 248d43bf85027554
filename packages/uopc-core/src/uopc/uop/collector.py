"""Pausing Python's cycle collector while a pass builds many nodes."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

from uopc.uop.forking import fork_safe

_lock = fork_safe(threading.RLock())
_pauses = 0
_was_enabled = False


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No cycle collection inside; also a decorator: ``@collector_paused()``.

    Nodes form no cycles and are freed by their reference counts, so the collector
    would only scan a growing graph, again and again. Pauses nest, in one thread and
    across threads: the collector is back, if it was on, when the last one ends.
    """
    global _pauses, _was_enabled
    with _lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses = max(_pauses - 1, 0)
            if _pauses == 0 and _was_enabled:
                gc.enable()


def _forget_pauses() -> None:
    """In a forked child: the threads that might end their pauses are not there."""
    global _pauses
    if _pauses and _was_enabled:
        gc.enable()
    _pauses = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pauses)

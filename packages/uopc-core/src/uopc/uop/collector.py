"""Pausing Python's cycle collector while a pass builds many nodes."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.RLock()
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
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                gc.enable()

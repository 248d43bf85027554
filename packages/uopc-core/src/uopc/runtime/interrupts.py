"""Ctrl-C, and other signals that Python handles, at the wrong moment."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

# What `signal.getsignal` wraps: it is asked of each signal, and must be quick.
_handler_of: Callable[[int], Any] = getattr(
    signal.getsignal, "__wrapped__", signal.getsignal
)
_signals = tuple(map(int, signal.valid_signals()))


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Signal handlers wait for the end of the block, in the thread that they interrupt.

    All of them: a timeout's may raise an error as well as Ctrl-C's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    handlers = {s: h for s in _signals if callable(h := _handler_of(s))}
    held: list[tuple[int, FrameType | None]] = []
    back = dict(handlers)
    try:
        for number in handlers:
            signal.signal(number, lambda *words: held.append(words))
        yield
    finally:
        _put_back(back)
        for number, frame in held:
            handlers[number](number, frame)


def _put_back(handlers: dict[int, Any]) -> None:
    """Give all signals their handlers again, though one that is back may raise."""
    raised: BaseException | None = None
    while handlers:
        try:
            for number in list(handlers):
                signal.signal(number, handlers[number])
                del handlers[number]
        except BaseException as error:
            raised = error
    if raised is not None:
        raise raised

"""The user's line: the first frame outside of uopc."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

# What is between the user's line and uopc's: of decorators, contexts and hooks too.
_BETWEEN = frozenset(("uopc", "contextlib", "functools", "pluggy"))


def calling_frame() -> FrameType:
    """The nearest frame of code that is not uopc's; the outermost if all of it is."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _BETWEEN:
            break
        frame = frame.f_back
    return frame


def warn_caller(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """`warnings.warn` for the line of the user's program that called into uopc."""
    frame = calling_frame()
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        str(frame.f_globals.get("__name__", "<unknown>")),
        # Where warnings that are shown once per line are noted.
        frame.f_globals.setdefault("__warningregistry__", {}),
    )

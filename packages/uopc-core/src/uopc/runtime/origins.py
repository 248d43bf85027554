"""Where nodes come from: the lines of the user's program, for UOPC_NANS."""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Collection, Iterable
from functools import cache

from uopc.config import get, override
from uopc.uop import UOp, calling_frame, toposort


class Origin:
    """The line on which a node was made.

    Of a gradient, for which ``what`` is ``"gradient of sqrt"``, it is the line of the
    operation that it is the gradient of.
    """

    __slots__ = ("file", "line", "what")

    def __init__(self, file: str, line: int, what: str = "") -> None:
        self.file, self.line, self.what = file, line, what

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        return f"{self.file}:{self.line}" + (f", {text!r}" if text else "")


_origins: weakref.WeakKeyDictionary[UOp, Origin] = weakref.WeakKeyDictionary()


@cache
def _in_environment() -> bool:
    value: bool = get("UOPC_NANS")
    return value


def recording() -> bool:
    """Whether lines are recorded: asked for each Tensor that is made.

    An override of UOPC_NANS counts at once, the environment as it is at first use.
    """
    here = override("UOPC_NANS")
    return _in_environment() if here is None else here


def record_lines(root: UOp, known: Collection[UOp] = ()) -> None:
    """Have the nodes of ``root`` come from the line that called into uopc.

    Those that come from another line keep it; the walk ends there and at ``known``.
    """
    _note(root, _caller(), known)


def record_gradient(of: UOp, roots: Iterable[UOp], known: Collection[UOp]) -> None:
    """As `record_lines`, but the new nodes are the gradient of ``of``."""
    origin = _origins.get(of)
    if origin is None:
        return
    inner = f" in the {origin.what}" if origin.what else ""
    what = f"gradient of {of.op.name}{inner}"
    for root in roots:
        _note(root, Origin(origin.file, origin.line, what), known)


def origin_of(u: UOp) -> Origin | None:
    """Where a node comes from, if that has been recorded."""
    return _origins.get(u)


def _note(root: UOp, origin: Origin, known: Collection[UOp]) -> None:
    def below(u: UOp) -> tuple[UOp, ...]:
        return () if u in _origins or u in known else u.src

    for u in toposort([root], below):
        if u.src and u not in known:
            _origins.setdefault(u, origin)


def _caller() -> Origin:
    frame = calling_frame()
    return Origin(frame.f_code.co_filename, frame.f_lineno)

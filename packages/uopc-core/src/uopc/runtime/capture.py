"""What a function has computed, noted while it runs: `jit` replays it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from uopc.uop import UOp

if TYPE_CHECKING:
    from uopc.runtime.run import Run
    from uopc.runtime.values import Holder


class Step(NamedTuple):
    """A plan that was run, the nodes it computed, and the buffers they are in now."""

    run: Run
    roots: Sequence[UOp]
    buffers: Sequence[UOp]


class Capture:
    """The runs of one call, in order.

    What was computed before it is computed again, unless it is in a tensor's own
    buffer: a later call may find other values there.

    Attributes:
        steps: the runs.
        made: the buffers that they wrote.
        data: the buffers that were made of data.
        changed: tensors that were assigned a value, or got a gradient, by identity.
        trouble: why the runs are not all that the call did; empty if they are.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.made: set[UOp] = set()
        self.data: set[UOp] = set()
        self.changed: dict[int, Holder] = {}
        self.trouble = ""

    def add(self, run: Run, roots: Sequence[UOp], buffers: Sequence[UOp]) -> None:
        """Note a run."""
        self.steps.append(Step(run, roots, buffers))
        self.made.update(buffers)

    def refuse(self, why: str) -> None:
        """Note why replaying the runs would not do; the first reason counts."""
        self.trouble = self.trouble or why


_current: ContextVar[Capture | None] = ContextVar("uopc_capture", default=None)


def capturing() -> Capture | None:
    """What notes the runs of this thread now, if anything does."""
    return _current.get()


@contextmanager
def captured() -> Iterator[Capture]:
    """Note the runs of the block, in this thread."""
    capture = Capture()
    token = _current.set(capture)
    try:
        yield capture
    finally:
        _current.reset(token)


def note_read() -> None:
    """Note that Python gets to see a value: what it does with it is not known."""
    capture = _current.get()
    if capture is not None:
        capture.refuse(
            "a value is read inside of it (numpy(), item(), bool(), print, ...), and "
            "what is done with it cannot be repeated; return the tensor and read it "
            "outside, or choose with where()"
        )


def note_change(t: Holder) -> None:
    """Note that a tensor is assigned a value, or gets a gradient."""
    capture = _current.get()
    if capture is not None:
        capture.changed[id(t)] = t


def note_data(node: UOp) -> None:
    """Note that a buffer is made, of NumPy's data or what else there is."""
    capture = _current.get()
    if capture is not None:
        capture.data.add(node)

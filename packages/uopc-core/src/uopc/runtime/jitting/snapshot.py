"""What there was when a call began."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.dtype import boolean
from uopc.runtime.buffers import buffer_data, empty, new_buffer
from uopc.runtime.jitting.cells import spec_of
from uopc.runtime.values import Holder, held, know, live_tensors, reads_memory
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Before:
    """What a tensor was when the call began."""

    t: Holder
    uop: UOp
    array: Array | None
    grad: Holder | None
    spec: tuple[Any, ...]


class Snapshot:
    """All tensors that there are, when a call begins.

    Those that the function can see, and that stand for a graph, have it under a marker
    during the call: so their use can be told from that of an equal graph it builds.

    Args:
        visible: the tensors that it can see. Others may be another thread's.
    """

    def __init__(self, visible: Iterable[Holder] = ()) -> None:
        self.all: dict[int, Before] = {}
        for t in live_tensors():
            node = held(t.uop)
            self.all[id(t)] = Before(t, t.uop, _data(node), t.grad, spec_of(t))
        self._visible = {id(t): self.all[id(t)] for t in visible}
        self.values: set[UOp] = set()  # of those under markers
        self._touched: set[int] = set()
        self._marked: dict[UOp, Holder] = {}
        nothing = new_buffer(empty(0, boolean), boolean)
        self.first_slot: int = nothing.arg.slot
        for b in self._visible.values():
            if _base(b.uop).op is not Ops.BUFFER and reads_memory(b.uop):
                b.t.uop = b.uop.after(nothing)
                self._marked[b.t.uop] = b.t
                if b.array is not None:
                    # What it was computed from may be gone since.
                    buf = new_buffer(b.array, b.uop.dtype)
                    self.values.add(buf)
                    know(b.t.uop, buf)

    def __contains__(self, x: Any) -> bool:
        return id(x) in self.all

    def unmark(self) -> None:
        """Give the tensors their graphs back, but for those that have another now."""
        for b in self._visible.values():
            if b.t.uop in self._marked:
                b.t.uop = b.uop

    def used(self, roots: Sequence[UOp]) -> Holder | None:
        """A tensor whose graph was marked, and is a part of others now."""
        order = toposort(roots) if self._marked else []
        return next((self._marked[u] for u in order if u in self._marked), None)

    def touch(self, tensors: Iterable[Holder]) -> None:
        """Count tensors as changed, and as some that the function can see."""
        for t in tensors:
            if t in self:
                self._visible[id(t)] = self.all[id(t)]
                self._touched.add(id(t))

    def changed(self) -> list[Before]:
        """Those that were given a value, be it the one they had."""
        return [self._visible[i] for i in self._touched]

    def changed_by_others(self) -> Holder | None:
        """A tensor that is visible, and has another value without having been given."""
        for i, b in self._visible.items():
            if b.t.uop is not b.uop and i not in self._touched:
                return b.t
        return None

    def regraded(self) -> list[Before]:
        """Those that have another gradient now."""
        return [b for b in self._visible.values() if b.t.grad is not b.grad]


def _data(node: UOp | None) -> Array | None:
    try:
        return None if node is None else buffer_data(node)
    except RuntimeError:
        return None  # who reads it is told why


def _base(u: UOp) -> UOp:
    while u.op is Ops.RESHAPE:
        u = u.src[0]
    return u

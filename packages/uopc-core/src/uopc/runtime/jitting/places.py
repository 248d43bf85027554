"""What the runs of a call did to arrays, and which arrays are one place.

Arrays are told apart by their identity. A run that updates a tensor in place has one
array, before and after. If somebody still read the old value, it was given a copy,
which it updated: a replay does without where the copy is the tensor's new value, and
nobody needs the old one; else it copies as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from uopc.dtype import DType
from uopc.kernelize import Plan
from uopc.runtime.capture import Capture
from uopc.runtime.jitting.snapshot import Before, Snapshot
from uopc.runtime.values import held
from uopc.uop import UOp

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Copy:
    """An array that a run was given in place of another."""

    step: int
    old: Array
    new: Array


class Places:
    """The arrays of a call.

    Args:
        capture: the runs.
        before: what there was.
        holders: the tensors that had an array when it began, by array; arguments that
            may be others next time are not among them.
        arguments: the arrays of those.

    Attributes:
        plans: what was run.
        checksums: of what the function has made of NumPy's data.
        computed: the results of runs, in memory that was nobody's, and their types.
        written: what was there before, and was written over.
        copies: what a replay must copy.
    """

    def __init__(
        self,
        capture: Capture,
        before: Snapshot,
        holders: Mapping[int, list[Before]],
        arguments: Collection[int],
    ) -> None:
        self._capture, self._holders, self._arguments = capture, holders, arguments
        self.plans: list[Plan] = []
        self.checksums: list[int] = []
        self.computed: dict[int, DType] = {}
        self.written: set[int] = set()
        self.copies: list[Copy] = []
        self.reads: list[Array] = []  # what runs read, before copies
        self._last_read: dict[int, int] = {}  # by array: the last run that read it
        self._constants: set[int] = set()
        self._same: dict[int, int] = {}
        self._find_copies(before)

    def key(self, array: Array) -> int:
        """The same number for the arrays of one place."""
        return self._same.get(id(array), id(array))

    def _find_copies(self, before: Snapshot) -> None:
        data: dict[UOp | None, Array] = {
            held(b.uop): b.array for b in before.all.values() if b.array is not None
        }
        # Slots are counted up, so that these are new.
        first = before.first_slot
        for i, step in enumerate(self._capture.steps):
            for node, array in zip(step.run.inputs, step.run.arrays, strict=False):
                is_new = node not in data and node.arg.slot > first
                if is_new and node not in self._capture.data:
                    self._capture.refuse("it computes something in another thread")
                own = data.setdefault(node, array)
                self.reads.append(own)
                if own is array:
                    self._last_read[id(array)] = i
                else:
                    self.copies.append(Copy(i, own, array))
            data.update(zip(step.buffers, step.run.results, strict=True))

    def join(self, b: Before, now: Array, others: Collection[int]) -> None:
        """Find out whether a tensor has its new value where the old one was.

        ``others`` are the arrays that other tensors show after the call.
        """
        made_of = {id(c.new): c for c in self.copies}
        chain: list[Copy] = []
        at = now
        while id(at) in made_of and at is not b.array:
            copy = made_of[id(at)]
            if self._last_read.get(id(copy.old), -1) > copy.step:
                return
            if id(copy.old) in others:
                return
            chain.append(copy)
            at = copy.old
        if at is b.array and len(self._holders.get(id(at), ())) == 1:
            self._same |= {id(c.new): id(at) for c in chain}
            self.copies = [c for c in self.copies if c not in chain]

    def last_writers(self) -> dict[int, tuple[int, int]]:
        """Which result of which run each array was last."""
        found: dict[int, tuple[int, int]] = {}
        for i, step in enumerate(self._capture.steps):
            written = {id(a) for a in step.run.arrays[len(step.run.inputs) :]}
            for j, array in enumerate(step.run.results):
                if id(array) in written:
                    found[id(array)] = (i, j)
        return found

    def note_runs(self) -> None:
        """Find what was computed and what was written over; after all `join`."""
        before = (self._holders, self._arguments)
        copies = {id(c.new) for c in self.copies}
        for step in self._capture.steps:
            run, n = step.run, len(step.run.inputs)
            self.plans.append(run.plan)
            for array in run.arrays[:n]:
                key = self.key(array)
                known = key in self.computed or any(key in b for b in before)
                if not known and key not in copies and key not in self._constants:
                    self._constants.add(key)
                    self.checksums.append(crc32(array.view(np.uint8).data))
            for array, buffer in zip(run.arrays[n:], run.plan.buffers[n:], strict=True):
                key = self.key(array)
                if key in self._holders:
                    self.written.add(key)
                elif key in self._arguments or key in self._constants:
                    self._capture.refuse("it overwrites memory that must stay")
                elif buffer.role == "output":
                    self.computed[key] = buffer.dtype

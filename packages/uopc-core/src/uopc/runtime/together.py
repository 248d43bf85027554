"""Tensors that are computed together, and the old values that they write over."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from uopc.runtime.buffers import filled, new_buffer, next_version, put_back, take
from uopc.runtime.capture import Capture, capturing
from uopc.runtime.interrupts import interrupts_held
from uopc.runtime.run import Work
from uopc.runtime.values import (
    REPLACED,
    Holder,
    computed,
    constant_of,
    ended,
    forget,
    held,
    is_state,
    live_tensors,
    lock,
    reads_memory,
    release_unread,
    running,
    still_read,
)
from uopc.uop import Ops, UOp, toposort


class Group:
    """Tensors that one thread computes together.

    While it is among the ``running``, what it reads stays what it is.

    Attributes:
        members: the tensors, each with the node that is computed; those that were
            asked for are the first.
        asked: how many were asked for.
        leaves: nodes that were computed before, and their buffers.
        homes: by position of a member, the buffer that it makes a new version of.
        inputs: the buffers that it reads, once they are known.
        spare: the data that new values are written over, taken from its buffers.
        results: the memory of the new values, once it has been written.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.members: list[tuple[Holder, UOp]] = []
        self.asked = 0
        self.leaves: dict[UOp, UOp] = {}
        self.homes: dict[int, UOp] = {}
        self.inputs: Iterable[UOp] | None = None
        self.spare: dict[UOp, Any] = {}
        self.results: Sequence[Any] | None = None

    @property
    def nodes(self) -> list[UOp]:
        """What is computed."""
        return [node for _, node in self.members]

    def begin(self, tensors: Iterable[Holder], capture: Capture | None) -> bool:
        """Note what has to be computed, if anything has."""
        wanted = list({id(t): t for t in tensors}.values())
        if capture is None:
            _fill(wanted)
        while True:
            self.members = [(t, t.uop) for t in wanted if held(t.uop) is None]
            self.leaves = dict(computed)
            if capture is not None:
                made = capture.made
                self.leaves = {u: b for u, b in self.leaves.items() if b in made}
            others = [g for g in running if g.thread != self.thread]
            written = {b for g in others for b in g.spare}
            if not written or written.isdisjoint(self.reads()):
                break
            ended.wait()  # for the new values, which are to be read instead
        self.asked = len(self.members)
        self._find_homes()
        if self.homes:
            self._add_blocking()
        if self.members:
            running.add(self)
        return bool(self.members)

    def _find_homes(self) -> None:
        first: dict[UOp, int] = {}
        for i, (t, _) in enumerate(self.members):
            if t._home is not None and not is_state(t):
                first.setdefault(t._home, i)
        self.homes = {i: home for home, i in first.items()}

    def _add_blocking(self) -> None:
        """Compute lazy tensors on the way as well, if they keep old values alive.

        Such as the logits that a training loop holds: they are smaller than copies of
        all parameters. If they are not, they stay as they are; and so they do if
        others keep those values alive anyway, or if only some elements of them are on
        the way.
        """
        own, homes = set(self.nodes), set(self.homes.values())
        walk = toposort(self.nodes, self._read_whole)
        place = {u: i for i, u in enumerate(walk)}
        met = [t for t in live_tensors() if t.uop in place and t.uop not in own]
        met = [t for t in met if held(t.uop) is None and not self._is_view(t.uop)]
        if not met:
            return
        reads: dict[UOp, frozenset[UOp]] = {}
        for u in toposort([t.uop for t in met], lambda u: self._below(u, own)):
            below = {reads[s] for s in self._below(u, own)} - {_NOTHING}
            buf = self.leaves.get(u, u)
            if buf in homes:
                reads[u] = frozenset([buf])
            else:
                reads[u] = below.pop() if len(below) == 1 else _NOTHING.union(*below)
        found = [t for t in met if reads[t.uop]]
        if not found:
            return
        free = homes - still_read([*own, *(t.uop for t in found)], self)
        found = [t for t in found if not free.isdisjoint(reads[t.uop])]
        if sum(map(_nbytes, {t.uop for t in found})) <= sum(map(_nbytes, free)):
            found.sort(key=lambda t: place[t.uop])
            self.members += [(t, t.uop) for t in found]
            self._find_homes()

    def _is_view(self, u: UOp) -> bool:
        """Whether ``u`` has the elements of something known."""
        while u.src and u not in self.leaves:
            if u.op.kind != "movement" and u.op is not Ops.STAGE:
                return False
            u = u.src[0]
        return True

    def _below(self, u: UOp, own: Collection[UOp] = ()) -> tuple[UOp, ...]:
        """The sources of a node that is not known, nor one of its ``own``."""
        return () if u in self.leaves or u in own else u.src

    def _read_whole(self, u: UOp) -> tuple[UOp, ...]:
        """The sources of a node that is not known, if it takes all their elements."""
        below = self._below(u)
        return below[1:] if u.op is Ops.SHRINK or u.op.kind == "select" else below

    def reads(self) -> set[UOp]:
        """The buffers that it reads, if not a few more."""
        if self.inputs is not None:
            return set(self.inputs)
        walk = toposort(self.nodes, self._below)
        return {self.leaves.get(u, u) for u in walk}

    def take(self) -> None:
        """Take the data that nobody will read any more, to write over it."""
        homes = set(self.homes.values())
        read = still_read(self.nodes, self) if homes else set()
        for b in homes - read:
            array = take(b, REPLACED)
            if array is not None:
                self.spare[b] = array

    def settle(self) -> list[UOp]:
        """Bind what was computed to the tensors; returns the buffers.

        Doing so again changes nothing.
        """
        assert self.results is not None
        replaced: list[UOp] = []
        pairs = zip(self.members, self.results, strict=True)
        buffers = [_settle(t, node, array, replaced) for (t, node), array in pairs]
        forget(self.spare)
        replaced = [b for b in replaced if b not in self.spare]
        self.spare = {}
        release_unread(replaced)
        return buffers

    def end(self) -> None:
        """Let others go on. If nothing was written, the old values are back."""
        try:
            if self.results is None:
                for b, array in self.spare.items():
                    put_back(b, array)
            elif self.spare:
                self.settle()  # something has stopped it half-way
        finally:
            running.discard(self)
            ended.notify_all()


_NOTHING: frozenset[UOp] = frozenset()


def _nbytes(u: UOp) -> int:
    return math.prod(u.shape) * u.dtype.itemsize


def compute_together(tensors: Iterable[Holder]) -> None:
    """Compute tensors by one native call, and lazy ones on the way if that helps."""
    capture, group = capturing(), Group()
    try:
        with lock:
            if not group.begin(tensors, capture):
                return
        work = Work(group.nodes, group.leaves, homes=group.homes, asked=group.asked)
        # Between the write and the note of it there is no stopping.
        with interrupts_held() if group.homes else nullcontext():
            try:
                with lock:
                    group.inputs = work.inputs
                    group.take()
                run = work.run(group.spare)
                group.results = run.results
                with lock:
                    buffers = group.settle()
            finally:
                with lock:
                    group.end()
    finally:
        with lock:
            group.end()
    if capture is not None:
        capture.add(run, group.nodes, buffers)


def _fill(tensors: Iterable[Holder]) -> None:
    """Give those that are views of a constant their values, which needs no program."""
    replaced: list[UOp] = []
    for t in tensors:
        node = t.uop
        constant = None if held(node) is not None else constant_of(node)
        if constant is not None:
            _settle(t, node, filled(math.prod(node.shape), constant), replaced)
    if replaced:
        release_unread(replaced)


def _settle(t: Holder, node: UOp, array: Any, replaced: list[UOp]) -> UOp:
    """Bind the computed value of ``node`` to its tensor, if it still has it.

    Returns the buffer that holds it.
    """
    same = t.uop is node  # else it is settled already, or was assigned since
    home = t._home if same else None
    buf = held(node)
    lasting = buf is not None or reads_memory(node)
    if buf is None:
        if home is None:
            buf = new_buffer(array, node.dtype)
        else:
            buf = next_version(home, array)
        # A plan may hold a node that reads nothing for good, so its value is not
        # kept by the node. The tensor has it: no gradient goes through such a node.
        if lasting:
            computed[node] = buf
    if home is not None:
        if not is_state(t):
            replaced.append(home)
        t._home = None
    if same and (t._leaf or not lasting):
        # The value replaces the graph, so that a loop that feeds on itself does
        # not grow; ``backward`` still finds the graph of this one step.
        t._graph = None if t._assigned or t.requires_grad else node
        t._was = weakref.ref(node)
        t.uop = buf.reshape(t.shape)
    return buf

"""Computed values: which buffer holds a node's value, and for how long.

What holds values is a Tensor, of which no more is known here than `Holder` says.

A value lives as long as its node, since graphs built on it may still be computed.
But when an update has replaced a value that nobody can read any more, its memory
is freed, although old graphs (of a loss that was kept) may hold the node.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Collection, Iterable
from contextlib import nullcontext
from typing import Any, Protocol

from uopc.runtime.buffers import new_buffer, next_version, put_back, release, take
from uopc.runtime.capture import Capture, capturing
from uopc.uop import Ops, UOp, fork_safe, toposort


class Holder(Protocol):
    """What is known of a Tensor here; see there for what its fields mean."""

    uop: UOp
    grad: Any
    requires_grad: bool
    _graph: UOp | None
    _home: UOp | None
    _was: weakref.ref[UOp] | None
    _leaf: bool
    _assigned: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""


REPLACED = "its tensor has been assigned a new value since"

# Held for the tables below and for what an assignment changes; never while
# something is computed, so that threads may compute at the same time.
lock = fork_safe(threading.RLock())
# Every live tensor, so that an update knows who still reads the old value.
_live: weakref.WeakSet[Holder] = weakref.WeakSet()
# Values that assignments replaced while somebody still had to read them.
_waiting: weakref.WeakSet[UOp] = weakref.WeakSet()
# The buffers that hold the values of nodes.
_computed: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()
# Parameters that were assigned a value, in the order in which they were, and by which
# thread.
_pending: dict[int, tuple[weakref.ref[Holder], int]] = {}
# What threads are computing, and the end of each of these.
_running: list[_Group] = []
_ended = threading.Condition(lock)
# Buffers of results whose graphs are gone, although gradients would go through them.
cut: weakref.WeakSet[UOp] = weakref.WeakSet()
# Tensors whose updates are realized along with whatever is: random counters.
state: list[Holder] = []


def add_live(t: Holder) -> None:
    """Count a new tensor among the live ones."""
    with lock:
        _live.add(t)


def add_pending(t: Holder) -> None:
    """Have a parameter's new value computed with whatever is computed next.

    Otherwise updates that nobody reads would pile up, each on the one before.
    """
    with lock:
        _pending[id(t)] = weakref.ref(t), threading.get_ident()


def _take_pending() -> list[Holder]:
    """Assigned parameters whose values are not computed yet, in order.

    What is noted of a function's runs must not have the updates of other threads in it.
    """
    mine = capturing() and threading.get_ident()
    taken = [key for key, (_, thread) in _pending.items() if mine in (None, thread)]
    refs = [_pending.pop(key)[0] for key in taken]
    return [t for ref in refs if (t := ref()) is not None]


def live_tensors() -> list[Holder]:
    """Every tensor there is."""
    with lock:
        return list(_live)


def held(u: UOp) -> UOp | None:
    """The buffer that holds the value of ``u``, if it has been computed."""
    while u.op is Ops.RESHAPE and u not in _computed:
        u = u.src[0]
    if u.op is Ops.BUFFER:
        return u
    buf, capture = _computed.get(u), capturing()
    return buf if capture is None or buf in capture.made else None


def reads_memory(root: UOp) -> bool:
    """Whether some BUFFER is below ``root``; stops at the first one."""
    seen: set[UOp] = set()
    stack = [root]
    while stack:
        u = stack.pop()
        if u.op is Ops.BUFFER:
            return True
        if u not in seen:
            seen.add(u)
            stack += u.src
    return False


class _Group:
    """Tensors that one thread computes together.

    While it is among the ``_running``, what it reads stays what it is.

    Attributes:
        members: the tensors, each with the node that is computed.
        leaves: nodes that were computed before, and their buffers.
        homes: by position of a member, the buffer that it makes a new version of.
        inputs: the buffers that it reads, once they are known.
        spare: the data that new values are written over, taken from its buffers.
        written: whether that has happened.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.members: list[tuple[Holder, UOp]] = []
        self.leaves: dict[UOp, UOp] = {}
        self.homes: dict[int, UOp] = {}
        self.inputs: Iterable[UOp] | None = None
        self.spare: dict[UOp, Any] = {}
        self.written = False

    @property
    def nodes(self) -> list[UOp]:
        """What is computed."""
        return [node for _, node in self.members]

    def begin(self, tensors: Iterable[Holder], capture: Capture | None) -> bool:
        """Note what has to be computed, if anything has."""
        wanted = list({id(t): t for t in tensors}.values())
        while True:
            self.members = [(t, t.uop) for t in wanted if held(t.uop) is None]
            self.leaves = dict(_computed)
            if capture is not None:
                made = capture.made
                self.leaves = {u: b for u, b in self.leaves.items() if b in made}
            others = [g for g in _running if g.thread != self.thread]
            written = {b for g in others for b in g.spare}
            if not written or written.isdisjoint(self.reads()):
                break
            _ended.wait()  # for the new values, which are to be read instead
        self._find_homes()
        if self.homes:
            self._add_blocking()
        if self.members:
            _running.append(self)
        return bool(self.members)

    def _find_homes(self) -> None:
        first: dict[UOp, int] = {}
        for i, (t, _) in enumerate(self.members):
            # Random counters are read by nodes that are no tensors yet; 8 bytes each.
            if t._home is not None and not any(t is s for s in state):
                first.setdefault(t._home, i)
        self.homes = {i: home for home, i in first.items()}

    def _add_blocking(self) -> None:
        """Compute lazy tensors on the way as well, if they keep old values alive.

        Such as the logits that a training loop holds: they are smaller than copies of
        all parameters. If they are not, they stay as they are.
        """
        own, homes = set(self.nodes), set(self.homes.values())
        lazy = [t for t in list(_live) if held(t.uop) is None and t.uop not in own]
        if not lazy:
            return
        reads: dict[UOp, bool] = {}
        for u in toposort([t.uop for t in lazy], lambda u: self._below(u, own)):
            below = any(reads[s] for s in self._below(u, own))
            reads[u] = below or self.leaves.get(u, u) in homes
        blocking = [t for t in lazy if reads[t.uop]]
        if not blocking:
            return
        walk = toposort(self.nodes, self._below)
        place = {u: i for i, u in enumerate(walk)}
        found = [t for t in blocking if t.uop in place and not self._is_view(t.uop)]
        if sum(map(_nbytes, {t.uop for t in found})) <= sum(map(_nbytes, homes)):
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

    def reads(self) -> set[UOp]:
        """The buffers that it reads, if not a few more."""
        if self.inputs is not None:
            return set(self.inputs)
        walk = toposort(self.nodes, self._below)
        return {self.leaves.get(u, u) for u in walk}

    def take(self) -> None:
        """Take the data that nobody will read any more, to write over it."""
        homes = set(self.homes.values())
        read = _still_read(self.nodes, self) if homes else set()
        for b in homes - read:
            array = take(b, REPLACED)
            if array is not None:
                self.spare[b] = array

    def end(self) -> None:
        """Let others go on; if nothing was written, the old values are back."""
        if self in _running:
            _running.remove(self)
        if self.written:
            _forget(self.spare)
        else:
            for b, array in self.spare.items():
                put_back(b, array)
        self.spare = {}
        _ended.notify_all()


def _nbytes(u: UOp) -> int:
    return math.prod(u.shape) * u.dtype.itemsize


def realize_all(tensors: Iterable[Holder]) -> None:
    """Compute several tensors together: one plan, one native call.

    The state of the random generator is brought up to date with them. New values of
    assigned tensors are written over the old ones where nobody reads those any more.
    """
    capture, group = capturing(), _Group()
    replaced: list[UOp] = []
    try:
        with lock:
            if not group.begin((*tensors, *_take_pending(), *state), capture):
                return
        # Imported when something is computed, for start-up's sake.
        from uopc.runtime.interrupts import interrupts_held
        from uopc.runtime.run import Work

        work = Work(group.nodes, group.leaves, homes=group.homes)
        # Between the write and the note of it there is no stopping.
        with interrupts_held() if group.homes else nullcontext():
            with lock:
                group.inputs = work.inputs
                group.take()
            run = work.run(group.spare)
            group.written = True
            with lock:
                buffers = [
                    _settle(t, node, array, replaced)
                    for (t, node), array in zip(group.members, run.results, strict=True)
                ]
                replaced = [b for b in replaced if b not in group.spare]
                group.end()
                release_unread(replaced)
    finally:
        with lock:
            group.end()
    if capture is not None:
        capture.add(run, group.nodes, buffers)


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
            _computed[node] = buf
    if home is not None:
        # Random counters are read by nodes that are no tensors yet; 8 bytes each.
        replaced += [] if any(t is s for s in state) else [home]
        t._home = None
    if same and (t._leaf or not lasting):
        # The value replaces the graph, so that a loop that feeds on itself does
        # not grow; ``backward`` still finds the graph of this one step.
        t._graph = None if t._assigned or t.requires_grad else node
        t._was = weakref.ref(node)
        t.uop = buf.reshape(t.shape)
    return buf


def release_unread(replaced: Iterable[UOp]) -> None:
    """Free the old data of assigned tensors, unless someone still reads it."""
    _waiting.update(replaced)
    if _waiting:
        read = _still_read()
        _forget({b for b in _waiting if b not in read})


def _still_read(inside: Iterable[UOp] = (), group: _Group | None = None) -> set[UOp]:
    """The buffers that live tensors and other running groups read.

    Those of a ``group``, whose nodes are ``inside``, will have values of their own.
    """
    own = set(inside)
    read: set[UOp] = set()
    readers: list[UOp] = []
    for t in list(_live):
        value = held(t.uop)
        if value is not None:
            read.add(value)
        elif t.uop not in own:
            readers.append(t.uop)

    def sources(u: UOp) -> tuple[UOp, ...]:
        return () if u in own or (u in _computed and held(u) is not None) else u.src

    read.update([_computed.get(u, u) for u in toposort(readers, sources)])
    for g in _running:
        if g is not group:
            read |= g.reads()
    return read


def _forget(unread: Collection[UOp]) -> None:
    """Free the data of buffers that nobody reads."""
    for node in [n for n, b in _computed.items() if b in unread]:
        del _computed[node]
    for buf in unread:
        _waiting.discard(buf)
        release(buf, REPLACED)


def _after_fork() -> None:
    """In a child there are no other threads: what they were writing is lost."""
    for g in _running:
        for buf in g.spare:
            release(buf, "another thread was writing over it at the fork")
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""Computed values: which buffer holds a node's value, and for how long.

What holds values is a Tensor, of which no more is known here than `Holder` says.

A value lives as long as its node, since graphs built on it may still be computed.
But when an update has replaced a value that nobody can read any more, its memory
is freed, although old graphs (of a loss that was kept) may hold the node.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any, Protocol

from uopc.runtime.buffers import new_buffer, next_version, release
from uopc.runtime.run import compute
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


# Held for the tables below and for what an assignment changes; never while
# something is computed, so that threads may compute at the same time.
lock = fork_safe(threading.RLock())
# Every live tensor, so that an update knows who still reads the old value.
_live: weakref.WeakSet[Holder] = weakref.WeakSet()
# Values that assignments replaced while somebody still had to read them.
_waiting: weakref.WeakSet[UOp] = weakref.WeakSet()
# The buffers that hold the values of nodes.
_computed: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()
# Parameters that were assigned a value, in the order in which they were.
_pending: dict[int, weakref.ref[Holder]] = {}
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
        _pending[id(t)] = weakref.ref(t)


def _take_pending() -> list[Holder]:
    """Assigned parameters whose values are not computed yet, in order."""
    found = [t for ref in _pending.values() if (t := ref()) is not None]
    _pending.clear()
    return found


def live_tensors() -> list[Holder]:
    """Every tensor there is."""
    with lock:
        return list(_live)


def held(u: UOp) -> UOp | None:
    """The buffer that holds the value of ``u``, if it has been computed."""
    while u.op is Ops.RESHAPE and u not in _computed:
        u = u.src[0]
    return u if u.op is Ops.BUFFER else _computed.get(u)


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


def realize_all(tensors: Iterable[Holder]) -> None:
    """Compute several tensors together: one plan, one native call.

    The state of the random generator is brought up to date with them.
    """
    with lock:
        wanted = {id(t): t for t in (*tensors, *_take_pending(), *state)}
        group = [(t, t.uop) for t in wanted.values() if held(t.uop) is None]
        leaves = dict(_computed)
    if not group:
        return
    run = compute([node for _, node in group], leaves)
    replaced: list[UOp] = []
    with lock:
        for (t, node), array in zip(group, run.results, strict=True):
            _settle(t, node, array, replaced)
        release_unread(replaced)


def _settle(t: Holder, node: UOp, array: Any, replaced: list[UOp]) -> None:
    """Bind the computed value of ``node`` to its tensor, if it still has it."""
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


def release_unread(replaced: Iterable[UOp]) -> None:
    """Free the old data of assigned tensors, unless someone still reads it."""
    _waiting.update(replaced)
    if not _waiting:
        return
    tensors = list(_live)
    values = [held(t.uop) for t in tensors]
    readers = [t.uop for t, v in zip(tensors, values, strict=True) if v is None]
    walk = toposort(readers, lambda u: () if u in _computed else u.src)
    read = {_computed.get(u, u) for u in walk}.union(values)
    unread = {b for b in _waiting if b not in read}
    for node in [n for n, b in _computed.items() if b in unread]:
        del _computed[node]
    for buf in unread:
        _waiting.discard(buf)
        release(buf, "its tensor has been assigned a new value since")

"""Computed values: which buffer holds a node's value, and for how long.

What holds values is a Tensor, of which no more is known here than `Holder` says.

A value lives as long as its node, since graphs built on it may still be computed.
But when an update has replaced a value that nobody can read any more, its memory
is freed, although old graphs (of a loss that was kept) may hold the node.
"""

from __future__ import annotations

import operator
import os
import threading
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from uopc.runtime.buffers import release
from uopc.runtime.capture import capturing
from uopc.uop import Literal, Ops, UOp, fork_safe, toposort

if TYPE_CHECKING:
    from uopc.runtime.together import Group


class Holder(Protocol):
    """What is known of a Tensor here; see there for what its fields mean."""

    uop: UOp
    grad: Any
    requires_grad: bool
    _wants: bool
    _graph: UOp | None
    _home: UOp | None
    _was: weakref.ref[UOp] | None
    _leaf: bool
    _assigned: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""


class Running(Protocol):
    """What a thread is computing."""

    thread: int

    @property
    def spare(self) -> Mapping[UOp, Any]:
        """The buffers that are written over."""

    def reads(self) -> set[UOp]:
        """The buffers that are read, if not a few more."""


REPLACED = "its tensor has been assigned a new value since"

# Held for the tables below and for what an assignment changes; never while
# something is computed, so that threads may compute at the same time.
lock = fork_safe(threading.RLock())
# Every live tensor, so that an update knows who still reads the old value. There may
# be many, and going through a WeakSet takes several times as long.
_live: set[weakref.ref[Holder]] = set()
# Values that assignments replaced while somebody still had to read them.
_waiting: weakref.WeakSet[UOp] = weakref.WeakSet()
# The buffers that hold the values of nodes.
computed: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()
# Parameters that were assigned a value, in the order in which they were, and by which
# thread.
_pending: dict[int, tuple[weakref.ref[Holder], int]] = {}
# For imports once something is computed: in a child, a module that another thread was
# importing at the fork would never be there.
importing = fork_safe(threading.RLock())
# What threads are computing, and the end of each of these.
running: weakref.WeakSet[Running] = weakref.WeakSet()
ended = threading.Condition(lock)
# Buffers of results whose graphs are gone, although gradients would go through them.
cut: weakref.WeakSet[UOp] = weakref.WeakSet()
# Tensors whose updates are realized along with whatever is: random counters.
state: list[Holder] = []


def add_live(t: Holder) -> None:
    """Count a new tensor among the live ones."""
    with lock:
        _live.add(weakref.ref(t, _live.discard))


def add_pending(t: Holder) -> None:
    """Have a parameter's new value computed with whatever is computed next.

    Otherwise updates that nobody reads would pile up, each on the one before.
    """
    with lock:
        _pending[id(t)] = weakref.ref(t), threading.get_ident()


def _take_pending() -> dict[int, tuple[weakref.ref[Holder], int]]:
    """Assigned parameters whose values are not computed yet, in order.

    What is noted of a function's runs must not have the updates of other threads in it.
    """
    mine = capturing() and threading.get_ident()
    taken = [key for key, (_, thread) in _pending.items() if mine in (None, thread)]
    return {key: _pending.pop(key) for key in taken}


def live_tensors() -> list[Holder]:
    """Every tensor there is."""
    with lock:
        refs = list(_live)
    return [t for t in map(operator.call, refs) if t is not None]


def held(u: UOp) -> UOp | None:
    """The buffer that holds the value of ``u``, if it has been computed."""
    if u.op is Ops.RESHAPE and u.src[0].op is Ops.BUFFER:
        return u.src[0]  # as of all data; the table takes longer
    while u.op is Ops.RESHAPE and u not in computed:
        u = u.src[0]
    if u.op is Ops.BUFFER:
        return u
    buf, capture = computed.get(u), capturing()
    return buf if capture is None or buf in capture.made else None


def know(u: UOp, buf: UOp) -> None:
    """Have ``buf`` hold the value of ``u``, as if it had been computed."""
    computed[u] = buf


def constant_of(u: UOp) -> Literal | None:
    """The number that all elements of ``u`` are, if it is a mere view of one."""
    while u.op in (Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE):
        u = u.src[0]
    return u.arg if u.op is Ops.CONST and isinstance(u.arg, Literal) else None


def is_state(t: Holder) -> bool:
    """Whether ``t`` is one of the ``state``, which is never written in place.

    Nodes that are no tensors yet read such; and they have 8 bytes each.
    """
    return any(t is s for s in state)


def wait_until_written(node: UOp) -> bool:
    """Whether another thread was writing over a buffer; then it has done so.

    For those who hold the lock.
    """
    me = threading.get_ident()
    if any(node in g.spare for g in running if g.thread != me):
        ended.wait()
        return True
    return False


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

    The state of the random generator is brought up to date with them, and parameters
    that were assigned a value. If that fails, only what was asked for is computed: the
    others will fail where somebody asks for them. New values of assigned tensors are
    written over the old ones where nobody reads those any more.
    """
    asked = list(tensors)
    with lock:
        taken = _take_pending()
        more = [t for ref, _ in taken.values() if (t := ref()) is not None]
        more = [t for t in (*more, *state) if held(t.uop) is None]
        if not more and all(held(t.uop) is not None for t in asked):
            return
    # Imported when something is computed, for start-up's sake.
    with importing:
        from uopc.runtime.together import compute_together
    try:
        compute_together([*asked, *more])
        return
    except BaseException as error:
        with lock:
            for key, entry in taken.items():
                _pending.setdefault(key, entry)
        if not more or not isinstance(error, Exception):
            raise
    compute_together(asked)


def release_unread(replaced: Iterable[UOp]) -> None:
    """Free the old data of assigned tensors, unless someone still reads it."""
    _waiting.update(replaced)
    if _waiting:
        read = still_read()
        forget({b for b in _waiting if b not in read})


def still_read(inside: Iterable[UOp] = (), group: Group | None = None) -> set[UOp]:
    """The buffers that live tensors and other running groups read.

    Those of a ``group``, whose nodes are ``inside``, will have values of their own.
    """
    own = set(inside)
    read: set[UOp] = set()
    readers: list[UOp] = []
    for t in live_tensors():
        value = held(t.uop)
        if value is not None:
            read.add(value)
        elif t.uop not in own:
            readers.append(t.uop)

    def sources(u: UOp) -> tuple[UOp, ...]:
        return () if u in own or (u in computed and held(u) is not None) else u.src

    read.update([computed.get(u, u) for u in toposort(readers, sources)])
    for g in running:
        if g is not group:
            read |= g.reads()
    return read


def forget(unread: Collection[UOp]) -> None:
    """Free the data of buffers that nobody reads."""
    for node in [n for n, b in computed.items() if b in unread]:
        del computed[node]
    for buf in unread:
        _waiting.discard(buf)
        release(buf, REPLACED)


def _after_fork() -> None:
    """In a child there are no other threads: what they were writing is lost."""
    for g in running:
        for buf in g.spare:
            release(buf, "another thread was writing over it at the fork")
    running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""Pickling of graphs of any depth, and of many graphs that share nodes.

A node does not pickle its sources, which would recurse. What a pickle holds are
``_Batch`` es: flat lists of nodes, children first, whose sources are positions in the
list. A node is a batch and a place in it, so a second root in the same pickle adds a
batch of only those nodes that no earlier batch has, and ``pickle.dumps`` of a list of
all nodes of a graph is as large as the graph.

Which nodes a pickle has already is known to its ``_Session``. A pickler writes an
object once and then only refers to it, so a session is asked to be written once by
each pickler that meets it. The second time it is another pickler, for which a new
session is made. A session lives as long as its pickler, whose memo holds it.

What is not in a pickle: ops, which are found by name among those registered, and
the data of live buffers. A graph over these loads only where they are.
"""

from __future__ import annotations

import itertools
import operator
import os
import pickle
import pkgutil
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from uopc.uop.arguments import FIRST_LIVE_SLOT
from uopc.uop.collector import collector_paused
from uopc.uop.node import UOp
from uopc.uop.opdef import OpDef
from uopc.uop.ops import BUILTIN_OPS, Ops
from uopc.uop.walk import toposort

Place = tuple["_Batch", int]
Reduced = tuple[Callable[..., Any], tuple[Any, ...]]

_current = threading.local()
_token = os.urandom(16)
_builtin = {op.name: op for op in BUILTIN_OPS}


class _Session:
    """What one pickler has written: the places of nodes in its batches."""

    def __init__(self) -> None:
        self.places: dict[UOp, Place] = {}
        self.picklers = 0
        _current.session = weakref.ref(self)

    def __reduce__(self) -> Reduced:
        self.picklers += 1
        return bool, ()  # of no use to who loads it

    def place(self, u: UOp) -> Place:
        """The place of ``u``, in a new batch if no earlier one has it."""
        if u not in self.places:
            _Batch(u, self.places)
        return self.places[u]


class _Batch:
    """Nodes to be rebuilt in order: first those of earlier batches, then new ones."""

    def __init__(self, root: UOp, places: dict[UOp, Place]) -> None:
        self.live = False
        self.borrowed: list[Place] = []
        self.rows: list[Any] = []  # op, argument, number of sources, their places
        number: dict[UOp, int] = {}
        walk = toposort([root], lambda u: () if u in places else u.src)
        for u in walk:
            if u in places:
                number[u] = len(self.borrowed)
                self.borrowed.append(places[u])
        for u in walk:
            if u in number:
                continue
            places[u] = self, len(number)
            number[u] = len(number)
            self.rows += (u.op, u.arg, len(u.src), *[number[s] for s in u.src])
            self.live |= u.op is Ops.BUFFER and u.arg.slot >= FIRST_LIVE_SLOT

    def __reduce__(self) -> Reduced:
        home = _home() if self.live else None
        return _load_batch, (home, self.borrowed, self.rows)


class _Tail:
    """The second half of a node, written once its session has been."""

    def __init__(self, node: UOp, session: _Session) -> None:
        self.node, self.session = node, session

    @collector_paused()
    def __reduce__(self) -> Reduced:
        if self.session.picklers > 1:
            return _reduce_in(self.node, _Session())
        return operator.getitem, self.session.place(self.node)


def _reduce_in(node: UOp, session: _Session) -> Reduced:
    """A pair, of which the second is the node."""
    return operator.getitem, ((session, _Tail(node, session)), 1)


def reduce_node(node: UOp) -> Reduced:
    """What a node's ``__reduce__`` returns."""
    session = getattr(_current, "session", lambda: None)()
    return _reduce_in(node, session or _Session())


@collector_paused()
def _load_batch(
    home: object, borrowed: Sequence[tuple[list[UOp], int]], rows: Sequence[Any]
) -> list[UOp]:
    if home not in (None, _home()):
        raise pickle.UnpicklingError(
            "the graph reads live buffers of another process, and a pickle of a graph "
            "does not have their data: send the values (Tensor.numpy()), or a graph "
            f"over UOp.param nodes or buffers with slots below {FIRST_LIVE_SLOT}"
        )
    nodes = [batch[place] for batch, place in borrowed]
    parts = iter(rows)
    for op in parts:
        arg, count = next(parts), next(parts)
        src = tuple([nodes[i] for i in itertools.islice(parts, count)])
        nodes.append(UOp(op, src, arg))
    return nodes


def _home() -> tuple[bytes, int]:
    """Which process this is; a fork is another one."""
    return _token, os.getpid()


def reduce_op(op: OpDef) -> Reduced:
    """What an op's ``__reduce__`` returns: its name, for whoever has it as well."""
    if _builtin.get(op.name) is op:
        return _builtin_op, (op.name,)
    if _plugin_host().registry.ops.get(op.name) is op:
        return _plugin_op, (op.name,)
    raise pickle.PicklingError(
        f"no plugin registers the op {op.name!r}, and only a registered op is found "
        f"again by whoever loads the pickle{_plugin_host().failure_note()}"
    )


def _builtin_op(name: str) -> OpDef:
    return _builtin[name]


def _plugin_op(name: str) -> OpDef:
    host = _plugin_host()
    if name not in host.registry.ops:
        raise pickle.UnpicklingError(
            f"the pickled graph has the op {name!r}, which no plugin here registers; "
            f"install the plugin that it comes from{host.failure_note()}"
        )
    op: OpDef = host.registry.ops[name]
    return op


def _plugin_host() -> Any:
    # Plugins are above this package. Found by name, like an entry point, and only
    # for ops that are theirs: they may be needed for the first time here.
    return pkgutil.resolve_name("uopc.plugins:current")()

"""What two graphs have in common that share a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from uopc.uop import Ops, UOp

Key = tuple[Any, ...]


def graph_key(
    roots: Sequence[UOp], leaves: Mapping[UOp, UOp], context: Sequence[Any] = ()
) -> tuple[Key, list[UOp]]:
    """The structure of a graph, exactly, and its buffers by first visit.

    The key is ``context`` and then the graph written out from the roots down: a node
    at its first visit as its op and argument, after them its sources, later as the
    number of its visit. Before the sources of an op that takes any number of them
    comes how many there are, so equal keys can be read in one way only. A buffer is
    written as BUFFER, its number, shape and dtype: not which one it is, but which
    leaves read the same one. ``leaves`` are nodes to read from buffers instead.
    """
    # This loop is most of what a step costs that runs a plan made before: it visits
    # the first source at once, without a turn through the stack.
    buffer = Ops.BUFFER
    numbers: dict[UOp, int] = {}
    buffers: dict[UOp, int] = {}
    key = list(context)
    append = key.append
    stack = list(reversed(roots))
    visits = 0
    while stack:
        u = stack.pop()
        while True:
            number = numbers.setdefault(u, visits)
            if number != visits:
                append(number)
                break
            visits += 1
            op = u.op
            if op is buffer or u in leaves:
                b = u if op is buffer else leaves[u]
                which = buffers.setdefault(b, len(buffers))
                key += (buffer, which, u.shape, u.dtype)
                break
            append(op)
            append(u.arg)
            src = u.src
            count = len(src)
            if op.arity is None:
                append(count)
            if count == 1:
                (u,) = src
            elif count == 2:
                u, second = src
                stack.append(second)
            elif count:
                u = src[0]
                stack += src[:0:-1]
            else:
                break
    return tuple(key), list(buffers)

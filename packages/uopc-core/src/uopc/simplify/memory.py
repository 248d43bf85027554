"""What is remembered from one kernel of a plan to the next: intervals and rewrites.

Kernels of one plan have many expressions in common, positions above all. What follows
from a node alone need not be found out again for each of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from uopc.simplify.bounds import Bounds
from uopc.uop import UOp

Steps = dict[UOp, UOp | None]


class Memory:
    """Intervals, and what the rules of a table made of a node.

    It keeps the nodes alive: it is for one plan, not for a process.
    """

    def __init__(self) -> None:
        self.bounds = Bounds()
        self._steps: dict[Hashable, Steps] = {}

    def steps(self, table: Hashable) -> Steps:
        """Nodes after one rewrite by a table of rules, where that is known."""
        return self._steps.setdefault(table, {})


_memory: ContextVar[Memory | None] = ContextVar("memory", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """All that is simplified in here shares a memory; it may be nested."""
    token = _memory.set(_memory.get() or Memory())
    try:
        yield
    finally:
        _memory.reset(token)


def memory() -> Memory:
    """The shared memory, or a new one."""
    return _memory.get() or Memory()

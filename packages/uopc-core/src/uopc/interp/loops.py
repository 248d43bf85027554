"""Run a loop program, statement by statement.

This is how a pass over loops is validated: what it made must store what its
input stood for. Each loop is run as NumPy would not: one element at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uopc.plugins import note_owner
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]


def run_loops(sink: UOp, data: Mapping[int, Array]) -> dict[int, Array]:
    """What ``sink`` stores, as flat arrays by slot.

    ``data`` holds the flat arrays that it reads, by slot. Raises IndexError for
    a read or write outside its buffer.
    """
    runner = _Runner(sink, data)
    for statement in sink.src:
        runner.run(statement)
    return runner.stored


class _Runner:
    def __init__(self, sink: UOp, data: Mapping[int, Array]) -> None:
        written = {u.src[0] for u in toposort([sink]) if u.op is Ops.STORE}
        self.memory = {b: _initial(b, data) for b in written}
        self.data = data
        self.stored: dict[int, Array] = {
            b.arg.slot: x for b, x in self.memory.items() if b.arg.space == "global"
        }
        self.ranges: dict[UOp, Any] = {}
        self.orders: dict[UOp, list[UOp]] = {}

    def run(self, statement: UOp) -> None:
        """Execute one statement."""
        if statement.op is Ops.END:
            loop, *body = statement.src
            if loop.op is not Ops.RANGE:
                self._if(loop, body)
                return
            for i in range(loop.arg.extent):
                self.ranges[loop] = loop.dtype.numpy.type(i)
                for s in body:
                    self.run(s)
            return
        target, index, value = statement.src
        values = self._evaluate(statement, statement.src[1:])
        self.memory[target][_inside(values[index], target)] = values[value]

    def _if(self, condition: UOp, body: Sequence[UOp]) -> None:
        if self._evaluate(condition, [condition])[condition]:
            for s in body:
                self.run(s)

    def _evaluate(self, key: UOp, roots: Sequence[UOp]) -> dict[UOp, Any]:
        """The values of some expressions, those that belong to ``key``."""
        order = self.orders.get(key)
        if order is None:
            order = self.orders[key] = toposort(roots)
        values: dict[UOp, Any] = {}
        with np.errstate(all="ignore"):
            for u in order:
                values[u] = self._value(u, values)
        return values

    def _value(self, u: UOp, values: Mapping[UOp, Any]) -> Any:
        if u.op is Ops.RANGE:
            return self.ranges[u]
        if u.op is Ops.BUFFER:
            return None
        if u.op is Ops.INDEX:
            buf = u.src[0]
            memory = self.memory.get(buf)
            if memory is None:
                memory = self.data[buf.arg.slot]
            if len(u.src) == 3 and not values[u.src[2]]:
                return buf.dtype.numpy.type(0)
            return memory[_inside(values[u.src[1]], buf)]
        try:
            return u.op.compute(u, *(values[s] for s in u.src))[()]
        except Exception as error:
            note_owner(error, f"NumPy meaning of op {u.op.name!r}", "ops", u.op.name)
            raise


def _initial(buf: UOp, data: Mapping[int, Array]) -> Array:
    """What is in a buffer that is written: of one written in place, what was given."""
    given = data.get(buf.arg.slot) if buf.arg.space == "global" else None
    if given is not None and (given.shape, given.dtype) == (buf.shape, buf.dtype.numpy):
        return given.copy()
    return np.zeros(buf.shape, buf.dtype.numpy)


def _inside(index: Any, buf: UOp) -> int:
    i = int(index)
    if not 0 <= i < buf.arg.size:
        raise IndexError(f"index {i} is outside a buffer of {buf.arg.size} elements")
    return i

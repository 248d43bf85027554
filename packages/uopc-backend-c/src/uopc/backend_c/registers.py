"""Which local buffers are variables, and which are arrays.

A buffer of one element is a variable. A longer one becomes several, for the compiler to
keep in registers, if every access is at a constant index or covers the lanes of a
vector from a constant on, and no two of those vectors overlap without being the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from uopc.backend_c.lanes import Lanes
from uopc.simplify import Bounds
from uopc.uop import Ops, UOp, toposort

# No machine has so many registers; what is in memory anyway is an array.
MAX_VARIABLES = 128


class Register(NamedTuple):
    """One variable: ``lanes`` elements of a buffer from ``start`` on; 0: a scalar."""

    name: str
    start: int
    lanes: int


class Place(NamedTuple):
    """Where an access of a buffer goes: a variable, and a lane of it or all."""

    register: Register
    lane: int | None


class Registers:
    """The variables of one loop program's local buffers.

    ``in_memory`` names buffers that stay arrays, because something else has to
    know where they are.

    Attributes:
        in_vectors: the buffers that vector loops access.
    """

    def __init__(
        self, statements: Iterable[UOp], bounds: Bounds, in_memory: Iterable[UOp] = ()
    ) -> None:
        self._bounds = bounds
        self._lanes: dict[UOp, Lanes] = {}
        self._places: dict[UOp, tuple[int, int] | None] = {}
        self._found: dict[UOp, dict[int, Register]] = {}
        self.in_vectors: set[UOp] = set()
        accesses: dict[UOp, dict[tuple[int, int] | None, None]] = {}
        for buf, index, gated in _accesses(statements):
            where = self._where(index)
            # A variable can be read whatever a gate says, if only one lane of it.
            usable = where is not None and not (gated and where[1])
            accesses.setdefault(buf, {})[where if usable else None] = None
            if self.lanes_of(index) is not None:
                self.in_vectors.add(buf)
        for buf, places in accesses.items():
            if buf not in in_memory and None not in places:
                pieces = [p for p in places if p is not None]
                if registers := _variables(buf, pieces):
                    self._found[buf] = registers

    def of(self, buf: UOp) -> list[Register]:
        """The variables that a buffer consists of; none if it is an array."""
        return list(dict.fromkeys(self._found.get(buf, {}).values()))

    def place(self, buf: UOp, index: UOp) -> Place | None:
        """The variable for an access, or None if the buffer is an array."""
        found = self._found.get(buf)
        where = self._where(index) if found else None
        if not found or where is None:
            return None
        start, lanes = where
        register = found[start]
        if lanes or not register.lanes:
            return Place(register, None)
        return Place(register, start - register.start)

    def lanes_of(self, index: UOp) -> Lanes | None:
        """The vector loop that an index depends on."""
        for u in toposort([index]):
            if is_lane(u):
                if u not in self._lanes:
                    self._lanes[u] = Lanes(u, self._bounds)
                return self._lanes[u]
        return None

    def _where(self, index: UOp) -> tuple[int, int] | None:
        """First element and lanes (0: a scalar) of an access; None: not constant."""
        if index not in self._places:
            self._places[index] = self._constant(index)
        return self._places[index]

    def _constant(self, index: UOp) -> tuple[int, int] | None:
        lanes = self.lanes_of(index)
        if lanes is None:
            return (int(index.value), 0) if index.op is Ops.CONST else None
        found = lanes.affine(index)
        if found is None or found.base.op is not Ops.CONST or found.step not in (0, 1):
            return None
        return int(found.base.value), lanes.count if found.step else 0


def is_lane(u: UOp) -> bool:
    """Whether ``u`` is the variable of a vector loop."""
    return u.op is Ops.RANGE and u.arg.kind in ("vector", "stream")


def _accesses(statements: Iterable[UOp]) -> Iterable[tuple[UOp, UOp, bool]]:
    """Buffer, index and whether there is a gate, of reads and writes of local ones."""
    for u in toposort(statements):
        if u.op in (Ops.INDEX, Ops.STORE) and u.src[0].arg.space == "local":
            yield u.src[0], u.src[1], u.op is Ops.INDEX and len(u.src) == 3


def _variables(buf: UOp, pieces: list[tuple[int, int]]) -> dict[int, Register]:
    """The variable of each element that is accessed; none if vectors overlap."""
    found: dict[int, Register] = {}
    name = f"acc{buf.arg.slot}"
    vectors = sorted(p for p in pieces if p[1])
    if len(pieces) > MAX_VARIABLES:
        return {}
    if buf.arg.size == 1 and not vectors:
        return {0: Register(name, 0, 0)}
    for n, (start, lanes) in enumerate(vectors):
        register = Register(f"{name}_{n}", start, lanes)
        for i in range(start, start + lanes):
            if i in found:
                return {}
            found[i] = register
    scalars = sorted(start for start, lanes in pieces if not lanes)
    for start in scalars:
        if start not in found:
            found[start] = Register(f"{name}_at{start}", start, 0)
    return found

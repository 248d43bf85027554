"""Vector loops: the stores of all lanes at once, in GNU vector code."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.backend_c.lanes import Lanes
from uopc.backend_c.registers import is_lane
from uopc.backend_c.scalars import Names, ScalarPrinter, forget
from uopc.backend_c.transposition import print_blocks
from uopc.backend_c.vector_expressions import (
    Uses,
    VectorExpressions,
    array_place,
    lane_indices,
)
from uopc.backend_c.vector_types import VectorTypes, lanes_held
from uopc.dtype import DType, i8
from uopc.uop import Ops, UOp, toposort


class VectorPrinter:
    """Prints vector loops on the lines of a scalar printer."""

    def __init__(self, scalars: ScalarPrinter) -> None:
        self.scalars = scalars
        self.types = VectorTypes(lambda text: scalars.helpers.setdefault(text))
        self._lanes: dict[UOp, VectorExpressions] = {}

    def settled(self, statement: UOp) -> list[UOp]:
        """The stores of a vector loop or of a plain statement; none of other loops."""
        if statement.op is Ops.STORE:
            return [statement]
        loop, *body = statement.src
        return self._over(loop).lanes.settled(body) if is_lane(loop) else []

    def held(self, dtype: DType, lanes: int) -> str:
        """The type of a variable for ``lanes`` elements of a local buffer."""
        return self.types.name(_kept_as(dtype), lanes_held(lanes))

    def kept(self, store: UOp, text: str) -> str:
        """A scalar's text as it is stored: a bool in a lane of a mask is 0 or -1."""
        target, index, value = store.src
        found = self.scalars.registers.place(target, index)
        masked = value.dtype.kind == "bool" and found and found.lane is not None
        return f"-{text}" if masked else text

    def stores(
        self, loop: UOp, stores: Sequence[UOp], names: Names, uses: Uses, pad: str
    ) -> None:
        """Print one vector loop, whose stores are ``settled``.

        Raises ValueError if a lane would read what another one wrote.
        """
        values = self._over(loop)
        for s in stores:
            if not values.lanes.varies(s.src[1]) and _reads(stores, s.src[0]):
                raise ValueError(
                    f"a vector loop over {loop.arg} hands a value of "
                    f"{s.src[0].arg} on from lane to lane"
                )
        print_blocks(values, stores, names, uses, pad)
        for s in stores:
            self._store(s, values, names, uses, pad)
            forget(names, {s.src[0]})

    def _over(self, loop: UOp) -> VectorExpressions:
        if loop not in self._lanes:
            lanes = Lanes(loop, self.scalars.bounds)
            self._lanes[loop] = VectorExpressions(self.scalars, self.types, lanes)
        return self._lanes[loop]

    def _store(
        self, s: UOp, values: VectorExpressions, names: Names, uses: Uses, pad: str
    ) -> None:
        target, index, value = s.src
        boolean, lines = value.dtype.kind == "bool", self.scalars.lines
        place = self.scalars.registers.place(target, index)
        found = values.lanes.affine(index)
        if place is not None and place.register.lanes and place.lane is None:
            text = values.vector(value, names, uses, pad)
            if text != place.register.name:  # clang warns of what changes nothing
                lines.append(f"{pad}{place.register.name} = {text};")
        elif found is not None and found.step == 1:
            text = values.vector(value, names, uses, pad)
            at = values.pointer(target, found.base, names, uses, pad)
            dtype = _kept_as(value.dtype)
            text = f"-{text}" if boolean else text
            whole = values.count == values.width
            if whole and values.lanes.loop.arg.kind == "stream":
                self.scalars.streams = True
                line = self.types.stream(dtype, values.width, at, text)
            else:
                line = self.types.store(dtype, values.width, values.count, at, text)
            lines.append(pad + line)
        else:
            self._store_lanes(s, values, names, uses, pad)

    def _store_lanes(
        self, s: UOp, values: VectorExpressions, names: Names, uses: Uses, pad: str
    ) -> None:
        """Store lane by lane, in order."""
        target, index, value = s.src
        boolean, lines = value.dtype.kind == "bool", self.scalars.lines
        found = values.lanes.affine(index)
        name = values.named(value, names, uses, pad)
        elements = [f"{name}[{i}]" for i in range(values.count)]
        if boolean:
            elements = [f"({e}!=0)" for e in elements]
        if found is not None and found.step == 0:
            text = values.scalar(index, names, uses, pad)
            place = self.scalars.place(target, index, text)
            lines.append(f"{pad}{place} = {self.kept(s, elements[-1])};")
            return
        if found is None:
            indices = values.indices(index, names, uses, pad)
        else:
            base = values.scalar(found.base, names, uses, pad)
            indices = lane_indices(base, found.step, values.count)
        for where, element in zip(indices, elements, strict=True):
            lines.append(f"{pad}{array_place(target, where)} = {element};")


def _kept_as(dtype: DType) -> DType:
    """A bool is a byte in memory, 0 or 1, and a mask of bytes in a variable."""
    return i8 if dtype.kind == "bool" else dtype


def _reads(stores: Sequence[UOp], buf: UOp) -> bool:
    return any(u.op is Ops.INDEX and u.src[0] is buf for u in toposort(stores))

"""What a schedule is chosen from: loops, strides, and an estimate of the time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from uopc.schedule.knobs import AS_ESTIMATED, Knobs
from uopc.schedule.nest import Addresses, accumulation, is_accumulator, output_loops
from uopc.schedule.target import Target
from uopc.uop import Ops, UOp, toposort

# Estimates, in nanoseconds: of one simple operation on one vector, of a byte that is
# in the nearest caches, and of one that is not.
OPERATION_NS = 0.3
NEAR_BYTE_NS = 0.01
FAR_BYTE_NS = 0.05

PAYS_NS = 25_000
"""Shorter work is not split among threads: handing it over takes 2 to 4 us."""
ROUND_NS = 6_000
"""About the least that a round should take."""
MAX_ROUNDS = 64


def rounds_of(nanoseconds: float, scale: float = 1.0) -> int:
    """Into how many rounds so much work should be split; 1 if not at all.

    ``scale`` is how many times as many somebody wants.
    """
    count = 1
    if nanoseconds >= PAYS_NS:
        count = min(MAX_ROUNDS, max(2, int(nanoseconds / ROUND_NS)))
    return max(1, int(count * scale))


@dataclass(frozen=True)
class Axis:
    """A loop: how far each access moves with it. None: not evenly."""

    number: int
    extent: int
    strides: tuple[int | None, ...]
    free: bool = True
    """Whether its variable is used in addresses only."""


@dataclass
class Numbers:
    """Numbers for new loops."""

    last: int

    def new(self, count: int = 1) -> int:
        """The first of some numbers that nobody has."""
        self.last += count
        return self.last - count + 1


@dataclass(frozen=True)
class Model:
    """One nest of loops: the output loops, and those of a reduction inside, if any.

    Attributes:
        outputs: perfectly nested, outermost first.
        reduced: the loops of the reduction.
        accesses: the INDEX and STORE nodes of arrays; axes have their strides.
        operations: cost of computing one element of the innermost loop, in additions.
        rounding: whether the reduction, if any, adds up floats.
        width: bytes of the widest type that is computed with in the loops; 4 at least.
        inside: whether other loops are around it, which may run in parallel.
        knobs: what is not to be as estimated.
    """

    target: Target
    outputs: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    accesses: tuple[UOp, ...]
    operations: int
    rounding: bool
    width: int
    numbers: Numbers = field(compare=False)
    inside: bool = False
    knobs: Knobs = AS_ESTIMATED

    @property
    def stored(self) -> list[int]:
        """The places of the STOREs among the accesses."""
        return [i for i, a in enumerate(self.accesses) if a.op is Ops.STORE]

    @property
    def read(self) -> list[int]:
        """The places of the reads among the accesses."""
        return [i for i, a in enumerate(self.accesses) if a.op is Ops.INDEX]

    @property
    def lanes(self) -> int:
        """How many lanes the widest type allows."""
        return max(1, self.target.vector_bytes // self.width)

    @property
    def bytes_touched(self) -> int:
        """About how much memory is read and written, each element once."""
        total = 0
        for i, a in enumerate(self.accesses):
            moving = [x.extent for x in (*self.outputs, *self.reduced) if x.strides[i]]
            size = min(math.prod(moving), a.src[0].arg.size)
            total += size * a.src[0].dtype.itemsize
        return total

    @property
    def iterations(self) -> int:
        """How often the innermost body runs."""
        return math.prod(x.extent for x in (*self.outputs, *self.reduced))

    @property
    def nanoseconds(self) -> float:
        """About how long it takes on one core."""
        near = self.bytes_touched <= self.target.l2
        data = self.bytes_touched * (NEAR_BYTE_NS if near else FAR_BYTE_NS)
        work = self.iterations * (self.operations + len(self.accesses))
        return max(data, work * OPERATION_NS / self.lanes)

    def rounds(self) -> int:
        """Into how many rounds the work should be split; 1 if not at all.

        A matter of the shape: it does not depend on the number of threads.
        """
        return 1 if self.inside else rounds_of(self.nanoseconds, self.knobs.rounds)

    def with_outputs(self, outputs: Iterable[Axis]) -> Model:
        """Another state of the loops."""
        return replace(self, outputs=tuple(outputs))


def model(
    sink: UOp,
    target: Target,
    numbers: Numbers,
    inside: bool = False,
    knobs: Knobs = AS_ESTIMATED,
) -> Model | None:
    """The one nest that a program is, or None if it is something else."""
    loops, body = output_loops(sink)
    inner: Sequence[UOp] = ()
    rounding = False
    if any(s.op is not Ops.STORE for s in body):
        found = accumulation(body)
        if found is None or any(s.op is not Ops.STORE for s in body[2:]):
            return None
        inner = found.loops
        rounding = found.op is Ops.ADD and found.buffer.dtype.is_float
    addresses = Addresses(list(sink.src))
    accesses = [a for a in addresses.accesses if not is_accumulator(a.src[0])]
    return Model(
        target,
        axes_of(loops, addresses, accesses),
        axes_of(inner, addresses, accesses),
        tuple(accesses),
        _operations(sink),
        rounding,
        max(4, addresses.widest()),
        numbers,
        inside,
        knobs,
    )


def axes_of(
    loops: Iterable[UOp], addresses: Addresses, accesses: Sequence[UOp]
) -> tuple[Axis, ...]:
    """Loops as axes: how some accesses move with them."""

    def axis(r: UOp) -> Axis:
        strides = tuple(addresses.stride(a, r) for a in accesses)
        return Axis(r.arg.number, r.arg.extent, strides, r not in addresses.outside)

    return tuple(map(axis, loops))


def _values(u: UOp) -> tuple[UOp, ...]:
    """The sources of a node but for addresses."""
    return u.src[2:] if u.op in (Ops.INDEX, Ops.STORE) else u.src


def _operations(sink: UOp) -> int:
    """What the values cost, without the addresses they are read from."""

    nodes = toposort([sink], _values)
    return sum(u.op.cost for u in nodes if u.op.kind == "elementwise")


def merged(axes: Sequence[Axis]) -> tuple[list[Axis], list[tuple[int, int]]]:
    """Neighbouring loops made one where addresses allow it, and which were."""
    found: list[Axis] = []
    pairs: list[tuple[int, int]] = []
    for outer in reversed(axes):
        if found and _one(outer, found[-1]):
            inner = found.pop()
            pairs.append((outer.number, inner.number))
            extent = outer.extent * inner.extent
            found.append(replace(inner, number=outer.number, extent=extent))
        else:
            found.append(outer)
    return found[::-1], pairs


def _one(outer: Axis, inner: Axis) -> bool:
    if not (outer.free and inner.free):
        return False
    pairs = zip(outer.strides, inner.strides, strict=True)
    return outer.extent * inner.extent < 2**31 and all(
        s is not None and t is not None and s == t * inner.extent for s, t in pairs
    )

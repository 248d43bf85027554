"""Which kernels may run in one loop nest, each element by all of them in turn.

Such as the new moments and the new value of a parameter, which read one gradient. They
stay kernels of their own in the plan, next to each other and marked; a backend that can
runs them as one. Elsewhere nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from uopc.kernelize.inplace import elsewhere
from uopc.kernelize.order import Links
from uopc.kernelize.split import MAX_OPS
from uopc.uop import Ops, UOp, toposort

if TYPE_CHECKING:
    from uopc.kernelize.plan import Kernel, PlanBuffer

MAX_STREAMS = 12
"""As many arrays at most: a processor follows only so many at once."""
MAX_TRIES = 8  # groups of one shape that a kernel may join


def join(
    kernels: Sequence[Kernel], needs: Links, buffers: Sequence[PlanBuffer]
) -> list[Kernel]:
    """The kernels with those that share a loop nest next to each other.

    They are given in an order in which they may run, ``needs`` saying by position which
    others each one needs. A kernel that joins others is moved to them, or they to it;
    neither if some temporary would be kept for longer.
    """
    joining = _Joining(kernels, buffers)
    for place, before in enumerate(needs):
        joining.add(place, before)
    return _marked(joining.groups, buffers)


class _Joining:
    """Groups of kernels in the order they run, some of them left empty."""

    def __init__(self, kernels: Sequence[Kernel], buffers: Sequence[PlanBuffer]):
        self.kernels, self.buffers = kernels, buffers
        self.groups: list[_Group] = []
        self.at: list[int] = []  # by place of a kernel, its group
        self.by_loops: dict[tuple[int, ...], list[int]] = {}
        self.looks: dict[UOp, _Look] = {}
        self.last_read = {a: i for i, k in enumerate(kernels) for a in k.args}

    def add(self, place: int, needs: Sequence[int]) -> None:
        """The next kernel, to a group that takes it, or to one of its own."""
        k = self.kernels[place]
        look = self.looks.get(k.ast)
        if look is None:
            look = self.looks[k.ast] = _Look.at(k.ast)
        same = self.by_loops.setdefault(look.loops, [])
        first = max((self.at[i] for i in needs), default=0)
        for g in same[: -MAX_TRIES - 1 : -1] if look.loops else ():
            if self.groups[g].takes(k, look, self.buffers):
                g = self._met(g, place, first)
                if g >= 0:
                    break
        else:
            g = len(self.groups)
            self.groups.append(_Group())
        if g not in same[-MAX_TRIES:]:
            same.append(g)
        for i in needs:
            self.groups[self.at[i]].needed |= self.at[i] != g
        self.groups[g].add(k, look, self.buffers, place)
        self.at.append(g)

    def _met(self, g: int, place: int, first: int) -> int:
        """Where group ``g`` and the next kernel can be together; -1 if nowhere."""
        k, end, group = self.kernels[place], len(self.groups), self.groups[g]
        read = {a for a in group.read if self._is_array(a)}
        if self._is_array(k.out) and any(self.last_read[a] < place for a in read):
            return -1  # its memory could be that of what is not read any more
        if g == end - 1 or (first <= g and not self._is_array(k.out)):
            return g
        if group.needed or not read <= group.made.union(k.args):
            return -1
        self.groups[g] = _Group()
        self.groups.append(group)
        for i in group.places:
            self.at[i] = end
        return end

    def _is_array(self, i: int) -> bool:
        """Whether a buffer is a temporary of more than one element."""
        return self.buffers[i].role == "temporary" and self.buffers[i].size > 1


@dataclass(frozen=True)
class _Look:
    """A kernel as others see it.

    Attributes:
        loops: the extents of its loops; none if it has others besides those of its
            output, or is of one element.
        moved: the numbers of the inputs that are read elsewhere than at the place of
            the element that is made of them.
        ops: how long it is, as `uopc.kernelize.split` counts.
    """

    loops: tuple[int, ...]
    moved: frozenset[int]
    ops: int

    @staticmethod
    def at(ast: UOp) -> _Look:
        order = toposort([ast])
        # How a copy that transposes goes over its memory is a matter of its own.
        apart = any(u.op.kind == "reduce" or u.op is Ops.PERMUTE for u in order)
        loops = () if apart else tuple(n for n in ast.shape if n != 1)
        ops = sum(u.op.kind not in ("leaf", "movement") for u in order)
        return _Look(loops, elsewhere(ast), ops)


@dataclass
class _Group:
    """Kernels of one loop nest, and what they do to buffers of the plan.

    Attributes:
        kernels: the kernels.
        places: their positions in the order that was given.
        made: the buffers that they write.
        read: those that they read.
        moved: and those of which they read elements at other places.
        streams: the arrays that they go over.
        ops: how long they are in all.
        needed: whether a kernel of a later group needs one of these.
    """

    kernels: list[Kernel] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    made: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    moved: set[int] = field(default_factory=set)
    streams: set[int] = field(default_factory=set)
    ops: int = 0
    needed: bool = False

    def takes(self, k: Kernel, look: _Look, buffers: Sequence[PlanBuffer]) -> bool:
        """Whether a kernel of equal loops may run in this nest, after the others.

        Each element is written by one after the other. So what a kernel here reads has
        been written, and has not been written over, if it is at the same place. It has
        to touch an array that the nest touches anyway.
        """
        streams = _streams(k, buffers)
        if self.streams.isdisjoint(streams):
            return False
        if len(self.streams | streams) > MAX_STREAMS or self.ops + look.ops > MAX_OPS:
            return False
        return self.made.isdisjoint(k.args[i] for i in look.moved) and (
            k.over not in self.moved
        )

    def add(
        self, k: Kernel, look: _Look, buffers: Sequence[PlanBuffer], place: int
    ) -> None:
        """Take a kernel, which is at ``place`` in the order that was given."""
        self.kernels.append(k)
        self.places.append(place)
        self.made.add(k.out)
        self.read.update(k.args)
        self.moved.update(k.args[i] for i in look.moved)
        self.streams |= _streams(k, buffers)
        self.ops += look.ops


def _streams(k: Kernel, buffers: Sequence[PlanBuffer]) -> set[int]:
    """The arrays that a kernel goes over; one that is written over counts once."""
    touched = {a for a in k.args if buffers[a].size > 1}
    return touched | ({k.out} if k.over is None else {k.over, k.out})


def _marked(groups: Sequence[_Group], buffers: Sequence[PlanBuffer]) -> list[Kernel]:
    """All kernels in order, each saying whether it goes with the one before."""
    readers: dict[int, set[int]] = {}
    for g, group in enumerate(groups):
        for k in group.kernels:
            for a in k.args:
                readers.setdefault(a, set()).add(g)
    found: list[Kernel] = []
    for g, group in enumerate(groups):
        for i, k in enumerate(group.kernels):
            passing = buffers[k.out].role == "temporary" and readers.get(k.out) == {g}
            found.append(replace(k, joined=i > 0, passing=passing))
    return found

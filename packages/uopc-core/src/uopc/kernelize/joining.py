"""Which kernels may run in one loop nest, each round of it by all of them in turn.

Such as the new moments and the new value of a parameter, which read one gradient: they
have all loops in common, and a round is an element. Or the maximum, the sum and the
quotient of a softmax, which share outer loops: a round is a row, or a block of rows
where a contraction is among them. They stay kernels of their own in the plan, next to
each other and marked; a backend that can runs them as one. Elsewhere nothing changes.

What is found here is what is worth it and may be possible. The loops have the last
word: see `uopc.schedule.one_nest`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from uopc.kernelize.inplace import elsewhere
from uopc.kernelize.order import Links
from uopc.kernelize.split import MAX_OPS
from uopc.uop import Ops, UOp, toposort

if TYPE_CHECKING:
    from uopc.kernelize.plan import Kernel, PlanBuffer

MAX_STREAMS = 12
"""As many arrays at most: a processor follows only so many at once."""
MAX_TRIES = 8  # groups of one shape that a kernel may join
ROW_BYTES = 128 << 10
"""At most so much is touched in a round of outer loops that kernels have in common."""
FAR_BYTES = 4 << 20
"""What a contraction makes or reads is passed on in blocks of rows if it is as large:
less stays in the caches between kernels, and both factors are better used whole."""


class Joined(NamedTuple):
    """Kernels, those that share a loop nest next to each other and marked.

    Attributes:
        kernels: all of them.
        merged: the outputs of those for which groups were brought together, each with
            that of a kernel of these.
    """

    kernels: list[Kernel]
    merged: list[tuple[int, int]]


def join(
    kernels: Sequence[Kernel],
    needs: Links,
    buffers: Sequence[PlanBuffer],
    refused: Collection[int] | None = None,
) -> Joined:
    """The kernels with those that share a loop nest next to each other.

    They are given in an order in which they may run, ``needs`` saying by position which
    others each one needs. A kernel that joins others is moved to them, or they to it;
    neither if some temporary would be kept for longer.

    Groups that pass large arrays on to one kernel are brought together, unless its
    output is among ``refused``: somebody has to say whether such nests are possible,
    and with None nobody does.
    """
    joining = _Joining(kernels, needs, buffers)
    for place, before in enumerate(needs):
        merge = refused is not None and kernels[place].out not in refused
        joining.add(place, before, merge)
    return Joined(_marked(joining.groups, buffers), joining.merged)


def nest_numbers(kernels: Sequence[Kernel]) -> list[int]:
    """By kernel, which loop nest it is marked for, counted from 0."""
    return [n - 1 for n in itertools.accumulate(not k.joined for k in kernels)]


class _Joining:
    """Groups of kernels in the order they run, some of them left empty."""

    def __init__(
        self, kernels: Sequence[Kernel], needs: Links, buffers: Sequence[PlanBuffer]
    ) -> None:
        self.kernels, self.needs, self.buffers = kernels, needs, buffers
        self.groups: list[_Group] = []
        self.at: list[int] = []  # by place of a kernel, its group
        self.by_loops: dict[tuple[int, ...], list[int]] = {}
        self.looks: dict[UOp, _Look] = {}
        self.last_read = {a: i for i, k in enumerate(kernels) for a in k.args}
        self.merged: list[tuple[int, int]] = []

    def add(self, place: int, needs: Sequence[int], merge: bool) -> None:
        """The next kernel, to a group that takes it, or to one of its own."""
        k = self.kernels[place]
        look = self.looks.get(k.ast)
        if look is None:
            look = self.looks[k.ast] = _Look.at(k.ast)
        same = self.by_loops.setdefault(look.loops, [])
        if merge:
            self._merge(place, needs, look)
        first = max((self.at[i] for i in needs), default=0)
        for g in self._candidates(look, same, needs):
            if self.groups[g].takes(k, look, self.buffers):
                g = self._met(g, place, first, look)
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

    def _merge(self, place: int, needs: Sequence[int], look: _Look) -> None:
        """Bring groups together that pass large arrays on to the next kernel."""
        k = self.kernels[place]
        large = {a for a in k.args if self.buffers[a].nbytes >= FAR_BYTES}
        near = sorted({self.at[i] for i in needs if self.kernels[i].out in large})
        if len(near) < 2 or not all(self.groups[g].contracts for g in near):
            return
        goal, *later = near
        trial = _Group()
        for i in [i for g in near for i in self.groups[g].places]:
            other = self.kernels[i]
            if any(
                self.at[n] > goal and self.at[n] not in later for n in self.needs[i]
            ):
                return
            args = other, self.looks[other.ast], self.buffers
            if trial.kernels and not trial.has_room(*args):
                return
            trial.add(*args, i)
        if trial.has_room(k, look, self.buffers):
            trial.needed = any(self.groups[g].needed for g in near)
            self.groups[goal] = trial
            self.merged.append((k.out, trial.kernels[0].out))
            for g in later:
                for i in self.groups[g].places:
                    self.at[i] = goal
                self.groups[g] = _Group()

    def _candidates(
        self, look: _Look, same: Sequence[int], needs: Sequence[int]
    ) -> list[int]:
        """Groups to ask: those of the same loops, of what is read, and the last one."""
        if not look.loops:
            return []
        near = [self.at[i] for i in needs]
        alike = [] if look.reduces else same[: -MAX_TRIES - 1 : -1]
        last = len(self.groups) - 1
        found = [*alike, *sorted(near, reverse=True)[:MAX_TRIES], max(last, 0)]
        return [g for g in dict.fromkeys(found) if g <= last]

    def _met(self, g: int, place: int, first: int, look: _Look) -> int:
        """Where group ``g`` and the next kernel can be together; -1 if nowhere."""
        k, end, group = self.kernels[place], len(self.groups), self.groups[g]
        # What is one number in a round is kept longer without harm. Of a contraction, a
        # block is kept in scratch: that makes up for what stays in memory.
        passed = set() if group.alike(look) else group.made
        rows = math.prod(group.loops)
        small = {a for a in passed if self.buffers[a].size <= rows}
        read = {a for a in group.read - small if self._is_array(a)}
        blocks = passed & {*k.args} if group.contracts or look.contracts else set()
        saved = max((self.buffers[a].nbytes for a in blocks), default=0)
        large = self._is_array(k.out) and self.buffers[k.out].nbytes > saved
        if large and any(self.last_read[a] < place for a in read):
            return -1  # its memory could be that of what is not read any more
        if g == end - 1 or (first <= g and not large):
            return g
        kept = read - group.made.union(k.args)  # for longer
        if group.needed or sum(self.buffers[a].nbytes for a in kept) > saved:
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
        loops: the extents of the loops over its output; none where it has to be alone.
        reduces: whether it has others inside these.
        contracts: whether it reads elements many times, by loops that they lack.
        terms: the extents of the loops that its sums run over.
        moved: the numbers of the inputs that are read elsewhere than at the place of
            the element that is made of them.
        ops: how long it is, as `uopc.kernelize.split` counts.
    """

    loops: tuple[int, ...]
    reduces: bool
    contracts: bool
    terms: frozenset[int]
    moved: frozenset[int]
    ops: int

    @property
    def rows(self) -> tuple[int, ...]:
        """The loops that others may share; a contraction needs its last for itself."""
        return self.loops[:-1] if self.contracts else self.loops

    @staticmethod
    def at(ast: UOp) -> _Look:
        order = toposort([ast])
        sums = [u for u in order if u.op.kind == "reduce"]
        contracts = any(map(_reads_again, sums))
        # How a copy that transposes goes over its memory is a matter of its own.
        turned = Ops.PERMUTE in {u.op for u in order} and not contracts
        apart = turned or any(u.op in (Ops.SCATTER_ADD, Ops.CONV) for u in order)
        loops = () if apart else tuple(n for n in ast.shape if n != 1)
        ops = sum(u.op.kind not in ("leaf", "movement") for u in order)
        terms = frozenset(n for u in sums for n in u.src[0].shape[len(u.shape) :])
        return _Look(loops, bool(sums), contracts, terms, elsewhere(ast), ops)


def _reads_again(reduction: UOp) -> bool:
    """Whether a reduction has more terms than what it reads has elements."""
    (terms,) = reduction.src[:1]
    read = [u for u in toposort([terms]) if u.op is Ops.BUFFER]
    return math.prod(terms.shape) > max((u.arg.size for u in read), default=0)


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
        loops: the outer loops that they have in common.
        even: whether none has other loops.
        contracts: whether one of them is a contraction.
        sizes: of each buffer that they touch, the bytes.
    """

    kernels: list[Kernel] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    made: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    moved: set[int] = field(default_factory=set)
    streams: set[int] = field(default_factory=set)
    ops: int = 0
    needed: bool = False
    loops: tuple[int, ...] = ()
    even: bool = True
    contracts: bool = False
    sizes: dict[int, int] = field(default_factory=dict)

    def takes(self, k: Kernel, look: _Look, buffers: Sequence[PlanBuffer]) -> bool:
        """Whether a kernel may run in this nest, after the others.

        It has to touch an array that the nest touches anyway. If all have equal loops,
        each element is written by one after the other; so what a kernel here reads has
        been written, and has not been written over, if it is at the same place. If only
        outer loops are in common, the loops will show whether their rounds read what
        others write; the data of a round has to be little.
        """
        streams = _streams(k, buffers)
        if not self.kernels or self.streams.isdisjoint(streams):
            return False
        if self.alike(look):
            if (
                self.ops + look.ops > MAX_OPS
                or len(self.streams | streams) > MAX_STREAMS
            ):
                return False
            return self.made.isdisjoint(k.args[i] for i in look.moved) and (
                k.over not in self.moved
            )
        if look.contracts or self.contracts:
            passed = self.made.intersection(k.args)
            if all(buffers[a].nbytes < FAR_BYTES for a in passed):
                return False
        return self.has_room(k, look, buffers)

    def has_room(self, k: Kernel, look: _Look, buffers: Sequence[PlanBuffer]) -> bool:
        """Whether the data of a round is little enough with a kernel, and the code."""
        rows = math.prod(self.shared(look))
        sizes = {**self.sizes, **_sizes(k, buffers)}
        each = (n // rows if n % rows == 0 else n for n in sizes.values())
        few = self.ops + look.ops <= MAX_OPS
        return few and rows > 1 and sum(each) <= ROW_BYTES

    def shared(self, look: _Look) -> tuple[int, ...]:
        """The outer loops that a kernel would have in common with these.

        A contraction that sums over the rows of these adds up in each round what that
        round has of its terms: see `uopc.schedule.carry`.
        """
        common = _common(self.loops, look.rows)
        n = len(common)
        if look.contracts and 0 < n < len(self.loops) and self.loops[n] in look.terms:
            return self.loops[: n + 1]
        return common

    def alike(self, look: _Look) -> bool:
        """Whether a kernel has the same loops as all of these, and no other."""
        return self.even and not look.reduces and look.loops == self.loops

    def add(
        self, k: Kernel, look: _Look, buffers: Sequence[PlanBuffer], place: int
    ) -> None:
        """Take a kernel, which is at ``place`` in the order that was given."""
        loops = self.shared(look) if self.kernels else look.rows
        self.even &= not look.reduces and (not self.kernels or self.loops == look.loops)
        self.contracts |= look.contracts
        self.loops = loops
        self.sizes |= _sizes(k, buffers)
        self.kernels.append(k)
        self.places.append(place)
        self.made.add(k.out)
        self.read.update(k.args)
        self.moved.update(k.args[i] for i in look.moved)
        self.streams |= _streams(k, buffers)
        self.ops += look.ops


def _common(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The loops with which both begin."""
    pairs = zip(a, b, strict=False)
    return tuple(n for n, _ in itertools.takewhile(lambda p: p[0] == p[1], pairs))


def _sizes(k: Kernel, buffers: Sequence[PlanBuffer]) -> dict[int, int]:
    """The bytes of what a kernel touches."""
    return {i: buffers[i].nbytes for i in (*k.args, k.out)}


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

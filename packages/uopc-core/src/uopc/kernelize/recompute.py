"""Large arrays that need not be in memory: what reads them runs with what makes them.

Such as the matrices of attention. In one loop nest they are in scratch, a block of rows
at a time. Where a later nest wants them again, as a gradient does, the kernels that
make them may be repeated there. The cost model:

* an array is worth it from ``FAR_BYTES`` on: less stays in the caches anyway;
* repeated are kernels that read no such array but each other's, for at most
  ``AGAIN_COST`` additions for each byte that is not stored then;
* the nests have to be possible: the backend is asked, which alone knows its loops;
* the most that is alive at once must not grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from uopc.kernelize import joining
from uopc.kernelize.split import kernel_nodes
from uopc.uop import Ops, UOp, toposort

if TYPE_CHECKING:
    from uopc.kernelize.plan import Kernel, PlanBuffer

AGAIN_COST = 64
"""Additions at most for each byte that is not stored: what vectors do in about the
time that memory takes for it, and some more, for the room that is saved."""
MAX_AGAIN = 8  # kernels that are repeated at once

InOneNest = Callable[[Sequence["Kernel"]], Collection[int] | None]
"""What a backend says of kernels: the buffers that would be in scratch if one loop nest
ran them, or None if none can."""


class Recomputed(NamedTuple):
    """Kernels that are repeated, and the terms by which that was decided.

    Attributes:
        kernels: their names.
        additions: the work of repeating them, in additions.
        nbytes: the bytes of the arrays that are not stored for it.
    """

    kernels: tuple[str, ...]
    additions: int
    nbytes: int

    def __str__(self) -> str:
        names = ", ".join(self.kernels)
        each = self.additions / self.nbytes
        return f"{names}: {each:.1f} additions for each of {self.nbytes} bytes"


class Arranged(NamedTuple):
    """Kernels in the order they run, marked; their buffers; what is repeated."""

    kernels: tuple[Kernel, ...]
    buffers: tuple[PlanBuffer, ...]
    recomputed: tuple[Recomputed, ...] = ()


def arrange(
    kernels: Sequence[Kernel],
    needs: Sequence[Sequence[int]],
    buffers: Sequence[PlanBuffer],
    in_one_nest: InOneNest | None,
) -> Arranged:
    """The kernels that share a loop nest next to each other: see `uopc.kernelize`.

    They are given in an order in which they may run, ``needs`` saying by position which
    others each one needs. Without a backend to ask, nothing is repeated.
    """
    links = {
        k.out: frozenset([kernels[i].out for i in n])
        for k, n in zip(kernels, needs, strict=True)
    }
    if in_one_nest is None or not any(map(_is_large, buffers)):
        joined = joining.join(kernels, needs, buffers)
        return Arranged(tuple(joined.kernels), tuple(buffers))
    best = _Tried.of(kernels, links, buffers, in_one_nest)
    done: list[Recomputed] = []
    refused: set[tuple[int, ...]] = set()
    while (again := best.again(refused)) is not None:
        refused.add(again.arrays)
        trial = _Tried.of(*best.repeated(again), in_one_nest)
        if trial.peak <= best.peak and trial.stored < best.stored:
            best = trial
            done.append(again.terms)
    return Arranged(tuple(best.kernels), tuple(best.buffers), tuple(done))


def sums_apart(stored: Collection[UOp]) -> set[UOp]:
    """Sums that have to be stored, too, before anything is done with them.

    They are contractions of a large array, and what follows reads something else that
    is made in the plan, such as another gradient of the same input. That may be
    complete only when all rows are, and would keep the sum out of their nest.
    """
    if all(_nbytes(u) < joining.FAR_BYTES for u in stored):
        return set()
    return {sum_ for u in stored for sum_ in _sum_apart(u, stored)}


def _sum_apart(root: UOp, stored: Collection[UOp]) -> set[UOp]:
    nodes = kernel_nodes(root, stored)
    sum_ = next((u for u in nodes if u.op is Ops.REDUCE), root)
    if sum_ is root or _nbytes(sum_) >= joining.FAR_BYTES:
        return set()
    below = kernel_nodes(sum_, stored)
    read = {s for u in below for s in u.src if s in stored or s.op is Ops.BUFFER}
    reach = max((math.prod(s.shape) for s in read), default=0)
    large = any(s in stored and _nbytes(s) >= joining.FAR_BYTES for s in read)
    if not large or math.prod(sum_.src[0].shape) <= reach:
        return set()
    inside = {*below, sum_}
    after = {s for u in nodes if u not in inside for s in u.src}
    return {sum_} if any(s in stored for s in after) else set()


def _nbytes(u: UOp) -> int:
    return math.prod(u.shape) * u.dtype.itemsize


class _Again(NamedTuple):
    """Arrays that later nests want, and the kernels that would make them again."""

    arrays: tuple[int, ...]
    readers: frozenset[int]  # the outputs of the kernels in these nests
    kernels: tuple[Kernel, ...]
    terms: Recomputed


@dataclass
class _Tried:
    """Kernels as they would run.

    Attributes:
        kernels: in this order, marked.
        needs: by output of a kernel, those of the others that it needs.
        buffers: those of the plan.
        peak: the most bytes of temporaries alive at once.
        stored: the bytes of all large ones that are in memory.
    """

    kernels: list[Kernel]
    needs: Mapping[int, frozenset[int]]
    buffers: Sequence[PlanBuffer]
    peak: int
    stored: int

    @staticmethod
    def of(
        kernels: Sequence[Kernel],
        needs: Mapping[int, frozenset[int]],
        buffers: Sequence[PlanBuffer],
        in_one_nest: InOneNest,
    ) -> _Tried:
        """Joined, with groups brought together where that is possible and saves."""
        at = {k.out: i for i, k in enumerate(kernels)}
        links = [sorted(at[o] for o in needs[k.out] if o in at) for k in kernels]

        def tried(refused: Collection[int] | None) -> tuple[_Tried, set[int]]:
            joined = joining.join(kernels, links, buffers, refused)
            first = {m for _, m in joined.merged}
            scratch, possible = _in_scratch(joined.kernels, buffers, in_one_nest, first)
            large = [k.out for k in kernels if _is_large(buffers[k.out])]
            stored = sum(buffers[o].nbytes for o in large if o not in scratch)
            peak = _peak(joined.kernels, buffers, scratch)
            found = _Tried(joined.kernels, needs, buffers, peak, stored)
            return found, {k for k, m in joined.merged if not possible[m]}

        refused: set[int] = set()
        found, bad = tried(refused)
        while bad:
            refused |= bad
            found, bad = tried(refused)
        plain, _ = tried(None)
        return found if found.peak <= plain.peak else plain

    def again(self, refused: Collection[tuple[int, ...]]) -> _Again | None:
        """What has not been refused and could be repeated, of one nest."""
        home: dict[int, int] = {}
        nest = -1
        for k in self.kernels:
            nest += not k.joined
            home[k.out] = nest
        wanted: dict[int, dict[int, set[int]]] = {}
        for k in self.kernels:
            for a in k.args:
                if (
                    _is_large(self.buffers[a])
                    and home.get(a, home[k.out]) != home[k.out]
                ):
                    wanted.setdefault(home[a], {}).setdefault(a, set()).add(k.out)
        for arrays in wanted.values():
            key = tuple(sorted(arrays))
            made = None if key in refused else self._made_of(key)
            if made is not None:
                nbytes = sum(self.buffers[a].nbytes for a in key)
                additions = sum(_additions(k.ast) for k in made)
                if additions <= AGAIN_COST * nbytes:
                    names = tuple([k.name for k in made])
                    readers = frozenset().union(*arrays.values())
                    return _Again(
                        key, readers, made, Recomputed(names, additions, nbytes)
                    )
        return None

    def _made_of(self, arrays: Sequence[int]) -> tuple[Kernel, ...] | None:
        """The kernels that make some large arrays of little ones, in their order."""
        makers = {k.out: k for k in self.kernels}
        over = {k.over for k in self.kernels}
        found: set[int] = set()
        stack = list(arrays)
        while stack:
            k = makers[stack.pop()]
            if k.out in found:
                continue
            if k.over is not None or not over.isdisjoint(k.args):
                return None  # what it reads may have been written over by then
            found.add(k.out)
            stack += [a for a in k.args if a in makers and _is_large(self.buffers[a])]
        if len(found) > MAX_AGAIN:
            return None
        return tuple([k for k in self.kernels if k.out in found])

    def repeated(
        self, again: _Again
    ) -> tuple[list[Kernel], dict[int, frozenset[int]], list[PlanBuffer]]:
        """The kernels with some repeated before those that read what these make.

        Without the first ones, where nothing reads these any more.
        """
        buffers, needs = list(self.buffers), dict(self.needs)
        new: dict[int, int] = {}
        clones: list[Kernel] = []
        for k in again.kernels:
            new[k.out] = len(buffers)
            buffers.append(buffers[k.out])
            clones.append(_reading(k, new, new[k.out]))
            needs[new[k.out]] = _renamed(needs[k.out], new)
        kernels: list[Kernel] = []
        for k in self.kernels:
            if k.out in again.readers:
                kernels += clones
                clones = []
                k = _reading(k, {a: new[a] for a in again.arrays}, k.out)
                needs[k.out] = _renamed(needs[k.out], new) | needs[k.out] - {*new}
            kernels.append(k)
        return self._needed(kernels, again), needs, buffers

    def _needed(self, kernels: Sequence[Kernel], again: _Again) -> list[Kernel]:
        """The kernels without the ones of which nothing is read any more."""
        found: list[Kernel] = []
        read: set[int] = set()
        first = {k.out for k in again.kernels}
        for k in reversed(kernels):
            if k.out not in first or k.out in read:
                found.append(k)
                read.update(k.args)
        return found[::-1]


def _is_large(b: PlanBuffer) -> bool:
    return b.role == "temporary" and b.nbytes >= joining.FAR_BYTES


def _reading(k: Kernel, new: Mapping[int, int], out: int) -> Kernel:
    args = tuple([new.get(a, a) for a in k.args])
    return replace(k, args=args, out=out)


def _renamed(outs: Collection[int], new: Mapping[int, int]) -> frozenset[int]:
    return frozenset([new.get(o, o) for o in outs])


def _additions(ast: UOp) -> int:
    """The work of a kernel."""
    total = 0
    for u in toposort([ast]):
        if u.op.kind == "reduce":
            total += math.prod(u.src[0].shape)
        elif u.op.kind == "elementwise":
            total += u.op.cost * math.prod(u.shape)
    return total


def _in_scratch(
    kernels: Sequence[Kernel],
    buffers: Sequence[PlanBuffer],
    in_one_nest: InOneNest,
    asked: AbstractSet[int],
) -> tuple[set[int], dict[int, bool]]:
    """Which large arrays are in scratch; by kernel, whether its nest is possible.

    It is taken to be where nothing depends on that: no large array is passed on there,
    and none of its kernels is ``asked`` about.
    """
    nests: list[list[Kernel]] = []
    for k in kernels:
        if k.joined:
            nests[-1].append(k)
        else:
            nests.append([k])
    scratch: set[int] = set()
    possible: dict[int, bool] = {}
    for nest in nests:
        outs = [k.out for k in nest]
        large = {k.out for k in nest if k.passing and _is_large(buffers[k.out])}
        alone = len(nest) == 1 or not (large or not asked.isdisjoint(outs))
        found = () if alone else in_one_nest(nest)
        scratch |= large.intersection(found or ())
        possible |= dict.fromkeys(outs, found is not None)
    return scratch, possible


def _peak(
    kernels: Sequence[Kernel], buffers: Sequence[PlanBuffer], scratch: Collection[int]
) -> int:
    """The most bytes of temporaries alive at once; those of a nest all are."""
    change: dict[int, int] = {}
    last: dict[int, int] = {}
    steps = []
    step = -1
    for k in kernels:
        step += not k.joined
        steps.append(step)
        last |= dict.fromkeys((k.out, *k.args), step)
    for k, begin in zip(kernels, steps, strict=True):
        b = buffers[k.out]
        if b.role == "temporary" and k.out not in scratch:
            change[begin] = change.get(begin, 0) + b.nbytes
            end = last[k.out] + 1
            change[end] = change.get(end, 0) - b.nbytes
    alive = most = 0
    for at in sorted(change):
        alive += change[at]
        most = max(most, alive)
    return most

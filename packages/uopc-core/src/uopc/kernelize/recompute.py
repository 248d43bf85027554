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

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
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
    asked: dict[tuple[Kernel, ...], Collection[int] | None] = {}

    def remembered(nest: Sequence[Kernel]) -> Collection[int] | None:
        key = tuple(nest)
        if key not in asked:
            asked[key] = in_one_nest(nest)
        return asked[key]

    best = _Tried.of(_Program(tuple(kernels), links, tuple(buffers)), remembered)
    done: list[Recomputed] = []
    refused: set[tuple[int, ...]] = set()
    # All at once, for the many layers that a model may have. Then without those of
    # which something would be in memory all the same.
    while some := best.again(refused):
        program, made = best.program, []
        for again in some:
            program, clones = program.repeated(again)
            made.append(clones)
        trial = _Tried.of(program, remembered)
        useless = {
            again.arrays
            for again, clones in zip(some, made, strict=True)
            if not (clones and trial.stored.isdisjoint((*again.arrays, *clones)))
        }
        refused |= useless or {again.arrays for again in some}
        if not useless and trial.peak <= best.peak:
            best = trial
            done += [again.terms for again in some]
    kernels, _, buffers = best.program
    return Arranged(tuple(kernels), tuple(buffers), tuple(done))


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
    kernels: tuple[int, ...]  # their outputs
    terms: Recomputed


class _Program(NamedTuple):
    """Kernels in an order in which they may run; what they need by their outputs."""

    kernels: Sequence[Kernel]
    needs: Mapping[int, frozenset[int]]
    buffers: Sequence[PlanBuffer]

    def repeated(self, again: _Again) -> tuple[_Program, set[int]]:
        """The kernels with some repeated before those that read what these make.

        Without the first ones, where nothing reads these any more. And the outputs of
        the new ones; none if something is not there any more.
        """
        makers = {k.out: k for k in self.kernels}
        if not makers.keys() >= {*again.kernels, *again.readers}:
            return self, set()
        buffers, needs = list(self.buffers), dict(self.needs)
        new: dict[int, int] = {}
        clones: list[Kernel] = []
        for out in again.kernels:
            new[out] = len(buffers)
            buffers.append(buffers[out])
            clones.append(_reading(makers[out], new, new[out]))
            needs[new[out]] = _renamed(needs[out], new)
        arrays = {a: new[a] for a in again.arrays}
        kernels: list[Kernel] = []
        for k in self.kernels:
            if k.out in again.readers:
                kernels += clones
                clones = []
                k = _reading(k, arrays, k.out)
                needs[k.out] = _renamed(needs[k.out], new)
            kernels.append(k)
        return _Program(_read(kernels, again.kernels), needs, buffers), {*new.values()}


def _read(kernels: Sequence[Kernel], some: Sequence[int]) -> list[Kernel]:
    """The kernels without those of ``some`` outputs that nothing reads any more."""
    found: list[Kernel] = []
    read: set[int] = set()
    for k in reversed(kernels):
        if k.out not in some or k.out in read:
            found.append(k)
            read.update(k.args)
    return found[::-1]


class _Tried(NamedTuple):
    """Kernels as they would run.

    Attributes:
        program: with its kernels in that order, marked.
        peak: the most bytes of temporaries alive at once.
        stored: the large ones that are in memory.
    """

    program: _Program
    peak: int
    stored: frozenset[int]

    @staticmethod
    def of(program: _Program, in_one_nest: InOneNest) -> _Tried:
        """Joined, with groups brought together where that is possible and saves."""
        kernels, needs, buffers = program
        at = {k.out: i for i, k in enumerate(kernels)}
        links = [sorted(at[o] for o in needs[k.out] if o in at) for k in kernels]
        large = {k.out for k in kernels if _is_large(buffers[k.out])}

        def tried(refused: Collection[int] | None) -> tuple[_Tried, dict[int, bool]]:
            joined = joining.join(kernels, links, buffers, refused)
            first = {m for _, m in joined.merged}
            scratch, possible = _in_scratch(joined.kernels, buffers, in_one_nest, first)
            found = _Tried(
                program._replace(kernels=joined.kernels),
                _peak(joined.kernels, buffers, scratch),
                frozenset(large - scratch),
            )
            return found, {k: possible[m] for k, m in joined.merged}

        refused: set[int] = set()
        found, merged = tried(refused)
        while not all(merged.values()):
            refused |= {k for k, possible in merged.items() if not possible}
            found, merged = tried(refused)
        plain = tried(None)[0] if merged else found
        return found if found.peak <= plain.peak else plain

    def again(self, refused: Collection[tuple[int, ...]]) -> list[_Again]:
        """What could be repeated and has not been refused, nest by nest."""
        kernels, _, buffers = self.program
        numbers = joining.nest_numbers(kernels)
        home = {k.out: n for k, n in zip(kernels, numbers, strict=True)}
        wanted: dict[int, dict[int, set[int]]] = {}
        for k in kernels:
            for a in self.stored.intersection(k.args):
                if home[a] != home[k.out]:
                    wanted.setdefault(home[a], {}).setdefault(a, set()).add(k.out)
        found: list[_Again] = []
        makers = {k.out: k for k in kernels}
        over = {k.over for k in kernels if k.over is not None}
        for arrays in wanted.values():
            key = tuple(sorted(arrays))
            made = () if key in refused else _made_of(key, makers, over, buffers)
            if made:
                terms = Recomputed(
                    tuple([makers[o].name for o in made]),
                    sum(_additions(makers[o].ast) for o in made),
                    sum(buffers[a].nbytes for a in key),
                )
                if terms.additions <= AGAIN_COST * terms.nbytes:
                    readers = frozenset().union(*arrays.values())
                    found.append(_Again(key, readers, made, terms))
        return found


def _made_of(
    arrays: Sequence[int],
    makers: Mapping[int, Kernel],
    over: AbstractSet[int],
    buffers: Sequence[PlanBuffer],
) -> tuple[int, ...]:
    """The outputs of kernels that make large arrays of little ones, in their order.

    ``makers`` are all kernels by output, in order. None if they are too many, or may
    find something written ``over`` that they read.
    """
    found: set[int] = set()
    stack = list(arrays)
    while stack:
        k = makers[stack.pop()]
        if k.out in found:
            continue
        if len(found) == MAX_AGAIN or k.over is not None or not over.isdisjoint(k.args):
            return ()
        found.add(k.out)
        stack += [a for a in k.args if a in makers and _is_large(buffers[a])]
    return tuple([out for out in makers if out in found])


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
    numbers = iter(joining.nest_numbers(kernels))
    nests = [list(g) for _, g in itertools.groupby(kernels, lambda k: next(numbers))]
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
    steps = joining.nest_numbers(kernels)
    for k, step in zip(kernels, steps, strict=True):
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

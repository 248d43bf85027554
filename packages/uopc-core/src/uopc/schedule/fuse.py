"""Several loop nests as one, where none reads what another has yet to write."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from uopc.schedule.contraction_pattern import find_contraction
from uopc.schedule.nest import (
    is_local,
    is_loop,
    loops_of,
    nested,
    places_of,
    rewritten,
    stores,
)
from uopc.simplify import Bounds
from uopc.simplify.linear import decompose, span
from uopc.uop import Ops, UOp, substitute, toposort

Body = Sequence[UOp]


def fuse(sink: UOp, most: int | None = None) -> UOp | None:
    """The nests of a program under the outer loops, ``most`` of them, that all share.

    What one nest stores and a later one reads there is passed on as a value. None where
    there is but one nest, or where there are no common loops such that what is written
    in a round is touched by no other.
    """
    if len(sink.src) < 2:
        return None
    apart = [_numbered_apart(s, i, len(sink.src)) for i, s in enumerate(sink.src)]
    fused = _fused([[s] for s in apart], (), most)
    return None if fused is None else UOp(Ops.SINK, tuple(fused), sink.arg)


def _fused(
    bodies: Sequence[Body], outside: Sequence[UOp], most: int | None = None
) -> list[UOp] | None:
    """Statements of several nests under common loops, as many as can be.

    Under these, neighbours that have more loops in common share them as well, but for
    contractions, which need their loops for themselves.
    """
    if any(len(body) != 1 or not is_loop(body[0]) for body in bodies):
        return None
    nests = [loops_of(body[0]) for body in bodies]
    first = nests[0][0]
    depth = min(len(loops) for loops, _ in nests)
    depth = depth if most is None else min(depth, most)
    while depth and any(not _alike(loops[:depth], first) for loops, _ in nests):
        depth -= 1
    for n in range(depth, 0, -1):
        common, inner = first[:n], []
        for loops, body in nests:
            same = dict(zip(loops[:n], common, strict=True))
            inner.append(substitute(nested(loops[n:], body), same))
        around = (*outside, *common)
        if _in_step(inner, around):
            alone = [contracts(body) for body in bodies]
            return nested(common, _passed_on(_neighbours(inner, alone, around)))
    return None


def _neighbours(
    bodies: Sequence[Body], alone: Sequence[bool], outside: Sequence[UOp]
) -> list[Body]:
    """Runs of nests that have more loops in common, each as one; some stay alone."""
    found: list[Body] = []
    run: list[Body] = []
    joint: Body = ()
    before = True
    for body, single in zip(bodies, alone, strict=True):
        longer = None if single or before else _fused([*run, body], outside)
        if longer is None:
            found += [joint] if run else []
            run, joint = [body], body
        else:
            run, joint = [*run, body], longer
        before = single
    return [*found, joint]


def without_stores(sink: UOp, slots: Collection[int]) -> UOp:
    """The program without its stores to some buffers, but to those that it reads."""
    read = {u.src[0] for u in toposort([sink]) if u.op is Ops.INDEX}

    def unread(s: UOp) -> bool:
        if s.op is not Ops.STORE or is_local(s.src[0]):
            return False
        return s.src[0].arg.slot in slots and s.src[0] not in read

    def change(u: UOp) -> Sequence[UOp] | None:
        body = [s for s in u.src[1:] if not unread(s)]
        return [UOp(Ops.END, (u.src[0], *body))] if body else []

    return rewritten(sink, change)


def contracts(body: Body) -> bool:
    """Whether statements are a contraction."""
    return find_contraction(UOp(Ops.SINK, tuple(body), "part")) is not None


def _alike(loops: Sequence[UOp], others: Sequence[UOp]) -> bool:
    """Whether loops run over the same, whatever their numbers."""
    pairs = zip(loops, others, strict=False)
    return all(a.arg[1:] == b.arg[1:] for a, b in pairs)


def _numbered_apart(nest: UOp, i: int, n: int) -> UOp:
    """A nest with loops and accumulators that no other of ``n`` nests has."""
    changes: dict[UOp, UOp] = {}
    for u in toposort([nest]):
        if u.op is Ops.RANGE:
            number, *rest = u.arg
            changes[u] = UOp(Ops.RANGE, (), (number * n + i, *rest))
        elif is_local(u):
            slot = u.arg.slot * n + i
            changes[u] = UOp.buffer(u.arg.size, u.dtype, slot, space="local")
    return substitute([nest], changes)[0]


def _in_step(bodies: Sequence[Sequence[UOp]], common: Sequence[UOp]) -> bool:
    """Whether no round touches an element that another round of ``common`` writes.

    So it is if all accesses to a buffer that is written, and touched by several nests,
    stay in a stretch of it that each round has to itself.
    """
    written = {s.src[0] for body in bodies for s in stores(body)}
    each = [places_of(body) for body in bodies]
    for b in written:
        touched = [places[b] for places in each if b in places]
        if len(touched) > 1 and stretch(set().union(*touched), common) is None:
            return False
    return True


@dataclass(frozen=True)
class Stretch:
    """Where the rounds of some loops are in a buffer: each has ``size`` elements.

    They begin at ``low`` plus the loops' variables times their ``strides``.
    """

    strides: tuple[int, ...]
    low: int
    size: int


def stretch(addresses: Collection[UOp], common: Sequence[UOp]) -> Stretch | None:
    """What each round of ``common`` touches, if no two touch the same elements.

    They do not, if each step of a variable is longer than what all that is smaller can
    add up to.
    """
    bounds = Bounds()
    strides: set[tuple[int, ...]] = set()
    lows, highs = [], []
    for at in addresses:
        terms, constant = decompose(at, bounds)
        strides.add(tuple(terms.pop(r, 0) for r in common))
        if any(r in toposort(terms) for r in common):
            return None
        low, high = span((terms, constant), bounds)
        lows.append(low)
        highs.append(high)
    if len(strides) != 1:
        return None
    (one,) = strides
    reach = max(highs) - min(lows)
    size = reach + 1
    pairs = zip(one, common, strict=True)
    for step, r in sorted(pairs, key=lambda pair: abs(pair[0])):
        if abs(step) <= reach:
            return None
        reach += abs(step) * (r.arg.extent - 1)
    return Stretch(one, min(lows), size)


def _passed_on(bodies: Sequence[Sequence[UOp]]) -> list[UOp]:
    """All statements in turn, reading values where they are known.

    A value is no longer known once something that it reads has been written over. Into
    loops nothing is passed on but what was stored before: that is not computed again.
    """
    known: dict[UOp, UOp] = {}
    found: list[UOp] = []
    for statement in (s for body in bodies for s in body):
        passed = known if statement.op is Ops.STORE else _stored(known)
        (s,) = substitute([statement], passed)
        found.append(s)
        changed = {w.src[0] for w in stores([s])}
        known = {
            at: value
            for at, value in known.items()
            if changed.isdisjoint((at.src[0], *toposort([value])))
        }
        if s.op is Ops.STORE and not is_local(s.src[0]):
            target, index, value = s.src
            if target not in toposort([value]):
                known[UOp(Ops.INDEX, (target, index))] = value
    return found


def _stored(known: Mapping[UOp, UOp]) -> dict[UOp, UOp]:
    """Of the values those that are elements of the program's own buffers."""
    return {
        at: value
        for at, value in known.items()
        if value.op is Ops.INDEX and is_local(value.src[0])
    }

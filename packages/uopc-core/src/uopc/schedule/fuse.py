"""Several loop nests as one, where none reads what another has yet to write."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from uopc.schedule.nest import is_local, loops_of, nested, rewritten, stores
from uopc.simplify import Bounds
from uopc.simplify.linear import decompose
from uopc.uop import Ops, UOp, substitute, toposort


def fuse(sink: UOp) -> UOp | None:
    """The nests of a program under the outer loops that they have in common.

    What one nest stores and a later one reads there is passed on as a value. None where
    there is but one nest, where they have no loop in common, or where some element that
    is written is touched by different rounds of the common loops.
    """
    if len(sink.src) < 2:
        return None
    apart = [_numbered_apart(s, i, len(sink.src)) for i, s in enumerate(sink.src)]
    nests = [loops_of(s) for s in apart]
    first = nests[0][0]
    depth = min(len(loops) for loops, _ in nests)
    while depth and any(not _alike(loops[:depth], first) for loops, _ in nests):
        depth -= 1
    common, bodies = first[:depth], []
    for loops, body in nests:
        same = dict(zip(loops[:depth], common, strict=True))
        bodies.append(substitute(nested(loops[depth:], body), same))
    if not common or not _in_step(bodies, common):
        return None
    return UOp(Ops.SINK, tuple(nested(common, _passed_on(bodies))), sink.arg)


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
    are at one address, which is another one in every round.
    """
    written: set[UOp] = set()
    places: dict[UOp, set[UOp]] = {}
    nests: dict[UOp, set[int]] = {}
    for i, body in enumerate(bodies):
        written.update(s.src[0] for s in stores(body) if not is_local(s.src[0]))
        for u in toposort(body):
            if u.op in (Ops.INDEX, Ops.STORE):
                places.setdefault(u.src[0], set()).add(u.src[1])
                nests.setdefault(u.src[0], set()).add(i)
    shared = [places[b] for b in written if len(nests[b]) > 1]
    return all(len(at) == 1 and _one_to_one(at.pop(), common) for at in shared)


def _one_to_one(address: UOp, common: Sequence[UOp]) -> bool:
    """Whether an address is a sum of loop variables that never has one value twice.

    It is, if each step of a variable is longer than what the smaller ones can add.
    """
    terms, _ = decompose(address, Bounds())
    if set(terms) != set(common):
        return False
    reach = 0
    for r, stride in sorted(terms.items(), key=lambda term: abs(term[1])):
        if abs(stride) <= reach:
            return False
        reach += abs(stride) * (r.arg.extent - 1)
    return True


def _passed_on(bodies: Sequence[Sequence[UOp]]) -> list[UOp]:
    """All statements in turn, reading values where they are known.

    A value is no longer known once something that it reads has been written over.
    """
    known: dict[UOp, UOp] = {}
    found: list[UOp] = []
    for statement in (s for body in bodies for s in body):
        (s,) = substitute([statement], known)
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

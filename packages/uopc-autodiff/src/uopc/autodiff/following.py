"""A guard through a rule that is somebody else's.

Of the rules of movement and selection the engine knows what they do to a guard. Of
others it is read off their result: a graph over placeholders, linear in the cotangent
as far as ops that are linear reach from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from uopc.autodiff.carrying import copied, parsed
from uopc.autodiff.cotangent import (
    Cotangent,
    Guard,
    added,
    both,
    chosen,
    is_constant,
    is_zero,
    opposite,
)
from uopc.autodiff.liveness import Live
from uopc.composite import full
from uopc.dtype import boolean
from uopc.uop import BUILTIN_OPS, Ops, UOp, toposort

Given = Sequence[Cotangent | None]


def followed(part: UOp, given: UOp, c: Cotangent) -> Cotangent:
    """What a rule returned, ``part``, as the cotangent that it makes of ``c``.

    ``given`` stands for ``c`` in it. Where an op that is not linear gets something
    from it, that is masked, and everything is live from there on.
    """
    carried = {given: c}
    for u in toposort([part], lambda n: () if n is given else n.src):
        if u is not given and not carried.keys().isdisjoint(u.src):
            carried[u] = _step(u, [carried.get(s) for s in u.src])
    return carried.get(part, Cotangent(part))


def _step(u: UOp, given: Given) -> Cotangent:
    """One op on the way; None for the sources that do not depend on the cotangent."""
    where = [i for i, c in enumerate(given) if c is not None]
    if u.dtype.is_float:
        known = _linear(u, given, where)
        if known is not None:
            return known
    return Cotangent(_over(u, [c and c.masked() for c in given]))


def _linear(u: UOp, given: Given, where: Sequence[int]) -> Cotangent | None:
    """The op over what is not masked, if it is linear in that."""
    c = given[where[0]]
    assert c is not None
    if u.op is Ops.WHERE:
        return _where(u, given)
    if u.op is Ops.ADD and len(where) == 2:
        return added([x for x in given if x is not None])
    if u.op.kind == "movement" or u.op in (Ops.STACK, Ops.INDEX):
        return _moved(u, given)
    if u.op is Ops.REDUCE and u.arg[0] is Ops.ADD and 0 not in u.src[0].shape:
        live = c.guard and Guard(partial(_copies, u), c.guard)
        return Cotangent(_over(u, [c.masked()]), live)
    if u.op is Ops.CAST:
        return Cotangent(_over(u, [c.value]), c.guard, c.clean)
    if (u.op is Ops.MUL and len(where) == 1) or (u.op is Ops.DIV and where == [0]):
        by = u.src[1 - where[0]]
        clean = c.clean and is_constant(by) and (u.op is Ops.MUL or not is_zero(by))
        return Cotangent(_over(u, [x and x.value for x in given]), c.guard, clean)
    return None


def _over(u: UOp, values: Sequence[UOp | None]) -> UOp:
    """The op of ``u`` over other sources; its own where there is None."""
    pairs = zip(u.src, values, strict=False)
    return u.with_src(tuple([s if v is None else v for s, v in pairs]))


def _where(u: UOp, given: Given) -> Cotangent | None:
    """A choice between what depends on the cotangent and zeros, or more of it."""
    cond, *branches = u.src
    decides, a, b = given
    if decides is not None:
        return None
    if a is not None and b is not None:
        guard = chosen(cond, a.guard, b.guard)
        value = _over(u, [None, a.value, b.value])
        return Cotangent(value, guard, a.clean and b.clean)
    c, other = (a, branches[1]) if b is None else (b, branches[0])
    if c is None or not is_zero(other):
        return None
    taken = Guard.of(cond) if b is None else opposite(cond)
    value = _over(u, [None, *(x and x.value for x in (a, b))])
    return Cotangent(value, both(taken, c.guard), c.clean)


def _moved(u: UOp, given: Given) -> Cotangent | None:
    """Copies of elements, where the cotangent does not decide which."""
    pairs = list(zip(u.src, given, strict=True))
    if any(c is not None and not s.dtype.is_float for s, c in pairs):
        return None
    guard = guard_of_copies(u, given)
    if guard is not None and u.op not in BUILTIN_OPS:
        try:
            u.with_src(tuple([full(s.shape, True, boolean) for s in u.src]))
        except (TypeError, ValueError):
            return None  # it does not move bools
    clean = all(c.clean for c in given if c is not None)
    return Cotangent(_over(u, [c and c.value for c in given]), guard, clean)


def guard_of_copies(u: UOp, given: Given) -> Guard | None:
    """Copies of live elements are live; those of zeros are not.

    ``given`` has None for a source that is what it is: dead if it is zeros.
    """
    parts = [(s, c) for s, c in zip(u.src, given, strict=True) if s.dtype.is_float]
    # What is read out of range is zero.
    reads = u.op is Ops.INDEX and any(i.op is not Ops.CONST for i in u.src[1:])
    if not reads and all(c is not None and c.guard is None for _, c in parts):
        return None
    live = [
        (c and c.guard)
        or Guard.of(full(s.shape, c is not None or not is_zero(s), boolean))
        for s, c in parts
    ]

    return Guard(partial(_copies, u), *live)


def _copies(u: UOp, *sets: Live) -> Live:
    """The live elements of ``u`` from those of its sources of floats."""
    if len(sets) == 1 and u.src[0].dtype.is_float:
        known = copied(u, sets[0])
        if known is not None:
            return known
    each = (s.node() for s in sets)
    nodes = [next(each) if s.dtype.is_float else None for s in u.src]
    return parsed(_over(u, nodes))

"""What a condition tells about integers where it holds."""

from __future__ import annotations

import weakref

from uopc.simplify.bounds import Bounds, Facts
from uopc.simplify.linear import decompose, span
from uopc.uop import Ops, UOp

MAX_CONDITION = 200  # nodes of a condition that is looked into


def facts(cond: UOp, bounds: Bounds) -> tuple[Facts, Facts]:
    """Narrower intervals where ``cond`` is true, and where it is false."""
    if not positional(cond):
        return (), ()  # copies of branches on data do not shrink
    if cond.op is Ops.AND:
        yes: Facts = ()
        for part in conjuncts(cond):
            yes += facts(part, bounds.given(yes))[0]
        return yes, ()
    if cond.op is not Ops.CMPLT or not cond.src[0].dtype.is_int:
        return (), ()
    x, y = cond.src
    if y.op is Ops.CONST:
        limit = int(y.value)
        return _upto(x, limit - 1, bounds), _from(x, limit, bounds)
    if x.op is Ops.CONST:
        limit = int(x.value)
        return _from(y, limit + 1, bounds), _upto(y, limit, bounds)
    return (), ()


_positional: weakref.WeakKeyDictionary[UOp, bool] = weakref.WeakKeyDictionary()


def positional(cond: UOp) -> bool:
    """Whether a condition is a short one on loop variables, not on data."""
    known = _positional.get(cond)
    if known is None:
        known = _positional[cond] = _is_positional(cond)
    return known


def _is_positional(cond: UOp) -> bool:
    stack, seen = [cond], {cond}
    while stack:
        u = stack.pop()
        if u.op is Ops.INDEX or len(seen) > MAX_CONDITION:
            return False
        stack += [s for s in u.src if s not in seen]
        seen.update(u.src)
    return True


def conjuncts(cond: UOp) -> list[UOp]:
    """The conditions of which a positional ``cond`` says that all hold."""
    if cond.op is not Ops.AND:
        return [cond]
    return [c for s in cond.src for c in conjuncts(s)]


def implies(cond: UOp, other: UOp, bounds: Bounds) -> bool:
    """Whether ``other`` holds wherever ``cond`` does."""
    return bounds.given(facts(cond, bounds)[0])(other) == (1, 1)


def _upto(x: UOp, top: int, bounds: Bounds) -> Facts:
    return _narrowed(x, bounds(x)[0], min(top, bounds(x)[1]), bounds)


def _from(x: UOp, bottom: int, bounds: Bounds) -> Facts:
    return _narrowed(x, max(bottom, bounds(x)[0]), bounds(x)[1], bounds)


def _narrowed(x: UOp, low: int, high: int, bounds: Bounds) -> Facts:
    """``x`` in [low, high], and what follows for the nodes that it is a sum of."""
    if low > high:
        return ()  # never so
    known: Facts = ((x, (low, high)),)
    terms, constant = decompose(x, bounds)
    for atom, k in terms.items() if x not in terms else ():
        others = {t: j for t, j in terms.items() if t is not atom}
        least, most = span((others, constant), bounds)
        ends = (low - most, high - least) if k > 0 else (least - high, most - low)
        inside = (
            max(bounds(atom)[0], -(-ends[0] // abs(k))),
            min(bounds(atom)[1], ends[1] // abs(k)),
        )
        if inside[0] > inside[1]:
            return ()
        if inside != bounds(atom):
            known += ((atom, inside),)
    return known

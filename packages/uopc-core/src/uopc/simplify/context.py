"""What a condition tells about integers in the branches it guards."""

from __future__ import annotations

from uopc.simplify.bounds import Bounds, Interval
from uopc.simplify.linear import decompose
from uopc.uop import Ops, UOp, toposort

Facts = tuple[tuple[UOp, Interval], ...]


def facts(cond: UOp, bounds: Bounds) -> tuple[Facts, Facts]:
    """Narrower intervals where ``cond`` is true, and where it is false."""
    if cond.op is not Ops.CMPLT or not cond.src[0].dtype.is_int:
        return (), ()
    if any(u.op is Ops.INDEX for u in toposort([cond])):
        return (), ()  # only positions: copies of branches on data do not shrink
    x, y = cond.src
    if y.op is Ops.CONST:
        limit = int(y.value)
        return _upto(x, limit - 1, bounds), _from(x, limit, bounds)
    if x.op is Ops.CONST:
        limit = int(x.value)
        return _from(y, limit + 1, bounds), _upto(y, limit, bounds)
    return (), ()


def _upto(x: UOp, top: int, bounds: Bounds) -> Facts:
    return _narrowed(x, bounds(x)[0], min(top, bounds(x)[1]), bounds)


def _from(x: UOp, bottom: int, bounds: Bounds) -> Facts:
    return _narrowed(x, max(bottom, bounds(x)[0]), bounds(x)[1], bounds)


def _narrowed(x: UOp, low: int, high: int, bounds: Bounds) -> Facts:
    """``x`` in [low, high], and what follows for the variable inside it."""
    if low > high:
        return ()  # the branch is never taken
    known: Facts = ((x, (low, high)),)
    terms, constant = decompose(x, bounds)
    if len(terms) == 1 and x not in terms:
        ((atom, k),) = terms.items()
        if k > 0:
            least, most = bounds(atom)
            inside = (
                max(least, -((constant - low) // k)),
                min(most, (high - constant) // k),
            )
            known += ((atom, inside),)
    return known

"""The rule of REDUCE, by what it reduces with."""

from __future__ import annotations

from uopc.autodiff.gradient import NoGradientRule
from uopc.autodiff.rules.elementwise import Cotangents, Rule
from uopc.uop import OpDef, Ops, UOp


def _spread(v: UOp, like: UOp, n: int) -> UOp:
    """``v`` repeated over the last ``n`` axes of ``like``."""
    return v.reshape(v.shape + (1,) * n).expand(like.shape)


def _reduce(u: UOp, g: UOp) -> Cotangents:
    op, n = u.arg
    x = u.src[0]
    spread = _spread(g, x, n)
    if op is Ops.ADD:
        return (spread,)
    if op is Ops.MAX:
        # Ties share the gradient evenly.
        mask = x.eq(_spread(u, x, n)).cast(x.dtype)
        count = _spread(mask.reduce(Ops.ADD, n), x, n)
        return (spread * mask * count.recip(),)
    raise NoGradientRule(f"no gradient rule for reduce with {op.name}")


RULES: dict[OpDef, Rule] = {Ops.REDUCE: _reduce}

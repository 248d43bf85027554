"""The rule of REDUCE, by what it reduces with."""

from __future__ import annotations

import math

from uopc.autodiff.rules.elementwise import Cotangents, Rule
from uopc.composite import broadcast_to, iota
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
        # Ties share the gradient evenly. A half type cannot count them.
        tie = x.eq(_spread(u, x, n))
        ones = tie.cast(x.dtype.wide)
        count = _spread(ones.reduce(Ops.ADD, n), x, n)
        return (spread * tie.cast(x.dtype) * count.recip().cast(x.dtype),)
    return (spread * _product_of_others(x, n),)


def _product_of_others(x: UOp, n: int) -> UOp:
    """For each element, the product of the rest of its group.

    Multiplied out, which is quadratic in the group, because dividing the whole
    product by the element fails at zeros.
    """
    lead = x.shape[: len(x.shape) - n]
    k = math.prod(x.shape[len(lead) :])
    square = (*lead, k, k)
    rows = broadcast_to(iota(k).reshape((k, 1)), square)
    own = rows.eq(broadcast_to(iota(k), square))
    group = broadcast_to(x.reshape((*lead, 1, k)), square)
    others = own.where(group.const_like(1), group)
    return others.reduce(Ops.MUL, 1).reshape(x.shape)


RULES: dict[OpDef, Rule] = {Ops.REDUCE: _reduce}

"""The rule of REDUCE, by what it reduces with."""

from __future__ import annotations

import math

from uopc.autodiff.rules.elementwise import Cotangents, Rule
from uopc.composite import product_of_others, spread, zeros_like
from uopc.uop import OpDef, Ops, UOp


def _reduce(u: UOp, g: UOp) -> Cotangents:
    op, n = u.arg
    x = u.src[0]
    wide = spread(g, x.shape)
    if op is Ops.ADD:
        return (wide,)
    if op is Ops.MAX:
        # Ties share the gradient evenly; a half type cannot count them. What is less
        # gets none, which a maximum of NaN says of no element.
        top = spread(u, x.shape)
        tie = x.eq(top)
        count = tie.cast(x.dtype.wide).reduce(Ops.ADD, n)
        share = wide * tie.cast(x.dtype) * spread(count.recip().cast(x.dtype), x.shape)
        return ((x < top).where(zeros_like(wide), share),)
    lead = x.shape[: len(x.shape) - n]
    group = x.reshape((*lead, math.prod(x.shape[len(lead) :])))
    return (wide * product_of_others(group).reshape(x.shape),)


RULES: dict[OpDef, Rule] = {Ops.REDUCE: _reduce}

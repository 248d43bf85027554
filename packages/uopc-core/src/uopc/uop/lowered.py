"""Ops written in other ops: the ``lower`` of rows that take more than an expression."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from uopc.dtype import f64, i64

if TYPE_CHECKING:
    from uopc.uop.node import UOp
    from uopc.uop.opdef import OpDef


def cos(u: UOp) -> UOp:
    """A shifted sine."""
    return (u.src[0] + u.src[0].const_like(math.pi / 2)).sin()


def tanh(u: UOp) -> UOp:
    """2 * sigmoid(2x) - 1; saturates without inf/inf at large |x|."""
    e = (u.src[0] * (-2 / math.log(2))).exp2()
    return (e + 1.0).recip() * 2.0 - 1.0


def sigmoid(u: UOp, exp: OpDef) -> UOp:
    """From exp(-|x|), which cannot overflow."""
    x = u.src[0]
    negative = x < 0.0
    e = type(u)(exp, (negative.where(x, -x),))
    return negative.where(e, x.const_like(1.0)) / (e + 1.0)


def log1p(u: UOp) -> UOp:
    """log(1 + x), times what the rounding of 1 + x did to x (W. Kahan's trick)."""
    x = u.src[0]
    near = x + 1.0
    log, kept = near.log2() * math.log(2), near + -1.0
    mended = kept.eq(0.0).where(x, log * (x / kept))
    return (x < 1.0).where(mended, log)


def power(u: UOp) -> UOp:
    """exp2(y * log2(|x|)) in f64, with the sign and the special values of C's pow."""
    x, y = (s.cast(f64) for s in u.src)
    size, reach = x.maximum(-x), y.maximum(-y)
    endless = reach.eq(math.inf)
    odd = (y % 2.0).eq(1.0)
    fraction = (y % 1.0).ne(0.0) & endless.logical_not()  # NaN as well
    one = y.eq(0.0) | x.eq(1.0) | (size.eq(1.0) & endless)
    result = one.where(x.const_like(1.0), (y * size.log2()).exp2())
    minus = (x < 0.0) | (x.recip() < 0.0)  # -0.0 too
    result = (minus & odd).where(-result, result)
    none = (x < 0.0) & (size < math.inf) & fraction
    return none.where(x.const_like(math.nan), result).cast(u.dtype)


def scatter_add(u: UOp, iota: OpDef, add: OpDef) -> UOp:
    """For every element, the sum over all positions of what is meant for it."""
    g, *idx = u.src
    at = idx[0].shape
    rank, extra = len(u.shape), len(g.shape) - len(at)
    axes = [*range(len(at), len(g.shape)), *range(len(at))]
    ones = (1,) * (rank - extra)
    every = u.shape + at
    terms = g.permute(axes).reshape((*ones, *u.shape[rank - extra :], *at))
    terms = terms.expand(every)
    for axis, (i, n) in enumerate(zip(idx, u.arg, strict=True)):
        # 64 bits hold every position whatever the index's own type.
        i = i.cast(i64).reshape((1,) * rank + at).expand(every)
        place = type(u)(iota, (), n).cast(i64)
        shape = [n if k == axis else 1 for k in range(len(every))]
        meant = i.eq(place.reshape(shape).expand(every))
        terms = meant.where(terms, terms.const_like(0))
    total = terms.reduce(add, len(at)) if at else terms
    return total + 0  # from 0 on: a single negative zero is none any more

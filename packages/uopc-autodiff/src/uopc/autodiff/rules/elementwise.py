"""Rules of the elementwise ops. ``u`` is the node, ``g`` its cotangent."""

from __future__ import annotations

import math
from collections.abc import Callable

from uopc.composite import sigmoid_slope, zeros_like
from uopc.uop import OpDef, Ops, UOp

Cotangents = tuple[UOp | None, ...]
Rule = Callable[[UOp, UOp], Cotangents]
LN2 = math.log(2)


def _mul(u: UOp, g: UOp) -> Cotangents:
    return g * u.src[1], g * u.src[0]


def _div(u: UOp, g: UOp) -> Cotangents:
    ga = g / u.src[1]
    return ga, -(ga * u)


def _pow(u: UOp, g: UOp) -> Cotangents:
    x, y = u.src
    zero = zeros_like(g)
    # x ** 0 is 1 everywhere, also at 0 and NaN, where the other factor is no number.
    # Elsewhere y itself is the zero: its own derivative there, 1 / x, must stay.
    still = y.eq(0.0) & ((x < 0.0) | (x > 0.0)).logical_not()
    gx = still.where(zero, g * (y * UOp(Ops.POW, (x, y - 1.0))))
    # What has reached 0 stays there, although the logarithm is infinite.
    flat = (u.eq(0.0) & (x < 0.0).logical_not()) | (x.eq(0.0) & y.eq(0.0))
    return gx, flat.where(zero, g * (u * UOp(Ops.LOG, (x,))))


def _max(u: UOp, g: UOp) -> Cotangents:
    # A tie splits evenly: any convex combination is a subgradient there.
    a, b = u.src
    half, zero = g * 0.5, zeros_like(g)
    return (
        (b < a).where(g, (a < b).where(zero, half)),
        (a < b).where(g, (b < a).where(zero, half)),
    )


def _floormod(u: UOp, g: UOp) -> Cotangents:
    # a % b = a - b * (a // b), and a // b is constant between its jumps.
    if not u.dtype.is_float:
        return None, None
    a, b = u.src
    return g, -(g * (a // b))


def _where(u: UOp, g: UOp) -> Cotangents:
    c, zero = u.src[0], zeros_like(g)
    return None, c.where(g, zero), c.where(zero, g)


def _cast(u: UOp, g: UOp) -> Cotangents:
    x = u.src[0]
    return (g.cast(x.dtype) if x.dtype.is_float and u.dtype.is_float else None,)


RULES: dict[OpDef, Rule] = {
    Ops.ADD: lambda u, g: (g, g),
    Ops.MUL: _mul,
    Ops.DIV: _div,
    Ops.POW: _pow,
    Ops.MAX: _max,
    Ops.RECIP: lambda u, g: (-(g * u * u),),
    Ops.EXP2: lambda u, g: (g * u * LN2,),
    Ops.LOG2: lambda u, g: (g * u.src[0].recip() * (1 / LN2),),
    Ops.SQRT: lambda u, g: (g * u.recip() * 0.5,),
    Ops.SIN: lambda u, g: (g * UOp(Ops.COS, u.src),),
    Ops.COS: lambda u, g: (-(g * UOp(Ops.SIN, u.src)),),
    Ops.EXP: lambda u, g: (g * u,),
    Ops.LOG: lambda u, g: (g / u.src[0],),
    Ops.LOG1P: lambda u, g: (g / (u.src[0] + 1.0),),
    Ops.TANH: lambda u, g: (g * (1.0 - u * u),),
    Ops.SIGMOID: lambda u, g: (g * sigmoid_slope(u.src[0]),),
    Ops.FLOORMOD: _floormod,
    Ops.CAST: _cast,
    Ops.WHERE: _where,
}

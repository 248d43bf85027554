"""The rule of CONV: its gradients are CONVs, in which the axes have other roles."""

from __future__ import annotations

from uopc.autodiff.rules.elementwise import Cotangents, Rule
from uopc.uop import ConvArg, OpDef, Ops, UOp


def _conv(u: UOp, g: UOp) -> Cotangents:
    x, w = u.src
    arg: ConvArg = u.arg
    further = range(3, len(x.shape))
    if arg.second:
        g = g.permute((2, 0, 1, *further))
    # The same equation, solved for the result: c * j == -b * t + a * u - e ...
    turned, minus_e = (tuple(-k for k in part) for part in (arg.b, arg.e))
    back = ConvArg(x.shape[3:], arg.c, turned, arg.a, minus_e, 0)
    # ... and for the input again: a * u == c * j + b * t + e.
    across = ConvArg(w.shape[3:], arg.a, arg.c, arg.b, arg.e, 1)
    x, by_input = x.permute((2, 1, 0, *further)), g.permute((1, 2, 0, *further))
    return (
        UOp(Ops.CONV, (g, w.permute((0, 2, 1, *further))), back),
        UOp(Ops.CONV, (x, by_input), across),
    )


RULES: dict[OpDef, Rule] = {Ops.CONV: _conv}

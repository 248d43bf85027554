"""Rules of the movement ops: each sends gradients back where values came from."""

from __future__ import annotations

from uopc.autodiff.products import distributed
from uopc.autodiff.rules.elementwise import Cotangents, Rule
from uopc.composite import pad, sum_to
from uopc.uop import OpDef, Ops, UOp


def _permute(u: UOp, g: UOp) -> Cotangents:
    inverse = [0] * len(u.arg)
    for i, p in enumerate(u.arg):
        inverse[p] = i
    return (g.permute(inverse),)


def _shrink(u: UOp, g: UOp) -> Cotangents:
    widths = [(b, n - e) for (b, e), n in zip(u.arg, u.src[0].shape, strict=True)]
    return (pad(g, widths),)


RULES: dict[OpDef, Rule] = {
    Ops.RESHAPE: lambda u, g: (g.reshape(u.src[0].shape),),
    Ops.EXPAND: lambda u, g: (distributed(sum_to(g, u.src[0].shape)),),
    Ops.PERMUTE: _permute,
    Ops.SHRINK: _shrink,
    Ops.FLIP: lambda u, g: (UOp(Ops.FLIP, (g,), u.arg),),
}

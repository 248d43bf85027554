"""Rules of STACK, INDEX and STAGE."""

from __future__ import annotations

from uopc.autodiff.gradient import NoGradientRule
from uopc.autodiff.rules.elementwise import Cotangents, Rule
from uopc.composite import pad
from uopc.uop import OpDef, Ops, UOp


def _index(u: UOp, g: UOp) -> Cotangents:
    x, idx = u.src[0], u.src[1:]
    if any(i.op is not Ops.CONST for i in idx):
        raise NoGradientRule(
            "gradient of a data-dependent INDEX (use a one-hot matmul)"
        )
    # Zeros around the slice; padding takes nodes in proportion to log n, where
    # a STACK of the slice and zeros would take n.
    around = [
        (int(i.value), n - 1 - int(i.value)) for i, n in zip(idx, x.shape, strict=False)
    ]
    whole = g.reshape((1,) * len(idx) + g.shape)
    gx = pad(whole, around + [(0, 0)] * len(g.shape))
    return (gx, *(None for _ in idx))


RULES: dict[OpDef, Rule] = {
    Ops.STACK: lambda u, g: tuple(g.index(i) for i in range(len(u.src))),
    Ops.INDEX: _index,
    Ops.STAGE: lambda u, g: (None,) if u.arg == "detach" else (g,),
}

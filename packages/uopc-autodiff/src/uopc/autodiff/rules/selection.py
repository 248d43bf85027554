"""Rules of STACK, INDEX and STAGE."""

from __future__ import annotations

from uopc.autodiff.gradient import NoGradientRule
from uopc.autodiff.rules.elementwise import Cotangents, Rule
from uopc.composite import zeros_like
from uopc.uop import OpDef, Ops, UOp


def _index(u: UOp, g: UOp) -> Cotangents:
    x, idx = u.src[0], u.src[1:]
    if any(i.op is not Ops.CONST for i in idx):
        raise NoGradientRule(
            "gradient of a data-dependent INDEX (use a one-hot matmul)"
        )
    lengths = x.shape[: len(idx)]
    for i, n in zip(reversed(idx), reversed(lengths), strict=True):
        zero = zeros_like(g)
        g = UOp.stack([g if k == i.value else zero for k in range(n)])
    return (g, *(None for _ in idx))


RULES: dict[OpDef, Rule] = {
    Ops.STACK: lambda u, g: tuple(g.index(i) for i in range(len(u.src))),
    Ops.INDEX: _index,
    Ops.STAGE: lambda u, g: (None,) if u.arg == "detach" else (g,),
}

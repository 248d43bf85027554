"""Rules of STACK, INDEX, SCATTER_ADD and STAGE.

INDEX and SCATTER_ADD are each other's: what is read out of range is 0 and gets no
gradient, what is added out of range has none.
"""

from __future__ import annotations

import itertools

from uopc.autodiff.errors import NoGradientRule
from uopc.autodiff.rules.elementwise import Cotangents, Rule
from uopc.composite import pad, scatter_add
from uopc.uop import OpDef, Ops, UOp


def _index(u: UOp, g: UOp) -> Cotangents:
    x, idx = u.src[0], u.src[1:]
    none = (None,) * len(idx)
    if any(i.op is not Ops.CONST for i in idx):
        return (scatter_add(g, idx, x.shape[: len(idx)]), *none)
    # Zeros around the slice; padding takes nodes in proportion to log n, where
    # a STACK of the slice and zeros would take n.
    around = [
        (int(i.value), n - 1 - int(i.value)) for i, n in zip(idx, x.shape, strict=False)
    ]
    whole = g.reshape((1,) * len(idx) + g.shape)
    gx = pad(whole, around + [(0, 0)] * len(g.shape))
    return (gx, *none)


def _scatter_add(u: UOp, g: UOp) -> Cotangents:
    idx = u.src[1:]
    return (g.index(*idx), *(None for _ in idx))


# The rules of STAGEs named custom_<n>, each of which belongs to a custom_vjp.
CUSTOM: dict[str, Rule] = {}
_numbers = itertools.count()


def custom_name(rule: Rule) -> str:
    """A new name for a STAGE with this gradient rule."""
    name = f"custom_{next(_numbers)}"
    CUSTOM[name] = rule
    return name


def _stage(u: UOp, g: UOp) -> Cotangents:
    none = (None,) * (len(u.src) - 1)
    if not u.arg.startswith("custom_"):
        return (None if u.arg == "detach" else g, *none)
    if u.arg not in CUSTOM:
        raise NoGradientRule(
            f"no gradient rule for stage {u.arg!r}: it belongs to a custom_vjp of "
            "another process"
        )
    return CUSTOM[u.arg](u, g)


RULES: dict[OpDef, Rule] = {
    Ops.STACK: lambda u, g: tuple(g.index(i) for i in range(len(u.src))),
    Ops.INDEX: _index,
    Ops.SCATTER_ADD: _scatter_add,
    Ops.STAGE: _stage,
}

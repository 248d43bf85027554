"""Forward rules of ops that copy elements: the op itself, on the tangents.

All other ops are differentiated forward through their gradient rules.
"""

from __future__ import annotations

from collections.abc import Callable

from uopc.composite import zeros_like
from uopc.uop import OpDef, Ops, UOp

Tangents = tuple[UOp | None, ...]
ForwardRule = Callable[[UOp, Tangents], UOp | None]


def on_tangents(u: UOp, tangents: Tangents) -> UOp:
    """The op of ``u`` over tangents, zeros for None; indices stay what they are."""
    pairs = zip(u.src, tangents, strict=True)
    src = (
        (zeros_like(s) if t is None else t) if s.dtype.is_float else s for s, t in pairs
    )
    return u.with_src(tuple(src))


COPYING = (
    Ops.RESHAPE,
    Ops.EXPAND,
    Ops.PERMUTE,
    Ops.SHRINK,
    Ops.FLIP,
    Ops.STACK,
    Ops.INDEX,
)


def _stage(u: UOp, tangents: Tangents) -> UOp | None:
    if u.arg == "detach":
        return None
    if u.arg.startswith("custom_"):
        return NotImplemented  # type: ignore[no-any-return]
    return tangents[0]


RULES: dict[OpDef, ForwardRule] = {
    **dict.fromkeys(COPYING, on_tangents),
    Ops.STAGE: _stage,
}

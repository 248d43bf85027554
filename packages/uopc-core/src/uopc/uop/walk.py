"""Graph walks. None of them recurses, so a graph may be of any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uopc.uop.node import UOp


def toposort(
    roots: Iterable[UOp], sources: Callable[[UOp], tuple[UOp, ...]] | None = None
) -> list[UOp]:
    """Every node the roots depend on: children first, left to right.

    ``sources`` replaces ``node.src``, to stop the walk early or to change its
    order. The order fixes the numbers in the text form.
    """
    seen: set[UOp] = set()
    order: list[UOp] = []
    for root in roots:
        # None marks that all sources of the node below it are done.
        stack: list[UOp | None] = [root]
        while stack:
            u = stack.pop()
            if u is None:
                order.append(stack.pop())  # type: ignore[arg-type]
            elif u not in seen:
                seen.add(u)
                src = u.src if sources is None else sources(u)
                if src:
                    stack += (u, None)
                    stack += src[::-1]
                else:
                    order.append(u)
    return order


def substitute(roots: Iterable[UOp], replace: Mapping[UOp, UOp]) -> list[UOp]:
    """The roots with some nodes replaced; what does not change is shared."""
    roots = list(roots)
    new: dict[UOp, UOp] = dict(replace)
    for u in toposort(roots, lambda n: () if n in replace else n.src):
        if u not in new:
            new[u] = u.with_src(tuple(new[s] for s in u.src))
    return [new[r] for r in roots]

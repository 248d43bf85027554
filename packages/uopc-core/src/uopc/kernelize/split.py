"""Cut kernels that are too large for the C compiler's taste.

A compiler's time grows faster than the length of a function, so a long chain
of operations is cut where the fewest values are alive.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from uopc.uop import UOp, toposort

MAX_OPS = 500


def kernel_nodes(root: UOp, stored: Collection[UOp]) -> list[UOp]:
    """The nodes that the kernel of ``root`` computes, children first."""
    walk = toposort([root], lambda u: u.src if u is root or u not in stored else ())
    return [u for u in walk if u is root or u not in stored]


def cuts(root: UOp, stored: Collection[UOp], limit: int = MAX_OPS) -> set[UOp]:
    """Nodes to store so that the kernel of ``root`` gets short enough."""
    nodes = [u for u in kernel_nodes(root, stored) if u.op.kind != "leaf"]
    if len(nodes) <= limit:
        return set()
    position = {u: i for i, u in enumerate(nodes)}
    last_use = _last_uses(nodes, position)
    found: set[UOp] = set()
    start = 0
    while len(nodes) - start > limit:
        cut = _narrowest(nodes, last_use, start + limit // 2, start + limit)
        found |= {u for u in nodes[:cut] if last_use[u] >= cut and position[u] >= start}
        start = cut
    return found


def _last_uses(nodes: Sequence[UOp], position: dict[UOp, int]) -> dict[UOp, int]:
    last: dict[UOp, int] = dict.fromkeys(nodes, -1)
    for i, u in enumerate(nodes):
        for s in u.src:
            if s in position:
                last[s] = i
    return last


def _narrowest(
    nodes: Sequence[UOp], last_use: dict[UOp, int], low: int, high: int
) -> int:
    """The cut in [low, high] that the fewest values cross."""
    change = [0] * (len(nodes) + 1)
    for i, u in enumerate(nodes):
        change[i + 1] += 1
        if last_use[u] + 1 < len(change):
            change[max(last_use[u], i) + 1] -= 1
    alive, best, narrowest = 0, high, len(nodes)
    for cut in range(high + 1):
        alive += change[cut]
        if cut >= low and alive <= narrowest:
            best, narrowest = cut, alive
    return best

"""Cut kernels that are too large for the C compiler's taste, or for ours.

A compiler's time grows faster than the length of a function, so a long chain
of operations is cut where the least data is alive. A long chain of views that turn
and regroup axes is cut before its index expressions get out of hand.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence

from uopc.kernelize.group import read
from uopc.uop import Ops, UOp, toposort

MAX_OPS = 500
# Of reshapes one after the other that regroup turned axes: each may add two divisions
# and two remainders to an index.
MAX_REGROUPED = 12


def kernel_nodes(root: UOp, stored: Collection[UOp]) -> list[UOp]:
    """The nodes that the kernel of ``root`` computes, children first."""
    walk = toposort([root], lambda u: read(u) if u is root or u not in stored else ())
    return [u for u in walk if u is root or u not in stored]


def cuts(root: UOp, stored: Collection[UOp], limit: int = MAX_OPS) -> set[UOp]:
    """Nodes to store so that the kernel of ``root`` gets short enough."""
    walk = kernel_nodes(root, stored)
    if tangled := _tangled(walk):
        return tangled
    nodes = [u for u in walk if u.op.kind not in ("leaf", "movement")]
    if len(nodes) <= limit:
        return set()
    last_use = _last_uses(nodes, walk)
    alive = _alive(nodes, last_use)
    found: set[UOp] = set()
    start = 0
    while len(nodes) - start > limit:
        # The narrowest place; of equal ones the last, for the fewest kernels.
        places = range(start + limit, start + limit // 2 - 1, -1)
        cut = min(places, key=alive.__getitem__)
        found |= {u for u in nodes[start:cut] if last_use[u] >= cut}
        start = cut
    return found


def _tangled(walk: Sequence[UOp]) -> set[UOp]:
    """Where indices have become long, on the way from the inputs."""
    depth: dict[UOp, int] = {}
    found: set[UOp] = set()
    # What is repeated without end is not to be written down.
    largest = max(math.prod(u.shape) for u in walk if u is walk[-1] or not u.src)
    for u in walk[:-1]:
        depth[u] = max((depth.get(s, 0) for s in u.src), default=0)
        if u.op is Ops.RESHAPE and u.src[0].op is Ops.PERMUTE:
            depth[u] += 1
            if depth[u] > MAX_REGROUPED and math.prod(u.shape) <= 4 * largest:
                found.add(u)
                depth[u] = 0
    return found


def _last_uses(nodes: Sequence[UOp], walk: Sequence[UOp]) -> dict[UOp, int]:
    """The position of each node's last reader; -1 for the root.

    A movement op computes nothing: who reads it reads what it moves.
    """
    moved: dict[UOp, UOp] = {}
    for u in walk:
        if u.op.kind == "movement":
            moved[u] = moved.get(u.src[0], u.src[0])
    last: dict[UOp, int] = dict.fromkeys(nodes, -1)
    for i, u in enumerate(nodes):
        for s in u.src:
            s = moved.get(s, s)
            if s in last:
                last[s] = i
    return last


def _alive(nodes: Sequence[UOp], last_use: dict[UOp, int]) -> list[int]:
    """How many elements cross each cut, a cut at i lying before node i."""
    change = [0] * (len(nodes) + 2)
    for i, u in enumerate(nodes):
        if last_use[u] > i:
            change[i + 1] += 1 + math.prod(u.shape)
            change[last_use[u] + 1] -= 1 + math.prod(u.shape)
    return list(itertools.accumulate(change))

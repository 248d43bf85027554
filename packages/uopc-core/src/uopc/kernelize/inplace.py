"""Which results are written over the input that they replace.

A write waits for the readers of the value that it replaces. Where that would be a
circle, or where a kernel reads elements that it has written already, the result gets
memory of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from uopc.kernelize.order import Links, turned
from uopc.uop import Ops, UOp, toposort

if TYPE_CHECKING:
    from uopc.kernelize.plan import Kernel, PlanBuffer

Pair = tuple[int, int]
"""An output, and the input whose memory it may take, as numbers of plan buffers."""


def written_over(
    kernels: Sequence[Kernel],
    buffers: Sequence[PlanBuffer],
    outputs: Iterable[int],
    pairs: Collection[Pair],
    needs: Links,
) -> tuple[dict[int, int], list[list[int]]]:
    """Of ``pairs`` those that can be kept, and what kernels then need.

    Kernels are numbered by position, and kernel ``i`` runs after ``needs[i]``. The
    result maps kernels to the input that they write over. Large ones go first: one of
    two that exclude each other is dropped.
    """
    found: dict[int, int] = {}
    after = [list(n) for n in needs]
    users = turned(needs)
    at = {k.out: i for i, k in enumerate(kernels)}
    kept = set(outputs)
    readers: dict[int, list[int]] = {old: [] for _, old in pairs}
    for i, k in enumerate(kernels):
        for a in readers.keys() & set(k.args):
            readers[a].append(i)
    for out, old in sorted(pairs, key=lambda pair: -buffers[pair[0]].nbytes):
        writer = at.get(out)
        if writer is None or writer in found or old in kept:
            continue
        if not _fits(kernels[writer], buffers, old):
            continue
        before = [i for i in readers[old] if i != writer]
        if before and not _reached(users, writer).isdisjoint(before):
            continue
        found[writer] = old
        kept.add(old)
        for i in before:
            after[writer].append(i)
            users[i].append(writer)
    return found, after


def _reached(users: Links, start: int) -> set[int]:
    """The kernels that cannot run before ``start``."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        for i in users[stack.pop()]:
            if i not in seen:
                seen.add(i)
                stack.append(i)
    return seen


def _fits(kernel: Kernel, buffers: Sequence[PlanBuffer], old: int) -> bool:
    """Whether a kernel reads no element of ``old`` but the one that it writes next."""
    given, out = buffers[old], buffers[kernel.out]
    if (given.size, given.dtype) != (out.size, out.dtype):
        return False
    if old not in kernel.args:
        return True
    return kernel.args.index(old) not in elsewhere(kernel.ast)


def elsewhere(ast: UOp) -> frozenset[int]:
    """The numbers of the buffers of which a kernel reads other elements than its own.

    Its own is the element at the place of the one that it computes. No other is read
    where elementwise ops and reshapes alone lie in between.
    """
    found: set[int] = set()
    moved: set[UOp] = set()
    for u in reversed(toposort([ast])):
        if u in moved and u.op is Ops.BUFFER:
            found.add(u.arg.slot)
        if u in moved or not _keeps_place(u):
            moved.update(u.src)
    return frozenset(found)


def _keeps_place(u: UOp) -> bool:
    """Whether element ``i`` is made of the elements ``i`` of the sources."""
    return u.op.kind == "elementwise" or u.op in (Ops.RESHAPE, Ops.STAGE)

"""Which steps a kernel gets."""

from __future__ import annotations

from uopc.schedule.steps import Blocked, Step
from uopc.uop import Ops, UOp, toposort

# Enough lanes for two 8-lane vector accumulators, and what one loop may hold.
WIDTHS = (64, 32, 16, 8)
MAX_WHOLE = 96


def choose_schedule(sink: UOp) -> tuple[Step, ...]:
    """The steps for one loop program; none where nothing is to be gained.

    A reduction under an output loop computes a block of neighbouring outputs
    at once, so that the compiler vectorises across outputs and no sum is
    reordered. The output loop is the one along which most reads are contiguous.
    """
    loop = _output_loop(sink)
    if loop is None:
        return ()
    number, extent, _ = loop.arg
    width = next((w for w in WIDTHS if extent % w == 0), 0)
    if extent <= MAX_WHOLE:
        width = extent
    return (Blocked(number, width),) if width > 1 else ()


def _output_loop(sink: UOp) -> UOp | None:
    """The innermost output loop, if its body reduces and only that."""
    if len(sink.src) != 1 or sink.src[0].op is not Ops.END:
        return None
    end = sink.src[0]
    while len(end.src) == 2 and end.src[1].op is Ops.END:
        end = end.src[1]
    loop, *body = end.src
    reduces = any(s.op is Ops.END for s in body)
    return loop if reduces and _depends(body, loop) else None


def _depends(body: list[UOp], loop: UOp) -> bool:
    """Whether some read inside the reduction moves with ``loop`` by one."""
    reads = [
        u for u in toposort(body) if u.op is Ops.INDEX and u.src[0].arg[4] == "global"
    ]
    return any(_stride_one(u.src[1], loop) for u in reads)


def _stride_one(index: UOp, loop: UOp) -> bool:
    """Whether ``index`` is ``loop`` itself plus something without it."""
    if index is loop:
        return True
    if index.op is not Ops.ADD:
        return False
    a, b = index.src
    with_a, with_b = loop in toposort([a]), loop in toposort([b])
    if with_a == with_b:
        return False
    return _stride_one(a if with_a else b, loop)

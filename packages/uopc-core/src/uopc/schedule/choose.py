"""Which steps a kernel gets."""

from __future__ import annotations

from uopc.schedule.steps import Blocked, Step
from uopc.uop import Ops, UOp, toposort

# Lanes along which reads are contiguous become vectors: several of eight. Other
# lanes only keep more than one sum in flight.
VECTOR_WIDTHS = (64, 32, 16, 8, 4)
STRIDED_WIDTHS = (8, 4)
MAX_WHOLE = 96  # a vector loop this short stays whole, whatever its length


def choose_schedule(sink: UOp) -> tuple[Step, ...]:
    """The steps for one loop program; none where nothing is to be gained.

    A reduction under an output loop computes a block of neighbouring outputs
    at once, so that the compiler vectorises across outputs and no sum is
    reordered.
    """
    found = _output_loop(sink)
    if found is None:
        return ()
    loop, body = found
    number, extent, _, _ = loop.arg
    vectors = any(_stride_one(u.src[1], loop) for u in _reads_in_reductions(body, loop))
    if vectors and extent <= MAX_WHOLE:
        width = extent
    else:
        widths = VECTOR_WIDTHS if vectors else STRIDED_WIDTHS
        width = next((w for w in widths if extent % w == 0), 0)
    return (Blocked(number, width),) if width > 1 else ()


def _output_loop(sink: UOp) -> tuple[UOp, list[UOp]] | None:
    """The innermost output loop and its body, if that reduces."""
    if len(sink.src) != 1 or sink.src[0].op is not Ops.END:
        return None
    end = sink.src[0]
    while len(end.src) == 2 and end.src[1].op is Ops.END:
        end = end.src[1]
    loop, *body = end.src
    return (loop, body) if any(s.op is Ops.END for s in body) else None


def _reads_in_reductions(body: list[UOp], loop: UOp) -> list[UOp]:
    """Reads of memory that move with ``loop`` and with a loop inside it."""
    reads = [
        u
        for u in toposort(body)
        if u.op is Ops.INDEX and u.src[0].arg.space == "global"
    ]
    inner = {u.src[0] for u in toposort(body) if u.op is Ops.END}
    return [u for u in reads if loop in (r := set(toposort([u]))) and r & inner]


def _stride_one(index: UOp, loop: UOp) -> bool:
    """Whether ``index`` is ``loop`` itself plus something without it."""
    while index is not loop:
        if index.op is not Ops.ADD:
            return False
        a, b = index.src
        with_a, with_b = loop in toposort([a]), loop in toposort([b])
        if with_a == with_b:
            return False
        index = a if with_a else b
    return True

"""Schedules of kernels that reduce nothing."""

from __future__ import annotations

from dataclasses import replace

from uopc.schedule.axes import Jam, Merge, Parallel, Reorder, Split, Vectorize
from uopc.schedule.model import Axis, Model, merged
from uopc.schedule.nest import is_local, loop
from uopc.schedule.step import Step
from uopc.simplify import Bounds, Simplifier
from uopc.simplify.linear import decompose
from uopc.uop import Ops, UOp, substitute

STRIP = 16  # rows of a transpose that are made at a time: a line of memory
JAMMED = 24  # operations an element; of more, so many copies would not be worth it


def elementwise(m: Model) -> list[Step]:
    """Loops merged, blocked for reads across rows, in parallel, and as vectors."""
    axes, pairs = merged(m.outputs)
    steps: list[Step] = [Merge(outer, inner) for outer, inner in pairs]
    if not axes:
        return steps
    axes, moved = moved_out(m.with_outputs(axes))
    steps += moved
    m = m.with_outputs(axes)
    vector = m.knobs.vector and can_vectorize(m, axes[-1], uneven=True)
    across = _read_across(m) if vector and m.knobs.blocked else None
    rounds = m.rounds()
    if rounds > 1 and independent(m):
        size = round_size(axes[0].extent, rounds, 64 if len(axes) == 1 else 1)
        first, inner = axes[0], m.numbers.new()
        if across == first:
            size = _whole_strips(size, first.extent, m.lanes)
        steps.append(Parallel(first.number, size, inner))
        axes[0] = replace(first, number=inner, extent=size)
        across = axes[0] if across == first else across
    if not vector:
        return steps
    if across is not None:
        return [*steps, *_blocked(m, axes, across)]
    written, wanted = _written(m), m.knobs.stream
    stream = written >= m.target.l3 // 2 if wanted is None else wanted and written > 0
    steps.append(Vectorize(axes[-1].number, m.lanes, m.numbers.new(), stream))
    return steps


def moved_out(m: Model) -> tuple[list[Axis], list[Step]]:
    """The output loops with the one outermost that somebody wants there."""
    axes, wanted = list(m.outputs), m.knobs.first
    steps: list[Step] = []
    # Not the innermost one, whose elements are to be neighbours.
    if wanted < len(axes) - 1 and independent(m):
        for i in range(wanted, 0, -1):
            steps.append(Reorder(axes[i - 1].number, axes[i].number))
            axes[i - 1 : i + 1] = axes[i], axes[i - 1]
    return axes, steps


def _written(m: Model) -> int:
    """Bytes that are written without having been read."""
    buffers = {m.accesses[i].src[0] for i in m.stored}
    if any(map(is_local, buffers)):
        return 0  # that is read again at once
    buffers -= {m.accesses[i].src[0] for i in m.read}
    return sum(b.arg.size * b.dtype.itemsize for b in buffers)


def round_size(extent: int, rounds: int, align: int) -> int:
    """How many iterations a parallel round gets: whole multiples, little left over.

    Nothing, if up to twice as many rounds divide evenly: what is left over is done by
    one thread while others wait, and its loops are compiled as well.
    """
    size = max(1, extent // rounds)
    if size >= align:
        size -= size % align
    for n in range(-(-extent // size), 2 * extent // size + 1):
        if extent % n == 0 and (size < align or extent // n % align == 0):
            return extent // n
    return size


def _whole_strips(size: int, extent: int, lanes: int) -> int:
    """The size of a round in whole strips, or in blocks if there are few rows."""
    strip = STRIP if extent >= 8 * STRIP else lanes
    return size if extent < 2 * strip else max(strip, size - size % strip)


def independent(m: Model) -> bool:
    """Whether each element is written, and read if at all, by one iteration only.

    So it is but where addresses are read from memory.
    """
    for i in m.stored:
        if any(x.strides[i] is None for x in m.outputs):
            return False
        at = m.accesses[i].src[1]
        if any(u.op is Ops.INDEX for u in at.toposort()):
            return False
    return True


def can_vectorize(m: Model, axis: Axis, uneven: bool = False) -> bool:
    """Whether the iterations of a loop can be lanes, and that is worth it.

    ``uneven``: also where reads go on by other steps, if they do so in all vectors
    alike, such as those of a window's one element for all that the window has.
    """
    if axis.extent < m.lanes or m.lanes < 2:
        return False
    if any(axis.strides[i] != 1 for i in m.stored):
        return False
    odd = [m.accesses[i] for i, s in enumerate(axis.strides) if s is None]
    return not odd or (uneven and all(_in_all_vectors(a, axis, m.lanes) for a in odd))


def _in_all_vectors(access: UOp, axis: Axis, lanes: int) -> bool:
    """Whether an access goes on in the same way within each vector along an axis."""
    at = access.src[1]
    loops = (u for u in at.toposort() if u.op is Ops.RANGE)
    r = next((u for u in loops if u.arg.number == axis.number), None)
    if r is None or any(u.op is Ops.INDEX for u in at.toposort()):
        return False
    vector = loop(r.arg.number, -(-r.arg.extent // lanes), r.dtype)
    lane = loop(-1, lanes, r.dtype)
    (placed,) = substitute([at], {r: vector * UOp.const(lanes, r.dtype) + lane})
    terms, _ = decompose(Simplifier()(placed), Bounds())
    return all(vector not in u.toposort() or u is vector for u in terms)


def _read_across(m: Model) -> Axis | None:
    """An outer loop along which something is contiguous that the innermost strides."""
    inner = m.outputs[-1]
    for i in m.read:
        stride = inner.strides[i]
        if stride is None or abs(stride) < m.lanes:
            continue
        for x in m.outputs[:-1]:
            if x.strides[i] == 1 and min(x.extent, inner.extent) >= m.lanes:
                return x
    return None


def _blocked(m: Model, axes: list[Axis], across: Axis) -> list[Step]:
    """Strips of rows, in square blocks of as many rows and columns as there are lanes.

    A backend can read such a block as vectors, along memory, and transpose it.
    """
    place = next(i for i, x in enumerate(axes) if x.number == across.number)
    strip, row, lane = m.numbers.new(), m.numbers.new(), m.numbers.new()
    last, lanes = axes[-1].number, m.lanes
    steps: list[Step] = [Split(across.number, STRIP, strip), Split(strip, lanes, row)]
    for x in axes[place + 1 :]:
        steps += [Reorder(row, x.number), Reorder(strip, x.number)]
    steps += [Split(last, lanes, lane), Reorder(lane, strip), Reorder(lane, row)]
    steps.append(Vectorize(lane, lanes, m.numbers.new()))
    return [*steps, Jam(row)] if m.operations <= JAMMED else steps

"""Schedules of kernels that reduce nothing."""

from __future__ import annotations

from dataclasses import replace

from uopc.schedule.axes import Merge, Parallel, Reorder, Split, Vectorize
from uopc.schedule.model import Axis, Model, merged
from uopc.schedule.step import Step
from uopc.uop import Ops

BLOCK = 16  # rows and columns of the blocks in which a transpose is made


def elementwise(m: Model) -> list[Step]:
    """Loops merged, blocked for reads across rows, in parallel, and as vectors."""
    axes, pairs = merged(m.outputs)
    steps: list[Step] = [Merge(outer, inner) for outer, inner in pairs]
    if not axes:
        return steps
    m = m.with_outputs(axes)
    vector = can_vectorize(m, axes[-1])
    across = _read_across(m) if vector else None
    rounds = m.rounds()
    if rounds > 1 and independent(m):
        size = round_size(axes[0].extent, rounds, 64 if len(axes) == 1 else 1)
        inner = m.numbers.new()
        steps.append(Parallel(axes[0].number, size, inner))
        axes[0] = replace(axes[0], number=inner, extent=size)
        if across is not None and across.number == m.outputs[0].number:
            across = axes[0]
    if not vector:
        return steps
    if across is not None:
        steps += _blocked(m, axes, across)
        axes[-1] = replace(axes[-1], number=m.numbers.last)
    stream = across is None and _written(m) >= m.target.l3 // 2
    steps.append(Vectorize(axes[-1].number, m.lanes, m.numbers.new(), stream))
    return steps


def _written(m: Model) -> int:
    """Bytes that are written without having been read."""
    buffers = {m.accesses[i].src[0] for i in m.stored}
    buffers -= {m.accesses[i].src[0] for i in m.read}
    return sum(b.arg.size * b.dtype.itemsize for b in buffers)


def round_size(extent: int, rounds: int, align: int) -> int:
    """How many iterations a parallel round gets: whole multiples, little left over."""
    size = max(1, extent // rounds)
    if size >= align:
        size -= size % align
    return size


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


def can_vectorize(m: Model, axis: Axis) -> bool:
    """Whether the iterations of a loop can be lanes, and that is worth it."""
    if axis.extent < m.lanes or m.lanes < 2:
        return False
    if any(axis.strides[i] != 1 for i in m.stored):
        return False
    return all(s is not None for s in axis.strides)


def _read_across(m: Model) -> Axis | None:
    """An outer loop along which something is contiguous that the innermost strides."""
    inner = m.outputs[-1]
    for i in m.read:
        stride = inner.strides[i]
        if stride is None or abs(stride) < BLOCK:
            continue
        for x in m.outputs[:-1]:
            if x.strides[i] == 1 and x.extent >= BLOCK and inner.extent >= BLOCK:
                return x
    return None


def _blocked(m: Model, axes: list[Axis], across: Axis) -> list[Step]:
    """Blocks of rows and columns, the rows of a block inside."""
    place = next(i for i, x in enumerate(axes) if x.number == across.number)
    row, column = m.numbers.new(2), m.numbers.last
    steps: list[Step] = [Split(across.number, BLOCK, row)]
    steps += [Reorder(row, x.number) for x in axes[place + 1 : -1]]
    steps += [Split(axes[-1].number, BLOCK, column)]
    return [*steps, Reorder(row, axes[-1].number)]

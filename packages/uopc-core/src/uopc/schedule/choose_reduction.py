"""Schedules of sums, products and maxima over axes."""

from __future__ import annotations

import math
from dataclasses import replace

from uopc.schedule.axes import Merge, Parallel, Reorder, Split, Unroll, Vectorize
from uopc.schedule.choose_elementwise import (
    can_vectorize,
    independent,
    moved_out,
    round_size,
)
from uopc.schedule.model import Axis, Model, merged
from uopc.schedule.reduction import Blocks, Lanes, Outputs, Parts
from uopc.schedule.step import Step

CHAIN = 32
"""Longer chains of additions are cut into blocks: their errors grow with them."""
GROUPS = 4  # vectors of accumulators, as an addition takes some cycles
WIDEST = 8  # of them that registers have room for
SHORT = 8  # a reduction this short is written out
TABLE = 1 << 14  # sums of parts that are kept
ROWS = 4  # of terms, in which that many outputs are computed at once
PAGE = 4096  # bytes of neighbouring outputs computed at once from far memory


def reduction(m: Model) -> list[Step]:
    """Vectors across outputs, or across terms; in parallel over outputs, or parts."""
    outputs, pairs = merged(m.outputs)
    terms, more = merged(m.reduced)
    steps: list[Step] = [Merge(outer, inner) for outer, inner in (*pairs, *more)]
    m = replace(m, outputs=tuple(outputs), reduced=tuple(terms))
    if not independent(m):
        return steps
    outputs, moved = moved_out(m)
    steps += moved
    m = m.with_outputs(outputs)
    if outputs and _across_outputs(m):
        return steps + _by_outputs(m)
    return steps + _by_terms(m)


def _across_outputs(m: Model) -> bool:
    """Whether neighbouring outputs read neighbouring elements, or terms do not."""
    inner, term = m.outputs[-1], m.reduced[-1]
    if not (m.knobs.vector and can_vectorize(m, inner)):
        return False
    if m.knobs.outputs is not None:
        return m.knobs.outputs
    # What is the same for all terms is read once, wherever it lies.
    moving = [i for i in m.read if any(x.strides[i] != 0 for x in m.reduced)]
    if any(inner.strides[i] == 1 and term.strides[i] != 1 for i in moving):
        return True
    return term.extent < m.lanes or all(term.strides[i] != 1 for i in moving)


def _by_outputs(m: Model) -> list[Step]:
    """A vector of accumulators for neighbouring outputs."""
    most = SHORT if m.knobs.terms is None else m.knobs.terms
    short = math.prod(x.extent for x in m.reduced) <= most
    steps, m = _parallel(m, _width(m))
    inner, width = m.outputs[-1], _width(m)
    if inner.extent < m.lanes:
        return steps
    spread = m.numbers.new()
    steps.append(Outputs(inner.number, width, spread))
    vectors = Vectorize(spread, m.lanes, m.numbers.new())
    in_registers = max(GROUPS, min(m.knobs.groups or 0, WIDEST))
    if width > in_registers * m.lanes:
        blocks = _blocks(m, 1)
        last = blocks[-1].inner if blocks else m.reduced[-1].number
        return [*steps, *blocks, *_together(last, spread, m.numbers.new()), vectors]
    steps += [vectors, Unroll(spread)]
    if short:  # not where it is cut into parts
        return steps + [Unroll(x.number) for x in m.reduced]
    return steps + _blocks(m, 1)


def _together(number: int, spread: int, row: int) -> list[Step]:
    """Rows of terms from far memory at once: an accumulator is loaded for all of them.

    They are read from several pages, which the processor fetches ahead of time.
    """
    return [Split(number, ROWS, row), Reorder(row, spread), Unroll(row)]


def _width(m: Model) -> int:
    """How many outputs are computed at once."""
    inner, near = m.outputs[-1], m.bytes_touched <= m.target.l2
    width = (m.knobs.groups or GROUPS) * m.lanes
    if m.knobs.groups is None and not near and len(m.reduced) == 1:
        width = max(width, PAGE // 4)
    return min(width, inner.extent)


def _by_terms(m: Model) -> list[Step]:
    """A vector of accumulators for each output."""
    steps, m = _parallel(m, 1)
    term = m.reduced[-1]
    short = term.extent < 2 * m.lanes or any(s is None for s in term.strides)
    if short or not m.knobs.vector:
        return steps + _blocks(m, 1)
    most = min(m.knobs.groups or GROUPS, WIDEST)
    groups = max(g for g in (1, 2, 4, 8) if g <= most and g * m.lanes <= term.extent)
    steps.append(Lanes(term.number, m.lanes, groups, m.numbers.new()))
    return steps + _blocks(m, groups * m.lanes)


def _parallel(m: Model, align: int) -> tuple[list[Step], Model]:
    """Rounds of outputs, or of terms where there are too few outputs."""
    rounds = m.rounds()
    if rounds == 1:
        return [], m
    outputs = list(m.outputs)
    align = align if len(outputs) == 1 else 1
    if outputs and outputs[0].extent >= min(rounds, 4) * align:
        size = max(align, round_size(outputs[0].extent, rounds, align))
        number = m.numbers.new()
        step: Step = Parallel(outputs[0].number, size, number)
        outputs[0] = replace(outputs[0], number=number, extent=size)
        return [step], m.with_outputs(outputs)
    first = m.reduced[0]
    size = math.prod(x.extent for x in outputs)
    count = min(rounds, first.extent, TABLE // size)
    if count < 2:
        return [], m
    number = m.numbers.new(2)
    reduced = (replace(first, extent=first.extent // count), *m.reduced[1:])
    return [
        Parts(first.number, count, number),
        Blocks(number + 1, SHORT, m.numbers.new()),
    ], replace(m, reduced=reduced)


def _blocks(m: Model, width: int) -> list[Blocks]:
    """Chains of additions cut, where they are long and the type rounds."""
    steps: list[Blocks] = []
    if not m.rounding:
        return steps
    for x in m.reduced:
        extent = x.extent // (width if x is m.reduced[-1] else 1)
        steps += _levels(m, x, extent)
    return steps


def _levels(m: Model, x: Axis, extent: int) -> list[Blocks]:
    steps: list[Blocks] = []
    number = x.number
    for level in range(math.ceil(math.log(max(extent, 2), CHAIN)) - 1, 0, -1):
        size = _even(extent, math.ceil(extent ** (level / (level + 1))))
        inner = m.numbers.new()
        steps.append(Blocks(number, size, inner))
        number, extent = inner, size
    return steps


def _even(extent: int, size: int) -> int:
    """A number near ``size`` that divides the extent, if there is one.

    Not all are tried: an extent may be anything up to 2**63.
    """
    for far in range(min(size, 4096)):
        for n in (size - far, size + far):
            if n > size // 2 and extent % n == 0:
                return n
    return size

"""Recognise a contraction: sums of products of two factors with loops of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from uopc.dtype import f32, f64
from uopc.schedule.nest import Addresses, accumulation, is_accumulator, output_loops
from uopc.uop import Ops, UOp

Loops = tuple[UOp, ...]


@dataclass(frozen=True)
class Contraction:
    """``sum over reduced of left * right``, and what is stored of it.

    Attributes:
        batch: output loops that both factors depend on.
        rows: output loops that the right factor does not depend on.
        columns: the other ones; the last one's elements are neighbours in memory.
        reduced: the loops that are summed over.
        left: the factor that moves with rows.
        right: the factor that moves with columns.
        accumulator: the local buffer whose element is the sum.
        stores: the statements that follow, once per element of the result.
    """

    batch: Loops
    rows: Loops
    columns: Loops
    reduced: Loops
    left: UOp
    right: UOp
    accumulator: UOp
    stores: Loops

    def turned(self) -> Contraction:
        """With rows for columns, so that neighbours in a vector are not in memory."""
        return replace(
            self,
            rows=self.columns,
            columns=self.rows,
            left=self.right,
            right=self.left,
        )


def find_contraction(sink: UOp) -> Contraction | None:
    """The contraction that a program consists of, or None if it is none.

    Without rows or without columns nothing is read twice: a reduction is as good.
    """
    loops, body = output_loops(sink)
    found = accumulation(body)
    if found is None or found.op is not Ops.ADD or found.buffer.dtype not in (f32, f64):
        return None
    stores = tuple(body[2:])
    if found.start.src[2] is not UOp.const(0, found.buffer.dtype) or not stores:
        return None
    if any(s.op is not Ops.STORE or is_accumulator(s.src[0]) for s in stores):
        return None
    addresses = Addresses(list(sink.src))
    factors = _factors(_unrounded(found.value))
    for last in _by_nearness(stores[0], loops, addresses):
        moving = [f for f in factors if last in addresses.ranges_of(f)]
        resting = [f for f in factors if last not in addresses.ranges_of(f)]
        if moving and resting:
            break
    else:
        return None
    left, right = _product(resting), _product(moving)
    of_left, of_right = addresses.ranges_of(left), addresses.ranges_of(right)
    columns = [r for r in loops if r in of_right and r not in of_left and r is not last]
    rows = tuple(r for r in loops if r not in of_right)
    if not any(r in of_left for r in rows):
        return None
    return Contraction(
        tuple(r for r in loops if r in of_left and r in of_right),
        rows,
        (*columns, last),
        found.loops,
        left,
        right,
        found.buffer,
        stores,
    )


def _by_nearness(
    store: UOp, loops: Sequence[UOp], addresses: Addresses
) -> Iterator[UOp]:
    """Output loops, first those whose elements are nearest to each other in memory."""
    strides = [(addresses.stride(store, r), r) for r in loops]
    known = sorted((abs(s), -i, r) for i, (s, r) in enumerate(strides) if s)
    return (r for _, _, r in known)


def _unrounded(value: UOp) -> UOp:
    """A product of halves before it is rounded to one: it is summed up in f32."""
    if value.op is Ops.CAST and value.src[0].op is Ops.CAST:
        inner = value.src[0]
        if inner.dtype.is_half and inner.src[0].dtype is value.dtype:
            return inner.src[0]
    return value


def _factors(value: UOp) -> list[UOp]:
    """What is multiplied with each other, from the left."""
    if value.op is not Ops.MUL:
        return [value]
    return [f for s in value.src for f in _factors(s)]


def _product(factors: Sequence[UOp]) -> UOp:
    product = factors[0]
    for f in factors[1:]:
        product = product * f
    return product

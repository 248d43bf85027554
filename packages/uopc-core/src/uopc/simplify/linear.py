"""Sums of integer multiples: how index expressions are taken apart and built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from uopc.uop import Ops, UOp

if TYPE_CHECKING:
    from uopc.simplify.bounds import Bounds

Interval = tuple[int, int]
Terms = dict[UOp, int]
Sum = tuple[Terms, int]  # multiples of nodes, and a constant


def addends(u: UOp, bounds: Bounds) -> Iterator[tuple[UOp, int]]:
    """The nodes that ``u`` is a sum of multiples of, in order, with the factors.

    Sums and products that might wrap are not opened.
    """
    stack = [(u, 1)]
    while stack:
        node, scale = stack.pop()
        if node.op is Ops.ADD and not bounds.wraps(node):
            stack += [(node.src[1], scale), (node.src[0], scale)]
        elif _scaled(node) and not bounds.wraps(node):
            stack.append((node.src[0], scale * int(node.src[1].value)))
        else:
            yield node, scale


def _scaled(node: UOp) -> bool:
    return node.op is Ops.MUL and node.src[1].op is Ops.CONST


def decompose(u: UOp, bounds: Bounds) -> Sum:
    """``u`` as a sum of integer multiples of nodes, plus a constant."""
    return taken_apart(u, bounds)[0]


def taken_apart(u: UOp, bounds: Bounds) -> tuple[Sum, int]:
    """``u`` as a sum, and how many addends it is written with."""
    found = bounds.taken_apart.get(u)
    if found is not None:
        return found
    terms: Terms = {}
    constant = count = 0
    for node, k in addends(u, bounds):
        count += 1
        if node.op is Ops.CONST:
            constant += int(node.value) * k
        else:
            terms[node] = terms.get(node, 0) + k
    total = {n: k for n, k in terms.items() if k}, constant
    bounds.taken_apart[u] = total, count
    return total, count


def plus(a: Sum, b: Sum, scale: int = 1) -> Sum:
    """``a + b * scale``."""
    terms = dict(a[0])
    for node, k in b[0].items():
        terms[node] = terms.get(node, 0) + k * scale
    return {n: k for n, k in terms.items() if k}, a[1] + b[1] * scale


def span(total: Sum, bounds: Bounds) -> Interval:
    """The interval of a sum, computed without wrapping."""
    low, high = _plain_span(total, bounds)
    for (part, constant), (least, most) in bounds.sums:
        node, k = next(iter(part.items()))
        times = total[0].get(node, 0) // k
        if times and all(total[0].get(t) == times * j for t, j in part.items()):
            rest = plus(total, (part, constant), -times)
            a, b = _plain_span(rest, bounds)
            ends = least * times, most * times
            low, high = max(low, a + min(ends)), min(high, b + max(ends))
    return low, high


def _plain_span(total: Sum, bounds: Bounds) -> Interval:
    low = high = total[1]
    for node, k in total[0].items():
        a, b = bounds(node)
        low += min(a * k, b * k)
        high += max(a * k, b * k)
    return low, high


def fits(total: Sum, like: UOp, bounds: Bounds) -> bool:
    """Whether no part of the sum can wrap in ``like``'s dtype, in any order."""
    dtype, (terms, constant) = like.dtype, total
    low, high = min(0, constant), max(0, constant)
    for node, k in terms.items():
        a, b = bounds(node)
        low += min(0, a * k, b * k)
        high += max(0, a * k, b * k)
    return (
        dtype.min <= low
        and high <= dtype.max
        and all(dtype.min <= k <= dtype.max for k in terms.values())
    )


def compose(total: Sum, like: UOp, bounds: Bounds) -> UOp | None:
    """The sum as a node of ``like``'s dtype; None if it might wrap.

    The largest stride comes first, so that equal sums are equal nodes.
    """
    if not fits(total, like, bounds):
        return None
    terms, constant = total
    result: UOp | None = None
    for node, k in sorted(terms.items(), key=_stride):
        term = node if k == 1 else node * UOp.const(k, like.dtype)
        result = term if result is None else result + term
    if result is None:
        return UOp.const(constant, like.dtype)
    return result + UOp.const(constant, like.dtype) if constant else result


def _stride(term: tuple[UOp, int]) -> tuple[int, int]:
    node, k = term
    return -abs(k), node.arg.number if node.op is Ops.RANGE else -1

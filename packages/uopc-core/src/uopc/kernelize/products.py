"""A sum of several products of matrices as several such sums, each for itself.

The gradient of what enters two layers, the tangent of a product: both are one sum over
``a * b + c * d``, where each of the products alone is a contraction. A contraction is
what the scheduler knows how to do fast, and its order of terms is free anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from uopc.uop import Ops, UOp


def distributed(u: UOp) -> UOp:
    """The node, or the sum of sums that it is if some addend is a contraction."""
    if u.op is not Ops.REDUCE or u.arg.op is not Ops.ADD:
        return u
    terms, views = u.src[0], []
    while terms.op is Ops.PERMUTE:
        views.append(terms.arg)
        terms = terms.src[0]

    def viewed(v: UOp) -> UOp:
        return reduce(UOp.permute, reversed(views), v)

    products: list[UOp] = []
    others: list[UOp] = []
    for t in _addends(terms):
        alone = t.op is Ops.MUL and _contract([viewed(f) for f in t.src], u.arg.n)
        (products if alone else others).append(viewed(t))
    if not products or len(products) + len(others) == 1:
        return u
    rest = [reduce(UOp.__add__, others)] if others else []
    return reduce(UOp.__add__, [u.with_src((t,)) for t in [*products, *rest]])


def repeated_axes(u: UOp) -> set[int]:
    """The axes along which an EXPAND repeats the elements of ``u``."""
    axes = list(range(len(u.shape)))  # of the node, by the number they have in ``u``
    found: set[int] = set()
    while u.op in (Ops.EXPAND, Ops.PERMUTE):
        if u.op is Ops.PERMUTE:
            order = [0] * len(axes)
            for out, source in enumerate(u.arg):
                order[source] = axes[out]
            axes = order
        else:
            lengths = zip(axes, u.src[0].shape, u.shape, strict=True)
            found |= {axis for axis, n, m in lengths if n != m}
        u = u.src[0]
    return found


def _addends(u: UOp) -> Iterator[UOp]:
    stack = [u]
    while stack:
        u = stack.pop()
        if u.op is Ops.ADD:
            stack += reversed(u.src)
        else:
            yield u


def _contract(factors: Sequence[UOp], n: int) -> bool:
    """Whether factors are repeated along different axes, as in a product of matrices.

    Their last ``n`` axes are summed over; along one of them at least neither is.
    """
    first, second = map(repeated_axes, factors)
    axes = len(factors[0].shape)
    kept, summed = set(range(axes - n)), set(range(axes - n, axes))
    apart = (first - second) & kept and (second - first) & kept
    return bool(apart and summed - first - second)

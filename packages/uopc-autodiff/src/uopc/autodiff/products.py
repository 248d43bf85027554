"""A sum of several products of matrices as several such sums, each for itself.

The gradient of what enters two layers, the tangent of a product: both would be one sum
over ``a * b + c * d``, where each of the products alone is a contraction, which is what
schedulers know how to do fast.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import reduce

from uopc.autodiff.constancy import repeated_axes
from uopc.uop import Ops, UOp

MAX_ADDENDS = 16


def distributed(u: UOp) -> UOp:
    """The node, or the sum of sums that it is if some addend is a contraction.

    A sum may be under views.
    """
    if u.op in (Ops.RESHAPE, Ops.PERMUTE):
        inner = distributed(u.src[0])
        return u if inner is u.src[0] else u.with_src((inner,))
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
    for t in itertools.islice(_addends(terms), MAX_ADDENDS + 1):
        alone = t.op is Ops.MUL and _contract([viewed(f) for f in t.src], u.arg.n)
        (products if alone else others).append(viewed(t))
    if not products or not 1 < len(products) + len(others) <= MAX_ADDENDS:
        return u
    rest = [reduce(UOp.__add__, others)] if others else []
    return reduce(UOp.__add__, [u.with_src((t,)) for t in [*products, *rest]])


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

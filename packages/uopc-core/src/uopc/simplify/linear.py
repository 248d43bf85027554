"""Integer division and modulo of sums: the part that shortens indices."""

from __future__ import annotations

import math

from uopc.simplify.bounds import Bounds
from uopc.uop import Ops, UOp

Terms = dict[UOp, int]


def decompose(u: UOp, bounds: Bounds) -> tuple[Terms, int]:
    """``u`` as a sum of integer multiples of nodes, plus a constant.

    Sums and products that might wrap are not opened.
    """
    terms: Terms = {}
    constant = 0
    stack = [(u, 1)]
    while stack:
        node, scale = stack.pop()
        if node.op is Ops.CONST:
            constant += int(node.value) * scale
        elif node.op is Ops.ADD and not bounds.wraps(node):
            stack += [(node.src[1], scale), (node.src[0], scale)]
        elif _scaled(node) and not bounds.wraps(node):
            stack.append((node.src[0], scale * int(node.src[1].value)))
        else:
            terms[node] = terms.get(node, 0) + scale
    return {n: k for n, k in terms.items() if k != 0}, constant


def _scaled(node: UOp) -> bool:
    return node.op is Ops.MUL and node.src[1].op is Ops.CONST


def compose(terms: Terms, constant: int, like: UOp, bounds: Bounds) -> UOp | None:
    """The sum as a node of ``like``'s dtype; None if it might wrap."""
    dtype, total = like.dtype, None
    spans = [sorted((bounds(n)[0] * k, bounds(n)[1] * k)) for n, k in terms.items()]
    low = sum(min(0, s[0]) for s in spans) + min(0, constant)
    high = sum(max(0, s[1]) for s in spans) + max(0, constant)
    if low < dtype.min or high > dtype.max:
        return None
    if any(not dtype.min <= k <= dtype.max for k in terms.values()):
        return None
    for node, k in terms.items():
        term = node if k == 1 else node * UOp.const(k, dtype)
        total = term if total is None else total + term
    if total is None:
        return UOp.const(constant, dtype)
    return total + UOp.const(constant, dtype) if constant else total


def _known(u: UOp, op: object) -> int:
    """The divisor if ``u`` is ``op`` by a positive constant, else 0."""
    if u.op is not op or u.src[1].op is not Ops.CONST:
        return 0
    return max(0, int(u.src[1].value))


def divide(x: UOp, c: UOp, bounds: Bounds) -> UOp | None:
    """A shorter ``x // c``, or None. ``c`` is a constant."""
    n = int(c.value)
    if n <= 0:
        return None
    low, high = bounds(x)
    if low // n == high // n:
        return UOp.const(low // n, x.dtype)
    if n == 1:
        return x
    if (inner := _known(x, Ops.FLOORDIV)) and inner * n <= x.dtype.max:
        return x.src[0] // UOp.const(inner * n, x.dtype)
    if (m := _known(x, Ops.FLOORMOD)) and m % n == 0:
        return (x.src[0] // c) % UOp.const(m // n, x.dtype)
    terms, constant = decompose(x, bounds)
    whole = {t: k // n for t, k in terms.items() if k % n == 0}
    rest = {t: k for t, k in terms.items() if k % n}
    quotient, left = divmod(constant, n)
    if whole or quotient:
        outer = compose(whole, quotient, x, bounds)
        inner_sum = compose(rest, left, x, bounds)
        if outer is None or inner_sum is None:
            return None
        return outer + inner_sum // c if rest else outer
    g = math.gcd(n, *rest.values())
    if g > 1:
        smaller = compose({t: k // g for t, k in rest.items()}, left // g, x, bounds)
        return None if smaller is None else smaller // UOp.const(n // g, x.dtype)
    return None


def modulo(x: UOp, c: UOp, bounds: Bounds) -> UOp | None:
    """A shorter ``x % c``, or None. ``c`` is a constant."""
    n = int(c.value)
    if n <= 0:
        return None
    low, high = bounds(x)
    if low // n == high // n:
        shift = low // n * n
        return x - UOp.const(shift, x.dtype) if shift else x
    if (m := _known(x, Ops.FLOORMOD)) and m % n == 0:
        return x.src[0] % c
    terms, constant = decompose(x, bounds)
    rest = {t: k for t, k in terms.items() if k % n}
    left = constant % n
    if len(rest) < len(terms) or left != constant:
        shorter = compose(rest, left, x, bounds)
        return None if shorter is None else shorter % c
    g = math.gcd(n, *rest.values())
    if g > 1:
        smaller = compose({t: k // g for t, k in rest.items()}, left // g, x, bounds)
        if smaller is None:
            return None
        scaled = (smaller % UOp.const(n // g, x.dtype)) * UOp.const(g, x.dtype)
        return scaled + UOp.const(left % g, x.dtype) if left % g else scaled
    return None

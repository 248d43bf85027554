"""Integer division and modulo of sums: the part that shortens indices.

A quotient of a sum has one form here, whatever it was made of: multiples of the
divisor are taken out, terms too small to carry are dropped, common factors are
cancelled and quotients inside are merged. So the digits of one number that a chain
of reshapes takes apart are recognised when they meet again, and cancel.
"""

from __future__ import annotations

import itertools
import math

from uopc.simplify.bounds import Bounds
from uopc.simplify.context import positional
from uopc.simplify.linear import (
    Sum,
    Terms,
    compose,
    decompose,
    fits,
    plus,
    span,
    taken_apart,
)
from uopc.uop import OpDef, Ops, UOp

MAX_SPLIT = 4  # terms of which all roundings are tried
MAX_ADDENDS = 12  # longer sums are no index that could become short


def divide(x: UOp, c: UOp, bounds: Bounds) -> UOp | None:
    """A shorter ``x // c``, or None. ``c`` is a constant."""
    if int(c.value) <= 0:
        return None
    result = quotient(decompose(x, bounds), int(c.value), x, bounds)
    return None if result is None else compose(result, x, bounds)


def modulo(x: UOp, c: UOp, bounds: Bounds) -> UOp | None:
    """A shorter ``x % c``, or None. ``c`` is a constant."""
    if int(c.value) <= 0:
        return None
    result = remainder(decompose(x, bounds), int(c.value), x, bounds)
    return None if result is None else compose(result, x, bounds)


def quotient(total: Sum, n: int, like: UOp, bounds: Bounds) -> Sum | None:
    """``total // n`` with as few divisions as possible; None if it might wrap."""
    known = _known_quotient(total, n, bounds)
    if known is not None:
        return known
    terms, constant = total
    whole = {t: k // n for t, k in terms.items() if k % n == 0}
    rest = {t: k for t, k in terms.items() if k % n}
    shift = _shift((rest, constant), n, like, bounds)
    left = (rest, constant - shift * n)
    inner: Sum | None
    if (opened := _opened(left, n, like, bounds)) is not None:
        inner = quotient(*opened, like, bounds)
    elif (digits := _digits(left, n, bounds)) is not None:
        coarse, _, g = digits
        inner = quotient(coarse, n // g, like, bounds)
    else:
        inner = _quotient_of_remainder(left, n, like, bounds)
        if inner is None and (x := compose(left, like, bounds)) is not None:
            inner = {x // UOp.const(n, like.dtype): 1}, 0
    return None if inner is None else plus((whole, shift), inner)


def _known_quotient(total: Sum, n: int, bounds: Bounds) -> Sum | None:
    """``total // n`` where that is a sum of multiples itself.

    Each factor k is q * n + r, with r on either side of 0: the quotient is known if
    what is left of the sum stays between two multiples of ``n``.
    """
    terms, constant = total
    # Digits keep their form, so that they can be put together again.
    free = [t for t in terms if t.op not in (Ops.FLOORDIV, Ops.FLOORMOD)]
    for choice in itertools.product((0, 1), repeat=len(free[:MAX_SPLIT])):
        up = dict(zip(free, choice, strict=False))
        whole = {t: k // n + up.get(t, 0) for t, k in terms.items()}
        rest = {t: k - whole[t] * n for t, k in terms.items()}
        low, high = span((rest, constant), bounds)
        if low // n == high // n:
            return {t: k for t, k in whole.items() if k}, low // n
    return None


def _shift(total: Sum, n: int, like: UOp, bounds: Bounds) -> int:
    """What to take out of a quotient so that its dividend starts in [0, n).

    The same in every branch, or one number would be written in several ways.
    """
    low, _ = span(total, bounds.plain)
    # Whoever starts near the end of its type stays where it is.
    return (low if low >= like.dtype.min // 4 else total[1]) // n


def _opened(total: Sum, n: int, like: UOp, bounds: Bounds) -> tuple[Sum, int] | None:
    """A dividend and divisor without the quotient that is an addend of ``total``.

    (s + y // m) // n is (s * m + y) // (m * n).
    """
    terms, constant = total
    for t, k in terms.items():
        m = _divisor(t, Ops.FLOORDIV)
        if k == 1 and m and m * n <= like.dtype.max:
            others = {u: j * m for u, j in terms.items() if u is not t}
            inner = decompose(t.src[0], bounds)
            new = plus((others, constant * m), inner)
            if fits(new, like, bounds):
                return new, m * n
    return None


def _digits(total: Sum, n: int, bounds: Bounds) -> tuple[Sum, Sum, int] | None:
    """``total`` as coarse * g + fine with fine in [0, g), for a g that divides n."""
    factors = {math.gcd(n, k) for k in total[0].values()}
    factors |= {math.gcd(a, b) for a in factors for b in factors}
    for g in sorted(factors - {1}, reverse=True):
        coarse = _known_quotient(total, g, bounds)
        if coarse is not None:
            return coarse, plus(total, coarse, -g), g
    return None


def _quotient_of_remainder(total: Sum, n: int, like: UOp, bounds: Bounds) -> Sum | None:
    """(y % m) // n is (y // n) % (m // n) when n divides m."""
    ((t, k), *more), constant = list(total[0].items()), total[1]
    m = _divisor(t, Ops.FLOORMOD)
    if more or constant or k != 1 or not m or m % n:
        return None
    inner = quotient(decompose(t.src[0], bounds), n, like, bounds)
    return None if inner is None else remainder(inner, m // n, like, bounds)


def remainder(total: Sum, n: int, like: UOp, bounds: Bounds) -> Sum | None:
    """``total % n`` with as few divisions as possible; None if it might wrap."""
    known = _known_quotient(total, n, bounds)
    if known is not None:
        return plus(total, known, -n)
    terms, constant = _without_remainders(total, n, like, bounds)
    reduced = {t: k % n if k > 0 else -(-k % n) for t, k in terms.items()}
    rest: Sum = ({t: k for t, k in reduced.items() if k}, constant)
    rest = (rest[0], constant - _shift(rest, n, like, bounds) * n)
    if rest != total:
        return remainder(rest, n, like, bounds)
    if (digits := _digits(rest, n, bounds)) is not None:
        coarse, fine, g = digits
        inner = remainder(coarse, n // g, like, bounds)
        return None if inner is None else plus(fine, inner, g)
    x = compose(rest, like, bounds)
    return None if x is None else ({x % UOp.const(n, like.dtype): 1}, 0)


def _without_remainders(total: Sum, n: int, like: UOp, bounds: Bounds) -> Sum:
    """``total`` without the remainders inside that make no difference modulo ``n``."""
    result: Sum = ({}, total[1])
    for t, k in total[0].items():
        m = _divisor(t, Ops.FLOORMOD)
        if m and k * m % n == 0:
            new = plus(result, decompose(t.src[0], bounds), k)
            if fits(new, like, bounds):
                result = new
                continue
        result = plus(result, ({t: k}, 0))
    return result


def collect(u: UOp, bounds: Bounds) -> UOp | None:
    """The sum ``u`` with equal addends joined and digits put together, or None.

    A remainder x % m is x - m * (x // m): it goes where that cancels quotients
    which are addends already.
    """
    total, count = taken_apart(u, bounds)
    if count > MAX_ADDENDS:
        return None
    shorter = len(total[0]) + bool(total[1]) < count
    while (joined := _joined(total, u, bounds)) is not None:
        total, shorter = joined, True
    # Of positions the largest stride comes first, as one would write it.
    return compose(total, u, bounds) if shorter or positional(u) else None


def _joined(total: Sum, like: UOp, bounds: Bounds) -> Sum | None:
    terms, _ = total
    for t, k in terms.items():
        m = _divisor(t, Ops.FLOORMOD)
        inner = decompose(t.src[0], bounds) if m else ({}, 0)
        whole = quotient(inner, m, like, bounds) if m else None
        if whole is None:
            continue
        without = plus(total, ({t: k}, 0), -1)
        here = _renamed(whole, terms, bounds)
        there = _quotients(here)
        if there and all(terms.get(q, 0) == k * m * here[0][q] for q in there):
            return plus(plus(without, inner, k), here, -k * m)
        for higher, j in terms.items():
            n = _divisor(higher, Ops.FLOORMOD)
            if n and j == k * m and m * n <= like.dtype.max:
                y = decompose(higher.src[0], bounds)
                same = _renamed(whole, y[0], bounds)
                step = plus(y, same, -1)
                if not any(q in step[0] or q not in y[0] for q in _quotients(same)):
                    both = remainder(plus(inner, step, m), m * n, like, bounds)
                    if both is not None:
                        return plus(plus(without, ({higher: j}, 0), -1), both, k)
    return None


def _quotients(total: Sum) -> list[UOp]:
    return [t for t in total[0] if _divisor(t, Ops.FLOORDIV)]


def _renamed(whole: Sum, terms: Terms, bounds: Bounds) -> Sum:
    """``whole`` with its quotients in words of equal ones among ``terms``.

    (x + s * n) // n is x // n + s.
    """
    for q, j in list(whole[0].items()):
        n = _divisor(q, Ops.FLOORDIV)
        for t in terms if n and q not in terms else ():
            if _divisor(t, Ops.FLOORDIV) != n:
                continue
            x, y = (decompose(u.src[0], bounds) for u in (q, t))
            if (step := _apart(y, x, n, bounds)) is not None:
                same = plus(({t: 1}, 0), step, -1)
                whole = plus(plus(whole, ({q: j}, 0), -1), same, j)
                break
    return whole


def _apart(x: Sum, y: Sum, n: int, bounds: Bounds) -> Sum | None:
    """(x - y) / n if ``n`` divides that whatever the variables are."""
    difference: Sum = plus(x, y, -1)
    for t, k in list(difference[0].items()):
        m = _divisor(t, Ops.FLOORMOD)
        if m and k * m % n == 0:  # t is inner - m * (inner // m)
            inner = decompose(t.src[0], bounds)
            whole = quotient(inner, m, t, bounds)
            if whole is not None:
                exact = plus(inner, whole, -m)
                difference = plus(plus(difference, ({t: k}, 0), -1), exact, k)
    terms, constant = difference
    if constant % n or any(k % n for k in terms.values()):
        return None
    return {t: k // n for t, k in terms.items()}, constant // n


def _divisor(u: UOp, op: OpDef) -> int:
    """The divisor if ``u`` is ``op`` by a constant above 1, else 0."""
    if u.op is not op or u.src[1].op is not Ops.CONST:
        return 0
    n = int(u.src[1].value)
    return n if n > 1 else 0


def at_most(x: UOp, limit: int, bounds: Bounds) -> tuple[Sum, int] | None:
    """A shorter sum s and limit t so that x <= limit exactly where s <= t, or None."""
    total = decompose(x, bounds)
    terms, constant = total
    factors = {abs(k) for k in terms.values()}
    factors |= {math.gcd(a, b) for a in factors for b in factors} | {1}
    for g in sorted(factors, reverse=True):
        fine: Terms = {t: k for t, k in terms.items() if k % g}
        low, high = span((fine, constant), bounds)
        new = (limit - low) // g
        if new == (limit - high) // g:
            coarse = {t: k // g for t, k in terms.items() if k % g == 0}
            return (coarse, 0), new
    return None

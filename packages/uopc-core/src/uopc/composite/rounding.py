"""Whole numbers near a float, signs, and what kind of number an element is.

Rounding has the derivative 0 wherever it has one, and 0 is what flows at its steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from uopc.composite.elementwise import absolute
from uopc.composite.shape import full
from uopc.dtype import boolean, f64
from uopc.uop import UOp


def floor(x: UOp) -> UOp:
    """The largest whole number that is at most x; x itself of integers and bool."""
    return _rounded(x, lambda v: v // 1.0)


def ceil(x: UOp) -> UOp:
    """The least whole number that is at least x."""
    return -floor(-x) if x.dtype.is_float else x


def trunc(x: UOp) -> UOp:
    """x without its fraction."""
    return (x < 0.0).where(ceil(x), floor(x)) if x.dtype.is_float else x


def nearest(x: UOp) -> UOp:
    """The nearest whole number, of two the even one; -0.0 from -0.5 to -0.0.

    Beyond 2**23 (2**52) all numbers are whole: adding that rounds.
    """
    return _rounded(x, _to_even)


def _to_even(x: UOp) -> UOp:
    size = absolute(x)
    whole = (size + _whole_from(x)) - _whole_from(x)
    # Of a zero, x itself has the sign.
    return (x < 0.0).where(-whole, x.eq(0.0).where(x, whole))


def _whole_from(x: UOp) -> float:
    """From where on all numbers of a type are whole."""
    return 2.0**52 if x.dtype is f64 else 2.0**23


def _rounded(x: UOp, function: Callable[[UOp], UOp]) -> UOp:
    """A function of numbers that have fractions; half types by way of f32."""
    if not x.dtype.is_float:
        return x
    wide = x.detach().cast(x.dtype.wide)
    broken = absolute(wide) < _whole_from(wide)
    return broken.where(function(wide), wide).cast(x.dtype)


def sign(x: UOp) -> UOp:
    """-1, 0 or 1; NaN of NaN. The derivative is 0. Of bool, x."""
    if x.dtype is boolean:
        return x
    if x.dtype.kind == "uint":
        return x.eq(0).where(x, x.const_like(1))
    d = x.detach()
    zero, one = d.const_like(0), d.const_like(1)
    known = d.eq(0).where(zero, d) if d.dtype.is_float else zero
    return (d > 0).where(one, (d < 0).where(d.const_like(-1), known))


def isnan(x: UOp) -> UOp:
    """Whether each element is NaN."""
    return x.ne(x) if x.dtype.is_float else full(x.shape, False, boolean)


def isinf(x: UOp) -> UOp:
    """Whether each element is infinite, of either sign."""
    if not x.dtype.is_float:
        return full(x.shape, False, boolean)
    return absolute(x).eq(math.inf)


def isfinite(x: UOp) -> UOp:
    """Whether each element is neither infinite nor NaN."""
    if not x.dtype.is_float:
        return full(x.shape, True, boolean)
    return absolute(x) < math.inf

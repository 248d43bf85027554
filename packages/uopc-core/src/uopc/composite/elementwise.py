"""Composite functions of elements, most of them on float nodes.

Each of these is within 4 ulp of its definition in f32 (`uopc accuracy` measures it),
has the limits of that definition at infinity, and finite derivatives wherever those
exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from uopc.dtype import f32, f64
from uopc.uop import Ops, UOp


def square(x: UOp) -> UOp:
    """x * x."""
    return x * x


def absolute(x: UOp) -> UOp:
    """``max(x, -x)``; its gradient at 0 is 0, the tie being split."""
    larger = x.maximum(-x)
    # Of two zeros MAX may give either; a sum of zeros of both signs is 0.0.
    return larger + 0.0 if x.dtype.is_float else larger


def at_most(a: UOp, b: UOp) -> UOp:
    """``a <= b``; NaN is at most nothing, and nothing at most NaN."""
    return (a < b) | a.eq(b) if a.dtype.is_float else (b < a).logical_not()


def relu(x: UOp) -> UOp:
    """``x`` where positive, else 0; its gradient at 0 is 0."""
    return (x > 0).where(x, x.const_like(0))


def exp(x: UOp) -> UOp:
    """e to the power x."""
    return UOp(Ops.EXP, (x,))


def log(x: UOp) -> UOp:
    """Natural logarithm."""
    return UOp(Ops.LOG, (x,))


def log1p(x: UOp) -> UOp:
    """Natural logarithm of 1 + x."""
    return UOp(Ops.LOG1P, (x,))


def cos(x: UOp) -> UOp:
    """Cosine."""
    return UOp(Ops.COS, (x,))


def tanh(x: UOp) -> UOp:
    """Hyperbolic tangent."""
    return UOp(Ops.TANH, (x,))


def sigmoid(x: UOp) -> UOp:
    """``1 / (1 + exp(-x))``, which cannot overflow."""
    return UOp(Ops.SIGMOID, (x,))


def sigmoid_slope(x: UOp) -> UOp:
    """The derivative of `sigmoid`, right where that is nearly 1, too."""
    _, e = _shrunk(x)
    return e / ((e + 1.0) * (e + 1.0))


def softplus(x: UOp) -> UOp:
    """``log(1 + exp(x))``, as ``max(x, 0) + log1p(exp(-|x|))``."""
    negative, e = _shrunk(x)
    return negative.where(x.const_like(0.0), x) + log1p(e)


def logsigmoid(x: UOp) -> UOp:
    """``log(sigmoid(x))``, as ``min(x, 0) - log1p(exp(-|x|))``."""
    negative, e = _shrunk(x)
    return negative.where(x, x.const_like(0.0)) - log1p(e)


def _shrunk(x: UOp) -> tuple[UOp, UOp]:
    """Whether x is negative, and exp(-|x|), smooth at 0 in the sum of both sides."""
    negative = x < 0.0
    return negative, exp(negative.where(x, -x))


def silu(x: UOp) -> UOp:
    """``x * sigmoid(x)`` (Elfwing, Uchibe and Doya, 2017; also called swish)."""
    return _gated(x, lambda v: v, 1000.0)


def gelu(x: UOp) -> UOp:
    """GELU in its tanh form (Hendrycks and Gimpel, 2016).

    ``x / 2 * (1 + tanh(z))`` is ``x * sigmoid(2z)``, without the cancellation.
    """
    c = 2 * math.sqrt(2 / math.pi)
    return _gated(x, lambda v: v * (v * v * (c * 0.044715) + c), 100.0)


def _gated(x: UOp, gate: Callable[[UOp], UOp], far: float) -> UOp:
    """``x * sigmoid(gate(x))``; from |x| = ``far`` on the gate is open or closed.

    An error in the gate's argument is multiplied by that argument, and the sigmoid
    runs out of digits before the product does; so it takes a wider type.
    """
    wide = x.cast(f32 if x.dtype.is_half else f64)
    end = (wide < 0.0).where(wide.const_like(-0.0), wide)
    near = absolute(wide) < far
    return near.where(wide * sigmoid(gate(wide)), end).cast(x.dtype)


def power(x: UOp, y: UOp) -> UOp:
    """x to the power y: of floats as C's pow; of integers a product, which wraps.

    An integer to a negative power is 0, but for the bases 1 and -1. The derivative by
    x is ``y * x ** (y - 1)``, 0 where y is 0; that by y is ``log(x) * x ** y``, 0
    where ``x ** y`` is 0 or x and y both are.
    """
    return UOp(Ops.POW, (x, y)) if x.dtype.is_float else _integer_power(x, y)


def _integer_power(x: UOp, y: UOp) -> UOp:
    """By the binary digits of y: each squares the factor."""
    one, signed = x.const_like(1), y.dtype.kind == "int"
    result, factor = one, x
    for digit in range(y.dtype.bits - signed):
        if digit:
            factor = factor * factor
        result = (y & (1 << digit)).ne(0).where(result * factor, result)
    if not signed:
        return result
    odd = (y & 1).ne(0)
    unit = (x.eq(1) | x.eq(-1)).where(odd.where(x, one), x.const_like(0))
    return (y < 0).where(unit, result)

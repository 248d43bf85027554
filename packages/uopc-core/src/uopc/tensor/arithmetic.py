"""Tensor's operators and elementwise functions."""

from __future__ import annotations

import functools
from typing import Any, Self

from uopc import composite
from uopc.composite import broadcast_shape, broadcast_to
from uopc.dtype import DType, as_dtype, boolean, promote, promote_scalar
from uopc.tensor.base import Base, Operand, explained
from uopc.tensor.given import python_scalar
from uopc.uop import UOp


class Arithmetic(Base):
    """Operators broadcast and promote; Python numbers are weak."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __add__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "add")
        return self._new(a + b, *parents)

    def __radd__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "add")
        return self._new(b + a, *parents)

    def __mul__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "mul")
        return self._new(a * b, *parents)

    def __rmul__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "mul")
        return self._new(b * a, *parents)

    def __sub__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "sub")
        return self._new(a - b, *parents)

    def __rsub__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "sub")
        return self._new(b - a, *parents)

    def _updated(self, new: Self) -> Self:
        """What ``x += y`` and its like bind ``x`` to, unless x is a parameter."""
        if self._leaf and self._wants:
            raise RuntimeError(
                "a parameter is not changed in place; give it a new value with "
                "w.assign(w - lr * w.grad), or use an optimizer"
            )
        return new

    def __iadd__(self, other: Operand) -> Self:
        return self._updated(self + other)

    def __isub__(self, other: Operand) -> Self:
        return self._updated(self - other)

    def __imul__(self, other: Operand) -> Self:
        return self._updated(self * other)

    def __itruediv__(self, other: Operand) -> Self:
        return self._updated(self / other)

    def __ifloordiv__(self, other: Operand) -> Self:
        return self._updated(self // other)

    def __imod__(self, other: Operand) -> Self:
        return self._updated(self % other)

    def __ipow__(self, other: Operand) -> Self:
        return self._updated(self**other)

    def __neg__(self) -> Self:
        return self._new(-self.uop)

    def __truediv__(self, other: Operand) -> Self:
        """Division; integers become f32 first."""
        a, b, parents = self._float_pair(other, "div")
        return self._new(a / b, *parents)

    def __rtruediv__(self, other: Operand) -> Self:
        a, b, parents = self._float_pair(other, "div")
        return self._new(b / a, *parents)

    def _float_pair(
        self, other: Operand, what: str
    ) -> tuple[UOp, UOp, tuple[Base, ...]]:
        a, b, parents = self._pair(other, what)
        wanted = promote_scalar(a.dtype, 1.0)
        return a.cast(wanted), b.cast(wanted), parents

    def __floordiv__(self, other: Operand) -> Self:
        """Division toward minus infinity; an integer divided by 0 is 0."""
        a, b, parents = self._pair(other, "floordiv")
        return self._new(a // b, *parents)

    def __rfloordiv__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "floordiv")
        return self._new(b // a, *parents)

    def __mod__(self, other: Operand) -> Self:
        """Remainder with the divisor's sign; an integer modulo 0 is 0."""
        a, b, parents = self._pair(other, "mod")
        return self._new(a % b, *parents)

    def __rmod__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "mod")
        return self._new(b % a, *parents)

    def __pow__(self, exponent: Operand) -> Self:
        """x to the power y, of floats as C's ``pow`` (and NumPy's ``power``).

        So 1 where y is 0 or x is 1, even of NaN; NaN where x < 0 and y is a finite
        fraction; ``0 ** y`` is infinite where y < 0. Products stand for the constant
        exponents 0 to 4, the reciprocal for -1, and for 0.5 the square root, which
        unlike ``pow`` gives NaN at -inf.

        Integers to integer powers are exact products, which wrap. With a negative
        constant they are f32; a negative exponent in a tensor gives 0, but 1 or -1
        for those bases. (NumPy refuses both.)

        The derivative by x is ``y * x ** (y - 1)``, and 0 wherever y is 0. (At x = 0
        JAX has NaN for that, unless y is a Python number.) The derivative by y is
        ``log(x) * x ** y``: 0 where ``x ** y`` is 0 and where x and y both are, -inf at
        0 to a negative power (NaN in JAX), NaN where x < 0.
        """
        if isinstance(exponent, Base):
            a, b, parents = self._pair(exponent, "pow")
            return self._new(composite.power(a, b), *parents)
        exponent = python_scalar(exponent)
        x = self.uop.cast(promote_scalar(self.dtype, exponent))
        if not x.dtype.is_float and exponent < 0:
            x = self._float()
        small = 0 <= exponent <= 4 and exponent == int(exponent)
        if small or not x.dtype.is_float:
            return self._new(_product(x, int(exponent)))
        if exponent == -1:
            return self._new(x.recip())
        if exponent == 0.5:
            return self._new(x.sqrt())
        return self._new(composite.power(x, x.const_like(exponent)))

    def __rpow__(self, base: Operand) -> Self:
        """A number to the power of this tensor; as ``**`` of two tensors."""
        a, b, parents = self._pair(base, "pow")
        return self._new(composite.power(b, a), *parents)

    def __and__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "and")
        return self._new(a & b, *parents)

    def __or__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "or")
        return self._new(a | b, *parents)

    def __xor__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "xor")
        return self._new(a ^ b, *parents)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "shift left")
        return self._new(a << b, *parents)

    def __rshift__(self, other: Operand) -> Self:
        a, b, parents = self._pair(other, "shift right")
        return self._new(a >> b, *parents)

    def __invert__(self) -> Self:
        """Not, of bool; all bits flipped, of integers."""
        return self._new(_flipped(self.uop))

    # -- comparisons ----------------------------------------------------------

    def __lt__(self, other: Operand) -> Self:
        a, b, _ = self._pair(other, "less")
        return self._new(a < b)

    def __gt__(self, other: Operand) -> Self:
        a, b, _ = self._pair(other, "greater")
        return self._new(b < a)

    def __le__(self, other: Operand) -> Self:
        a, b, _ = self._pair(other, "less or equal")
        return self._new(composite.at_most(a, b))

    def __ge__(self, other: Operand) -> Self:
        a, b, _ = self._pair(other, "greater or equal")
        return self._new(composite.at_most(b, a))

    def eq(self, other: Operand) -> Self:
        """Elementwise ``==``; NaN equals nothing."""
        a, b, _ = self._pair(other, "eq")
        return self._new(a.eq(b))

    def ne(self, other: Operand) -> Self:
        """Elementwise ``!=``; NaN differs from everything."""
        a, b, _ = self._pair(other, "ne")
        return self._new(a.ne(b))

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return self.eq(other)

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return self.ne(other)

    # -- functions ------------------------------------------------------------

    def maximum(self, other: Operand) -> Self:
        """The larger of two, NaN if either is; a tie's gradient splits evenly."""
        a, b, parents = self._pair(other, "maximum")
        return self._new(a.maximum(b), *parents)

    def minimum(self, other: Operand) -> Self:
        """The smaller of two: ``-max(-a, -b)``, NaN if either is."""
        a, b, parents = self._pair(other, "minimum")
        if a.dtype.is_float:
            return self._new(-((-a).maximum(-b)), *parents)
        # As in min(): negation would wrap, complement reverses the order.
        return self._new(_flipped(_flipped(a).maximum(_flipped(b))), *parents)

    def where(self, a: Operand, b: Operand) -> Self:
        """``a`` where this bool tensor is true, else ``b``."""
        if self.dtype is not boolean:
            raise TypeError(f"where: the condition must be bool, not {self.dtype}")
        a, b = (v if isinstance(v, Base) else python_scalar(v) for v in (a, b))
        tensors = [t for t in (a, b) if isinstance(t, Base)]
        if not tensors:
            tensors = [Base(a)]  # two numbers: the first gives the dtype
        try:
            dtype = functools.reduce(promote, (t.dtype for t in tensors))
            shape = broadcast_shape(self.shape, *(t.shape for t in tensors))
        except (TypeError, ValueError) as error:
            raise explained(error, "where", self, *tensors) from None
        for v in (a, b):
            if not isinstance(v, Base):
                dtype = promote_scalar(dtype, v)
        x, y = (
            broadcast_to(v.uop.cast(dtype), shape)
            if isinstance(v, Base)
            else UOp.const(v, dtype).broadcast_scalar(shape)
            for v in (a, b)
        )
        return self._new(broadcast_to(self.uop, shape).where(x, y), *tensors)

    def cast(self, dtype: DType | Any) -> Self:
        """Convert; out of range saturates, NaN gives 0, integers wrap."""
        return self._new(self.uop.cast(as_dtype(dtype)))

    astype = to = cast

    def exp(self) -> Self:
        """e to the power x; 0 and inf at -inf and inf."""
        return self._new(composite.exp(self._float()))

    def log(self) -> Self:
        """Natural logarithm; NaN below 0, -inf at 0."""
        return self._new(composite.log(self._float()))

    def exp2(self) -> Self:
        """2 to the power x; 0 and inf at -inf and inf."""
        return self._new(self._float().exp2())

    def log2(self) -> Self:
        """Logarithm to base 2; NaN below 0, -inf at 0."""
        return self._new(self._float().log2())

    def log1p(self) -> Self:
        """``log(1 + x)``, right for small x too; NaN below -1, -inf at -1."""
        return self._new(composite.log1p(self._float()))

    def sqrt(self) -> Self:
        """Square root; NaN below 0. The derivative at 0 is infinite."""
        return self._new(self._float().sqrt())

    def sin(self) -> Self:
        """Sine, x in radians; NaN at inf."""
        return self._new(self._float().sin())

    def cos(self) -> Self:
        """Cosine, x in radians; NaN at inf."""
        return self._new(composite.cos(self._float()))

    def tanh(self) -> Self:
        """Hyperbolic tangent; -1 and 1 at -inf and inf."""
        return self._new(composite.tanh(self._float()))

    def sigmoid(self) -> Self:
        """``1 / (1 + exp(-x))``, without overflow; 0 and 1 at -inf and inf."""
        return self._new(composite.sigmoid(self._float()))

    def logsigmoid(self) -> Self:
        """``log(sigmoid(x))``, without overflow; -inf and 0 at -inf and inf."""
        return self._new(composite.logsigmoid(self._float()))

    def softplus(self) -> Self:
        """``log(1 + exp(x))``, without overflow; 0 and inf at -inf and inf.

        As torch's with beta=1, but without its threshold, beyond which it is x.
        """
        return self._new(composite.softplus(self._float()))

    def relu(self) -> Self:
        """x where positive, else 0, also for NaN; the gradient at 0 is 0."""
        return self._new(composite.relu(self.uop))

    def silu(self) -> Self:
        """``x * sigmoid(x)``, also called swish.

        Zero at -inf, with derivative 0, which are the limits; NaN in JAX.
        """
        return self._new(composite.silu(self._float()))

    def gelu(self) -> Self:
        """GELU in its tanh form, ``x * sigmoid(2z)`` (torch's default is the erf form).

        z is ``sqrt(2 / pi) * (x + 0.044715 * x ** 3)``. Zero at -inf, with derivative
        0, which are the limits; NaN in JAX.
        """
        return self._new(composite.gelu(self._float()))

    def abs(self) -> Self:
        """max(x, -x), 0.0 at -0.0; the gradient at 0 is 0. Of uints and bool, x."""
        if self.dtype.kind in ("uint", "bool"):
            return self._new(self.uop)
        return self._new(composite.absolute(self.uop))

    __abs__ = abs

    def square(self) -> Self:
        """x * x."""
        return self._new(composite.square(self.uop))

    def reciprocal(self) -> Self:
        """1 / x; infinite at 0, of its sign."""
        return self._new(self._float().recip())

    def detach(self) -> Self:
        """The same value, through which no gradient flows."""
        t = self._new(self.uop.detach())
        t._wants, t._leaf = False, True
        return t


def _product(x: UOp, times: int) -> UOp:
    """x multiplied by itself, by the binary digits of ``times``."""
    result = None
    while times:
        if times & 1:
            result = x if result is None else result * x
        x, times = x * x, times >> 1
    return x.const_like(1) if result is None else result


def _flipped(u: UOp) -> UOp:
    """Not, of a bool node; all bits flipped, of integers."""
    if u.dtype is boolean:
        return u.logical_not()
    return u ^ (u.dtype.max if u.dtype.kind == "uint" else -1)

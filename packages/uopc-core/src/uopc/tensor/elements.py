"""Tensor's functions of elements that look at what kind of number each one is."""

from __future__ import annotations

from typing import Self

from uopc import composite
from uopc.tensor.arithmetic import Arithmetic
from uopc.tensor.base import Base, Operand


class Elements(Arithmetic):
    """Rounding, signs, limits, and replacing some elements."""

    __slots__ = ()

    def floor(self) -> Self:
        """The largest whole number at most x, of x's type; the derivative is 0."""
        return self._new(composite.floor(self.uop))

    def ceil(self) -> Self:
        """The least whole number at least x, of x's type; the derivative is 0."""
        return self._new(composite.ceil(self.uop))

    def trunc(self) -> Self:
        """x without its fraction, of x's type; the derivative is 0."""
        return self._new(composite.trunc(self.uop))

    def round(self) -> Self:
        """The nearest whole number, of two the even one; the derivative is 0.

        As in torch and NumPy; ``(x * 100).round() / 100`` keeps two digits.
        """
        return self._new(composite.nearest(self.uop))

    __floor__, __ceil__, __trunc__ = floor, ceil, trunc

    def sign(self) -> Self:
        """-1, 0 or 1, of x's type; NaN of NaN. The derivative is 0."""
        return self._new(composite.sign(self.uop))

    def isnan(self) -> Self:
        """Whether each element is NaN: bool, false of integers."""
        return self._new(composite.isnan(self.uop))

    def isinf(self) -> Self:
        """Whether each element is inf or -inf: bool, false of integers."""
        return self._new(composite.isinf(self.uop))

    def isfinite(self) -> Self:
        """Whether each element is neither infinite nor NaN: bool."""
        return self._new(composite.isfinite(self.uop))

    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Self:
        """Not below ``min`` nor above ``max``, which may be tensors; NaN stays.

        Where ``min > max`` it is ``max``. The gradient is that of x from ``min`` to
        ``max``, both included, as in torch, and 0 beyond; there it goes to the limit,
        if that is a tensor.
        """
        if min is None and max is None:
            raise ValueError("clamp: give min, max, or both")
        result = self
        if min is not None:
            result = (result < min).where(min, result)
        if max is not None:
            result = (result > max).where(max, result)
        return result

    clip = clamp

    def masked_fill(self, mask: Self, value: Operand) -> Self:
        """``value`` where a bool tensor is true, else x; of x's type.

        The mask broadcasts with x. Raises TypeError for a mask that is not bool.
        """
        if not isinstance(mask, Base):
            got = type(mask).__name__
            raise TypeError(f"masked_fill: the mask must be a bool Tensor, not {got}")
        return mask.where(value, self).cast(self.dtype)

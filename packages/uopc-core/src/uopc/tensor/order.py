"""Tensor's functions that compare elements of an axis: where the largest is, sorting.

NaN counts as larger than every number, in all of them.
"""

from __future__ import annotations

from typing import Self

from uopc import composite
from uopc.tensor.einsum import Einsum


class Order(Einsum):
    """Positions are i32, and no gradient flows through them."""

    __slots__ = ()

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The position of the largest element, i32: the first of equal ones.

        A NaN counts as the largest, as in NumPy and JAX. Without ``axis`` it
        is the position in the flattened tensor. Raises ValueError over no elements.
        """
        return self._position("argmax", self, axis, keepdim)

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The position of the smallest element, i32: the first of equal ones.

        If there is a NaN, the first one's, as in NumPy and JAX. Without
        ``axis`` it is the position in the flattened tensor. Raises ValueError over no
        elements.
        """
        if self.dtype.is_float:
            return self._position("argmin", -self, axis, keepdim)
        return self._position("argmin", ~self, axis, keepdim)

    def _position(self, what: str, x: Self, axis: int | None, keepdim: bool) -> Self:
        u, at = (x.uop, x._axis(axis)) if axis is not None else (x.flatten().uop, 0)
        if not u.shape[at]:
            raise ValueError(f"{what} over no elements, of {self.dtype}{[*self.shape]}")
        found = composite.argmax(u, at, keepdim)
        ones = (1,) * self.ndim
        return self._new(found.reshape(ones) if axis is None and keepdim else found)

    def sort(self, axis: int = -1, descending: bool = False) -> Self:
        """The elements along one axis in ascending or descending order.

        NaN is larger than every number: last if ascending, as in NumPy and JAX, first
        if descending, as in JAX. (PyTorch's ``sort`` also returns positions; here
        ``argsort`` gives them.) The gradient of each element goes to where it came
        from; of equal ones each has its own.

        Up to 64 elements are sorted by counting, in n * n comparisons, longer axes by
        merging in some 100 n + n log n log n / 2.
        """
        return self._sorted(axis, descending, None)[0]

    def argsort(self, axis: int = -1, descending: bool = False) -> Self:
        """The positions of the sorted elements along one axis, i32.

        Stable in both directions: equal elements keep their order, and so do NaNs.
        """
        return self._sorted(axis, descending, None)[1]

    def topk(self, k: int, axis: int = -1, largest: bool = True) -> tuple[Self, Self]:
        """The ``k`` largest (or smallest) elements along one axis, and their positions.

        In order, the most extreme first; of equal ones the earlier. A NaN counts as
        larger than every number, as in JAX. The gradient goes to the chosen elements.
        Takes some 100 n operations for a small ``k``.

        Raises ValueError for a ``k`` that is negative or longer than the axis.
        """
        at = self._axis(axis)
        if not 0 <= k <= self.shape[at]:
            raise ValueError(
                f"topk: k must be from 0 to {self.shape[at]}, the length of axis "
                f"{axis} of {self.dtype}{list(self.shape)}, not {k}"
            )
        return self._sorted(axis, largest, k)

    def _sorted(
        self, axis: int, descending: bool, keep: int | None
    ) -> tuple[Self, Self]:
        at = self._axis(axis)
        order = [i for i in range(self.ndim) if i != at] + [at]
        back = [order.index(i) for i in range(self.ndim)]
        x = self.uop.permute(order)
        # Positions do not depend on how elements change: no gradient is to look there.
        places = composite.argsort(
            x.detach(), descending, self.shape[at] if keep is None else keep
        )
        values = composite.along_last(x, places)

        return self._new(values.permute(back)), self._new(places.permute(back))

"""Tensor's functions that move elements."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Self

from uopc import composite
from uopc.composite import broadcast_to
from uopc.dtype import promote
from uopc.tensor.base import explained
from uopc.tensor.reduction import Reduction
from uopc.uop import UOp


def _shape_of(args: tuple[Any, ...]) -> tuple[int, ...]:
    """Shapes come as one sequence or as separate integers."""
    if len(args) == 1 and isinstance(args[0], Iterable):
        return tuple(args[0])
    return args


class Movement(Reduction):
    """Views and copies of elements, without arithmetic."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """The same elements, row-major; one length may be -1."""
        new = list(_shape_of(shape))
        if new.count(-1) > 1:
            raise ValueError(f"reshape: more than one -1 in {tuple(new)}")
        if -1 in new:
            rest = math.prod(n for n in new if n != -1)
            if not rest or self.numel() % rest:
                raise ValueError(f"reshape: {self.shape} does not fit {tuple(new)}")
            new[new.index(-1)] = self.numel() // rest
        return self._new(self.uop.reshape(new))

    def flatten(self, start: int = 0) -> Self:
        """Join the axes from ``start`` on into one."""
        start = self._axis(start) if self.ndim else 0
        return self.reshape((*self.shape[:start], math.prod(self.shape[start:])))

    def expand(self, *shape: Any) -> Self:
        """Repeat axes of length 1, and add axes in front; -1 keeps a length."""
        new = list(_shape_of(shape))
        old = (1,) * (len(new) - self.ndim) + self.shape
        new = [o if n == -1 else n for n, o in zip(new, old, strict=False)]
        if len(new) < self.ndim:
            raise ValueError(f"expand: {tuple(new)} has fewer axes than {self.shape}")
        return self._new(broadcast_to(self.uop, new))

    def permute(self, *axes: Any) -> Self:
        """Reorder axes."""
        order = [self._axis(a) for a in _shape_of(axes)]
        return self._new(self.uop.permute(order))

    def transpose(self, a: int = -2, b: int = -1) -> Self:
        """Swap two axes; the last two by default."""
        if self.ndim < 2:
            return self
        order = list(range(self.ndim))
        a, b = self._axis(a), self._axis(b)
        order[a], order[b] = order[b], order[a]
        return self._new(self.uop.permute(order))

    @property
    def T(self) -> Self:
        """The last two axes swapped."""
        return self.transpose()

    def unsqueeze(self, axis: int) -> Self:
        """Insert an axis of length 1."""
        at = self._axis(axis, extra=1)
        return self._new(self.uop.reshape((*self.shape[:at], 1, *self.shape[at:])))

    def squeeze(self, axis: int | None = None) -> Self:
        """Remove one axis of length 1, or all of them."""
        if axis is None:
            return self._new(self.uop.reshape([n for n in self.shape if n != 1]))
        at = self._axis(axis)
        if self.shape[at] != 1:
            raise ValueError(f"squeeze: axis {axis} of {self.shape} is not 1 long")
        return self._new(self.uop.reshape(self.shape[:at] + self.shape[at + 1 :]))

    def flip(self, axis: int | Sequence[int] | None = None) -> Self:
        """Reverse the order along one axis, several, or all."""
        return self._new(composite.flip(self.uop, self._axes(axis)))

    def shrink(self, window: Sequence[tuple[int, int]]) -> Self:
        """Keep a (begin, end) window of every axis."""
        return self._new(self.uop.shrink(window))

    def pad(self, widths: Sequence[tuple[int, int]]) -> Self:
        """Zeros before and after each axis: one (before, after) pair per axis."""
        pairs = [tuple(w) for w in widths]
        if len(pairs) != self.ndim or any(len(p) != 2 or min(p) < 0 for p in pairs):
            raise ValueError(
                f"pad: expected {self.ndim} pairs of lengths >= 0, got {pairs}"
            )
        return self._new(composite.pad(self.uop, pairs))  # type: ignore[arg-type]

    @classmethod
    def cat(cls, tensors: Sequence[Self], axis: int = 0) -> Self:
        """Join tensors along an existing axis."""
        first, nodes = _same_dtype(tensors, "cat")
        at = first._axis(axis)
        for t in tensors:
            same = t.shape[:at] + t.shape[at + 1 :]
            if t.ndim != first.ndim or same != first.shape[:at] + first.shape[at + 1 :]:
                raise ValueError(
                    f"cat: shapes {first.shape} and {t.shape} differ outside "
                    f"axis {axis}"
                )
        joined: Self = first._new(composite.cat(nodes, at), *tensors)
        return joined

    @classmethod
    def stack(cls, tensors: Sequence[Self], axis: int = 0) -> Self:
        """Join tensors of one shape along a new axis."""
        first, nodes = _same_dtype(tensors, "stack")
        for t in tensors:
            if t.shape != first.shape:
                raise ValueError(f"stack: shapes {first.shape} and {t.shape} differ")
        at = first._axis(axis, extra=1)
        joined: Self = first._new(composite.stack(nodes, at), *tensors)
        return joined

    def stack_with(self, *others: Self) -> Self:
        """This tensor and others along a new first axis."""
        return self.stack([self, *others])


def _same_dtype(tensors: Sequence[Any], what: str) -> tuple[Any, list[UOp]]:
    if not tensors:
        raise ValueError(f"{what}: needs at least one tensor")
    try:
        dtype = functools.reduce(promote, (t.dtype for t in tensors))
    except TypeError as error:
        raise explained(error, what, *tensors) from None
    return tensors[0], [t.uop.cast(dtype) for t in tensors]

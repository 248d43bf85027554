"""Tensor's functions that move elements, and indexing."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
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

    # -- indexing -------------------------------------------------------------

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise TypeError("a 0-d tensor has no axis to iterate over; use .item()")
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Self:
        """Integers, slices of any step, ``...`` and None (a new axis)."""
        keys = _full_key(key if isinstance(key, tuple) else (key,), self.shape)
        u, leading = self.uop, True
        axis = 0
        picked: list[int] = []
        for k in keys:
            if picked and (k is None or isinstance(k, slice)):
                u, picked = u.index(*picked), []
            if k is None:
                u = u.reshape((*u.shape[:axis], 1, *u.shape[axis:]))
                axis, leading = axis + 1, False
            elif isinstance(k, slice):
                u = _slice_axis(u, axis, k)
                axis, leading = axis + 1, False
            elif leading:
                picked.append(_position(k, u.shape[len(picked)], self.shape))
            else:
                u = _pick(u, axis, _position(k, u.shape[axis], self.shape))
        return self._new(u.index(*picked) if picked else u)


def _same_dtype(tensors: Sequence[Any], what: str) -> tuple[Any, list[UOp]]:
    if not tensors:
        raise ValueError(f"{what}: needs at least one tensor")
    try:
        dtype = functools.reduce(promote, (t.dtype for t in tensors))
    except TypeError as error:
        raise explained(error, what, *tensors) from None
    return tensors[0], [t.uop.cast(dtype) for t in tensors]


def _full_key(key: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
    """The key with ``...`` written out and missing axes added."""
    taken = sum(k is not None and k is not Ellipsis for k in key)
    if taken > len(shape) or sum(k is Ellipsis for k in key) > 1:
        raise IndexError(f"too many indices {key} for shape {shape}")
    rest = [slice(None)] * (len(shape) - taken)
    result: list[Any] = []
    for k in key:
        result += rest if k is Ellipsis else [k]
    return result if any(k is Ellipsis for k in key) else result + rest


def _position(k: Any, n: int, shape: tuple[int, ...]) -> int:
    try:
        if isinstance(k, bool):
            raise TypeError  # to NumPy a mask, not a position
        i = operator.index(k)
    except TypeError:
        raise TypeError(
            f"index of type {type(k).__name__} is not supported; use integers, "
            "slices, None or ..., or one_hot(n) @ table to select by data"
        ) from None
    if not -n <= i < n:
        raise IndexError(f"index {i} is out of range for shape {shape}")
    return i % n


def _window(u: UOp, axis: int, begin: int, end: int) -> UOp:
    if (begin, end) == (0, u.shape[axis]):
        return u
    window = [(0, n) for n in u.shape]
    window[axis] = (begin, end)
    return u.shrink(window)


def _pick(u: UOp, axis: int, i: int) -> UOp:
    return _window(u, axis, i, i + 1).reshape(u.shape[:axis] + u.shape[axis + 1 :])


def _slice_axis(u: UOp, axis: int, k: slice) -> UOp:
    begin, end, step = k.indices(u.shape[axis])
    picks = range(begin, end, step)
    if not picks:
        return _window(u, axis, 0, 0)
    low, high = min(picks[0], picks[-1]), max(picks[0], picks[-1])
    u = _window(u, axis, low, high + 1)
    if step < 0:
        u = composite.flip(u, [axis])
    if abs(step) > 1 and len(picks) > 1:
        u = _every(u, axis, abs(step), len(picks))
    return u


def _every(u: UOp, axis: int, step: int, n: int) -> UOp:
    """Every ``step``-th element: whole groups, then the first of each."""
    widths = [(0, 0)] * len(u.shape)
    widths[axis] = (0, n * step - u.shape[axis])
    u = composite.pad(u, widths)
    head, tail = u.shape[:axis], u.shape[axis + 1 :]
    grouped = u.reshape((*head, n, step, *tail))
    return _window(grouped, axis + 1, 0, 1).reshape((*head, n, *tail))

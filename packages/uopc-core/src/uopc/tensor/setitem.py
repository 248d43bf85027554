"""Tensor's assignment to elements: by position, by slices, by data and by masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from uopc import composite
from uopc.composite import broadcast_shape, broadcast_to
from uopc.dtype import boolean
from uopc.runtime.values import lock
from uopc.tensor.base import Base, Operand, explained
from uopc.tensor.gather import (
    Gather,
    _chosen,
    _full_key,
    _is_data,
    _places,
    _position,
    _side_by_side,
)
from uopc.tensor.given import from_data, python_scalar
from uopc.uop import UOp

WHAT = "setitem"


class _MaskAxis(NamedTuple):
    """One axis of a mask in a key."""

    mask: UOp
    axis: int


class _Selection:
    """What a key names: the places on each axis, and the shape that it selects.

    Attributes:
        shape: lengths of the selection's axes; a mask counts as one axis of length 1.
        picks: places by axis, where slices and integers name them.
        chosen: indices of one shape by axis, where data names them.
        masked: the axes of a mask.
        mask: the mask itself, or None.
        block: where in ``shape`` the axes of the data (or mask) are, begin and end.
        kept: for each other axis of ``shape`` the tensor's axis, None for a new one.
    """

    def __init__(self, t: Base, key: Sequence[Any]) -> None:
        given = tuple(axis for k in key for axis in _unfolded(k, t))
        self.picks: dict[int, range] = {}
        self.chosen: dict[int, UOp] = {}
        self.masked: list[int] = []
        self.mask: UOp | None = None
        self.kept: list[int | None] = []
        axis, first = 0, None
        for k in _full_key(given, t, WHAT, tuple(key)):
            if k is None:
                self.kept.append(None)
                continue
            if isinstance(k, slice):
                self.picks[axis] = _places(k, t.shape[axis], t, WHAT)
                self.kept.append(axis)
            else:
                first = len(self.kept) if first is None else first
                self._add(t, axis, k)
            axis += 1
        block: tuple[int, ...] = ()
        if self.chosen:
            block = self._broadcast(t)
        elif self.mask is not None:
            block = (1,)
        lengths = [1 if a is None else len(self.picks[a]) for a in self.kept]
        by_data = bool(self.chosen or self.masked)
        start = first if by_data and first and _side_by_side(given) else 0
        self.shape = (*lengths[:start], *block, *lengths[start:])
        self.block = start, start + len(block)

    def _add(self, t: Base, axis: int, k: Any) -> None:
        """Note what a key other than a slice says about one axis."""
        if isinstance(k, _MaskAxis):
            if k.mask.shape[k.axis] != t.shape[axis]:
                why = f"the mask does not fit axis {axis}; their lengths must be equal"
                raise explained(IndexError(why), WHAT, t, k.mask)
            self.masked.append(axis)
            if k.axis == 0 and (self.chosen or len(self.masked) > 1):
                self._one_mask(t, k.mask)
            self.mask = k.mask
        elif _is_data(k):
            self.chosen[axis] = _chosen(k, t.shape[axis], t, WHAT)
            if self.mask is not None:
                self._one_mask(t, self.mask)
        else:
            i = _position(k, t.shape[axis], t, WHAT)
            self.picks[axis] = range(i, i + 1)

    def _one_mask(self, t: Base, mask: UOp) -> None:
        why = "a mask goes with no other mask and no index array; use where()"
        raise explained(TypeError(why), WHAT, t, mask)

    def _broadcast(self, t: Base) -> tuple[int, ...]:
        """Bring the indices to one shape, and return it."""
        nodes = self.chosen.values()
        try:
            shape = broadcast_shape(*(i.shape for i in nodes))
        except ValueError as error:
            raise explained(IndexError(str(error)), WHAT, t, *nodes) from None
        self.chosen = {a: broadcast_to(i, shape) for a, i in self.chosen.items()}
        return shape


class SetItem(Gather):
    """Elements that are given new values, for what is built afterwards."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Operand) -> None:
        """Give the elements that ``t[key]`` reads a new value.

        The tensor has another value from here on; whatever was built from it before,
        views too, keeps the old one.

        Args:
            key: as for ``t[key]``, or a bool mask of the leading axes, or of those
                that it stands for, beside integers, slices, ``...`` and None.
            value: a tensor, which is broadcast to the shape of ``t[key]`` and cast to
                this tensor's dtype, or a number, which must fit: 300 does not fit u8;
                of a float, an integer tensor takes the whole part. How many
                elements a mask names is not known, so each gets the same: a number,
                or slices along the axes that the mask leaves.

        Where an index names an element twice, the last value stays, as in NumPy. Data
        out of range names nothing; an integer out of range raises IndexError.

        Gradients flow to the value and to the elements that stay. A parameter, from
        which gradients start, is not changed in place: RuntimeError.
        """
        v, parents = self._given(value)
        if self._leaf and self._wants:
            why = (
                "a parameter is not changed in place; change a copy and assign it: "
                "c = w.detach(); c[...] = value; w.assign(c)"
            )
            raise explained(RuntimeError(why), WHAT, self, v)
        picked = _Selection(self, key if isinstance(key, tuple) else (key,))
        try:
            v = _fitted(v, picked)
        except ValueError as error:
            raise explained(error, WHAT, self, v) from None
        if 0 in picked.shape or 0 in self.shape:
            return
        with lock:  # another thread may assign to other elements
            self._become(self._new(_updated(self.uop, v, picked), *parents))

    def _given(self, value: Operand) -> tuple[UOp, tuple[Base, ...]]:
        """The value as a node of this tensor's dtype, and the tensors it is made of."""
        if isinstance(value, Base):
            return value.uop.cast(self.dtype), (value,)
        try:
            number = python_scalar(value)
            if self.dtype is boolean:
                number = bool(number)
            return from_data(number, self.dtype), ()
        except (TypeError, ValueError, OverflowError) as error:
            raise explained(error, WHAT, self) from None

    def _become(self, new: Base) -> None:
        """Have the value of another tensor, and its part in gradients."""
        if new._wants:
            self.uop, self._leaf, self._wants = new.uop, False, True
            self._graph = self._home = self._was = None
        else:
            self.assign(new)  # so the memory of data may be used again
        # Unlike after assign, a value that was read leads to what it came from.
        self._assigned = False


def _unfolded(k: Any, t: Base) -> list[Any]:
    """The axes of a mask, or else the key."""
    if not _is_data(k) or (not isinstance(k, Base) and np.size(k) == 0):
        return [k]
    array = k if isinstance(k, Base) else Base(k)
    if array.dtype is not boolean:
        return [array]
    if not array.ndim:
        why = "a mask of shape () has no axis; use mask.where(value, t)"
        raise explained(TypeError(why), WHAT, t)
    return [_MaskAxis(array.uop, axis) for axis in range(array.ndim)]


def _fitted(v: UOp, picked: _Selection) -> UOp:
    """The value with as many axes as the selection, each of its length or 1."""
    shape = picked.shape
    while len(v.shape) > len(shape) and v.shape[0] == 1:
        v = v.reshape(v.shape[1:])
    lead = (1,) * (len(shape) - len(v.shape))
    if len(v.shape) > len(shape) or any(
        n not in (1, m) for n, m in zip(lead + v.shape, shape, strict=True)
    ):
        if picked.mask is not None:
            raise ValueError(
                "a mask names as many elements as are true, which a graph cannot know; "
                f"the value must broadcast to {shape}, the same for each of them"
            )
        raise ValueError(f"the value does not broadcast to the selection's {shape}")
    return v.reshape(lead + v.shape) if lead else v


def _updated(old: UOp, v: UOp, picked: _Selection) -> UOp:
    """The old node, but the value where the selection is.

    An element of the old node is read for the same element of the new one only, so that
    the new one may be written in its place.
    """
    shape = old.shape
    v, masks = _spread_data(v, shape, picked)
    for axis, picks in picked.picks.items():
        n = shape[axis]
        if picks == range(n):
            continue
        if v.shape[axis] > 1:
            v = composite.put(v, axis, picks, n)
        if len(picks) < n:
            masks.append(_along(composite.inside(picks, n), [axis], len(shape)))
    v = broadcast_to(v, shape)
    if not masks:
        return v
    mask, *others = masks
    for m in others:
        both = broadcast_shape(mask.shape, m.shape)
        mask = broadcast_to(mask, both) & broadcast_to(m, both)
    return broadcast_to(mask, shape).where(v, old)


def _spread_data(
    v: UOp, shape: tuple[int, ...], picked: _Selection
) -> tuple[UOp, list[UOp]]:
    """The value under the tensor's axes, and masks of what data names.

    Along the axes of a slice the value is as it was given; along those of data each
    element has the value that was written last.
    """
    begin, end = picked.block
    rank = len(shape)
    block = picked.shape[begin:end]
    axes = sorted([*picked.chosen, *picked.masked])
    given = v.shape
    alike = all(n == 1 for n in given[begin:end])
    lengths = dict(zip(picked.kept, given[:begin] + given[end:], strict=True))
    rest = [1 if a in axes else lengths.get(a, 1) for a in range(rank)]
    if picked.mask is not None:
        return v.reshape(rest), [_along(picked.mask, axes, rank)]
    if not axes:
        return v.reshape(rest), []
    idx = [picked.chosen[a] for a in axes]
    if math.prod(block) == 1:
        single = zip(axes, idx, strict=True)
        masks = [
            _along(composite.at_position(i.reshape(()), shape[a]), [a], rank)
            for a, i in single
        ]
        return v.reshape(rest), masks
    where = [shape[a] for a in axes]
    if alike:
        return v.reshape(rest), [_along(composite.written(idx, where), axes, rank)]
    order = [*range(begin, end), *range(begin), *range(end, len(given))]
    others = [n for a, n in enumerate(rest) if a not in axes]
    wide = broadcast_to(v, (*given[:begin], *block, *given[end:]))
    rows = wide.permute(order).reshape((math.prod(block), *others))
    last = composite.last_writer(idx, where)
    found = rows.index(last)
    back = [*axes, *(a for a in range(rank) if a not in axes)]
    found = found.permute([back.index(a) for a in range(rank)])
    return found, [_along(last > -1, axes, rank)]


def _along(u: UOp, axes: Sequence[int], rank: int) -> UOp:
    """A node whose axes are these of an array, which has 1 on its others."""
    lengths = dict(zip(axes, u.shape, strict=True))
    return u.reshape([lengths.get(a, 1) for a in range(rank)])

"""Tensor's indexing: by position, by slices, and by data."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from uopc import composite
from uopc.composite import broadcast_shape, broadcast_to
from uopc.dtype import boolean, i32, promote
from uopc.tensor.base import Base, explained
from uopc.tensor.movement import Movement
from uopc.uop import UOp


class Gather(Movement):
    """Elements chosen by position, and added up by position.

    Where a position is data (an integer tensor, a NumPy array, a list), negative ones
    count from the end, and one outside of [-n, n) reads 0 and gets no gradient. (NumPy
    and PyTorch raise an error there, JAX takes the nearest one.) A Python integer is
    known when the graph is built; out of range it raises IndexError.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise TypeError("a 0-d tensor has no axis to iterate over; use .item()")
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Self:
        """Integers, slices of any step, ``...``, None (a new axis), integer tensors.

        Tensors, NumPy arrays and lists of integers choose by data. Their axes go where
        NumPy puts them: in place of the axes that they index if those lie side by
        side, else first; integers beside them count as tensors of shape ().

        Raises IndexError for an integer out of range, for too many keys and for
        tensors whose shapes do not broadcast, TypeError for bool masks (how much they
        choose is not known before they are computed) and other types.
        """
        given = key if isinstance(key, tuple) else (key,)
        keys = _full_key(given, self, "index")
        if any(map(_is_data, keys)):
            return self._new(_by_data(self, keys, _side_by_side(given)))
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
                u = _slice_axis(u, axis, _places(k, u.shape[axis], self, "index"))
                axis, leading = axis + 1, False
            elif leading:
                picked.append(_position(k, u.shape[len(picked)], self, "index"))
            else:
                u = _pick(u, axis, _position(k, u.shape[axis], self, "index"))
        return self._new(u.index(*picked) if picked else u)

    def take(self, index: Any, axis: int | None = 0) -> Self:
        """The slices along ``axis`` at some positions.

        Args:
            index: an integer tensor, NumPy array, list or number of any shape, which
                takes the place of the axis in the result.
            axis: the axis; None takes elements of the flattened tensor, which is
                ``numpy.take``'s default.
        """
        if axis is None:
            return self.flatten().take(index)
        at = self._axis(axis)
        chosen = _chosen(index, self.shape[at], self, "take")
        nodes = composite.index_nodes(self.shape, {at: chosen})
        return self._new(self.uop.index(*nodes))

    def index_select(self, axis: int, index: Any) -> Self:
        """``take`` with PyTorch's order of arguments, by a 1-d index."""
        idx = _data(index, "index_select", self)
        if len(idx.shape) != 1:
            why = "the index must have one axis; take() is for others"
            raise explained(ValueError(why), "index_select", self, idx)
        return self.take(index, axis)

    def gather(self, axis: int, index: Any) -> Self:
        """For each element of ``index``, one along ``axis``, as PyTorch's gather.

        ``result[i, j, k] = self[i, index[i, j, k], k]`` for axis 1 of 3. The index has
        as many axes as the tensor and is nowhere longer, except along ``axis``.
        """
        at, idx = self._along(axis, index, "gather")
        return self._new(self.uop.index(*self._elements(at, idx)))

    def take_along_axis(self, index: Any, axis: int) -> Self:
        """``gather`` as in NumPy: the other axes of tensor and index broadcast."""
        what = "take_along_axis"
        at, idx = self._axis(axis), _data(index, what, self)
        shape = list(self.shape)
        try:
            if len(idx.shape) != self.ndim:
                raise ValueError("the index must have as many axes as the tensor")
            own, other = (list(x.shape) for x in (self, idx))
            own[at] = other[at] = 1
            shape = list(broadcast_shape(tuple(own), tuple(other)))
        except ValueError as error:
            raise explained(error, what, self, idx) from None
        shape[at] = self.shape[at]
        wide = self._new(broadcast_to(self.uop, shape))
        shape[at] = idx.shape[at]
        return wide.gather(at, self._new(broadcast_to(idx, shape)))

    def take_along_dim(self, index: Any, axis: int) -> Self:
        """``take_along_axis`` by PyTorch's name."""
        return self.take_along_axis(index, axis)

    def scatter_add(self, axis: int, index: Any, src: Self) -> Self:
        """This tensor plus elements of ``src`` at positions along ``axis``.

        ``result[i, index[i, j, k], k] += src[i, j, k]`` for axis 1 of 3, as PyTorch's
        scatter_add. What is added to one element is summed from 0.0, in the order of
        the index, and then added to it; half types are summed in f32. A position out
        of range adds nothing.

        Args:
            axis: which axis the positions are on.
            index: integers, as for ``gather``, and nowhere longer than ``src``.
            src: what to add; types combine as in a sum.
        """
        what = "scatter_add"
        at, idx = self._along(axis, index, what)
        if not isinstance(src, Base):
            raise TypeError(f"{what}: expected a Tensor to add, got {src!r}")
        try:
            if self.dtype is src.dtype is boolean:
                raise TypeError("sums of bool need a cast to an integer")
            dtype = promote(self.dtype, src.dtype)
            if src.ndim != self.ndim:
                raise ValueError("what is added must have as many axes as the tensor")
            if any(n > m for n, m in zip(idx.shape, src.shape, strict=True)):
                raise ValueError("the index is longer than what is added")
        except (TypeError, ValueError) as error:
            raise explained(error, what, self, idx, src) from None
        added = src.uop.cast(dtype).shrink([(0, n) for n in idx.shape])
        nodes = self._elements(at, idx)
        total = composite.scatter_add(added, nodes, self.shape)
        return self._new(self.uop.cast(dtype) + total, src)

    def _along(self, axis: int, index: Any, what: str) -> tuple[int, UOp]:
        """The axis, and the index as positions on it, of this tensor's rank."""
        at, idx = self._axis(axis), _data(index, what, self)
        same = len(idx.shape) == self.ndim
        if not same or any(
            n > m
            for k, (n, m) in enumerate(zip(idx.shape, self.shape, strict=True))
            if k != at
        ):
            why = (
                "the index must have as many axes as the tensor and be nowhere longer, "
                f"except along axis {at}"
            )
            raise explained(ValueError(why), what, self, idx)
        return at, composite.from_end(idx, self.shape[at])

    def _elements(self, axis: int, idx: UOp) -> list[UOp]:
        """Indices of single elements: ``idx`` along the axis, else the own position."""
        places = [broadcast_to(p, idx.shape) for p in _positions(idx.shape)]
        return [*places[:axis], idx, *places[axis + 1 :]]


def _positions(shape: tuple[int, ...]) -> list[UOp]:
    """0, 1, ... along each axis, which is as long as given; the others are 1 long."""
    rank = len(shape)
    return [
        composite.iota(n).reshape([n if k == axis else 1 for k in range(rank)])
        for axis, n in enumerate(shape)
    ]


def _full_key(
    key: tuple[Any, ...], t: Base, what: str, given: tuple[Any, ...] | None = None
) -> list[Any]:
    """The key with ``...`` written out and missing axes added.

    ``given`` is how the user wrote it, if that is another form.
    """
    taken = sum(k is not None and k is not Ellipsis for k in key)
    if taken > t.ndim or sum(k is Ellipsis for k in key) > 1:
        shown = ", ".join(map(_shown, key if given is None else given))
        why = f"too many indices in [{shown}]: {taken} for {t.ndim} axes"
        if taken <= t.ndim:
            why = f"more than one ... in [{shown}]"
        raise explained(IndexError(why), what, t)
    rest = [slice(None)] * (t.ndim - taken)
    result: list[Any] = []
    for k in key:
        result += rest if k is Ellipsis else [k]
    return result if any(k is Ellipsis for k in key) else result + rest


def _shown(k: Any) -> str:
    """A part of a key as it is written; of data, type and shape."""
    if k is Ellipsis:
        return "..."
    if isinstance(k, slice):
        parts = (k.start, k.stop) if k.step is None else (k.start, k.stop, k.step)
        return ":".join("" if part is None else str(part) for part in parts)
    if isinstance(k, (Base, np.ndarray)):
        return f"{k.dtype}{list(k.shape)}"
    return repr(k)


def _position(k: Any, n: int, t: Base, what: str) -> int:
    try:
        if isinstance(k, bool):
            raise TypeError  # to NumPy a mask, not a position
        i = operator.index(k)
    except TypeError:
        why = (
            f"index of type {type(k).__name__} is not supported; use integers, "
            "slices, None, ... or tensors of integers"
        )
        raise explained(TypeError(why), what, t) from None
    if not -n <= i < n:
        why = f"index {i} is out of range for an axis of length {n}"
        raise explained(IndexError(why), what, t)
    return i % n


def _is_data(k: Any) -> bool:
    """Whether a key is an array, rather than known when the graph is built."""
    if isinstance(k, np.ndarray):
        return k.ndim > 0
    return isinstance(k, (Base, list, tuple))


def _data(k: Any, what: str, t: Base) -> UOp:
    """An array of positions as a node of integers."""
    if isinstance(k, np.ndarray):
        k = Base(k)
    elif not isinstance(k, Base):
        k = Base(k, None if np.size(k) else i32)  # [] is an array of floats to NumPy
    u: UOp = k.uop
    if u.dtype is boolean:
        raise explained(
            TypeError(
                "a bool mask chooses as many elements as are true, which a graph "
                "cannot know; use mask.where(x, 0), or positions from "
                "mask.numpy().nonzero(); in place of t[mask] += 1 it is "
                "t[...] = mask.where(t + 1, t)"
            ), what, t, u,
        )  # fmt: skip
    if not u.dtype.is_int:
        why = f"an index must be of an integer type, not {u.dtype}"
        raise explained(TypeError(why), what, t, u)
    return u


def _chosen(k: Any, n: int, t: Base, what: str) -> UOp:
    """Positions on an axis of length ``n``, known or not, counted from the front."""
    if _is_data(k):
        return composite.from_end(_data(k, what, t), n)
    return UOp.const(_position(k, n, t, what), i32)


def _side_by_side(key: Sequence[Any]) -> bool:
    """Whether nothing, not even an empty ``...``, is between positions in a key."""
    at = [n for n, k in enumerate(key) if _is_position(k)]
    return all(map(_is_position, key[at[0] : at[-1]]))


def _is_position(k: Any) -> bool:
    return k is not None and k is not Ellipsis and not isinstance(k, slice)


def _by_data(t: Base, keys: Sequence[Any], in_place: bool) -> UOp:
    """The slices and new axes of a key first, then what its arrays choose."""
    u = t.uop
    chosen: dict[int, UOp] = {}
    for axis, k in enumerate(keys):
        if k is None:
            u = u.reshape((*u.shape[:axis], 1, *u.shape[axis:]))
        elif isinstance(k, slice):
            u = _slice_axis(u, axis, _places(k, u.shape[axis], t, "index"))
        else:
            chosen[axis] = _chosen(k, u.shape[axis], t, "index")
    try:
        shape = broadcast_shape(*(i.shape for i in chosen.values()))
    except ValueError as error:
        raise explained(IndexError(str(error)), "index", t, *chosen.values()) from None
    wide = {axis: broadcast_to(i, shape) for axis, i in chosen.items()}
    return u.index(*composite.index_nodes(u.shape, wide, in_place))


def _window(u: UOp, axis: int, begin: int, end: int) -> UOp:
    if (begin, end) == (0, u.shape[axis]):
        return u
    window = [(0, n) for n in u.shape]
    window[axis] = (begin, end)
    return u.shrink(window)


def _pick(u: UOp, axis: int, i: int) -> UOp:
    return _window(u, axis, i, i + 1).reshape(u.shape[:axis] + u.shape[axis + 1 :])


def _places(k: slice, n: int, t: Base, what: str) -> range:
    """The places that a slice names on an axis of length ``n``."""
    try:
        return range(*k.indices(n))
    except (TypeError, ValueError) as error:
        raise explained(error, what, t) from None


def _slice_axis(u: UOp, axis: int, picks: range) -> UOp:
    step = picks.step
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

"""Tensor's functions that cut, repeat, shift and pick elements by their place."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Self

from uopc.composite import iota
from uopc.tensor.convolution import Convolution
from uopc.tensor.movement import _shape_of


class Pieces(Convolution):
    """What is written with views and slices."""

    __slots__ = ()

    def split(self, size: int | Sequence[int], axis: int = 0) -> tuple[Self, ...]:
        """Pieces along an axis: of a given length, the last maybe shorter, or several.

        As in torch; in NumPy a number says how many pieces there are, which is
        ``chunk`` here. Raises ValueError unless several lengths add up to the axis.
        """
        at = self._axis(axis)
        n = self.shape[at]
        if isinstance(size, int):
            if size < 1:
                raise ValueError(f"split: expected a length from 1, got {size}")
            lengths = [min(size, n - begin) for begin in range(0, n, size)] or [0]
        else:
            lengths = list(size)
            if sum(lengths) != n or any(m < 0 for m in lengths):
                raise ValueError(
                    f"split: {lengths} does not add up to {n}, the length of axis "
                    f"{axis} of {self.shape}"
                )
        bounds = itertools.accumulate(lengths, initial=0)
        return tuple(self._window(at, *pair) for pair in itertools.pairwise(bounds))

    def chunk(self, count: int, axis: int = 0) -> tuple[Self, ...]:
        """``count`` pieces along an axis, fewer if it is short, as in torch.

        All are equally long but the last, which may be shorter.
        """
        if count < 1:
            raise ValueError(f"chunk: expected a number from 1, got {count}")
        n = self.shape[self._axis(axis)]
        return self.split(max(1, -(-n // count)), axis)

    def unbind(self, axis: int = 0) -> tuple[Self, ...]:
        """The tensors along an axis, without it."""
        at = self._axis(axis)
        return tuple(t.squeeze(at) for t in self.split(1, at) if t.shape[at])

    def _window(self, at: int, begin: int, end: int) -> Self:
        """Some places along an axis."""
        window = [(0, n) for n in self.shape]
        window[at] = (begin, end)
        return self.shrink(window)

    def roll(
        self, shift: int | Sequence[int], axis: int | Sequence[int] | None = None
    ) -> Self:
        """Elements moved on by ``shift`` places, those at the end back to the start.

        Along one axis, or several with a shift for each; without one, of the flattened
        elements.
        """
        if axis is None:
            if not isinstance(shift, int):
                raise ValueError(f"roll: {shift} needs axes, one for each shift")
            return self.flatten().roll(shift, 0).reshape(self.shape)
        shifts = [shift] if isinstance(shift, int) else list(shift)
        axes = [axis] if isinstance(axis, int) else list(axis)
        if len(shifts) != len(axes):
            raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
        result = self
        for by, at in zip(shifts, map(self._axis, axes), strict=True):
            n = self.shape[at]
            if n and by % n:
                cut = n - by % n
                parts = [result._window(at, cut, n), result._window(at, 0, cut)]
                result = self.cat(parts, at)
        return result

    def tile(self, *counts: int) -> Self:
        """The whole repeated along each axis; axes are added in front as needed.

        As NumPy's ``tile``, and ``repeat`` of torch, which has the same here.
        """
        times = list(_shape_of(counts))
        if any(n < 0 for n in times):
            raise ValueError(f"tile: expected numbers from 0, got {times}")
        times = [1] * (self.ndim - len(times)) + times
        shape = (1,) * (len(times) - self.ndim) + self.shape
        pairs = list(zip(times, shape, strict=True))
        apart = self.reshape([m for _, n in pairs for m in (1, n)])
        wide = apart.expand([m for pair in pairs for m in pair])
        return wide.reshape([k * n for k, n in pairs])

    repeat = tile

    def repeat_interleave(self, count: int, axis: int | None = None) -> Self:
        """Each element repeated; without an axis, of the flattened elements.

        It is ``numpy.repeat`` with a number.
        """
        if count < 0:
            raise ValueError(f"repeat_interleave: expected a count from 0, got {count}")
        if axis is None:
            return self.flatten().repeat_interleave(count, 0)
        at = self._axis(axis)
        wide = [*self.shape[: at + 1], count, *self.shape[at + 1 :]]
        shape = list(self.shape)
        shape[at] *= count
        return self.unsqueeze(at + 1).expand(wide).reshape(shape)

    def tril(self, diagonal: int = 0) -> Self:
        """The last two axes' lower triangles, with 0 above a diagonal."""
        return self._triangle("tril", diagonal, lower=True)

    def triu(self, diagonal: int = 0) -> Self:
        """The last two axes' upper triangles, with 0 below a diagonal."""
        return self._triangle("triu", diagonal, lower=False)

    def _triangle(self, what: str, diagonal: int, lower: bool) -> Self:
        if self.ndim < 2:
            raise ValueError(f"{what}: expected two axes or more, got {self.shape}")
        rows, columns = self.shape[-2:]
        i = iota(rows).reshape((rows, 1)).expand((rows, columns))
        j = iota(columns).reshape((1, columns)).expand((rows, columns))
        kept = self._new(j - i < diagonal + 1 if lower else diagonal - 1 < j - i)
        return kept.where(self, 0)

    def diag(self, diagonal: int = 0) -> Self:
        """Of a vector the matrix with it on a diagonal, of a matrix the diagonal."""
        if self.ndim == 2:
            rows, columns = self.shape
            down, right = min(max(-diagonal, 0), rows), min(max(diagonal, 0), columns)
            return self._window(0, down, rows)._window(1, right, columns).diagonal()
        if self.ndim != 1:
            raise ValueError(f"diag: expected one or two axes, got {self.shape}")
        n, off = self.shape[0], abs(diagonal)
        # Each row is one longer than it should be, so that they begin one further on.
        all_rows = self.unsqueeze(1).pad([(0, 0), (0, n)]).flatten()
        square = all_rows._window(0, 0, n * n).reshape(n, n)
        above = (off, 0) if diagonal < 0 else (0, off)
        beside = (0, off) if diagonal < 0 else (off, 0)
        return square.pad([above, beside])

    def diff(self, n: int = 1, axis: int = -1) -> Self:
        """Each element less the one before it, ``n`` times; of bool, if they differ.

        One shorter each time.
        """
        if n < 0:
            raise ValueError(f"diff: expected n from 0, got {n}")
        at, result = self._axis(axis), self
        for _ in range(n):
            m = result.shape[at]
            later = result._window(at, min(1, m), m)
            earlier = result._window(at, 0, max(m - 1, 0))
            boolean = result.dtype.kind == "bool"
            result = later.ne(earlier) if boolean else later - earlier
        return result

    def unfold(self, axis: int, size: int, step: int = 1) -> Self:
        """All windows of ``size`` along an axis, every ``step`` places, on a new axis.

        The windows' places are where the axis was, and their elements come last, as in
        torch. Raises ValueError for a window that does not fit.
        """
        at = self._axis(axis)
        n = self.shape[at]
        if not 1 <= size <= n or step < 1:
            raise ValueError(
                f"unfold: windows of {size} every {step} do not fit axis {axis} of "
                f"{self.shape}"
            )
        count = (n - size) // step + 1
        parts = [self._window(at, i, i + (count - 1) * step + 1) for i in range(size)]
        every = [slice(None)] * at + [slice(None, None, step)]
        strided = [p[tuple(every)] for p in parts]
        return self.stack(strided, self.ndim)

    def movedim(self, source: int, destination: int) -> Self:
        """One axis moved to another place; the others keep their order."""
        order = [i for i in range(self.ndim) if i != self._axis(source)]
        order.insert(self._axis(destination), self._axis(source))
        return self.permute(order)

    def ravel(self) -> Self:
        """All elements on one axis."""
        return self.flatten()

"""Memory for large arrays: blocks of pages, kept and used again.

The first touch of a page costs more than most of what is computed in it: 64 MB take 26
ms to touch in pages of 4 KiB, 5 ms in huge ones of 2 MiB, and 4 ms to write once they
are there. So blocks lie on huge pages where the kernel has them, and what arrays give
back when they are collected is kept for others of about the same size.

No more is kept than was in use at most within the last one or two periods; what was
free for longest goes back to the system first. So a loop finds all that it gave back,
and what a program needed that is over is let go while the next one runs.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from uopc.uop import fork_safe

Array = np.ndarray[Any, Any]

PAGE, HUGE_PAGE = 1 << 12, 1 << 21
# Sizes of blocks per power of two: less than a sixteenth of a block is left over.
SIZES = 16
PERIOD = 10.0  # seconds

_lock = fork_safe(threading.RLock())


class _Block:
    """Some pages; ``view`` is of what may be used of them."""

    __slots__ = ("free_since", "size", "view")

    def __init__(self, size: int) -> None:
        self.size, self.view = size, _mapped(size)
        self.free_since = 0.0


class _Loan(weakref.ref[Array]):
    """An array in a block, which is free when nothing refers to the array any more.

    Whatever views the array refers to it, since its own base is no array.
    """

    __slots__ = ("block",)
    block: _Block


class Pool:
    """Blocks in use, and blocks that are kept.

    Args:
        clock: the time in seconds.

    Attributes:
        used: bytes in use.
        kept: bytes that are free.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.used = self.kept = 0
        # Of a size, what became free last is used first: it may be in a cache yet.
        self._free: dict[int, list[_Block]] = {}
        self._loans: dict[int, _Loan] = {}
        self._returned: deque[_Loan] = deque()
        # The most that was in use in this period, and in the one before.
        self._most = self._most_before = 0
        # Arrays are collected until the interpreter ends, when globals are gone.
        self._clock, self._lock = clock, _lock
        self._begun = clock()

    def array(self, size: int, dtype: np.dtype[Any]) -> Array:
        """A flat array of ``size`` elements that begins on a page; of any content.

        Raises MemoryError if there is no memory.
        """
        n = block_size(size * dtype.itemsize)
        with self._lock:
            if self._returned:
                self._drain()
            try:
                block = self._free[n].pop()
                self.kept -= n
            except (KeyError, IndexError):
                block = self._other_block(n)
            self.used += block.size
            if self.used > self._most:
                self._most = self.used
        array: Array = np.ndarray(size, dtype, block.view)
        loan = _Loan(array, self._give_back)
        loan.block = block
        self._loans[id(loan)] = loan
        return array

    def release(self) -> int:
        """Give what is kept back to the system; returns how many bytes it was."""
        with self._lock:
            self._drain()
            return self._release(0)

    def _other_block(self, n: int) -> _Block:
        """A new block, where none of the size is free, or a larger one."""
        if self.kept + n > max(self._most, self._most_before):
            # Something would have to go for a new one.
            sizes = [m for m, free in list(self._free.items()) if free and m >= n]
            size = min(sizes, default=0)
            if n <= size <= 2 * n:
                self.kept -= size
                return self._free[size].pop()
        try:
            return _Block(n)
        except MemoryError:
            self._release(0)
            return _Block(n)

    def _give_back(self, loan: _Loan) -> None:
        """An array has been collected, anywhere: nothing may wait for a lock here."""
        self._returned.append(loan)
        if self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()

    def _drain(self) -> None:
        """Count the blocks as free that were given back, and keep not too many."""
        now = self._clock()
        while self._returned:  # by whatever thread, and some may come meanwhile
            loan = self._returned.popleft()
            del self._loans[id(loan)]
            block = loan.block
            self.used -= block.size
            self.kept += block.size
            block.free_since = now
            self._free.setdefault(block.size, []).append(block)
        if self.kept > self._most or now - self._begun > PERIOD:
            self._trim(now)

    def _trim(self, now: float) -> None:
        if now - self._begun > PERIOD:
            self._most_before, self._most, self._begun = self._most, self.used, now
        self._release(max(self._most, self._most_before))

    def tidy(self) -> None:
        """Keep not too much, though no large array has come or gone."""
        if self.kept and (now := self._clock()) - self._begun > PERIOD:
            with self._lock:
                self._trim(now)

    def _release(self, limit: int) -> int:
        """Let go of what was free for longest until no more than ``limit`` is kept."""
        before = self.kept
        while self.kept > limit:
            free = min(filter(None, list(self._free.values())), key=_oldest)
            self.kept -= free.pop(0).size
        return before - self.kept


def _oldest(free: list[_Block]) -> float:
    return free[0].free_since


@lru_cache(maxsize=1024)
def block_size(nbytes: int) -> int:
    """How large a block is that has room for so many bytes."""
    step = max(PAGE, (1 << (nbytes - 1).bit_length()) // (2 * SIZES))
    return -(-nbytes // step) * step


def _mapped(size: int) -> memoryview:
    """Pages that nobody has used."""
    import mmap  # for start-up's sake

    # A huge page has an address that is a multiple of its size.
    is_huge = size >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE")
    length = size + HUGE_PAGE if is_huge else size
    # Private, so that a child that is forked has its own.
    private = getattr(mmap, "MAP_PRIVATE", None)
    try:
        if private is None:  # on Windows, where nothing is forked
            memory = mmap.mmap(-1, length)
        else:
            memory = mmap.mmap(-1, length, private | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"no memory for {size:,} bytes: {error}") from None
    if not is_huge:
        return memoryview(memory)
    start = -np.frombuffer(memory, np.uint8).ctypes.data % HUGE_PAGE
    with suppress(OSError):  # of a kernel without: other pages do as well
        memory.madvise(mmap.MADV_HUGEPAGE, 0, start + size)
    return memoryview(memory)[start : start + size]


pool = Pool()


def release_memory() -> int:
    """Give memory back to the system that no array uses; returns how many bytes.

    Memory of large arrays is kept for the next ones, as the module's text says; so this
    is for a program that has finished with its tensors, and goes on without them.
    """
    return pool.release()

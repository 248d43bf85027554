"""The data behind BUFFER nodes.

A BUFFER is a slot and a version; writing makes a new version, so readers built
earlier keep the value they were built on. Data lives as long as its node.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import weakref
from functools import cache
from typing import Any

import numpy as np

from uopc.dtype import DType, from_numpy, u8
from uopc.runtime.capture import note_data
from uopc.runtime.pages import pool
from uopc.uop import FIRST_LIVE_SLOT, Literal, UOp

Array = np.ndarray[Any, Any]

ALIGNMENT = 64
# From so many bytes on, arrays have pages of their own, which are kept for the next.
POOLED = 1 << 16

_slots = itertools.count(FIRST_LIVE_SLOT)
_versions = itertools.count(1)
_data: weakref.WeakKeyDictionary[UOp, Array] = weakref.WeakKeyDictionary()
# Why the data of a node is gone, where it was given up on purpose.
_released: weakref.WeakKeyDictionary[UOp, str] = weakref.WeakKeyDictionary()


def empty(size: int, dtype: DType) -> Array:
    """A flat array whose first byte lies on a cache line's start; of any content.

    Its base is no array. So whatever views it refers to it, not to its base, and its
    references tell whether anybody else has the memory.
    """
    nbytes = size * dtype.itemsize
    if nbytes >= POOLED:
        return pool.array(size, dtype.storage)
    pool.tidy()
    raw = bytearray(nbytes + ALIGNMENT)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(raw)) % ALIGNMENT
    return np.ndarray(size, dtype.storage, raw, start)


def copied(array: Array, dtype: DType) -> Array:
    """A copy of a flat array of the dtype's ``storage``, in memory of `empty`."""
    new = empty(array.size, dtype)
    new[:] = array
    return new


def filled(size: int, constant: Literal) -> Array:
    """A flat array, all of whose elements are one number."""
    array = empty(size, constant.dtype)
    array.view(f"u{constant.dtype.itemsize}")[:] = constant.bits
    return array


def new_buffer(array: Array, dtype: DType | None = None) -> UOp:
    """A BUFFER of its own that holds ``array`` (flat; owned from now on).

    ``dtype`` is needed where memory alone does not tell it: bf16 is stored as u16.
    """
    dtype = dtype or from_numpy(array.dtype)
    node = UOp.buffer(array.size, dtype, next(_slots))
    _data[node] = array
    note_data(node)
    return node


def next_version(node: UOp, array: Array) -> UOp:
    """The same slot, written anew: the BUFFER that later readers use."""
    size, dtype, slot, _, _ = node.arg
    if array.size != size or array.dtype != dtype.storage:
        raise ValueError(f"{array.dtype}[{array.size}] does not fit {node!r}")
    new = UOp.buffer(size, dtype, slot, next(_versions))
    _data[new] = array
    return new


def buffer_data(node: UOp) -> Array:
    """The flat array behind a BUFFER.

    Raises RuntimeError if it has none: parsed text, or data given up since.
    """
    try:
        return _data[node]
    except KeyError:
        why = _released.get(node, "it was never given any")
        raise RuntimeError(f"buffer {tuple(node.arg)} has no data: {why}") from None


def release(node: UOp, why: str) -> None:
    """Free the data of a BUFFER whose node may live on in old graphs."""
    _data.pop(node, None)
    _released[node] = why


def take(node: UOp, why: str) -> Array | None:
    """As `release`, but for the data to be written over.

    None, and nothing is taken, if anybody else has that memory: another node, a
    program that runs, or who is about to copy it.
    """
    if node not in _data or _references(node) != _alone():
        return None
    _released[node] = why
    return _data.pop(node)


def put_back(node: UOp, array: Array) -> None:
    """Undo `take`."""
    _data[node] = array
    _released.pop(node, None)


def _references(node: UOp) -> int:
    """How many references there are to the array of a node; 0 if they tell nothing."""
    array = _data[node]
    return 0 if isinstance(array.base, np.ndarray) else sys.getrefcount(array)


@cache
def _alone() -> int:
    """The references to an array that only a node has.

    They are counted, as what is counted besides differs between versions of Python.
    """
    return _references(new_buffer(empty(1, u8)))

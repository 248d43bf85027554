"""The NumPy meanings of ops that take more than an expression, one function each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from uopc.uop.node import UOp

Array = np.ndarray[Any, Any]


def recip(u: UOp, x: Array) -> Array:
    """1 / x in the type of x."""
    return np.asarray(x.dtype.type(1) / x)


def sigmoid(u: UOp, x: Array) -> Array:
    """From exp(-|x|), which cannot overflow."""
    one, e = x.dtype.type(1), np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, e, one) / (one + e))


def fma(u: UOp, a: Array, b: Array, c: Array) -> Array:
    """The product is exact for f32 in f64, so that little is rounded twice."""
    wide = np.float64 if a.dtype == np.float32 else a.dtype
    return np.asarray(a.astype(wide) * b + c, a.dtype)


def shift_left(u: UOp, x: Array, n: Array) -> Array:
    """A shift by the width of the type or more gives 0."""
    return np.asarray(np.where(n < u.dtype.bits, np.left_shift(x, n), 0), x.dtype)


def shift_right(u: UOp, x: Array, n: Array) -> Array:
    """A shift by the width of the type or more gives 0."""
    return np.asarray(np.where(n < u.dtype.bits, np.right_shift(x, n), 0), x.dtype)


def reduce(u: UOp, x: Array) -> Array:
    """The last axes combined, starting from the identity of a sum or a product."""
    op, n = u.arg
    axes = tuple(range(x.ndim - n, x.ndim))
    if x.shape == u.shape + (1,) * n:
        return x.reshape(u.shape)  # one element is its own sum, -0.0 too
    if op.name == "max":
        if 0 in u.shape:
            return np.empty(u.shape, x.dtype)  # NumPy wants an identity even so
        return np.asarray(np.max(x, axis=axes))
    ufunc = {"add": np.add, "mul": np.multiply}[op.name]
    start = op.identity(u.dtype)  # NumPy would sum up negative zeros to one
    return np.asarray(ufunc.reduce(x, axis=axes, dtype=x.dtype, initial=start))


def shrink(u: UOp, x: Array) -> Array:
    """A window of every axis."""
    return x[tuple(slice(b, e) for b, e in u.arg)]


def _in_range(idx: tuple[Array, ...], lengths: tuple[int, ...]) -> Array:
    inside = np.ones(idx[0].shape, bool)
    for i, n in zip(idx, lengths, strict=True):
        inside &= (i >= 0) & (i < n)
    return inside


def index(u: UOp, x: Array, *idx: Array) -> Array:
    """The slices at the indices, 0 where out of range."""
    gates = idx[-1:] if idx[-1].dtype == bool else ()  # in loops: whether to read
    idx = idx[: len(idx) - len(gates)]
    lengths = x.shape[: len(idx)]
    inside = _in_range(idx, lengths)
    for gate in gates:
        inside &= gate
    if 0 in lengths:
        return np.zeros(u.shape, x.dtype)
    safe = tuple(np.where(inside, i, 0).astype(np.intp) for i in idx)
    keep = inside.reshape(inside.shape + (1,) * (x.ndim - len(idx)))
    return np.where(keep, x[safe], x.dtype.type(0))


def scatter_add(u: UOp, g: Array, *idx: Array) -> Array:
    """The slices of ``g`` added up where the indices say, one after the other."""
    total = np.zeros(u.shape, g.dtype)
    inside = _in_range(idx, u.arg)
    places = tuple(i[inside].astype(np.intp) for i in idx)
    np.add.at(total, places, g[inside])
    return total

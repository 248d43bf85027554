"""Values with error bounds: how far apart two correct backends may be.

Backends agree to the bit on integers, on copies and on correctly rounded ops. They
may differ by a few units in the last place where a function is not correctly
rounded or a sum is added up in another order; whatever is computed from there on
inherits and changes that difference. ``evaluate_bounded`` follows it through a graph,
element by element, so that a comparison is as strict as it can be and no stricter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from uopc.dtype import DType, bf16
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]

# Of one function that is not correctly rounded.
FUNCTION_ULPS = 4
# A relative error from here on says that an element has no digits left.
HOPELESS = 2.0**-7


class Bounded(NamedTuple):
    """A value and, per element, how far another backend may be from it.

    ``error`` is f64: 0 demands equal bits, inf leaves the element open (a
    comparison of two numbers that are equal up to rounding, say).
    """

    value: Array
    error: Array


def evaluate_bounded(
    roots: Sequence[UOp], inputs: Mapping[UOp, Array]
) -> list[Bounded]:
    """The values of ``roots`` with error bounds, given those of their leaves."""
    facts: dict[UOp, Bounded] = {}
    for u in toposort(roots):
        if u in inputs:
            facts[u] = exactly(inputs[u])
        else:
            facts[u] = bounded_step(u, [facts[s] for s in u.src])
    return [facts[r] for r in roots]


def exactly(value: Array) -> Bounded:
    """A value without an error."""
    return Bounded(value, np.zeros(value.shape))


def bounded_step(u: UOp, sources: Sequence[Bounded]) -> Bounded:
    """One node, from its sources' values and bounds."""
    with np.errstate(all="ignore"):
        value = u.op.compute(u, *(s.value for s in sources))
        if u.op is Ops.REDUCE:
            error = _reduced(u, value, sources[0])
        elif u.op is Ops.INDEX:
            error = _indexed(u, sources)
        elif u.op is Ops.SCATTER_ADD:
            error = _scattered(u, value, sources)
        elif u.op is Ops.CONV:
            error = _convolved(u, value, *sources)
        elif u.op is Ops.WHERE:
            cond, a, b = sources
            error = np.where(cond.value, a.error, b.error)
            error = np.where(cond.error > 0, np.inf, error)
        elif u.op.kind == "elementwise":
            error = _elementwise(u, value, sources)
        elif u.src:  # copies: the errors move along with the elements
            error = u.op.compute(u, *(s.error for s in sources))
        else:
            error = np.zeros(value.shape)
    return Bounded(value, error)


def differences(actual: Array, expected: Bounded) -> Array:
    """A mask of the elements of ``actual`` that are further off than allowed."""
    value, error = expected
    if actual.shape != value.shape or actual.dtype != value.dtype:
        raise TypeError(
            f"expected {value.dtype}{list(value.shape)}, "
            f"got {actual.dtype}{list(actual.shape)}"
        )
    same = actual == value
    if value.dtype.kind != "f":
        return np.asarray(~(same | (error > 0)))
    with np.errstate(all="ignore"):
        same &= (np.signbit(actual) == np.signbit(value)) | (error > 0)
        same |= np.isnan(actual) & np.isnan(value)
        near = (error > 0) & (np.abs(actual.astype(float) - value) <= error)
    return np.asarray(~(same | near | np.isinf(error)))


def _ulp(value: Array, dtype: DType) -> Array:
    """The distance to the next number, 0 where ``value`` is not finite."""
    gap = np.abs(np.spacing(value)).astype(float)
    if dtype is bf16:  # an f32 with 16 bits fewer
        gap *= 2.0**16
    return np.where(np.isfinite(value), gap, 0)


def _elementwise(u: UOp, value: Array, sources: Sequence[Bounded]) -> Array:
    """Try the op at both ends of every source's interval."""
    meaning: Any = u.op.numpy
    wide = [
        s.value.astype(float) if s.value.dtype.kind == "f" else s.value for s in sources
    ]
    touched = np.zeros(value.shape, bool)
    error = np.zeros(value.shape)
    for i, (s, x) in enumerate(zip(sources, wide, strict=True)):
        if not s.error.any():
            continue
        off = s.error > 0
        touched |= off
        if x.dtype.kind != "f":
            error = np.where(off, np.inf, error)  # an integer or bool left open
            continue
        open_ = off & _hopeless(u, i, s.error, wide)
        middle = np.asarray(meaning(u, *wide))
        step = np.zeros(value.shape)
        for way in (-2 * s.error, 2 * s.error):
            moved = [*wide[:i], x + np.where(open_, 0, way), *wide[i + 1 :]]
            step = np.maximum(step, _distance(np.asarray(meaning(u, *moved)), middle))
        error = np.where(off, error + step, error)
        error = np.where(open_, np.inf, error)
    if value.dtype.kind != "f":
        return np.where(error > 0, np.inf, 0)
    # What is right to some digits of f32 is right to one of a half type.
    ulps = 0 if _plain(u) else 1 if u.dtype.is_half else FUNCTION_ULPS
    ulp = _ulp(value, u.dtype)
    return np.asarray(error + np.where(touched, ulps + 1, ulps) * ulp)


def _plain(u: UOp) -> bool:
    """Whether an op is correctly rounded, or a choice."""
    return u.op.exact or u.op is Ops.MAX


def _hopeless(u: UOp, i: int, error: Array, sources: Sequence[Array]) -> Array:
    """Where the ends of the interval of source ``i`` say nothing of what is between."""
    x = sources[i]
    # A function may swing within what is small against its argument.
    scale = np.maximum(np.abs(x), 1) if _plain(u) else 1.0
    open_ = error > HOPELESS * scale
    if u.op is Ops.FLOORMOD:  # so does a remainder, once per divisor
        a, b = sources
        drift = error if i == 0 else error * np.abs(a / b)
        open_ |= drift > np.abs(b) / 16
    if u.op.domain in ("positive", "nonzero", "integer") and i == len(sources) - 1:
        open_ |= error > np.abs(x) / 16  # a pole may lie inside
    return np.asarray(open_)


def _distance(a: Array, b: Array) -> Array:
    if a.dtype.kind != "f":
        return np.where(a != b, np.inf, 0)
    gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
    return np.asarray(np.where(np.isnan(gap), np.inf, gap))


def _reduced(u: UOp, value: Array, source: Bounded) -> Array:
    op, n = u.arg
    x, error = source
    axes = tuple(range(x.ndim - n, x.ndim))
    if value.dtype.kind != "f":
        return np.where((error > 0).any(axis=axes), np.inf, 0)
    count = int(np.prod(x.shape[x.ndim - n :]))
    eps = float(np.finfo(u.dtype.wide.numpy).eps)
    if op is Ops.MAX:
        total = np.asarray(error.max(axis=axes, initial=0))
    elif op is Ops.ADD:
        size = np.abs(x.astype(float)) + error
        total = error.sum(axis=axes) + count * eps * size.sum(axis=axes)
    else:
        low = np.abs(x.astype(float))
        high = (low + error).prod(axis=axes)
        total = high - low.prod(axis=axes) + count * eps * high
    if u.dtype.is_half and count > 1:  # accumulated in f32 and rounded at the end
        total = total + np.where(total > 0, _ulp(value, u.dtype), 0)
    # Infinities and NaN come out the same in any order, unless terms are open.
    total = np.where(np.isfinite(value) | np.isinf(error).any(axis=axes), total, 0)
    total = np.where(np.isnan(total), np.inf, total)
    # Which zero is the larger one is left open.
    least = float(_ulp(np.zeros((), value.dtype), u.dtype))
    return total + (least if count > 1 and op is Ops.MAX else 0)


def _indexed(u: UOp, sources: Sequence[Bounded]) -> Array:
    table, *idx = sources
    meaning: Any = u.op.numpy
    error = np.asarray(meaning(u, table.error, *(i.value for i in idx)))
    for i in idx:
        off = (i.error > 0).reshape(i.error.shape + (1,) * (error.ndim - i.error.ndim))
        error = np.where(off, np.inf, error)
    return error


def _scattered(u: UOp, value: Array, sources: Sequence[Bounded]) -> Array:
    """The order of the sums is the op's own: without an error in, there is none out."""
    g, *idx = sources
    if any((i.error > 0).any() for i in idx):
        return np.full(value.shape, np.inf)
    meaning: Any = u.op.numpy
    places = [i.value for i in idx]
    total = np.asarray(meaning(u, g.error, *places))
    if value.dtype.kind != "f":
        return np.where(total > 0, np.inf, 0)
    size = meaning(u, np.abs(g.value.astype(float)) + g.error, *places)
    count = meaning(u, np.ones(g.value.shape), *places)
    rounding = count * float(np.finfo(u.dtype.wide.numpy).eps) * size
    if u.dtype.is_half:
        rounding = rounding + _ulp(value, u.dtype)
    total = total + np.where(total > 0, rounding, 0)
    total = np.where(np.isfinite(value) | np.isinf(total), total, 0)
    return np.asarray(np.where(np.isnan(total), np.inf, total))


def _convolved(u: UOp, value: Array, x: Bounded, w: Bounded) -> Array:
    """Sums of products, in any order: at most one term for each pair of elements."""
    meaning: Any = u.op.numpy
    a, b = (np.abs(s.value.astype(float)) for s in (x, w))
    if not np.isfinite(a).all() or not np.isfinite(b).all():
        # Which zeros, of padding, an infinity is multiplied by is left open.
        return np.full(value.shape, np.inf)
    with np.errstate(all="ignore"):
        total = meaning(u, x.error, b + w.error) + meaning(u, a, w.error)
        if value.dtype.kind != "f":
            return np.where(total > 0, np.inf, 0)
        size = meaning(u, a + x.error, b + w.error)
    count = np.prod(np.minimum(a.shape[2:], b.shape[2:]))
    total = total + count * float(np.finfo(u.dtype.wide.numpy).eps) * size
    if u.dtype.is_half:  # accumulated in f32 and rounded at the end
        total = total + np.where(total > 0, _ulp(value, u.dtype), 0)
    total = np.where(np.isfinite(value) | np.isinf(total), total, 0)
    return np.asarray(np.where(np.isnan(total), np.inf, total))

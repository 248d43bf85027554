"""Which elements of a graph its roots take, at one point.

JAX differentiates what no root takes as well, multiplies by zero, and gives NaN where
the derivative there is infinite. Its users write "double where": the argument of a
function is replaced too where its value will not be taken. `liveness` says where that
is, from the roots down, on values: a second way to what the engine does with guards.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]
Values = Mapping[UOp, Array]


def liveness(roots: Sequence[UOp], point: Values) -> dict[UOp, Array]:
    """For each float node a mask: True where an element reaches a root."""
    live = {u: np.zeros(u.shape, bool) for u in toposort(roots)}
    for root in roots:
        live[root][...] = True
    for u in reversed(toposort(roots)):
        if u.dtype.is_float:
            for i, s in enumerate(u.src):
                if s.dtype.is_float:
                    live[s] |= used(u, i, live[u], point)
    return live


def used(u: UOp, i: int, live: Array, point: Values) -> Array:
    """What node ``u`` takes of its source ``i`` where ``live`` of it are taken."""
    rule = RULES.get(u.op)
    return live if rule is None else rule(u, i, live, point)


def _of_where(u: UOp, i: int, live: Array, point: Values) -> Array:
    taken = point[u.src[0]]
    return live & (taken if i == 1 else ~taken)


def _of_max(u: UOp, i: int, live: Array, point: Values) -> Array:
    return live & ~(point[u.src[i]] < point[u.src[1 - i]])


def _of_expand(u: UOp, i: int, live: Array, point: Values) -> Array:
    pairs = enumerate(zip(u.src[0].shape, u.shape, strict=True))
    axes = tuple(axis for axis, (n, m) in pairs if n != m)
    return live.any(axis=axes, keepdims=True)


def _of_shrink(u: UOp, i: int, live: Array, point: Values) -> Array:
    whole = np.zeros(u.src[0].shape, bool)
    whole[tuple(slice(b, e) for b, e in u.arg)] = live
    return whole


def _of_reduce(u: UOp, i: int, live: Array, point: Values) -> Array:
    x = point[u.src[0]]
    wide = (1,) * u.arg.n
    taken = np.broadcast_to(live.reshape(u.shape + wide), x.shape)
    if u.arg.op is not Ops.MAX:
        return taken
    return taken & ~(x < point[u].reshape(u.shape + wide))


def _of_index(u: UOp, i: int, live: Array, point: Values) -> Array:
    whole = np.zeros(u.src[0].shape, bool)
    places = [point[s] for s in u.src[1:]]
    inside = within(places, whole.shape)
    np.logical_or.at(whole, tuple(p[inside] for p in places), live[inside])
    return whole


def _of_scatter_add(u: UOp, i: int, live: Array, point: Values) -> Array:
    places = [point[s] for s in u.src[1:]]
    inside = within(places, u.shape)
    taken = np.zeros(u.src[0].shape, bool)
    taken[inside] = live[tuple(p[inside] for p in places)]
    return taken


def within(places: Sequence[Array], shape: Sequence[int]) -> Array:
    """Where indices are in range."""
    inside = np.ones(places[0].shape, bool)
    for p, n in zip(places, shape, strict=False):
        inside &= (p >= 0) & (p < n)
    return inside


# Elementwise ops and STAGE take the same elements of each source.
RULES: dict[Any, Callable[[UOp, int, Array, Values], Array]] = {
    Ops.WHERE: _of_where,
    Ops.MAX: _of_max,
    Ops.RESHAPE: lambda u, i, live, p: live.reshape(u.src[0].shape),
    Ops.EXPAND: _of_expand,
    Ops.PERMUTE: lambda u, i, live, p: live.transpose(np.argsort(u.arg)),
    Ops.SHRINK: _of_shrink,
    Ops.FLIP: lambda u, i, live, p: np.flip(live, u.arg),
    Ops.REDUCE: _of_reduce,
    Ops.STACK: lambda u, i, live, p: live[i],
    Ops.INDEX: _of_index,
    Ops.SCATTER_ADD: _of_scatter_add,
}

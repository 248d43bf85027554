"""Graphs as JAX functions: a table from op to `jax.numpy`, about one line each.

What selects (bools, integers, what `//` gives) has no derivative and is taken as it is
at the point. The element of a source that a selection leaves out is replaced, so that
JAX, which multiplies it by zero, multiplies a finite number; `liveness` says which.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from liveness import liveness, used, within

from uopc.testing.derivatives import Derivatives
from uopc.testing.frozen import is_fixed
from uopc.uop import Ops, UOp

Array = np.ndarray[Any, Any]
Traced = Any
Meaning = Callable[..., Traced]


class Point:
    """The values of a graph's nodes at its inputs, and what its roots take."""

    def __init__(self, d: Derivatives) -> None:
        frozen = d.frozen()
        self.order, self.values = frozen.order, frozen.point
        self.live = liveness(d.graph.roots, self.values)

    def function(
        self, roots: Sequence[UOp], targets: Sequence[UOp]
    ) -> Callable[[Sequence[Traced]], list[Traced]]:
        """The roots as a function of the targets."""

        def f(inputs: Sequence[Traced]) -> list[Traced]:
            known: dict[UOp, Traced] = dict(zip(targets, inputs, strict=True))
            for u in self.order:
                if u not in known:
                    known[u] = self._value(u, [known[s] for s in u.src])
            return [known[r] for r in roots]

        return f

    def _value(self, u: UOp, sources: list[Traced]) -> Traced:
        if is_fixed(u) or not u.src:
            return self.values[u]
        for i, s in enumerate(u.src):
            if s.dtype.is_float:
                sources[i] = self._safe(u, i, sources[i])
        return MEANINGS[u.op](u, *sources)

    def _safe(self, u: UOp, i: int, x: Traced) -> Traced:
        """Source ``i`` as ``u`` may see it, where it takes none of it."""
        taken = used(u, i, self.live[u], self.values)
        if taken.all():
            return x
        # What loses against a maximum goes on losing.
        maximum = u.op is Ops.MAX or (u.op is Ops.REDUCE and u.arg.op is Ops.MAX)
        if not maximum:
            return chosen(taken, x, 1.0)
        wide = self.live[u].reshape(u.shape + (1,) * (x.ndim - len(u.shape)))
        return chosen(taken, x, np.where(wide, -np.inf, np.ones(x.shape)))


def chosen(c: Array, a: Traced, b: Traced) -> Traced:
    """As `jnp.where`, of whole arrays or numbers."""
    a, b = (lax.full(c.shape, x, np.float64) if np.ndim(x) == 0 else x for x in (a, b))
    return lax.select(c, a, b.astype(a.dtype))


def _window(u: UOp, x: Traced) -> Traced:
    begins, ends = [b for b, _ in u.arg], [e for _, e in u.arg]
    return lax.slice(x, begins, ends)


def _reduce(u: UOp, x: Traced) -> Traced:
    axes = tuple(range(x.ndim - u.arg.n, x.ndim))
    if u.arg.op is Ops.MUL:
        return jnp.prod(x, axes)
    return (lax.reduce_max if u.arg.op is Ops.MAX else lax.reduce_sum)(x, axes)


def one_hot(shape: Sequence[int], places: Sequence[Array]) -> Array:
    """Rows that hold a 1 at the place, in an array of ``shape`` laid flat."""
    inside = within(places, shape)
    flat = np.full(inside.shape, -1)
    flat[inside] = np.ravel_multi_index([p[inside] for p in places], shape)
    rows: Array = np.arange(math.prod(shape)) == flat.reshape(-1, 1)
    return rows.astype(np.float64)


def _index(u: UOp, x: Traced, *places: Array) -> Traced:
    lead = x.shape[: len(places)]
    rest = math.prod(x.shape[len(places) :])
    rows = one_hot(lead, places)
    return lax.reshape(lax.dot(rows, lax.reshape(x, (rows.shape[1], rest))), u.shape)


def _scatter_add(u: UOp, g: Traced, *places: Array) -> Traced:
    rows = one_hot(u.arg, places).T
    rest = math.prod(u.shape[len(places) :])
    return lax.reshape(lax.dot(rows, lax.reshape(g, (rows.shape[1], rest))), u.shape)


MEANINGS: dict[Any, Meaning] = {
    Ops.ADD: lambda u, a, b: a + b,
    Ops.MUL: lambda u, a, b: a * b,
    Ops.DIV: lambda u, a, b: a / b,
    Ops.POW: lambda u, a, b: lax.exp(lax.log(a) * b),
    Ops.MAX: lambda u, a, b: lax.max(a, b),
    Ops.RECIP: lambda u, x: 1.0 / x,
    Ops.EXP2: lambda u, x: lax.exp2(x),
    Ops.LOG2: lambda u, x: lax.log(x) / math.log(2),
    Ops.SQRT: lambda u, x: lax.sqrt(x),
    Ops.SIN: lambda u, x: lax.sin(x),
    Ops.COS: lambda u, x: lax.cos(x),
    Ops.EXP: lambda u, x: lax.exp(x),
    Ops.LOG: lambda u, x: lax.log(x),
    Ops.LOG1P: lambda u, x: lax.log1p(x),
    Ops.TANH: lambda u, x: lax.tanh(x),
    Ops.FLOORMOD: lambda u, a, b: jnp.mod(a, b),
    Ops.CAST: lambda u, x: lax.convert_element_type(x, u.dtype.numpy),
    Ops.WHERE: lambda u, c, a, b: chosen(c, a, b),
    Ops.RESHAPE: lambda u, x: lax.reshape(x, u.shape),
    Ops.EXPAND: lambda u, x: lax.broadcast_in_dim(x, u.shape, range(x.ndim)),
    Ops.PERMUTE: lambda u, x: lax.transpose(x, u.arg),
    Ops.SHRINK: lambda u, x: _window(u, x),
    Ops.FLIP: lambda u, x: lax.rev(x, u.arg),
    Ops.REDUCE: _reduce,
    Ops.STACK: lambda u, *xs: lax.concatenate(
        [lax.expand_dims(x, (0,)) for x in xs], 0
    ),
    Ops.INDEX: _index,
    Ops.SCATTER_ADD: _scatter_add,
    Ops.STAGE: lambda u, x, *rest: x,
}

"""How a random graph grows of which derivatives are to be compared.

``random_graph(seed, differentiable=True)``: its roots and most of its inputs are f64,
integers and bools choose between them, and every element that a root reads is a smooth
function of the inputs near the point, with moderate derivatives. What no root reads may
be singular: the branch that a WHERE did not take, what a window leaves out, what loses
against a maximum. No derivative comes from there, although a local one is infinite.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uopc import composite
from uopc.dtype import DType, boolean, f32, f64, i32
from uopc.testing.bounded import Array, Bounded, bounded_step, exactly
from uopc.testing.build import Builder, Options, Step
from uopc.testing.chance import Chance, Shape
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp, toposort

LARGEST = 100.0  # of a value that others are built on
CLEAR = 0.1  # how far from a pole an argument stays
APART = 1e-4  # how far from a tie or a jump, unless the tie is exact

Function = Callable[[UOp], UOp]

# Singular at 0, and NaN or of no interest below.
SINGULAR: tuple[Function, ...] = (
    lambda x: x.sqrt(),
    composite.log,
    lambda x: x.log2(),
    lambda x: x.recip(),
    lambda x: x.const_like(1.0) / x,
    lambda x: x * composite.log(x),
    lambda x: composite.exp(composite.log(x) * 1.5),
    lambda x: composite.exp(composite.log(x) * 0.3),
)
# -inf at 0.
FALLING: tuple[Function, ...] = (
    composite.log,
    lambda x: x.log2(),
    lambda x: -x.recip(),
)
SMOOTH: tuple[Function, ...] = (
    composite.sigmoid,
    composite.gelu,
    composite.relu,
    composite.absolute,
    composite.square,
    composite.tanh,
    composite.silu,
    composite.softplus,
    composite.logsigmoid,
)


class Unfit(ValueError):
    """A node at a point where its derivative is a matter of rounding."""


class DifferentiableBuilder(Builder):
    """A Builder of graphs that have derivatives at their inputs."""

    def __init__(self, chance: Chance, options: Options) -> None:
        types = (f64, i32, boolean)
        super().__init__(chance, dataclasses.replace(options, dtypes=types))
        self.palette = [f64, f64, f64, f64, i32]
        self.float_ops = [
            op
            for op in options.ops
            if op.kind == "elementwise" and op.differentiable and not op.arg
        ]
        self.narrow = f32 in options.dtypes

    def _kinds(self) -> list[Step]:
        if not self.allowed.issuperset(BUILTIN_OPS):
            return super()._kinds()
        mine = (self.guarded, self.left_out, self.outdone, self.masked, self.norm)
        return [*super()._kinds(), *mine * 3, *[self.smooth, self.over_axes] * 3]

    # -- what may be built on -------------------------------------------------

    def fact(self, u: UOp) -> Bounded:
        """The value of a node; Unfit near a tie or a jump."""
        known = self.facts
        for n in toposort([u], lambda n: () if n in known else n.src):
            if n not in known:
                data = self.inputs.get(n)
                sources = [known[s] for s in n.src]
                if data is None:
                    require_fit(n, sources)
                known[n] = bounded_step(n, sources) if data is None else exactly(data)
        return known[u]

    def healthy(self, u: UOp) -> bool:
        """Whether a node's value is finite, moderate and no single number."""
        try:
            value, error = self.fact(u)
        except Unfit:
            return False
        if not u.dtype.is_float:
            return not error.any() and super().healthy(u)
        moderate = bool(np.isfinite(value).all() and (np.abs(value) <= LARGEST).all())
        return moderate and super().healthy(u)

    def value(self, u: UOp) -> Array:
        """The value of a node."""
        return self.fact(u).value

    def roots(self) -> tuple[UOp, ...]:
        """Up to three f64 nodes."""
        self.pool = [u for u in self.pool if u.dtype is f64]
        if not self.pool:
            self.pool.append(self.buffer((2,), f64))
        return super().roots()

    # -- leaves and operands --------------------------------------------------

    def buffer(self, shape: Shape, dtype: DType) -> UOp:
        """A new input: small numbers, zeros and equal ones among them."""
        size = math.prod(shape)
        node = UOp.buffer(size, dtype, len(self.inputs))
        self.inputs[node] = self.chances.span(lambda: self._data(size, dtype))
        return node if shape == (size,) else node.reshape(shape)

    def _data(self, size: int, dtype: DType) -> Array:
        style, seed = self.below(6), self.below(1 << 16)
        rng = np.random.default_rng(seed)
        if dtype is not f64:
            return rng.integers(-1, 6, size).astype(dtype.numpy)
        x = rng.standard_normal(size)
        if style == 2:
            x = np.round(2 * x) / 2
        if style == 3:
            x = np.abs(x) + 0.2
        if style >= 4:  # as behind a ReLU
            x = np.where(x > 0, x + 0.2, 0)
        return x

    def scalar(self, dtype: DType) -> bool | int | float:
        """A constant."""
        if dtype is boolean:
            return self.chance(0.5)
        if dtype is f64:
            return float(self.pick((1.0, 0.0, 2.0, 0.5, -1.0, -0.25, 1.75)))
        return int(self.pick((1, 0, 2, 3, -1)))

    def real(self) -> UOp:
        """An f64 node of the pool, rather a late one."""
        for _ in range(8):
            u = self.node()
            if u.dtype is f64:
                return u
        return next((u for u in reversed(self.pool) if u.dtype is f64), None) or (
            self.buffer(self.shape, f64)
        )

    def nonzero(self, u: UOp) -> UOp:
        """``u``, or something of it that stays away from 0."""
        value = self.value(u)
        if (np.abs(value) > CLEAR).all() and self.chance(0.7):
            return u
        return u * u + 0.5

    def positive(self, u: UOp) -> UOp:
        """``u``, or something of it that is positive."""
        if (self.value(u) > CLEAR).all() and self.chance(0.7):
            return u
        if self.chance(0.2):
            return composite.exp(u * 0.5)
        return u * u + 0.5

    # -- steps ----------------------------------------------------------------

    def elementwise(self, a: UOp | None = None) -> UOp:
        """Any differentiable elementwise op, its arguments kept in the domain."""
        a = a or self.node()
        if a.dtype is not f64 or self.chance(0.06):
            return super().elementwise(a)
        if self.narrow and self.chance(0.02):
            return a.cast(f32).cast(f64)
        op: OpDef = self.pick(self.float_ops)
        if op is Ops.WHERE:
            cond = self.like(a.shape, boolean)
            return cond.where(a, self.like(a.shape, f64, a))
        src = [a]
        while op.arity is None or len(src) < op.arity:
            src.append(self.like(a.shape, f64, a))
        if len(src) == 2 and self.chance(0.3):
            src.reverse()
        if op.domain == "positive":
            base = 0 if op is Ops.POW else -1
            src[base] = self.positive(src[base])
        if op.domain == "nonzero":
            src[-1] = self.nonzero(src[-1])
        return UOp(op, tuple(src))

    def smooth(self) -> UOp:
        """A composite function of elements."""
        f: Function = self.pick(SMOOTH)
        return f(self.real())

    def over_axes(self) -> UOp:
        """A composite function over axes."""
        x = self.real()
        if not x.shape:
            x = x.reshape((1,)).expand((3,))
        axis = self.below(len(x.shape))
        match self.below(6):
            case 0:
                return composite.softmax(x, axis)
            case 1:
                return composite.log_softmax(x, axis)
            case 2:
                return composite.variance(x, [axis], keepdim=self.chance(0.5))
            case 3:
                return composite.mean(x, range(axis + 1), keepdim=self.chance(0.5))
            case 4:
                labels = self.like(x.shape[:-1], i32)
                return composite.cross_entropy(x, labels)
            case _:
                inner = math.prod(x.shape[1:])
                columns = self.like((inner, 1 + self.below(3)), f64)
                return composite.matmul(x.reshape((x.shape[0], inner)), columns)

    def taken(self, x: UOp) -> UOp:
        """Where ``x`` is clear of 0, as a condition; Unfit if that is close."""
        value = self.value(x)
        if self.chance(0.5) and not ((value > 0) & (value < CLEAR)).any():
            return x > 0.0
        return x > CLEAR

    def guarded(self) -> UOp:
        """A function that is singular where a WHERE does not take it."""
        x = self.real()
        f: Function = self.pick(SINGULAR)
        live = self.taken(x)
        if self.chance(0.3):
            live = live & self.like(x.shape, boolean)
        other = self.like(x.shape, f64, x) if self.chance(0.3) else x.const_like(0.0)
        if self.chance(0.3):
            return live.logical_not().where(other, f(x))
        return live.where(f(x), other)

    def left_out(self) -> UOp | None:
        """A singular function, and a window or a gather that leaves the poles out."""
        x = self.real()
        f: Function = self.pick(SINGULAR)
        if not x.shape or not math.prod(x.shape):
            return None
        value = self.value(x)
        rows: Array = (value > CLEAR).reshape(len(value), -1)
        good: Array = np.all(rows, axis=1)
        if not good.any():
            return None
        places = np.flatnonzero(good)
        if self.chance(0.3):
            return f(x).index(int(self.pick(places.tolist())))
        last = first = int(places[0])
        while last + 1 < len(good) and good[last + 1]:
            last += 1
        return f(x).shrink([(first, last + 1), *((0, n) for n in x.shape[1:])])

    def outdone(self) -> UOp:
        """A function that is -inf where it loses against a maximum."""
        x = composite.relu(self.real())
        if ((self.value(x) > 0) & (self.value(x) < CLEAR)).any():
            x = (x > CLEAR).where(x, x.const_like(0.0))
        f: Function = self.pick(FALLING)
        if x.shape and self.chance(0.4):
            return f(x).reduce(Ops.MAX, 1)
        return f(x).maximum(self.like(x.shape, f64, x))

    def masked(self) -> UOp:
        """The logarithm of a masked softmax, where it is not masked."""
        x = self.real()
        if not x.shape:
            x = x.reshape((1,)).expand((3,))
        mask = self.like(x.shape, boolean)
        scores = mask.where(x, x.const_like(-math.inf))
        f = self.pick((composite.softmax, composite.log_softmax))
        p = f(scores, len(x.shape) - 1)
        if f is composite.softmax and self.chance(0.6):
            p = composite.log(p)
        return mask.where(p, x.const_like(0.0))

    def norm(self) -> UOp:
        """A norm that is 0 where all is 0, or a direction."""
        x = self.real()
        if not x.shape:
            x = x.reshape((1,)).expand((2,))
        s = (x * x).reduce(Ops.ADD, 1)
        live = self.taken(s)
        root = s.sqrt()
        if self.chance(0.5):
            return live.where(root, s.const_like(0.0))
        wide = [v.reshape((*s.shape, 1)).expand(x.shape) for v in (live, root)]
        return wide[0].where(x / wide[1], x.const_like(0.0))


def require_fit(u: UOp, sources: Sequence[Bounded]) -> None:
    """Raise Unfit where rounding decides which of several derivatives a node has."""
    if not u.dtype.is_float:
        return
    with np.errstate(all="ignore"):
        if u.op is Ops.MAX:
            a, b = sources
            gap, sure = np.abs(a.value - b.value), (a.error == 0) & (b.error == 0)
            unfit = gap < np.where(sure, 0, APART)
            unfit |= (gap > 0) & (gap < APART)
        elif u.op is Ops.REDUCE and u.arg.op is Ops.MAX:
            x, error = sources[0]
            axes = tuple(range(x.ndim - u.arg.n, x.ndim))
            gap = x.max(axis=axes, keepdims=True, initial=-np.inf) - x
            close = (gap < APART) & ((gap > 0) | (error > 0))
            # One of several close ones may be sure; the largest alone is no tie.
            unfit = close & ((gap < APART).sum(axis=axes, keepdims=True) > 1)
        elif u.op is Ops.FLOORMOD:
            quotient: Any = sources[0].value / sources[1].value
            unfit = np.abs(quotient - np.round(quotient)) < APART
        else:
            return
    if unfit.any():
        raise Unfit

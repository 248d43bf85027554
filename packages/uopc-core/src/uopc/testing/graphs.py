"""Random graphs, to compare backends and passes with the interpreter.

``random_graph(seed)`` is a small program over the whole op table, with inputs for
which its values are worth comparing: they are evaluated while the graph grows, and a
step that gives mostly NaN, one single number, or numbers that no two backends agree
on is taken back.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from uopc.dtype import DTYPES, DType, boolean, f32, f64, i32
from uopc.runtime import new_buffer
from uopc.testing.bounded import Array, Bounded, bounded_step, exactly
from uopc.testing.chance import Chance, Shape
from uopc.uir import to_uir
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp, substitute

# Attempts per step; a graph that cannot grow any more just stays smaller.
ATTEMPTS = 20
HUGE = 1e6


@dataclass(frozen=True)
class RandomGraph:
    """A graph and its inputs.

    Attributes:
        seed: what ``random_graph`` made it from.
        roots: the nodes to compute.
        inputs: the flat array behind each BUFFER; slots count from 0.
        expected: the value of each root, and how far a backend may be off.
    """

    seed: int
    roots: tuple[UOp, ...]
    inputs: Mapping[UOp, Array]
    expected: tuple[Bounded, ...]

    def bound(self) -> list[UOp]:
        """The roots over live buffers with copies of the inputs, ready to realize."""
        live = {u: new_buffer(data.copy()) for u, data in self.inputs.items()}
        return substitute(self.roots, live)

    def text(self) -> str:
        """The graph as ``.uir``, all roots in one, and the line that rebuilds it."""
        joined = UOp(Ops.SINK, self.roots, "roots")
        return f"# random_graph({self.seed})\n{to_uir(joined)}\n"


def random_graph(
    seed: int,
    *,
    steps: int = 20,
    max_elements: int = 256,
    ops: Sequence[OpDef] = BUILTIN_OPS,
    dtypes: Sequence[DType] = tuple(DTYPES.values()),
) -> RandomGraph:
    """The random graph number ``seed``: the same arguments give the same graph.

    Args:
        seed: any integer that is not negative.
        steps: how many nodes to add to the first inputs, roughly.
        max_elements: the largest node.
        ops: what to build from. Of a plugin's ops, elementwise ones without an
            argument are used: ``ops=(*BUILTIN_OPS, ERF)``.
        dtypes: the element types of inputs and casts; bool and i32 come up in
            any case, as conditions and indices.
    """
    builder = _Builder(seed, max_elements, ops, dtypes)
    for _ in range(3):
        builder.step([builder.leaf])
    for _ in range(steps):
        builder.step(builder.choose())
    roots = builder.roots()
    expected = tuple(builder.fact(r) for r in roots)
    return RandomGraph(seed, roots, builder.inputs, expected)


class _Builder(Chance):
    """A pool of nodes that grows step by step, with the value of each."""

    def __init__(
        self, seed: int, limit: int, ops: Sequence[OpDef], dtypes: Sequence[DType]
    ) -> None:
        super().__init__(seed)
        self.limit = limit
        self.elementwise_ops = [
            op
            for op in ops
            if op.kind == "elementwise" and (op is Ops.CAST or not op.arg)
        ]
        self.allowed = set(ops)
        self.dtypes = list(dtypes)
        # Few types and shapes per graph, so that operands find each other.
        # Seeds in a row take turns at the types.
        self.palette = [self.dtypes[seed % len(dtypes)], self.pick(self.dtypes)]
        floats = [d for d in (f32, f32, f64) if d in self.dtypes]
        self.palette += [d for d in floats if self.chance(0.8)]
        self.shape = self.random_shape(self.limit)
        self.pool: list[UOp] = []
        self.facts: dict[UOp, Bounded] = {}
        self.inputs: dict[UOp, Array] = {}

    def node(self) -> UOp:
        """A node of the pool, rather a late one."""
        back = self.rng.random() ** 1.5 * len(self.pool)
        return self.pool[-1 - int(back)]

    # -- growing --------------------------------------------------------------

    def choose(self) -> list[Callable[[], UOp | None]]:
        """The kinds of step, each as often as it should be tried."""
        kinds: list[tuple[int, Callable[[], UOp | None], OpDef | None]] = [
            (8, self.elementwise, None),
            (1, self.leaf, None),
            (1, self.reshape, Ops.RESHAPE),
            (1, self.expand, Ops.EXPAND),
            (1, self.permute, Ops.PERMUTE),
            (1, self.shrink, Ops.SHRINK),
            (1, self.flip, Ops.FLIP),
            (3, self.reduce, Ops.REDUCE),
            (1, self.stack, Ops.STACK),
            (2, self.index, Ops.INDEX),
            (1, self.stage, Ops.STAGE),
        ]
        return [
            make
            for weight, make, op in kinds
            for _ in range(weight)
            if op is None or op in self.allowed
        ]

    def step(self, makers: Sequence[Callable[[], UOp | None]]) -> None:
        """Add one node that passes."""
        for _ in range(ATTEMPTS):
            known = set(self.facts)
            make = self.pick(makers)
            try:
                u = make()
            except (TypeError, ValueError, IndexError):
                continue  # the op does not take these operands
            if u is not None and u not in known and self.healthy(u):
                self.pool.append(u)
                return
            for new in set(self.facts) - known:
                del self.facts[new]

    def fact(self, u: UOp) -> Bounded:
        """The value of a node, computing what is missing."""
        for n in u.toposort():
            if n not in self.facts:
                data = self.inputs.get(n)
                self.facts[n] = (
                    bounded_step(n, [self.facts[s] for s in n.src])
                    if data is None
                    else exactly(data)
                )
        return self.facts[u]

    def healthy(self, u: UOp) -> bool:
        """Whether a node's value is worth building on."""
        if math.prod(u.shape) > self.limit:
            return False
        value, error = self.fact(u)
        if not value.size:
            return self.chance(0.5)
        if u.dtype.is_float:
            finite = value[np.isfinite(value)]
            if finite.size < 0.6 * value.size:
                return False
            if np.abs(finite).max(initial=0) > HUGE and self.chance(0.9):
                return False
        if np.isinf(error).mean() > 0.1:
            return False
        # A single number again and again shows little.
        same = value.size > 1 and bool((value == value.flat[0]).all())
        return not same or self.chance(0.05)

    def roots(self) -> tuple[UOp, ...]:
        """Up to three nodes that nothing reads, of those with the most below them."""
        order = {u: u.toposort() for u in self.pool}
        used = {n for below in order.values() for n in below[:-1]}
        ends = sorted(set(self.pool) - used, key=lambda u: -len(order[u]))[:3]
        return tuple(u for u in self.pool if u in ends)

    # -- leaves ---------------------------------------------------------------

    def leaf(self) -> UOp:
        if self.chance(0.1) and Ops.IOTA in self.allowed:
            return UOp(Ops.IOTA, (), 1 + self.below(8))
        if self.chance(0.05):
            dtype = self.pick(self.palette)
            return UOp.const(self.scalar(dtype), dtype)
        # An axis of length 1 here and there asks for broadcasting later.
        shape = tuple(1 if self.chance(0.15) else n for n in self.shape)
        if self.chance(0.2):
            shape = self.random_shape(self.limit)
        return self.buffer(shape, self.pick(self.palette))

    def buffer(self, shape: Shape, dtype: DType) -> UOp:
        size = math.prod(shape)
        node = UOp.buffer(size, dtype, len(self.inputs))
        self.inputs[node] = self.data(size, dtype)
        return node if shape == (size,) else node.reshape(shape)

    # -- operands -------------------------------------------------------------

    def like(self, shape: Shape, dtype: DType, other_than: UOp | None = None) -> UOp:
        """A node of this shape and type: found, adapted, or a constant."""
        if self.chance(0.2):
            return UOp.const(self.scalar(dtype), dtype).broadcast_scalar(shape)
        if self.chance(0.05) and other_than is not None:
            return other_than
        nodes = [u for u in self.pool if u is not other_than and _fits(u, shape)]
        same = [u for u in nodes if u.dtype is dtype]
        if same:
            return _broadcast(self.pick(same), shape)
        if nodes and dtype is not boolean and self.chance(0.7):
            return _broadcast(self.pick(nodes).cast(dtype), shape)
        if dtype is boolean and nodes:
            a = _broadcast(self.pick(nodes), shape)
            return UOp(Ops.CMPLT, (a, self.like(shape, a.dtype, a)))
        return self.buffer(shape, dtype)

    def elementwise(self) -> UOp:
        a = self.node()
        op = self.pick([op for op in self.elementwise_ops if _takes(op, a.dtype)])
        if op is Ops.WHERE:
            cond = self.like(a.shape, boolean)
            return cond.where(a, self.like(a.shape, a.dtype, a))
        if op is Ops.CAST:
            return UOp(op, (a,), self.pick(self.dtypes))
        if op.domain == "positive" and a.dtype.is_float and self.chance(0.8):
            a = a.maximum(-a)
        src = [a]
        while op.arity is None or len(src) < op.arity:
            b = self.like(a.shape, a.dtype, a)
            if a.dtype.kind == "uint" and op.domain == "integer" and self.chance(0.3):
                # A shift by less than the width, more often than not.
                b = a.const_like(self.below(a.dtype.bits + 2))
            src.append(b)
        if len(src) == 2 and self.chance(0.3):
            src.reverse()
        return UOp(op, tuple(src))

    # -- movement -------------------------------------------------------------

    def reshape(self) -> UOp:
        u = self.node()
        left, shape = math.prod(u.shape), []
        while left > 1:
            n = self.pick([d for d in range(2, left + 1) if left % d == 0])
            shape.append(n)
            left //= n
        if not left:
            shape = [self.pick((1, 2, 3)), 0]
        while len(shape) < 4 and self.chance(0.3):
            shape.insert(self.below(len(shape) + 1), 1)
        return u.reshape(shape)

    def expand(self) -> UOp | None:
        u = self.node()
        if 1 not in u.shape:
            u = u.reshape((*u.shape, 1) if self.chance(0.5) else (1, *u.shape))
        sizes = (1, 2, 3, 4, 5) if self.chance(0.97) else (0,)
        return u.expand([self.pick(sizes) if n == 1 else n for n in u.shape])

    def permute(self) -> UOp | None:
        u = self.node()
        if len(u.shape) < 2:
            return None
        return u.permute([int(a) for a in self.rng.permutation(len(u.shape))])

    def shrink(self) -> UOp | None:
        u = self.node()
        if not math.prod(u.shape):
            return None
        window = []
        for n in u.shape:
            begin = self.below(n) if self.chance(0.5) else 0
            end = begin + 1 + self.below(n - begin) if self.chance(0.97) else begin
            window.append((begin, end))
        return u.shrink(window)

    def flip(self) -> UOp | None:
        u = self.node()
        axes = [a for a in range(len(u.shape)) if self.chance(0.6)]
        return UOp(Ops.FLIP, (u,), tuple(axes)) if axes else None

    # -- the rest -------------------------------------------------------------

    def reduce(self) -> UOp | None:
        u = self.node()
        if not u.shape:
            return None
        op = self.pick((Ops.ADD, Ops.ADD, Ops.MAX, Ops.MUL))
        return u.reduce(op, 1 + self.below(len(u.shape)))

    def stack(self) -> UOp:
        a = self.node()
        count = self.pick((1, 2, 2, 3, 5))
        return UOp.stack([a, *(self.like(a.shape, a.dtype, a) for _ in range(count))])

    def index(self) -> UOp | None:
        x = self.node()
        if not x.shape:
            return None
        count = 1 + self.below(min(2, len(x.shape)))
        if self.chance(0.25) and 0 not in x.shape:
            return x.index(*(self.below(n) for n in x.shape[:count]))
        whole = [u for u in self.pool if u.dtype.is_int and len(u.shape) < 3]
        first = self.pick(whole) if whole else UOp(Ops.IOTA, (), 1 + self.below(8))
        idx = [first]
        if count == 2:
            idx.append(self.like(first.shape, self.pick((first.dtype, i32))))
        # Most indices are brought into range; the others read 0.
        for k, n in enumerate(x.shape[:count]):
            if 0 < n <= idx[k].dtype.max and self.chance(0.7):
                idx[k] = idx[k] % n
        return x.index(*idx)

    def stage(self) -> UOp:
        what = self.pick(("detach", "contiguous"))
        return UOp(Ops.STAGE, (self.node(),), what)


@functools.cache
def _takes(op: OpDef, dtype: DType) -> bool:
    """Whether an elementwise op has operands of this type."""
    if op in (Ops.WHERE, Ops.CAST):
        return True
    try:
        UOp(op, (UOp.const(0, dtype),) * (2 if op.arity is None else op.arity))
    except TypeError:
        return False
    return True


def _fits(u: UOp, shape: Shape) -> bool:
    """Whether ``u`` broadcasts to ``shape``."""
    extra = len(shape) - len(u.shape)
    return extra >= 0 and all(
        n in (1, m) for n, m in zip(u.shape, shape[extra:], strict=True)
    )


def _broadcast(u: UOp, shape: Shape) -> UOp:
    ones = (1,) * (len(shape) - len(u.shape)) + u.shape
    u = u if ones == u.shape else u.reshape(ones)
    return u if shape == u.shape else u.expand(shape)

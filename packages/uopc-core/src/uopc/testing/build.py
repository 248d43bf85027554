"""How a random graph grows, step by step."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from uopc.composite import cat, pad
from uopc.dtype import DTYPES, DType, boolean, f32, f64, i32
from uopc.testing.bounded import Array, Bounded, bounded_step, exactly
from uopc.testing.chance import Chance, Shape
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp, toposort

HUGE = 1e6
Step = Callable[[], UOp | None]


@dataclass(frozen=True)
class Options:
    """What ``random_graph`` describes."""

    steps: int | None = None
    max_elements: int = 256
    ops: Sequence[OpDef] = BUILTIN_OPS
    dtypes: Sequence[DType] = tuple(DTYPES.values())
    differentiable: bool = False


class Builder:
    """A pool of nodes that grows step by step, with the value of each.

    Where a choice is 0, a step is left out, an operand is the newest node, a shape
    or a number is a small one: lower choices make a smaller graph.
    """

    def __init__(self, chance: Chance, options: Options) -> None:
        self.chances = chance
        self.chance, self.below, self.pick = chance.chance, chance.below, chance.pick
        self.limit = options.max_elements
        self.elementwise_ops = [
            op
            for op in options.ops
            if op.kind == "elementwise" and (op is Ops.CAST or not op.arg)
        ]
        # Choices are where special values meet others.
        self.elementwise_ops += [op for op in options.ops if op is Ops.WHERE] * 2
        self.allowed = set(options.ops)
        self.dtypes = sorted(options.dtypes, key=lambda d: d not in (f32, i32))
        # Few types and shapes per graph, so that operands find each other.
        self.palette = [self.pick(self.dtypes), self.pick(self.dtypes)]
        floats = [d for d in (f32, f64) if d in self.dtypes]
        self.palette += [d for d in floats if self.chance(0.5)]
        self.shape = chance.random_shape(self.limit)
        self.pool: list[UOp] = []
        self.facts: dict[UOp, Bounded] = {}
        self.inputs: dict[UOp, Array] = {}
        self.kinds = self._kinds()

    def node(self) -> UOp:
        """A node of the pool, rather a late one."""
        back = (self.below(64) / 64) ** 1.5 * len(self.pool)
        return self.pool[-1 - int(back)]

    # -- growing --------------------------------------------------------------

    def _kinds(self) -> list[Step]:
        """The kinds of step, each as often as it should be tried."""
        kinds: list[tuple[int, Step, tuple[OpDef, ...]]] = [
            (1, lambda: None, ()),
            (20, self.elementwise, ()),
            (3, self.leaf, ()),
            (10, self.reduce, (Ops.REDUCE,)),
            (2, self.reshape, (Ops.RESHAPE,)),
            (2, self.permute, (Ops.PERMUTE,)),
            (3, self.expand, (Ops.EXPAND, Ops.RESHAPE)),
            (2, self.shrink, (Ops.SHRINK,)),
            (2, self.flip, (Ops.FLIP,)),
            (2, self.stack, (Ops.STACK,)),
            (5, self.index, (Ops.INDEX, Ops.IOTA, Ops.FLOORMOD)),
            (3, self.scatter, (Ops.SCATTER_ADD, Ops.IOTA, Ops.FLOORMOD)),
            (2, self.convolution, (Ops.CONV, Ops.RESHAPE)),
            (2, self.stage, (Ops.STAGE,)),
            (1, self.pad, (Ops.STACK, Ops.RESHAPE, Ops.SHRINK)),
            (1, self.cat, (Ops.STACK, Ops.RESHAPE, Ops.SHRINK, Ops.WHERE)),
            (1, self.windows, (Ops.EXPAND, Ops.RESHAPE, Ops.SHRINK)),
        ]
        return [
            make
            for weight, make, needed in kinds
            for _ in range(weight)
            if self.allowed.issuperset(needed)
        ]

    def step(self) -> None:
        """Add one node, or a long chain of them now and then."""
        make = self.pick(self.kinds)
        self.add(make)
        if self.pool and self.chance(0.01):
            for _ in range(10 + self.below(30)):
                self.add(lambda: self.elementwise(self.pool[-1]))

    def add(self, make: Step) -> None:
        """Add the node that ``make`` gives, if its operands and value will do."""
        known, slots = set(self.facts), len(self.inputs)
        try:
            u = make()
        except (TypeError, ValueError, IndexError):
            u = None  # the op does not take these operands
        if u is not None and u not in known and self.healthy(u):
            self.pool.append(u)
            return
        for new in self.facts.keys() - known:
            del self.facts[new]
        while len(self.inputs) > slots:
            self.inputs.popitem()

    def fact(self, u: UOp) -> Bounded:
        """The value of a node, computing what is missing."""
        known = self.facts
        for n in toposort([u], lambda n: () if n in known else n.src):
            if n not in known:
                data = self.inputs.get(n)
                known[n] = (
                    bounded_step(n, [known[s] for s in n.src])
                    if data is None
                    else exactly(data)
                )
        return known[u]

    def healthy(self, u: UOp) -> bool:
        """Whether a node's value is worth building on."""
        if math.prod(u.shape) > self.limit:
            return False
        value, error = self.fact(u)
        if not value.size:
            return self.chance(0.5)
        if u.dtype.is_float:
            finite = value[np.isfinite(value)].astype(float)
            if finite.size < 0.6 * value.size and not self.chance(0.15):
                return False
            if np.abs(finite).max(initial=0) > HUGE and self.chance(0.9):
                return False
        if np.count_nonzero(np.isinf(error)) > 0.1 * error.size:
            return False
        # A single number again and again shows little.
        same = value.size > 1 and bool((value == value.flat[0]).all())
        return not same or self.chance(0.05)

    def roots(self) -> tuple[UOp, ...]:
        """Up to three nodes that nothing reads, of those with the most below them."""
        if not self.pool:
            self.pool.append(self.buffer((2,), self.dtypes[0]))
        order = {u: toposort([u]) for u in self.pool}
        used = {n for below in order.values() for n in below[:-1]}
        ends = [u for u in dict.fromkeys(reversed(self.pool)) if u not in used]
        ends.sort(key=lambda u: -len(order[u]))
        return tuple(ends[: self.pick((1, 2, 3, 3, 3))])

    # -- leaves ---------------------------------------------------------------

    def leaf(self) -> UOp:
        """A buffer, rarely a constant or an IOTA."""
        if self.chance(0.1) and Ops.IOTA in self.allowed:
            return UOp(Ops.IOTA, (), 1 + self.below(8))
        if self.chance(0.07):
            dtype = self.pick(self.palette)
            return UOp.const(self.scalar(dtype), dtype)
        # An axis of length 1 here and there asks for broadcasting later.
        shape = tuple(1 if self.chance(0.15) else n for n in self.shape)
        if self.chance(0.2):
            shape = self.chances.random_shape(self.limit)
        return self.buffer(shape, self.pick(self.palette))

    def buffer(self, shape: Shape, dtype: DType) -> UOp:
        """A new input."""
        size = math.prod(shape)
        node = UOp.buffer(size, dtype, len(self.inputs))
        self.inputs[node] = self.chances.data(size, dtype)
        return node if shape == (size,) else node.reshape(shape)

    def scalar(self, dtype: DType) -> bool | int | float:
        """The value of a new constant."""
        return self.chances.scalar(dtype)

    # -- operands -------------------------------------------------------------

    def like(self, shape: Shape, dtype: DType, other_than: UOp | None = None) -> UOp:
        """A node of this shape and type: found, adapted, or a constant."""
        return self.chances.span(lambda: self._like(shape, dtype, other_than))

    def _like(self, shape: Shape, dtype: DType, other_than: UOp | None) -> UOp:
        if self.chance(0.2):
            return UOp.const(self.scalar(dtype), dtype).broadcast_scalar(shape)
        if self.chance(0.05) and other_than is not None:
            return other_than
        nodes = [u for u in self.pool if u is not other_than and _fits(u, shape)]
        same = [u for u in nodes if u.dtype is dtype]
        if same:
            return _broadcast(self.pick(same[::-1]), shape)
        if nodes and self.chance(0.7):
            a = self.pick(nodes[::-1])
            if dtype is not boolean:
                return _broadcast(a.cast(dtype), shape)
            a = _broadcast(a, shape)
            return UOp(Ops.CMPLT, (a, self.like(shape, a.dtype, a)))
        return self.buffer(shape, dtype)

    def elementwise(self, a: UOp | None = None) -> UOp:
        """Any elementwise op, on ``a`` or a node of the pool."""
        a = a or self.node()
        op = self.pick([op for op in self.elementwise_ops if _takes(op, a.dtype)])
        if op is Ops.WHERE:
            cond = self.like(a.shape, boolean)
            if a.dtype is not boolean and self.chance(0.4):
                return cond.where(a, a.const_like(self.chances.special(a.dtype)))
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
        """Another shape for the same elements."""
        u = self.node()
        left, shape = math.prod(u.shape), []
        while left > 1:
            n = self.pick([d for d in range(left, 1, -1) if left % d == 0])
            shape.append(n)
            left //= n
        if not left:
            shape = [self.pick((1, 2, 3)), 0]
        while len(shape) < 4 and self.chance(0.3):
            shape.insert(self.below(len(shape) + 1), 1)
        return u.reshape(shape)

    def expand(self) -> UOp:
        """Axes of length 1, there or added, made longer."""
        u = self.node()
        if 1 not in u.shape:
            u = u.reshape((*u.shape, 1) if self.chance(0.5) else (1, *u.shape))
        sizes = (2, 3, 1, 4, 5) if not self.chance(0.03) else (0,)
        return u.expand([self.pick(sizes) if n == 1 else n for n in u.shape])

    def permute(self) -> UOp:
        """The axes in another order."""
        u = self.node()
        orders = list(itertools.permutations(range(len(u.shape))))
        return u.permute(self.pick(orders[1:]))

    def shrink(self) -> UOp | None:
        """A window."""
        u = self.node()
        if not math.prod(u.shape):
            return None
        window = []
        for n in u.shape:
            begin = self.below(n) if self.chance(0.5) else 0
            end = n - self.below(n - begin) if not self.chance(0.03) else begin
            window.append((begin, end))
        return u.shrink(window)

    def flip(self) -> UOp:
        """Some axes backwards."""
        u = self.node()
        axes = range(len(u.shape))
        subsets = [s for r in axes for s in itertools.combinations(axes, r + 1)]
        return UOp(Ops.FLIP, (u,), self.pick(subsets))

    def pad(self) -> UOp:
        """Zeros around: stacked blocks and a window."""
        u = self.node()
        return pad(u, [(self.below(3), self.below(4)) for _ in u.shape])

    def cat(self) -> UOp:
        """A part of an array, then the array."""
        u = self.node()
        axis = self.below(len(u.shape))
        window = [(0, n) for n in u.shape]
        window[axis] = (0, self.below(u.shape[axis] + 1))
        return cat([u.shrink(window), u], axis)

    def windows(self) -> UOp:
        """Sliding windows over the last axis: each row starts one element later."""
        u = self.node()
        *rest, n = u.shape
        rows = 2 + self.below(min(n, 4) - 1)
        flat = u.reshape((*rest, 1, n)).expand((*rest, rows + 1, n))
        flat = flat.reshape((*rest, (rows + 1) * n))
        whole = [(0, m) for m in rest]
        shifted = flat.shrink([*whole, (0, rows * (n + 1))])
        shifted = shifted.reshape((*rest, rows, n + 1))
        return shifted.shrink([*whole, (0, rows), (0, n - rows + 1)])

    # -- the rest -------------------------------------------------------------

    def reduce(self) -> UOp:
        """The last axes reduced."""
        u = self.node()
        op = self.pick((Ops.ADD, Ops.ADD, Ops.MAX, Ops.MUL))
        return u.reduce(op, 1 + self.below(len(u.shape)))

    def stack(self) -> UOp:
        """A few arrays of one shape, along a new axis."""
        a = self.node()
        count = self.pick((1, 2, 2, 3, 5))
        return UOp.stack([a, *(self.like(a.shape, a.dtype, a) for _ in range(count))])

    def index(self) -> UOp:
        """A gather from one or two axes, or one element of them."""
        x = self.node()
        count = 1 + self.below(min(2, len(x.shape)))
        if self.chance(0.25):
            return x.index(*(self.below(n) for n in x.shape[:count]))
        whole = [u for u in self.pool if u.dtype.is_int and len(u.shape) < 3]
        idx = [self.pick(whole[::-1])] if whole else [UOp(Ops.IOTA, (), 5)]
        if count == 2:
            idx.append(self.like(idx[0].shape, self.pick((idx[0].dtype, i32))))
        return x.index(*self.placed(idx, x.shape))

    def placed(self, idx: Sequence[UOp], lengths: Shape) -> list[UOp]:
        """Most indices brought into range; the others read 0 and add nothing."""
        return [
            i % n if 0 < n <= i.dtype.max and not self.chance(0.3) else i
            for i, n in zip(idx, lengths, strict=False)
        ]

    def scatter(self) -> UOp:
        """Elements or slices added up where one or two indices say."""
        g = self.node()
        shape = g.shape[: len(g.shape) - self.below(len(g.shape) + 1)]
        types = (i32, *(d for d in self.palette if d.is_int))
        lengths = (self.pick((3, 4, 1, 0, 6)), self.pick((2, 3, 1)))
        lengths = lengths[: 1 + self.below(2)]
        idx = [self.like(shape, self.pick(types)) for _ in lengths]
        return UOp(Ops.SCATTER_ADD, (g, *self.placed(idx, lengths)), lengths)

    def convolution(self) -> UOp:
        """Along the last axis, over those before it; with steps, gaps, either way."""
        x = self.node()
        *lead, n = x.shape or (1,)
        w = self.like((1, 2, math.prod(lead), self.pick((1, 2, 3))), x.dtype)
        factors = [(self.pick((1, 1, 2, -1, 3)),) for _ in range(3)]
        arg = ((self.pick((1, 3, 4)),), *factors, (self.below(4) - 2,), self.below(2))
        return UOp(Ops.CONV, (x.reshape((1, 1, *w.shape[2:3], n)), w), arg)

    def stage(self) -> UOp:
        """A marker."""
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

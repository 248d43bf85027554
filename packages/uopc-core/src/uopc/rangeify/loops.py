"""rangeify: give every node its loop ranges, and turn reads into addresses.

The walk down from the output hands each node the indices it is read at;
movement ops only rewrite indices and vanish. The walk up then builds, for each
node and index, one scalar expression. A reduction becomes a loop of its own
over a local accumulator. The result is a tree of statements::

    SINK( END(range, STORE(acc, 0, 0.0), END(range, STORE(acc, ...)), STORE(out, ...)) )

A SCATTER_ADD that is the only root becomes a loop that fills the output with zeros, and
loops over the positions of its indices that add to it in place, in their order. That is
how a plan has them; anywhere else it is the reduction that its row's ``lower`` says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from uopc.dtype import DType, boolean, i32, i64
from uopc.rangeify.movement import Index, Indexer, runs
from uopc.simplify import Simplifier
from uopc.uop import Ops, UOp, toposort

Use = tuple[UOp, Index]
# Numbers from here on name gathered indices, which act like loop variables
# (their values lie within an axis) until their expressions are known.
GATHERED = 1 << 20


def rangeify(roots: Sequence[UOp], name: str) -> UOp:
    """The loop program that computes ``roots``, all of one shape.

    Each root is stored to a buffer of its own; its slot is the largest that
    is still read plus one, counting on for further roots.
    """
    root = roots[0]
    if len(roots) == 1 and root.op is Ops.SCATTER_ADD:
        return _Rangeify([root.with_src(tuple(_gathering(root.src)))]).scatter(name)
    return _Rangeify(_gathering(roots)).run(name)


class _Rangeify:
    def __init__(self, roots: Sequence[UOp]) -> None:
        self.roots = roots
        self.order = toposort(roots)
        self.simplify = Simplifier()
        self.dtype = _index_dtype(roots, self.order)
        self.indexer = Indexer(self.dtype, self.simplify)
        self.uses: dict[UOp, dict[Index, None]] = {}
        self.src_uses: dict[Use, list[Use]] = {}
        self.values: dict[Use, UOp] = {}
        self.ranges: list[UOp] = []
        self.reduce_ranges: dict[Use, list[UOp]] = {}
        self.gathered: dict[UOp, tuple[Use, int]] = {}
        # Statements in the body of each range; None is outside all loops.
        self.body: dict[UOp | None, list[UOp]] = {None: []}
        self.parent: dict[UOp, UOp | None] = {}
        self.accumulators = 0

    def run(self, name: str) -> UOp:
        shape = self.roots[0].shape
        index, inner = self._loops(shape)
        values = self._values([(r, index) for r in self.roots])
        return self._assemble(name, inner, values, self.indexer.flatten(index, shape))

    def scatter(self, name: str) -> UOp:
        """Zeros everywhere, and then every position of the indices in turn.

        What is out of range adds 0 to a place in range: so it stays what it is, for
        a sum that started from 0.0 is never -0.0.
        """
        (root,) = self.roots
        g, *idx = root.src
        size = math.prod(root.shape)
        fill = self._range(size)
        if not size or 0 in g.shape:
            out = UOp.buffer(size, root.dtype, 0)
            return self.simplify(UOp(Ops.SINK, (_zeros(out, fill),), name))
        at, inner = self._loops(g.shape)
        lead = at[: len(idx[0].shape)]
        value, *places = self._values([(g, at), *((i, lead) for i in idx)])
        for i, n in zip(places, root.arg, strict=True):
            value = _in_range(i, n).where(value, value.const_like(0))
        rows = tuple(map(self._clamp, places, root.arg))
        address = self.indexer.flatten(rows + at[len(lead) :], root.shape)
        return self._assemble(name, inner, [self.simplify(value)], address, fill)

    def _loops(self, shape: Sequence[int]) -> tuple[Index, UOp | None]:
        """Loops over an array, one in the other, and the innermost of them."""
        index, inner = tuple([self._range(n) for n in shape]), None
        for r in index:
            if r.op is Ops.RANGE:
                self.body[r], self.parent[r], inner = [], inner, r
        return index, inner

    def _values(self, wanted: Sequence[Use]) -> list[UOp]:
        """Scalar expressions for some nodes at some indices."""
        for u, at in wanted:
            self.uses.setdefault(u, {})[at] = None
        for u in reversed(self.order):
            for at in self.uses.get(u, {}):
                self._descend(u, at)
        for u, at in self._needed_first(wanted):
            self.values[u, at] = self._value(u, at)
        return [self.simplify(self.values[use]) for use in wanted]

    def _range(self, extent: int) -> UOp:
        if extent == 1:
            return self.indexer.const(0)
        r = UOp(Ops.RANGE, (), (len(self.ranges), extent, self.dtype))
        self.ranges.append(r)
        return r

    # -- down: indices --------------------------------------------------------

    def _descend(self, u: UOp, at: Index) -> None:
        """Hand the sources of ``u`` the indices they are read at."""
        match u.op.kind:
            case "leaf":
                reads: list[Use] = []
            case "elementwise":
                reads = [(s, at) for s in u.src]
            case "movement":
                reads = [(u.src[0], self.indexer.source_index(u, at))]
            case "reduce":
                reads = [(u.src[0], at + self._open_loops(u, at))]
            case _:
                reads = self._select(u, at)
        self.src_uses[u, at] = reads
        for s, index in reads:
            self.uses.setdefault(s, {})[index] = None

    def _open_loops(self, u: UOp, at: Index) -> Index:
        extents = u.src[0].shape[len(u.shape) :]
        index = tuple(self._range(n) for n in extents)
        outer = self._innermost(at)
        self.reduce_ranges[u, at] = loops = [r for r in index if r.op is Ops.RANGE]
        for r in loops:
            self.body[r], self.parent[r], outer = [], outer, r
        return index

    def _innermost(self, index: Index) -> UOp | None:
        """The innermost loop that ``index`` depends on."""
        found: UOp | None = None
        pending = [u for u in toposort(index) if u.op is Ops.RANGE]
        while pending:
            r = pending.pop()
            if r in self.gathered:
                (_, at), _ = self.gathered[r]
                pending += [v for v in toposort(at) if v.op is Ops.RANGE]
            elif self._depth(r) > self._depth(found):
                found = r
        return found

    def _depth(self, r: UOp | None) -> int:
        depth = 0
        while r is not None:
            depth, r = depth + 1, self.parent[r]
        return depth

    def _select(self, u: UOp, at: Index) -> list[Use]:
        if u.op is Ops.STACK:
            return [(s, at[1:]) for s in u.src]
        if u.op is Ops.STAGE:
            return [(u.src[0], at)]
        x, idx = u.src[0], u.src[1:]
        if 0 in x.shape[: len(idx)]:
            return []  # nothing to read: every index is out of range
        lead = at[: len(idx[0].shape)]
        read: list[Use] = [(i, lead) for i in idx]
        where = [
            self._gathered((i, lead), n) for i, n in zip(idx, x.shape, strict=False)
        ]
        return [*read, (x, tuple(where) + at[len(lead) :])]

    def _gathered(self, use: Use, extent: int) -> UOp:
        """A stand-in for a gathered index, clamped to its axis."""
        if use[0].op is Ops.CONST:
            return self.indexer.const(int(use[0].value))
        arg = (GATHERED + len(self.gathered), extent, self.dtype)
        r = UOp(Ops.RANGE, (), arg)
        self.gathered[r] = (use, extent)
        return r

    def _needed_first(self, roots: Sequence[Use]) -> list[Use]:
        """Every use after those it needs; of a gather, the indices come first.

        A node that is both a table and an index has two uses, and a reduction
        in it has to run for the index first: an order of nodes says too little.
        """
        done: dict[Use, None] = {}
        stack = [*reversed(roots)]
        while stack:
            use = stack[-1]
            waiting = [n for n in reversed(self.src_uses[use]) if n not in done]
            stack += waiting
            if not waiting:
                done[stack.pop()] = None
        return list(done)

    # -- up: values -----------------------------------------------------------

    def _value(self, u: UOp, at: Index) -> UOp:
        """The scalar expression for ``u`` at ``at``."""
        src = tuple(self.values[use] for use in self.src_uses[u, at])
        match u.op:
            case Ops.CONST:
                return u
            case Ops.BUFFER if u.shape == (0,):
                return UOp.const(0, u.dtype)  # in loops that never run
            case Ops.BUFFER:
                return UOp(Ops.INDEX, (u, at[0]))
            case Ops.IOTA:
                return self.simplify(at[0].cast(u.dtype))
            case Ops.REDUCE:
                return self._reduce(u, at, src[0])
            case Ops.STACK:
                return self._choose(src, at[0])
            case Ops.INDEX:
                return self._inside(u, src)
            case Ops.STAGE:
                return src[0]
            case _ if u.op.kind == "movement":
                return src[0]
            case _ if u.op.kind == "elementwise":
                return self.simplify(UOp(u.op, src, u.arg))
        raise ValueError(f"{u.op.name} cannot be lowered to loops")

    def _choose(self, src: Sequence[UOp], which: UOp) -> UOp:
        """STACK: the source whose number is ``which``, by halving."""
        if len(src) == 1:
            return src[0]
        low, high = self.simplify.bounds(which)
        if low == high:
            return src[low]
        options = list(enumerate(src))
        return self.simplify(self._bisect(options, which))

    def _bisect(self, options: list[tuple[int, UOp]], which: UOp) -> UOp:
        if len(options) == 1:
            return options[0][1]
        half = len(options) // 2
        cond = which < self.indexer.const(options[half][0])
        return cond.where(
            self._bisect(options[:half], which), self._bisect(options[half:], which)
        )

    def _inside(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
        """INDEX: the element read, or 0 where an index is out of range."""
        value = src[-1] if src else UOp.const(0, u.dtype)
        for i, n in zip(src[:-1], u.src[0].shape, strict=False):
            ok = self.simplify(_in_range(i, n))
            value = ok.where(value, UOp.const(0, u.dtype))
        return self.simplify(value)

    def _reduce(self, u: UOp, at: Index, value: UOp) -> UOp:
        """Emit the accumulation loops; the value is the accumulator's."""
        op, _ = u.arg
        loops = self.reduce_ranges[u, at]
        if not loops:
            return value
        acc = UOp.buffer(1, u.dtype, self.accumulators, space="local")
        self.accumulators += 1
        zero = self.indexer.const(0)
        read = UOp(Ops.INDEX, (acc, zero))
        start = UOp(Ops.STORE, (acc, zero, UOp.const(op.identity(u.dtype), u.dtype)))
        step = UOp(op, (read, value))
        statement = UOp(Ops.STORE, (acc, zero, step))
        for r in reversed(loops):
            statement = UOp(Ops.END, (r, *self.body.pop(r), statement))
        self.body[self.parent[loops[0]]] += [start, statement]
        return read

    def _assemble(
        self,
        name: str,
        inner: UOp | None,
        values: list[UOp],
        address: UOp,
        fill: UOp | None = None,
    ) -> UOp:
        """Close the loops around the stores and number the outputs.

        With ``fill``, a loop over a whole output, values are added to zeros there.
        """
        r, block = inner, [*self.body[inner]]
        roots = [*block, *values, address, *(s for b in self.body.values() for s in b)]
        # Stand-ins give way first, so that reads which vanish are not counted.
        safe = self._clamped()
        used = toposort(_in_place(roots, safe))
        slots = [
            u.arg.slot for u in used if u.op is Ops.BUFFER and u.arg.space == "global"
        ]
        slot = max(slots, default=-1) + 1
        first: list[UOp] = []
        for k, value in enumerate(values):
            size = math.prod(self.roots[0].shape)
            out = UOp.buffer(size, value.dtype, slot + k)
            if fill is not None:
                first.append(_zeros(out, fill))
                value = UOp(Ops.INDEX, (out, address)) + value
            block.append(UOp(Ops.STORE, (out, address, value)))
        while r is not None:
            end = UOp(Ops.END, (r, *block))
            r = self.parent[r]
            block = [*self.body[r], end]
        sink = UOp(Ops.SINK, (*first, *block), name)
        return self.simplify(_in_place([sink], safe)[0])

    def _clamped(self) -> dict[UOp, UOp]:
        """What each gathered index stands for: clamped, so reads are in bounds."""
        safe: dict[UOp, UOp] = {}
        for r, (use, extent) in self.gathered.items():
            safe[r] = self._clamp(self.values[use], extent)
        return safe

    def _clamp(self, i: UOp, extent: int) -> UOp:
        """``i`` as a position within an axis, 0 where it is outside."""
        return _in_range(i, extent).where(i, i.const_like(0)).cast(self.dtype)


def _gathering(roots: Sequence[UOp]) -> list[UOp]:
    """The roots with plain reductions for those that are written as such.

    So each element of a SCATTER_ADD gathers its sum.
    """
    new: dict[UOp, UOp] = {}
    for u in toposort(roots):
        v = new[u] = u.with_src(tuple([new[s] for s in u.src]))
        if v.op.kind == "reduce" and v.op.lower is not None:
            new[u] = v.op.lower(v)
    return [new[r] for r in roots]


def _in_place(roots: Sequence[UOp], safe: Mapping[UOp, UOp]) -> list[UOp]:
    """The roots with the indices for their stand-ins.

    An index may be gathered itself: what it reads is put in place first.
    """
    new: dict[UOp, UOp] = {}
    for u in toposort(roots, lambda n: (safe[n],) if n in safe else n.src):
        if u in safe:
            new[u] = new[safe[u]]
        else:
            new[u] = u.with_src(tuple([new[s] for s in u.src]))
    return [new[r] for r in roots]


def _zeros(out: UOp, place: UOp) -> UOp:
    """A whole buffer set to 0 by the loop ``place``; it is no loop for one element."""
    store = UOp(Ops.STORE, (out, place, UOp.const(0, out.dtype)))
    return UOp(Ops.END, (place, store)) if place.op is Ops.RANGE else store


def _in_range(i: UOp, extent: int) -> UOp:
    """Whether ``i`` lies in [0, extent), which its dtype may not even reach."""
    inside = UOp.const(True, boolean)
    if i.dtype.kind == "int":
        inside = UOp.const(-1, i.dtype) < i
    if extent > i.dtype.max:
        return inside
    return inside & (i < UOp.const(extent, i.dtype))


def _index_dtype(roots: Sequence[UOp], order: Sequence[UOp]) -> DType:
    """64-bit only where some position that is computed does not fit 32 bits."""
    largest = max((math.prod(u.shape) for u in roots), default=0)
    for u in order:
        largest = max(largest, *u.shape, 0)
        if u.op is Ops.RESHAPE and 0 not in u.shape:
            sizes = (math.prod(u.shape[j]) for _, j in runs(u.src[0].shape, u.shape))
            largest = max(largest, *sizes, 0)
    return i32 if largest < 2**31 else i64

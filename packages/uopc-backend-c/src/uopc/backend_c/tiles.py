"""Tiles: loop nests that become functions shared by all nests that are alike.

Whatever does not change within a nest is handed to the function: a pointer to the
first element of each access, the extents of loops, numbers. What remains differs only
where the nests do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from uopc.backend_c.registers import is_lane
from uopc.dtype import i64
from uopc.simplify import Bounds
from uopc.simplify.linear import Interval, compose, decompose
from uopc.uop import Ops, UOp, toposort

# No access of a pointer is outside a buffer of this size.
ANY_SIZE = 1 << 62


@dataclass
class Pointer:
    """A parameter: where the accesses of a buffer begin that differ in constants.

    Attributes:
        buffer: what stands for it in the function.
        target: the buffer that it points into.
        base: at which index.
        written: whether the function stores there.
    """

    buffer: UOp
    target: UOp
    base: UOp
    written: bool


@dataclass
class Outline:
    """A nest in terms of parameters, and what the call hands over.

    Attributes:
        statement: the nest.
        pointers: where buffers begin.
        numbers: what stands for scalars that are known outside, and these.
        loops: the loops whose extents are parameters.
        facts: the intervals of numbers.
    """

    statement: UOp
    pointers: list[Pointer]
    numbers: dict[UOp, UOp]
    loops: list[UOp]
    facts: tuple[tuple[UOp, Interval], ...] = ()


def is_tile(statement: UOp) -> bool:
    """Whether a statement is a nest that becomes a function."""
    loop = statement.src[0] if statement.op is Ops.END else statement
    return loop is not statement and loop.op is Ops.RANGE and loop.arg.kind == "tile"


def outlined(end: UOp, private: set[UOp], bounds: Bounds) -> Outline:
    """A nest as a function; ``private`` are the local buffers that only it uses."""
    return _Outliner(end, private, bounds).run()


@dataclass
class _Outliner:
    end: UOp
    private: set[UOp]
    bounds: Bounds
    loops: dict[UOp, UOp] = field(default_factory=dict)
    numbers: dict[object, tuple[UOp, UOp]] = field(default_factory=dict)
    pointers: dict[object, Pointer] = field(default_factory=dict)
    firsts: dict[object, int] = field(default_factory=dict)
    new: dict[UOp, UOp] = field(default_factory=dict)
    inner: dict[UOp, bool] = field(default_factory=dict)
    conditional: bool = False

    def run(self) -> Outline:
        for loop in _opened(self.end):
            _, extent, _, kind = loop.arg
            kind = kind if is_lane(loop) else "serial"
            arg = (len(self.loops), extent, i64, kind)
            self.loops[loop] = UOp(Ops.RANGE, (), arg)
        self.written = {u.src[0] for u in toposort([self.end]) if u.op is Ops.STORE}
        ends = (u for u in toposort([self.end]) if u.op is Ops.END)
        self.conditional = any(u.src[0].op is not Ops.RANGE for u in ends)
        order = [u for u in toposort([self.end], self._needed) if self._is_inner(u)]
        for u in order:
            if u.op in (Ops.INDEX, Ops.STORE):
                self._note(u)
        for u in order:
            self.new[u] = self._rewritten(u)
        counted = [r for r in self.loops.values() if not is_lane(r)]
        numbers = dict(self.numbers.values())
        facts = [(p, self.bounds(u)) for p, u in numbers.items() if _counts(u)]
        return Outline(
            self.new[self.end],
            list(self.pointers.values()),
            numbers,
            counted,
            tuple(facts),
        )

    def _needed(self, u: UOp) -> tuple[UOp, ...]:
        """What is rewritten before ``u`` is."""
        if not self._is_inner(u):
            return ()
        if u.op not in (Ops.INDEX, Ops.STORE):
            return u.src
        _, _, inside, _ = self._group(u)
        return (*inside, *u.src[2:])

    def _is_inner(self, u: UOp) -> bool:
        """Whether a node depends on the nest's loops, or on what it writes."""
        if u not in self.inner:
            for v in toposort([u], lambda n: () if n in self.inner else n.src):
                own = v in self.loops or v in self.written or v in self.private
                # What a condition keeps from being read must not be read before.
                own |= v.op is Ops.INDEX and self.conditional
                effect = v.op in (Ops.STORE, Ops.END)
                self.inner[v] = own or effect or any(self.inner[s] for s in v.src)
        return self.inner[u]

    def _rewritten(self, u: UOp) -> UOp:
        if u in self.loops:
            return self.loops[u].cast(u.dtype)
        if u.op is Ops.END:
            first, *rest = u.src
            what = self.loops[first] if first in self.loops else self._value(first)
            return UOp(Ops.END, (what, *(self.new[s] for s in rest)))
        if u.op in (Ops.INDEX, Ops.STORE):
            buf, index = self._access(u)
            return UOp(u.op, (buf, index, *map(self._value, u.src[2:])), u.arg)
        if u.op is Ops.BUFFER:
            return u
        return u.with_src(tuple([self._value(s) for s in u.src]))

    def _value(self, u: UOp) -> UOp:
        if self._is_inner(u):
            return self.new[u]
        if u.op is Ops.CONST:
            return u
        return self._number(u, u)

    def _number(self, key: object, u: UOp) -> UOp:
        """The parameter for a scalar; there is one for each key."""
        if key not in self.numbers:
            self.numbers[key] = UOp.param(len(self.numbers), u.dtype), u
        return self.numbers[key][0]

    # -- accesses -------------------------------------------------------------

    def _group(self, u: UOp) -> tuple[object, dict[UOp, int], dict[UOp, int], int]:
        """What a pointer is for; the terms outside and inside; a constant."""
        buf, index = u.src[:2]
        terms, constant = decompose(index, self.bounds)
        inside = {t: k for t, k in terms.items() if self._is_inner(t)}
        outside = {t: k for t, k in terms.items() if t not in inside}
        return (buf, frozenset(outside.items())), outside, inside, constant

    def _note(self, u: UOp) -> None:
        """Remember where the accesses of a pointer begin."""
        if u.src[0] not in self.private:
            key, _, _, constant = self._group(u)
            self.firsts[key] = min(constant, self.firsts.get(key, constant))

    def _access(self, u: UOp) -> tuple[UOp, UOp]:
        """The pointer and the index of an access."""
        buf = u.src[0]
        key, outside, inside, constant = self._group(u)
        terms: list[tuple[UOp, UOp]] = []
        for t, k in inside.items():
            # How far apart tiles are has nothing to do with what they do.
            step = UOp.const(k, i64)
            outermost = t is self.end.src[0]
            stride = self._number((key, k), step) if outermost else step
            terms.append((self._term(t), stride))
        if buf in self.private:
            for t, k in outside.items():
                terms.append((self._value(t).cast(i64), UOp.const(k, i64)))
            return self._renamed(buf), _sum(terms, constant)
        first = self.firsts[key]
        if key not in self.pointers:
            n = len(self.pointers)
            stand_in = UOp.buffer(ANY_SIZE, buf.dtype, n)
            base = compose((outside, first), u.src[1], self.bounds)
            if base is None:
                parts = [(t.cast(i64), UOp.const(k, i64)) for t, k in outside.items()]
                base = _sum(parts, first)
            self.pointers[key] = Pointer(stand_in, buf, base, False)
        pointer = self.pointers[key]
        pointer.written |= u.op is Ops.STORE
        return pointer.buffer, _sum(terms, constant - first)

    def _term(self, t: UOp) -> UOp:
        return self.loops[t] if t in self.loops else self.new[t].cast(i64)

    def _renamed(self, buf: UOp) -> UOp:
        """A private buffer, numbered by when it is first met."""
        if buf not in self.new or self.new[buf] is buf:
            n = sum(b in self.new and self.new[b] is not b for b in self.private)
            size, dtype = buf.arg.size, buf.dtype
            self.new[buf] = UOp.buffer(size, dtype, n, version=1, space="local")
        return self.new[buf]


def _opened(end: UOp) -> Iterator[UOp]:
    """The loops of a nest, outer ones first."""
    seen: set[UOp] = set()
    stack = [end]
    while stack:
        u = stack.pop()
        if u.op is not Ops.END:
            continue
        stack += u.src[:0:-1]
        if u.src[0].op is Ops.RANGE and u.src[0] not in seen:
            seen.add(u.src[0])
            yield u.src[0]


def _counts(u: UOp) -> bool:
    return u.dtype.is_int or u.dtype.kind == "bool"


def _sum(terms: list[tuple[UOp, UOp]], constant: int) -> UOp:
    """A sum of multiples and a constant, in 64 bits."""
    total: UOp | None = None
    for t, k in terms:
        one = k.op is Ops.CONST and k.value == 1
        total = _plus(total, t if one else t * k)
    if total is None or constant:
        total = _plus(total, UOp.const(constant, i64))
    return total


def _plus(total: UOp | None, term: UOp) -> UOp:
    return term if total is None else total + term


def private_locals(statements: tuple[UOp, ...]) -> dict[UOp, set[UOp]]:
    """For each tile in some statements, the local buffers that nothing else uses."""
    tiles = [u for u in toposort(statements) if is_tile(u)]
    found: dict[UOp, set[UOp]] = {}
    for t in tiles:
        rest = toposort(statements, lambda u: () if u is t else u.src)  # noqa: B023
        found[t] = _locals(toposort([t])) - _locals(rest)
    return found


def exposed_locals(statements: tuple[UOp, ...]) -> set[UOp]:
    """The local buffers that tiles point into."""
    own = private_locals(statements)
    return {b for t, private in own.items() for b in _locals(toposort([t])) - private}


def _locals(nodes: list[UOp]) -> set[UOp]:
    return {u for u in nodes if u.op is Ops.BUFFER and u.arg.space == "local"}

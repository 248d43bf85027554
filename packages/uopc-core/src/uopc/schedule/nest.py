"""Loop programs taken apart: nests, accumulators, and how addresses move."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from uopc.dtype import DType
from uopc.simplify import Bounds
from uopc.simplify.linear import decompose
from uopc.uop import OpDef, Ops, UOp, lazy, substitute, toposort

Statements = tuple[UOp, ...]


def loop(number: int, extent: int, dtype: DType, kind: str = "serial") -> UOp:
    """A RANGE."""
    return UOp(Ops.RANGE, (), (number, extent, dtype, kind))


def end(r: UOp, *body: UOp) -> UOp:
    """A loop over ``r`` around some statements."""
    return UOp(Ops.END, (r, *body))


def read(buffer: UOp, at: UOp) -> UOp:
    """An element of a buffer."""
    return UOp(Ops.INDEX, (buffer, at))


def store(buffer: UOp, at: UOp, value: UOp) -> UOp:
    """A statement that writes an element."""
    return UOp(Ops.STORE, (buffer, at, value))


def fresh_number(sink: UOp) -> int:
    """A number that no loop has."""
    numbers = [u.arg.number for u in toposort([sink]) if u.op is Ops.RANGE]
    return 1 + max(numbers, default=-1)


def fresh_slot(sink: UOp) -> int:
    """A slot that no local buffer has."""
    slots = [u.arg.slot for u in toposort([sink]) if is_local(u)]
    return 1 + max(slots, default=-1)


def is_local(u: UOp) -> bool:
    """Whether ``u`` is a buffer of the kernel's own."""
    return u.op is Ops.BUFFER and u.arg.space == "local"


def is_accumulator(u: UOp) -> bool:
    """Whether ``u`` is a single variable of the kernel's own."""
    return is_local(u) and u.arg.size == 1


def with_own(
    statements: Sequence[UOp], slot: int, shared: Collection[UOp] = ()
) -> list[UOp]:
    """Statements with local buffers of their own, from ``slot`` on; not ``shared``."""
    own: dict[UOp, UOp] = {}
    for u in toposort(statements):
        if is_local(u) and u not in shared:
            size, dtype = u.arg.size, u.dtype
            own[u] = UOp.buffer(size, dtype, slot + len(own), space="local")
    return substitute(statements, own)


def within(statements: Sequence[UOp], r: UOp, position: UOp) -> list[UOp]:
    """Statements with an expression in place of a loop variable."""
    return substitute(statements, {r: position})


def is_loop(u: UOp) -> bool:
    """Whether a statement is a loop, and neither a store nor under a condition."""
    return u.op is Ops.END and u.src[0].op is Ops.RANGE


def rewritten(sink: UOp, change: Callable[[UOp], Sequence[UOp] | None]) -> UOp:
    """The program with loops replaced: ``change`` gets each one, inner ones first.

    It returns the statements that take its place, or None to leave it.
    """
    new: dict[UOp, tuple[UOp, ...]] = {}
    for u in toposort([sink], _statements):
        if u.op is Ops.STORE:
            continue
        src = tuple(t for s in u.src for t in new.get(s, (s,)))
        made = u if src == u.src else UOp(u.op, src, u.arg)
        replaced = change(made) if is_loop(made) else None
        new[u] = (made,) if replaced is None else tuple(replaced)
    return new[sink][0]


def _statements(u: UOp) -> Statements:
    if u.op is Ops.SINK:
        return u.src
    return u.src[1:] if u.op is Ops.END else ()


def loops_of(statement: UOp) -> tuple[list[UOp], Statements]:
    """Loops that are perfectly nested, outermost first, and what is in them."""
    loops: list[UOp] = []
    body: Statements = (statement,)
    while len(body) == 1 and body[0].op is Ops.END:
        r, *rest = body[0].src
        loops.append(r)
        body = tuple(rest)
    return loops, body


def output_loops(sink: UOp) -> tuple[list[UOp], Statements]:
    """The loops around all of a program, and what is in them."""
    if len(sink.src) == 1 and sink.src[0].op is Ops.END:
        return loops_of(sink.src[0])
    return [], sink.src


def nested(loops: Iterable[UOp], body: Sequence[UOp]) -> list[UOp]:
    """The inverse of `loops_of`."""
    statements = list(body)
    for r in reversed(list(loops)):
        statements = [end(r, *statements)]
    return statements


def stores(statements: Iterable[UOp]) -> Iterator[UOp]:
    """All STOREs in some statements."""
    order = toposort(statements, _statements)
    return (u for u in order if u.op is Ops.STORE)


def places_of(
    statements: Sequence[UOp], kinds: Collection[OpDef] = (Ops.INDEX, Ops.STORE)
) -> dict[UOp, set[UOp]]:
    """The arrays that statements touch, and the addresses at which they do."""
    places: dict[UOp, set[UOp]] = {}
    for u in toposort(statements):
        if u.op in kinds and not is_local(u.src[0]):
            places.setdefault(u.src[0], set()).add(u.src[1])
    return places


class Addresses:
    """How the accesses of some statements move with loops."""

    def __init__(self, statements: Sequence[UOp]) -> None:
        self.statements = statements
        self.nodes = toposort(statements)
        self.bounds = Bounds()

    @lazy
    def ranges(self) -> dict[UOp, frozenset[UOp]]:
        """By node, the loops whose variables it depends on."""
        found: dict[UOp, frozenset[UOp]] = {}
        for u in self.nodes:
            if u.op is Ops.RANGE:
                found[u] = frozenset([u])
            else:
                found[u] = frozenset().union(*[found[s] for s in u.src])
        return found

    @lazy
    def accesses(self) -> list[UOp]:
        """The reads and writes: INDEX and STORE."""
        return [u for u in self.nodes if u.op in (Ops.INDEX, Ops.STORE)]

    @lazy
    def outside(self) -> set[UOp]:
        """The loops whose variables are used otherwise than in addresses."""
        walk = toposort(self.statements, self._values)
        return {u for u in walk if u.op is Ops.RANGE}

    def widest(self, loops: Iterable[UOp] | None = None) -> int:
        """Bytes of the widest type that is computed with, not counting addresses.

        Of what changes in one of ``loops``, or in any; 0 if nothing does.
        """
        wanted = None if loops is None else frozenset(loops)
        return max(
            (
                u.dtype.itemsize
                for u in toposort(self.statements, self._values)
                if u.op.kind != "loop"
                and (self.ranges[u] if wanted is None else self.ranges[u] & wanted)
            ),
            default=0,
        )

    def _values(self, u: UOp) -> tuple[UOp, ...]:
        if u.op in (Ops.INDEX, Ops.STORE):
            return u.src[:1] + u.src[2:]
        return u.src[1:] if u.op is Ops.END else u.src

    def stride(self, access: UOp, r: UOp) -> int | None:
        """How far an access moves when ``r`` advances; None if not evenly."""
        at = access.src[1]
        if r not in self.ranges[at]:
            return 0
        terms, _ = decompose(at, self.bounds)
        if any(r in self.ranges_of(u) for u in terms if u is not r):
            return None
        return terms.get(r, 0)

    def ranges_of(self, u: UOp) -> frozenset[UOp]:
        """The loops that a node depends on, also of one that was made since."""
        known = self.ranges.get(u)
        if known is not None:
            return known
        return frozenset(n for n in toposort([u]) if n.op is Ops.RANGE)


@dataclass(frozen=True)
class Accumulation:
    """A reduction of a loop program: an accumulator, its loops, and its step.

    Attributes:
        start: the STORE that sets the accumulator before the loops.
        nest: the END of the outermost loop.
        loops: the loops, outermost first.
        step: the STORE in the innermost one.
        value: what is combined with the accumulator there.
    """

    start: UOp
    nest: UOp
    loops: tuple[UOp, ...]
    step: UOp
    value: UOp

    @property
    def buffer(self) -> UOp:
        """The accumulator."""
        return self.start.src[0]

    @property
    def op(self) -> OpDef:
        """ADD, MUL or MAX."""
        return self.step.src[2].op


def accumulation(body: Sequence[UOp]) -> Accumulation | None:
    """The reduction that statements begin with: START, END(..., STEP)."""
    if len(body) < 2 or body[0].op is not Ops.STORE or body[1].op is not Ops.END:
        return None
    start, nest = body[0], body[1]
    loops, inner = loops_of(nest)
    if len(inner) != 1 or not is_local(start.src[0]) or start.src[0].arg.size != 1:
        return None
    (step,) = inner
    buffer, at, new = step.src
    if buffer is not start.src[0] or len(new.src) != 2:
        return None
    if new.src[0] is not read(buffer, at) or new.src[1] is new.src[0]:
        return None
    if new.op not in (Ops.ADD, Ops.MUL, Ops.MAX) or start.src[2].op is not Ops.CONST:
        return None
    if buffer in toposort([new.src[1]]):
        return None
    return Accumulation(start, nest, tuple(loops), step, new.src[1])

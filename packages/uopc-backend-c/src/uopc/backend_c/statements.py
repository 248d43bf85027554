"""Statements as C: loops, conditions, stores, and the variables that they need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping

from uopc.backend_c.registers import is_lane
from uopc.backend_c.scalars import (
    PAD,
    Names,
    ScalarPrinter,
    buffers,
    forget,
    stored,
    variable,
)
from uopc.backend_c.tasks import is_task
from uopc.backend_c.tiles import Outline, Pointer, is_tile, outlined, private_locals
from uopc.backend_c.types import c_type
from uopc.backend_c.vector_expressions import array_place
from uopc.backend_c.vectors import VectorPrinter
from uopc.config import get
from uopc.simplify import Bounds
from uopc.uop import Ops, UOp, toposort

Task = Callable[[UOp], None]


class StatementPrinter:
    """Prints statements on the lines of a scalar printer.

    ``extents`` are the texts of those extents of loops that are no constants.
    """

    def __init__(
        self,
        scalars: ScalarPrinter,
        statements: tuple[UOp, ...],
        extents: Mapping[UOp, str] | None = None,
    ) -> None:
        self.scalars = scalars
        self.vectors = VectorPrinter(scalars)
        self.declared: set[UOp] = set()
        self.extents = extents or {}
        self.private = private_locals(statements)
        self._used: dict[UOp, list[UOp]] = {}

    def _line(self, pad: str, text: str) -> None:
        self.scalars.lines.append(pad + text)

    def block(
        self,
        statements: tuple[UOp, ...],
        names: Names,
        pad: str,
        task: Task | None = None,
    ) -> None:
        """Print statements; those that are parallel loops by means of ``task``."""
        names = dict(names)
        flat = [self.vectors.settled(s) for s in statements]
        uses = _count_uses(s for group in flat for s in group)
        locals_ = [self._locals(s) for s in statements]
        last = {b: i for i, found in enumerate(locals_) for b in found}
        for i, s in enumerate(statements):
            later = [b for b in locals_[i] if last[b] > i]
            fresh = self._declare(s, locals_[i], later, pad)
            if s.op is Ops.STORE:
                self._store(s, names, uses, pad, fresh)
            elif is_lane(s.src[0]):
                self.vectors.stores(s.src[0], flat[i], names, uses, pad)
            elif task is not None and is_task(s):
                task(s)
            elif is_tile(s):
                self._tile(s, names, pad)
            elif s.src[0].op is Ops.RANGE:
                # From its second round on, the loop itself sees what it wrote.
                forget(names, stored(s))
                self._loop(s, names, pad)
            else:
                condition = self.scalars.expressions(s.src[:1], names, uses, pad)
                self._line(pad, f"if ({condition[s.src[0]]}) {{")
                self.block(s.src[1:], names, pad + PAD)
                self._line(pad, "}")
            forget(names, stored(s))

    def _loop(self, end: UOp, names: Names, pad: str) -> None:
        loop, *body = end.src
        r = self.scalars.ranges[loop]
        extent = self.extents.get(loop, str(loop.arg.extent))
        if get("UOPC_OPT") > 0 and pad != PAD and not _over_lanes(body):
            # An inner loop that gcc 12 unrolls into the outer one, which it then
            # vectorises, may come out wrong: sums with their terms out of order or
            # lost (its bug 110381), guarded reads that give 0. Unrolling is the
            # schedule's business; it asks for it by lanes.
            self._line(pad, "#pragma GCC unroll 1")
        kind = c_type(loop.dtype)
        self._line(pad, f"for ({kind} {r} = 0; {r} < {extent}; {r}++) {{")
        self.block(tuple(body), names, pad + PAD)
        self._line(pad, "}")

    # -- variables ------------------------------------------------------------

    def _locals(self, s: UOp) -> list[UOp]:
        """The local buffers of a statement, looked for in each one once."""
        if s not in self._used:
            found = buffers([s], "local") if s.op is Ops.STORE else []
            if s.op is Ops.END:
                parts = [buffers(s.src[:1], "local"), *map(self._locals, s.src[1:])]
                found = sorted({b for p in parts for b in p}, key=lambda b: b.arg.slot)
            self._used[s] = found
        return self._used[s]

    def _declare(
        self, s: UOp, used: Iterable[UOp], later: Iterable[UOp], pad: str
    ) -> str:
        """Declare accumulators that ``s`` and later statements share.

        ``used`` are the local buffers of ``s``, and ``later`` those that the others
        use, too.
        A scalar one that ``s`` itself sets is declared by that assignment: the
        type to write there is returned.
        """
        flat = s.op is Ops.STORE or is_lane(s.src[0])
        for buf in used:
            if buf in self.declared or not (flat or buf in later):
                continue
            self.declared.add(buf)
            registers = self.scalars.registers.of(buf)
            if s.op is Ops.STORE and buf.arg.size == 1 and registers:
                return c_type(buf.dtype) + " "
            self._variables(buf, pad)
        return ""

    def _variables(self, buf: UOp, pad: str) -> None:
        """Declare what holds a local buffer."""
        kind = c_type(buf.dtype)
        found: dict[str, list[str]] = {}
        for r in self.scalars.registers.of(buf):
            t = self.vectors.held(buf.dtype, r.lanes) if r.lanes else kind
            found.setdefault(t, []).append(r.name)
        for t, several in found.items():
            self._line(pad, f"{t} {', '.join(several)};")
        if not found:
            aligned = ""
            if buf in self.scalars.registers.in_vectors:
                aligned = " __attribute__((aligned(64)))"
            self._line(pad, f"{kind} acc{buf.arg.slot}[{buf.arg.size}]{aligned};")

    def _store(
        self, s: UOp, names: Names, uses: Mapping[UOp, int], pad: str, fresh: str
    ) -> None:
        target, index, value = s.src
        texts = self.scalars.expressions((value, index), names, uses, pad)
        place = self.scalars.place(target, index, texts[index])
        text = texts[value]
        if fresh or text != place:  # clang warns of what changes nothing
            self._line(pad, f"{fresh}{place} = {self.vectors.kept(s, text)};")

    # -- tiles ----------------------------------------------------------------

    def _tile(self, end: UOp, names: Names, pad: str) -> None:
        """Print a tile as a function among the helpers, and its call."""
        made = outlined(end, self.private[end], self.scalars.bounds)
        name = self._function(made)
        roots = [*(p.base for p in made.pointers), *made.numbers.values()]
        texts = self.scalars.expressions(roots, names, {}, pad)
        arguments = [
            *(f"&{array_place(p.target, texts[p.base])}" for p in made.pointers),
            *(texts[u] for u in made.numbers.values()),
            *(str(r.arg.extent) for r in made.loops),
        ]
        self._line(pad, f"{name}({', '.join(arguments)});")

    def _function(self, made: Outline) -> str:
        """The name of a function for a nest, which all that are alike share."""
        known = Bounds(made.facts)
        scalars = ScalarPrinter([made.statement], self.scalars.spellings, (), known)
        scalars.helpers, scalars.tile = self.scalars.helpers, True
        extents = {r: f"n{k}" for k, r in enumerate(made.loops)}
        inner = StatementPrinter(scalars, (), extents)
        inner.block((made.statement,), {}, PAD)
        self.scalars.streams |= scalars.streams
        parameters = [
            *(_parameter(p, made.pointers) for p in made.pointers),
            *(f"{c_type(p.dtype)} given{p.arg.slot}" for p in made.numbers),
            *(f"{c_type(r.dtype)} {n}" for r, n in extents.items()),
        ]
        text = "\n".join([f"({', '.join(parameters)}) {{", *scalars.lines, "}"]) + "\n"
        name = f"uopc_tile_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        self.scalars.helpers[f"static __attribute__((noinline)) void {name}{text}"] = (
            None
        )
        return name


def _parameter(p: Pointer, others: Iterable[Pointer]) -> str:
    """A pointer as a parameter; two to one buffer that is written may meet."""
    meeting = [q for q in others if q.target is p.target]
    alone = len(meeting) == 1 or not any(q.written for q in meeting)
    const = "" if p.written else "const "
    restrict = " restrict" if alone else ""
    return f"{const}{c_type(p.target.dtype)}*{restrict} {variable(p.buffer)}"


def _over_lanes(body: Iterable[UOp]) -> bool:
    """Whether a loop is over the neighbours that a schedule computes side by side.

    One over vectors is nothing that the compiler could vectorise either.
    """
    body = list(body)
    if any(is_lane(u) for u in toposort(body)):
        return True
    return any(
        u.op is Ops.BUFFER and u.arg.space == "local" and u.arg.size > 1
        for u in toposort(s for s in body if s.op is Ops.STORE)
    )


def _count_uses(stores: Iterable[UOp]) -> dict[UOp, int]:
    uses: dict[UOp, int] = {}
    for u in toposort(stores):
        for s in u.src:
            uses[s] = uses.get(s, 0) + 1
    return uses

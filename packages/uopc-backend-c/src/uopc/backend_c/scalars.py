"""Scalar expressions as C, and what all printing shares: lines, names, helpers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from uopc.backend_c.registers import Registers
from uopc.backend_c.spelling import Spelling
from uopc.backend_c.spellings import Spellings
from uopc.backend_c.types import c_literal, c_type
from uopc.config import get
from uopc.dtype import DType
from uopc.plugins import note_owner
from uopc.simplify import Bounds
from uopc.uop import Literal, Ops, UOp, toposort

# Deeper expressions get a name: compilers limit nested brackets to 256.
MAX_DEPTH = 24
PAD = "  "
_NARROW = ("i8", "i16", "u8", "u16")

Names = dict[UOp, str]


class ScalarPrinter:
    """Prints expressions; ``helpers`` collects what the text calls.

    Loads are named ``val`` and shared expressions ``alu``, with one counter;
    an expression used once is written where it is used.

    Attributes:
        lines: the text so far.
        helpers: definitions that come before it.
        ranges: the names of loop variables.
        registers: the local buffers that are variables.
        tile: whether this is a tile, whose vectors are to be in registers.
        streams: whether something bypasses the cache in the lines so far.
    """

    def __init__(
        self,
        statements: Iterable[UOp],
        spellings: Spellings,
        in_memory: Iterable[UOp] = (),
        bounds: Bounds | None = None,
    ) -> None:
        statements = list(statements)
        self.spellings = spellings
        self.bounds = Bounds() if bounds is None else bounds
        self.helpers: dict[str, None] = {}
        self.tile = False
        self.lines: list[str] = []
        self.counter = 0
        self.streams = False
        self.ranges = _range_names(statements)
        self.registers = Registers(statements, self.bounds, in_memory)

    def name(self, kind: str) -> str:
        """A new name."""
        self.counter += 1
        return f"{kind}{self.counter}"

    def place(self, buf: UOp, index: UOp, text: str) -> str:
        """An element of a buffer, the text of whose index is given."""
        found = self.registers.place(buf, index)
        if found is None:
            return f"{variable(buf)}[{text}]"
        register, lane = found
        return register.name if lane is None else f"{register.name}[{lane}]"

    def expressions(
        self, roots: Iterable[UOp], names: Names, uses: Mapping[UOp, int], pad: str
    ) -> Names:
        """Texts for the roots; writes out what needs a name of its own."""
        texts: Names = {}
        depth: dict[UOp, int] = {}
        for u in toposort(roots, lambda n: () if n in names else n.src):
            depth[u] = 1 + max((depth.get(s, 0) for s in u.src), default=0)
            if u in names:
                texts[u], depth[u] = names[u], 0
                continue
            texts[u] = self._text(u, texts)
            if u.op is Ops.INDEX:
                kind = "val"
            elif u.src and (uses.get(u, 0) > 1 or depth[u] > MAX_DEPTH):
                kind = "alu"
            else:
                continue
            name = self.name(kind)
            self.lines.append(f"{pad}{c_type(u.dtype)} {name} = {texts[u]};")
            texts[u] = names[u] = name
            depth[u] = 0
        return texts

    def _text(self, u: UOp, texts: Names) -> str:
        match u.op:
            case Ops.CONST:
                return c_literal(u.arg)
            case Ops.RANGE:
                return self.ranges[u]
            case Ops.BUFFER:
                return ""
            case Ops.PARAM:
                return f"given{u.arg.slot}"
            case Ops.INDEX:
                return self._read(u, texts)
        return self.spelled(u, texts)

    def _read(self, u: UOp, texts: Names) -> str:
        buf, at, *gate = u.src
        index = texts[at]
        if get("UOPC_OPT") > 0 and _made_of_bool(at):
            index = self._opaque(index, at.dtype)
        place = self.place(buf, at, index)
        found = self.registers.place(buf, at) if u.dtype.kind == "bool" else None
        if found is not None and found.lane is not None:
            place = f"({place}!=0)"  # a lane of a mask
        if not gate:
            return place
        zero = c_literal(Literal.of(0, u.dtype))
        return f"({texts[gate[0]]}?{place}:{zero})"

    def spelled(self, u: UOp, texts: Mapping[UOp, str]) -> str:
        """One op on scalars; its helpers are noted."""
        spelling = self.spelling(u)
        fields = {
            "t": c_type(u.dtype),
            "s": c_type(u.src[0].dtype),
            "n": u.dtype.name,
            "f": "f" if u.dtype.bits == 32 else "",
        }
        text = self.filled_in(
            u, spelling.expression, spelling.helpers, [texts[s] for s in u.src], fields
        )
        # C computes small integers as int; cut the result back to its type.
        cut = u.dtype.name in _NARROW and u.op is not Ops.CAST
        return f"(({c_type(u.dtype)}){text})" if cut else text

    def filled_in(
        self,
        u: UOp,
        expression: str,
        helpers: Iterable[str],
        operands: Iterable[str],
        fields: Mapping[str, Any],
    ) -> str:
        """An op's spelling on some operands; its helpers are noted."""
        try:
            for helper in helpers:
                self.helpers[helper.format(**fields)] = None
            return expression.format(*operands, **fields)
        except (LookupError, ValueError) as error:
            problem = ValueError(
                f"the C spelling of {u.op.name}, {expression!r}, cannot be "
                f"filled in ({error!r}); its fields: 0 to {len(u.src) - 1}, "
                f"{', '.join(fields)}"
            )
            _note_speller(problem, u)
            raise problem from error

    def spelling(self, u: UOp) -> Spelling:
        """How the op of a node is written."""
        try:
            spelling = self.spellings[u.op]
            if callable(spelling):
                spelling = spelling(u, self.bounds)
            if not isinstance(spelling, Spelling):
                raise TypeError(
                    f"the C spelling of {u.op.name} is {spelling!r}; expected a "
                    "uopc.backend_c.Spelling, or a function (node, bounds) of one"
                )
        except Exception as error:
            _note_speller(error, u)
            raise
        return spelling

    def _opaque(self, text: str, dtype: DType) -> str:
        """``text``, of which the C compiler learns nothing."""
        t, name = c_type(dtype), f"uopc_opaque_{dtype}"
        helper = (
            f"static inline {t} {name}({t} x) {{\n"
            '  __asm__("" : "+r"(x));\n'
            "  return x;\n"
            "}\n"
        )
        self.helpers[helper] = None
        return f"{name}({text})"


def variable(buf: UOp) -> str:
    """The name of a buffer's pointer or array."""
    return f"{'acc' if buf.arg.space == 'local' else 'data'}{buf.arg.slot}"


def buffers(statements: Iterable[UOp], space: str) -> list[UOp]:
    """The buffers of one space that statements use, in the order of their slots."""
    found = {u for u in toposort(statements) if u.op is Ops.BUFFER}
    return sorted((u for u in found if u.arg.space == space), key=lambda u: u.arg.slot)


def _note_speller(error: Exception, u: UOp) -> None:
    note_owner(error, f"C spelling of op {u.op.name!r}", "spellings", ("c", u.op))


def _made_of_bool(index: UOp) -> bool:
    """Whether an index counts with a truth value, computed on the spot.

    gcc 12 keeps those as masks when it vectorises a loop, and may read at -1 for
    true: seen for ``1 - (a < b)`` and for ``(a < b) | (c < d)``.
    """
    nodes = toposort([index], lambda u: () if u.op is Ops.INDEX else u.src)
    return any(
        (u.op is Ops.CAST and u.src[0].dtype.kind == "bool")
        or (u.op is Ops.WHERE and u.src[1].op is u.src[2].op is Ops.CONST)
        for u in nodes
    )


def _range_names(statements: Iterable[UOp]) -> Names:
    """``ridx`` counted from 0 in the order of the loops' numbers."""
    ranges = {u for u in toposort(statements) if u.op is Ops.RANGE}
    ordered = sorted(ranges, key=lambda u: (u.arg.number, u.arg.extent))
    return {r: f"ridx{i}" for i, r in enumerate(ordered)}


def stored(statement: UOp) -> set[UOp]:
    """The buffers that a statement writes."""
    found: set[UOp] = set()
    pending = [statement]
    while pending:
        s = pending.pop()
        if s.op is Ops.STORE:
            found.add(s.src[0])
        elif s.op is Ops.END:
            pending += s.src[1:]
    return found


def forget(names: Names, written: set[UOp]) -> None:
    """Drop names of values read from buffers that have changed since."""
    stale: set[UOp] = set()
    for u in toposort(names):
        if u in written or any(s in stale for s in u.src):
            stale.add(u)
            names.pop(u, None)

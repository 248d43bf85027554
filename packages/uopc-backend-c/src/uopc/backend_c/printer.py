"""A loop program as one C function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from uopc.backend_c.spelling import Spelling
from uopc.backend_c.spellings import AnySpelling
from uopc.backend_c.types import c_literal, c_type
from uopc.config import get
from uopc.dtype import DType
from uopc.plugins import note_owner
from uopc.simplify import Bounds
from uopc.uop import Literal, OpDef, Ops, UOp, toposort

# Deeper expressions get a name: compilers limit nested brackets to 256.
MAX_DEPTH = 24
PAD = "  "
_NARROW = ("i8", "i16", "u8", "u16")

Names = dict[UOp, str]


class KernelPrinter:
    """Prints one loop program; ``helpers`` collects what the text calls.

    Loads are named ``val`` and shared expressions ``alu``, with one counter;
    an expression used once is written where it is used.
    """

    def __init__(self, sink: UOp, spellings: Mapping[OpDef, AnySpelling]) -> None:
        self.sink = sink
        self.spellings = spellings
        self.bounds = Bounds()
        self.helpers: dict[str, None] = {}
        self.lines: list[str] = []
        self.counter = 0
        self.declared: set[UOp] = set()
        self.ranges = _range_names(sink)

    def text(self) -> str:
        """The function."""
        pointers = ", ".join(
            f"{c_type(b.dtype)}* restrict data{b.arg.slot}"
            for b in global_buffers(self.sink)
        )
        self.lines = [f"void {self.sink.arg}({pointers}) {{"]
        self._block(self.sink.src, {}, PAD)
        return "\n".join([*self.lines, "}"]) + "\n"

    # -- statements -----------------------------------------------------------

    def _block(self, statements: tuple[UOp, ...], names: Names, pad: str) -> None:
        names = dict(names)
        plain = [s for s in statements if s.op is Ops.STORE]
        uses = _count_uses(plain)
        for i, s in enumerate(statements):
            fresh = self._declare(s, statements[i + 1 :], pad)
            if s.op is Ops.STORE:
                self._store(s, names, uses, pad, fresh)
            else:
                # From its second round on, the loop itself sees what it wrote.
                _forget(names, _stored(s))
                self._loop(s, names, pad)
            _forget(names, _stored(s))

    def _loop(self, end: UOp, names: Names, pad: str) -> None:
        loop, *body = end.src
        r, extent = self.ranges[loop], loop.arg.extent
        if get("UOPC_OPT") > 0 and pad != PAD and not _over_lanes(body):
            # An inner loop that gcc 12 unrolls into the outer one, which it then
            # vectorises, may come out wrong: sums with their terms out of order or
            # lost (its bug 110381), guarded reads that give 0. Unrolling is the
            # schedule's business; it asks for it by lanes.
            self.lines.append(f"{pad}#pragma GCC unroll 1")
        self.lines.append(
            f"{pad}for ({c_type(loop.dtype)} {r} = 0; {r} < {extent}; {r}++) {{"
        )
        self._block(tuple(body), names, pad + PAD)
        self.lines.append(f"{pad}}}")

    def _declare(self, s: UOp, rest: tuple[UOp, ...], pad: str) -> str:
        """Declare accumulators that ``s`` and later statements share.

        A scalar one that ``s`` itself sets is declared by that assignment: the
        type to write there is returned.
        """
        later = _locals(rest)
        for buf in _locals([s]):
            if buf in self.declared or buf not in later:
                continue
            self.declared.add(buf)
            if s.op is Ops.STORE and buf.arg.size == 1:
                return c_type(buf.dtype) + " "
            size = "" if buf.arg.size == 1 else f"[{buf.arg.size}]"
            self.lines.append(f"{pad}{c_type(buf.dtype)} acc{buf.arg.slot}{size};")
        return ""

    def _store(
        self, s: UOp, names: Names, uses: Mapping[UOp, int], pad: str, fresh: str
    ) -> None:
        target, index, value = s.src
        texts = self._expressions((value, index), names, uses, pad)
        place = self._place(target, texts[index])
        self.lines.append(f"{pad}{fresh}{place} = {texts[value]};")

    def _place(self, buf: UOp, index: str) -> str:
        size, _, slot, _, space = buf.arg
        if space == "local":
            return f"acc{slot}" if size == 1 else f"acc{slot}[{index}]"
        return f"data{slot}[{index}]"

    # -- expressions ----------------------------------------------------------

    def _expressions(
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
            self.counter += 1
            name = f"{kind}{self.counter}"
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
            case Ops.INDEX:
                index = texts[u.src[1]]
                if get("UOPC_OPT") > 0 and _made_of_bool(u.src[1]):
                    index = self._opaque(index, u.src[1].dtype)
                place = self._place(u.src[0], index)
                if len(u.src) == 2:
                    return place
                zero = c_literal(Literal.of(0, u.dtype))
                return f"({texts[u.src[2]]}?{place}:{zero})"
        try:
            text = self._spelled(u, texts)
        except Exception as error:
            what = f"C spelling of op {u.op.name!r}"
            note_owner(error, what, "spellings", ("c", u.op))
            raise
        # C computes small integers as int; cut the result back to its type.
        cut = u.dtype.name in _NARROW and u.op is not Ops.CAST
        return f"(({c_type(u.dtype)}){text})" if cut else text

    def _spelled(self, u: UOp, texts: Names) -> str:
        """The op's spelling, filled in; its helpers are noted."""
        spelling = self._spelling(u)
        fields = {
            "t": c_type(u.dtype),
            "s": c_type(u.src[0].dtype),
            "n": u.dtype.name,
            "f": "f" if u.dtype.bits == 32 else "",
        }
        try:
            for helper in spelling.helpers:
                self.helpers[helper.format(**fields)] = None
            return spelling.expression.format(*(texts[s] for s in u.src), **fields)
        except (LookupError, ValueError) as error:
            raise ValueError(
                f"the C spelling of {u.op.name}, {spelling.expression!r}, cannot be "
                f"filled in ({error!r}); its fields: 0 to {len(u.src) - 1}, "
                f"{', '.join(fields)}"
            ) from error

    def _spelling(self, u: UOp) -> Spelling:
        spelling = self.spellings[u.op]
        if callable(spelling):
            spelling = spelling(u, self.bounds)
        if not isinstance(spelling, Spelling):
            raise TypeError(
                f"the C spelling of {u.op.name} is {spelling!r}; expected a "
                "uopc.backend_c.Spelling, or a function (node, bounds) of one"
            )
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


def _over_lanes(body: Iterable[UOp]) -> bool:
    """Whether a loop is over the neighbours that a schedule computes side by side."""
    return any(
        u.op is Ops.BUFFER and u.arg.space == "local" and u.arg.size > 1
        for u in toposort(s for s in body if s.op is Ops.STORE)
    )


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


def global_buffers(sink: UOp) -> list[UOp]:
    """The kernel's arguments: BUFFERs it still reads or writes, by slot."""
    found = {u for u in toposort([sink]) if u.op is Ops.BUFFER}
    return sorted(
        (u for u in found if u.arg.space == "global"), key=lambda u: u.arg.slot
    )


def _range_names(sink: UOp) -> Names:
    """``ridx`` counted from 0 in the order of the loops' numbers."""
    ranges = {u for u in toposort([sink]) if u.op is Ops.RANGE}
    ordered = sorted(ranges, key=lambda u: (u.arg.number, u.arg.extent))
    return {r: f"ridx{i}" for i, r in enumerate(ordered)}


def _count_uses(stores: Iterable[UOp]) -> dict[UOp, int]:
    uses: dict[UOp, int] = {}
    for u in toposort(stores):
        for s in u.src:
            uses[s] = uses.get(s, 0) + 1
    return uses


def _locals(statements: Iterable[UOp]) -> list[UOp]:
    nodes = toposort(statements)
    return [u for u in nodes if u.op is Ops.BUFFER and u.arg.space == "local"]


def _stored(statement: UOp) -> set[UOp]:
    return {u.src[0] for u in toposort([statement]) if u.op is Ops.STORE}


def _forget(names: Names, written: set[UOp]) -> None:
    """Drop names of values read from buffers that have changed since."""
    stale: set[UOp] = set()
    for u in toposort(names):
        if u in written or any(s in stale for s in u.src):
            stale.add(u)
            names.pop(u, None)

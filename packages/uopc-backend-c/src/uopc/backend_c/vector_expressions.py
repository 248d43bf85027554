"""Expressions over the lanes of one vector loop."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from uopc.backend_c.lanes import Affine, Lanes
from uopc.backend_c.scalars import MAX_DEPTH, PAD, Names, ScalarPrinter, variable
from uopc.backend_c.spelling import Spelling
from uopc.backend_c.types import INLINE, between, c_type
from uopc.backend_c.vector_types import (
    MASKS,
    UNSIGNED,
    VectorTypes,
    lanes_held,
)
from uopc.dtype import i8
from uopc.uop import Ops, UOp, toposort

Uses = Mapping[UOp, int]


class VectorExpressions:
    """Prints values that differ from lane to lane, on a scalar printer's lines.

    What does not depend on the lane is a scalar, computed once. Names of values that
    do are vectors, kept beside those of scalars.

    Attributes:
        width: the lanes of the vectors, of which the loop needs the first ``count``.
    """

    def __init__(
        self, scalars: ScalarPrinter, types: VectorTypes, lanes: Lanes
    ) -> None:
        self.scalars = scalars
        self.types = types
        self.lanes = lanes
        self.count = lanes.count
        self.width = lanes_held(lanes.count)
        self._mask_bits: dict[UOp, int] = {}

    def vector(self, u: UOp, names: Names, uses: Uses, pad: str, bits: int = 8) -> str:
        """The text of one value as a vector; of a bool, a mask of ``bits`` a lane."""
        texts = self.texts([u], names, uses, pad)
        return self._operand(u, texts[u], bits)

    def named(self, u: UOp, names: Names, uses: Uses, pad: str) -> str:
        """The name of a vector that holds a value."""
        text = self.vector(u, names, uses, pad, self.bits(u))
        if text.isidentifier():
            return text
        name = self.scalars.name("alu")
        self.scalars.lines.append(f"{pad}{self.type(u)} {name} = {text};")
        if self.lanes.varies(u):
            names[u] = name
        return name

    def scalar(self, u: UOp, names: Names, uses: Uses, pad: str) -> str:
        """The text of what is the same for all lanes."""
        return self.scalars.expressions([u], names, uses, pad)[u]

    def pointer(self, buf: UOp, index: UOp, names: Names, uses: Uses, pad: str) -> str:
        """The text of a pointer to an element, which is the same for all lanes.

        The parts of a sum are added to it one by one: the compiler cannot know that
        their sum does not wrap, and would compute it anew in each round of a loop.
        """
        parts: list[UOp] = []
        pending = [index]
        while pending:
            u = pending.pop()
            if u.op is Ops.ADD and not self.scalars.bounds.wraps(u):
                pending += reversed(u.src)
            elif u.op is not Ops.CONST or u.value:
                parts.append(u)
        texts = self.scalars.expressions(parts, names, uses, pad)
        sum_ = "+".join([variable(buf), *(texts[u] for u in parts)])
        return f"({sum_})" if parts else sum_

    def type(self, u: UOp) -> str:
        """The vector type of a node's values."""
        if u.dtype.kind == "bool":
            return self.types.mask(self.bits(u), self.width)
        return self.types.name(u.dtype, self.width)

    def bits(self, u: UOp) -> int:
        """How wide a lane is: of a bool, what it was found by."""
        if u.dtype.kind != "bool":
            return u.dtype.bits
        if u not in self._mask_bits:
            for v in toposort([u], self._wider):
                self._mask_bits[v] = self._found_by(v)
        return self._mask_bits[u]

    def _wider(self, u: UOp) -> tuple[UOp, ...]:
        return () if u in self._mask_bits or u.op is Ops.INDEX else u.src

    def _found_by(self, u: UOp) -> int:
        if u.dtype.kind != "bool":
            return u.dtype.bits
        if u.op is Ops.INDEX or not self.lanes.varies(u):
            return 8
        return max(self._mask_bits[s] for s in u.src if self.lanes.varies(s))

    # -- texts ----------------------------------------------------------------

    def texts(self, roots: Iterable[UOp], names: Names, uses: Uses, pad: str) -> Names:
        """Texts for the roots: of vectors where they vary, else of scalars."""
        texts: Names = {}
        depth: dict[UOp, int] = {}
        for u in toposort(roots, lambda n: () if n in names else self._operands(n)):
            depth[u] = 1 + max((depth.get(s, 0) for s in u.src), default=0)
            if u in names or not self.lanes.varies(u):
                texts[u] = names.get(u) or self.scalar(u, names, uses, pad)
                depth[u] = 0
                continue
            if u.op is Ops.INDEX:
                texts[u], kind = self._read(u, names, uses, pad)
                if kind and self.scalars.tile and uses.get(u, 0) > 1:
                    texts[u] = self._held(u, texts[u])
            else:
                texts[u] = self._text(u, texts)
                shared = u.src and (uses.get(u, 0) > 1 or depth[u] > MAX_DEPTH)
                kind = "alu" if shared else ""
            if kind:
                name = self.scalars.name(kind)
                self.scalars.lines.append(f"{pad}{self.type(u)} {name} = {texts[u]};")
                texts[u] = name
            if kind or u in names:
                names[u], depth[u] = texts[u], 0
        return texts

    def _held(self, u: UOp, text: str) -> str:
        """A vector that is loaded once, into a register.

        gcc would read it from memory again in each operation: in a tile, that is more
        loads than a processor does in the time.
        """
        t = self.type(u)
        name = f"uopc_held_{t}"
        self.scalars.helpers[
            f"{INLINE}{t} {name}({t} x) {{\n"
            "#if defined(__x86_64__)\n"
            '  __asm__("" : "+v"(x));\n'
            "#endif\n"
            "  return x;\n}\n"
        ] = None
        return f"{name}({text})"

    def _operands(self, u: UOp) -> tuple[UOp, ...]:
        """What is printed before ``u`` is; a read sees to its index itself."""
        return () if u.op is Ops.INDEX or not self.lanes.varies(u) else u.src

    def _text(self, u: UOp, texts: Names) -> str:
        if u is self.lanes.loop:
            values = ", ".join(map(str, range(self.width)))
            return f"({self.type(u)}){{{values}}}"
        spelling = self.scalars.spelling(u)
        if not spelling.vector:
            return self._lane_by_lane(u, texts)
        # What the spelling leaves out is not made: clang warns of unused helpers.
        operands = [
            self._operand(s, texts[s], self.bits(u))
            if f"{{{k}}}" in spelling.vector
            else texts[s]
            for k, s in enumerate(u.src)
        ]
        return self._filled_in(u, spelling, operands)

    def _filled_in(self, u: UOp, spelling: Spelling, operands: list[str]) -> str:
        first, own = u.src[0].dtype, self.bits(u)
        source = own if first.kind == "bool" else first.bits  # masks are all alike
        first = MASKS[source] if first.kind == "bool" else first
        fields = {
            "t": self.type(u),
            "s": self.types.name(first, self.width),
            "m": self.types.name(MASKS[own], self.width),
            "u": self.types.name(UNSIGNED[own], self.width),
            "sm": self.types.name(MASKS[source], self.width),
            "su": self.types.name(UNSIGNED[source], self.width),
            "n": u.dtype.name,
            "e": u.dtype.name,
            "w": self.width,
            "f": "f" if u.dtype.bits == 32 else "",
        }
        return self.scalars.filled_in(
            u, spelling.vector, spelling.vector_helpers, operands, fields
        )

    def _operand(self, s: UOp, text: str, bits: int) -> str:
        """A source as a vector; if it is a bool, as a mask of ``bits``."""
        boolean = s.dtype.kind == "bool"
        if not self.lanes.varies(s):
            dtype, value = (MASKS[bits], f"-{text}") if boolean else (s.dtype, text)
            return self.types.splat(dtype, self.width, value)
        own = self.bits(s)
        if boolean and own != bits:
            # gcc widens masks at once, but narrows only to half the width.
            for size in (*(between(own, bits) if own > bits else ()), bits):
                mask = self.types.mask(size, self.width)
                text = f"__builtin_convertvector({text}, {mask})"
        return text

    def _lane_by_lane(self, u: UOp, texts: Names) -> str:
        """A call of a function that evaluates the scalar spelling in each lane."""
        lane: dict[UOp, str] = {}
        parameters: dict[str, str] = {}
        for k, s in enumerate(dict.fromkeys(u.src)):
            x = f"x{k}"
            if self.lanes.varies(s):
                lane[s] = f"({x}[i]!=0)" if s.dtype.kind == "bool" else f"{x}[i]"
                parameters[f"{self.type(s)} {x}"] = texts[s]
            elif s.op is Ops.CONST:
                lane[s] = texts[s]
            else:
                lane[s] = x
                parameters[f"{c_type(s.dtype)} {x}"] = texts[s]
        value = self.scalars.spelled(u, lane)
        value = f"-{value}" if u.dtype.kind == "bool" else value
        t = self.type(u)
        body = (
            f"({', '.join(parameters)}) {{\n"
            f"  {t} r = {{0}};\n"
            f"  for (int i = 0; i < {self.count}; i++) r[i] = {value};\n"
            "  return r;\n}\n"
        )
        # The text differs by what is known of a node.
        mark = hashlib.sha256(body.encode()).hexdigest()[:6]
        name = f"uopc_lanes_{u.op.name}_{mark}"
        self.scalars.helpers[f"{INLINE}{t} {name}{body}"] = None
        return f"{name}({', '.join(parameters.values())})"

    # -- reads ----------------------------------------------------------------

    def _read(self, u: UOp, names: Names, uses: Uses, pad: str) -> tuple[str, str]:
        """The text of a read, and what kind of name it needs."""
        buf, index, *gate = u.src
        place = self.scalars.registers.place(buf, index)
        if place is not None and place.lane is None and place.register.lanes:
            return place.register.name, ""  # it may be read as long as it is unchanged
        if gate and self.lanes.varies(gate[0]):
            return self._partly(u, names, uses, pad), ""
        found = self.lanes.affine(index)
        if found is not None:
            text = self._affine(u, found, names, uses, pad)
        else:
            text = self._each(u, self.indices(index, names, uses, pad))
        if gate:
            condition = self.scalar(gate[0], names, uses, pad)
            t = self.type(u)
            text = f"({condition}?({t}){text}:({t}){{0}})"
        return text, "val"

    def _affine(self, u: UOp, found: Affine, names: Names, uses: Uses, pad: str) -> str:
        """A vector of elements that are equally far apart."""
        if found.step == 1:
            boolean = u.dtype.kind == "bool"
            dtype = i8 if boolean else u.dtype
            place = self.pointer(u.src[0], found.base, names, uses, pad)
            text = self.types.load(dtype, self.width, self.count, place)
            return f"(-{text})" if boolean else text
        base = self.scalar(found.base, names, uses, pad)
        return self._each(u, lane_indices(base, found.step, self.count))

    def indices(self, index: UOp, names: Names, uses: Uses, pad: str) -> list[str]:
        """The index in each lane, where it is not affine."""
        found = self.lanes.offsets(index)
        if found is None:
            at = self.named(index, names, uses, pad)
            return [f"{at}[{i}]" for i in range(self.count)]
        base = self.scalar(found[0], names, uses, pad)
        return [f"{base}+{n}" if n else base for n in found[1]]

    def _each(self, u: UOp, indices: Iterable[str]) -> str:
        """A vector of elements at their own indices."""
        sign = "-" if u.dtype.kind == "bool" else ""
        values = ", ".join(sign + array_place(u.src[0], i) for i in indices)
        return f"({self.type(u)}){{{values}}}"

    def _partly(self, u: UOp, names: Names, uses: Uses, pad: str) -> str:
        """The name of what is read where a gate says so, 0 elsewhere."""
        found, lines = self.lanes.affine(u.src[1]), self.scalars.lines
        whole = None if found is None else self.lanes.whole(u.src[2])
        name = names[u] = self.scalars.name("val")
        if found is None or whole is None:
            text = self._masked(u, names, uses, pad)
            lines.append(f"{pad}{self.type(u)} {name} = {text};")
            return name
        condition = self.scalar(whole, names, uses, pad)
        if found.step == 0:
            base = self.scalar(found.base, names, uses, pad)
            text = self._operand_of_place(u, base)
        else:
            text = self._affine(u, found, names, uses, pad)
        lines.append(f"{pad}{self.type(u)} {name};")
        lines.append(f"{pad}if ({condition}) {name} = {text};")
        lines.append(f"{pad}else {{")
        text = self._masked(u, dict(names), uses, pad + PAD)
        lines.append(f"{pad + PAD}{name} = {text};")
        lines.append(f"{pad}}}")
        return name

    def _operand_of_place(self, u: UOp, base: str) -> str:
        """One element in all lanes."""
        place = self.scalars.place(u.src[0], u.src[1], base)
        if u.dtype.kind == "bool":
            return self.types.splat(i8, self.width, f"-{place}")
        return self.types.splat(u.dtype, self.width, place)

    def _masked(self, u: UOp, names: Names, uses: Uses, pad: str) -> str:
        """A call of a function that reads each lane whose gate holds."""
        buf, index, gate = u.src
        mask = self.vector(gate, names, uses, pad, self.bits(gate))
        found = self.lanes.affine(index)
        if found is None:
            at = self.vector(index, names, uses, pad)
            arguments, place = [at], "at[i]"
            parameters = f"{self.type(index)} at"
        else:
            base = self.scalar(found.base, names, uses, pad)
            arguments, place = [base, str(found.step)], "at+i*step"
            parameters = "long long at, long long step"
        t, c = self.type(u), c_type(u.dtype)
        sign = "-" if u.dtype.kind == "bool" else ""
        name = f"uopc_masked{self.count}_{t}_by_{self.type(gate)}"
        name += f"_at_{self.type(index)}" if found is None else ""
        self.scalars.helpers[
            f"{INLINE}{t} {name}(const {c}* p, {parameters}, {self.type(gate)} mask)"
            f" {{\n  {t} r = {{0}};\n"
            f"  for (int i = 0; i < {self.count}; i++)"
            f" if (mask[i]) r[i] = {sign}p[{place}];\n"
            "  return r;\n}\n"
        ] = None
        origin = variable(buf)
        if self.scalars.registers.of(buf):
            origin = f"&{self.scalars.place(buf, index, '')}"
        return f"{name}({', '.join([origin, *arguments, mask])})"


def array_place(buf: UOp, index: str) -> str:
    """An element of a buffer that is an array."""
    return f"{variable(buf)}[{index}]"


def lane_indices(base: str, step: int, count: int) -> list[str]:
    """The index of each lane of an affine access."""
    return [f"{base}+{i * step}" if i and step else base for i in range(count)]

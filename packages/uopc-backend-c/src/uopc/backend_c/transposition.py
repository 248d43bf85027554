"""Blocks of strided reads: whole vectors along memory, turned in registers.

A vector loop that reads ``x[base + stride * lane + c]`` for as many neighbouring
constants c as it has lanes reads a square block of memory, by columns. Its rows are
loaded as vectors and transposed by halves: Eklundh, A Fast Computer Method for Matrix
Transposing (1972).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from uopc.backend_c.scalars import Names
from uopc.backend_c.types import c_type
from uopc.backend_c.vector_expressions import VectorExpressions
from uopc.simplify import Bounds
from uopc.simplify.linear import decompose
from uopc.uop import Ops, UOp, toposort

SIZES = (4, 8)  # bytes of elements; of smaller ones, vectors take other instructions
# Older gcc has the general shuffle only, which takes the order as a vector.
_PICK = """\
#if defined(__clang__) || __GNUC__ >= 12
#define uopc_pick(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define uopc_pick(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif
"""


def print_blocks(
    values: VectorExpressions,
    stores: Sequence[UOp],
    names: Names,
    uses: Mapping[UOp, int],
    pad: str,
) -> None:
    """Name the elements of the blocks that the stores of one vector loop read."""
    if values.count != values.width:
        return
    for block in _blocks(values, stores, names):
        found = values.lanes.affine(block[0].src[1])
        assert found is not None
        at = values.pointer(block[0].src[0], found.base, names, uses, pad)
        scalars, count = values.scalars, values.width
        t, dtype = values.type(block[0]), block[0].dtype
        scalars.helpers |= dict.fromkeys(
            (
                _PICK,
                _turning(t, c_type(dtype), values.types.mask(dtype.bits, count), count),
            )
        )
        name = scalars.name("val")
        call = f"uopc_transpose_{t}({at}, {found.step}, {name});"
        scalars.lines.append(f"{pad}{t} {name}[{count}]; {call}")
        names.update({u: f"{name}[{i}]" for i, u in enumerate(block)})


def _turning(t: str, element: str, order: str, count: int) -> str:
    """The function that reads the rows of a block and returns its columns.

    It is called: all blocks of one type share it, and the compiler's time for it.
    """
    rows = [f"  {t} r{i} = *({t}_mem*)(from+{i}*step);" for i in range(count)]
    lines = [*rows, f"  {t} low;"]
    half = count // 2
    while half:
        for i in (i for i in range(count) if not i & half):
            pick = f"uopc_pick({order}, r{i}, r{i + half}, "
            lines.append(f"  low = {pick}{_low(count, half)});")
            lines.append(f"  r{i + half} = {pick}{_high(count, half)});")
            lines.append(f"  r{i} = low;")
        half //= 2
    lines += [f"  to[{i}] = r{i};" for i in range(count)]
    given = f"const {element}* restrict from, long long step, {t}* restrict to"
    head = f"static __attribute__((noinline)) void uopc_transpose_{t}({given}) {{"
    return "\n".join([head, *lines, "}\n"])


def _low(count: int, half: int) -> str:
    """Of rows a and b: a with the lower halves of b in place of its higher ones."""
    picked = (i - half + count if i & half else i for i in range(count))
    return ", ".join(map(str, picked))


def _high(count: int, half: int) -> str:
    """Of rows a and b: b with the higher halves of a in place of its lower ones."""
    picked = (i + count if i & half else i + half for i in range(count))
    return ", ".join(map(str, picked))


def _blocks(
    values: VectorExpressions, stores: Sequence[UOp], names: Names
) -> Iterator[list[UOp]]:
    """The reads of each block, by column."""
    bounds: Bounds = values.scalars.bounds
    written = {s.src[0] for s in stores}
    alike: dict[object, dict[int, UOp]] = {}
    for u in toposort([s.src[2] for s in stores], _operands):
        if u.op is not Ops.INDEX or len(u.src) != 2 or u in names:
            continue
        buf, index = u.src
        # Blocks are read at once, before the first store.
        if buf in written or values.scalars.registers.of(buf):
            continue
        found = values.lanes.affine(index)
        if found is None or abs(found.step) < 2 or not _fits(u):
            continue
        terms, constant = decompose(found.base, bounds)
        key = (buf, found.step, frozenset(terms.items()))
        alike.setdefault(key, {})[constant] = u
    for columns in alike.values():
        yield from _runs(columns, values.width)


def _fits(u: UOp) -> bool:
    return u.dtype.itemsize in SIZES and u.dtype.kind != "bool"


def _operands(u: UOp) -> tuple[UOp, ...]:
    """A block is not looked for in the address of another read."""
    return () if u.op is Ops.INDEX else u.src


def _runs(columns: Mapping[int, UOp], count: int) -> Iterator[list[UOp]]:
    """As many reads of neighbours as there are lanes, each used once."""
    run: list[UOp] = []
    last = None
    for constant in sorted(columns):
        run = [*run, columns[constant]] if constant - 1 == last else [columns[constant]]
        last = constant
        if len(run) == count:
            yield run
            run, last = [], None

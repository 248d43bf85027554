"""`uopc ops`: the op table as a reference page, plugins' ops included."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from uopc.dtype import DTYPES, DType
from uopc.plugins import registry
from uopc.uir import to_uir
from uopc.uop import REQUIRED, Field, OpDef, UOp

INTRODUCTION = """\
# The ops

One row of the op table each: what `uopc ops` prints. A node is
`UOp(op, sources, argument)`; its shape and dtype follow from these. Elementwise ops
take sources of one shape and, but for `where`, of one dtype. [uir.md](uir.md) explains
the text in the last column, [conventions.md](conventions.md) what happens at corners.

*Exact* ops have one right result, so constants are folded. *Commutative* ones give the
same bits either way round. An *identity* is what a reduction starts from; `reduce`
takes `add`, `mul` and `max`. *Lowered* ops are written in others where a backend has no
better; *no gradient* says that none is meant to flow.
"""
KINDS = {
    "leaf": "Leaves",
    "elementwise": "Elementwise",
    "movement": "Movement",
    "reduce": "Reduction",
    "select": "Selection",
    "loop": "Loops and statements",
}
HEADER = ("op", "sources", "argument", "types", "properties", "meaning", "example")
TYPES = {
    "all": ("bool", "int", "uint", "float"),
    "numbers": ("int", "uint", "float"),
    "floats": ("float",),
    "integers, bool": ("bool", "int", "uint"),
    "integers": ("int", "uint"),
    "unsigned": ("uint",),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run_ops(args: argparse.Namespace) -> int:
    """Print the page."""
    print(reference_page(registry().ops.values()), end="")
    return 0


def reference_page(ops: Iterable[OpDef]) -> str:
    """Markdown: one table per kind of op, in the order of the rows."""
    rows = list(ops)
    parts = [INTRODUCTION]
    for kind, title in KINDS.items():
        lines = [_line(HEADER), _line("---" for _ in HEADER)]
        lines += [_line(_cells(op)) for op in rows if op.kind == kind]
        parts.append("\n".join([f"## {title}", "", *lines, ""]))
    return "\n".join(parts)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(op: OpDef) -> tuple[str, ...]:
    samples = {d: op.examples(UOp.param(0, d, (2, 3))) for d in DTYPES.values()}
    accepted = [d for d, found in samples.items() if found]
    arity = "any" if op.arity is None else str(op.arity)
    example = to_uir(samples[accepted[0]][0]).splitlines()[-1].partition(" = ")[2]
    return (
        f"`{op.name}`",
        arity,
        ", ".join(map(_field, op.arg)),
        _types(accepted),
        ", ".join(_properties(op, accepted[0])),
        op.doc.replace("|", "\\|"),
        f"`{example}`",
    )


def _field(field: Field) -> str:
    text = f"{field.name}: {field.type}"
    return text if field.default is REQUIRED else f"{text} = {field.default}"


def _types(accepted: list[DType]) -> str:
    names = {d.name for d in accepted}
    for phrase, kinds in TYPES.items():
        if names == {d.name for d in DTYPES.values() if d.kind in kinds}:
            return phrase
    return " ".join(d.name for d in accepted)


def _properties(op: OpDef, dtype: DType) -> list[str]:
    found = [word for word in ("exact", "commutative") if getattr(op, word)]
    if op.identity is not None:
        found.append(f"identity {op.identity(dtype)}")
    if op.lower is not None:
        found.append("lowered")
    if not op.differentiable:
        found.append("no gradient")
    return found

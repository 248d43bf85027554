"""Graph to text."""

from __future__ import annotations

from typing import Any

import numpy as np

from uopc.dtype import boolean, f32, i32
from uopc.uop import Field, Literal, Ops, UOp, toposort


def format_literal(literal: Literal) -> str:
    """The shortest text that reads back as the same bits."""
    value, dtype = literal.value, literal.dtype
    if dtype is boolean:
        return f"{'true' if value else 'false'}:bool"
    if dtype is f32:
        return str(np.float32(value))
    if dtype is i32:
        return str(value)
    text = _shortest(literal) if dtype.is_float and dtype.bits < 64 else repr(value)
    return f"{text}:{dtype.name}"


def _shortest(literal: Literal) -> str:
    """The fewest digits that round to a float narrower than Python's."""
    value, dtype = literal.value, literal.dtype
    candidates = (repr(float(f"{value:.{n}g}")) for n in range(1, 17))
    return next(x for x in candidates if Literal.of(float(x), dtype) == literal)


def to_uir(root: UOp) -> str:
    """One line per node, children first; the root is the last line.

    Scalar constants are written where they are used and take no number.
    """
    return "\n".join(node_lines(root).values())


def node_lines(root: UOp) -> dict[UOp, str]:
    """The lines of ``to_uir``, by node: node number k, called ``%k``, has line k."""
    names: dict[UOp, str] = {}
    lines: dict[UOp, str] = {}
    for u in toposort([root]):
        if u.op is Ops.CONST and u is not root:
            names[u] = format_literal(u.arg)
        else:
            names[u] = name = f"%{len(lines)}"
            lines[u] = f"{name} = {_body(u, names)}"
    return lines


def _body(u: UOp, names: dict[UOp, str]) -> str:
    items = [names[s] for s in u.src]
    fields = u.op.arg
    if not fields:
        return f"{u.op.name} {', '.join(items)}".rstrip()
    values = (u.arg,) if len(fields) == 1 else u.arg
    keyed: list[str] = []
    for field, value in zip(fields, values, strict=True):
        if field.positional:
            items.append(_value(field, value))
        elif value != field.default:
            keyed.append(f"{field.name}={_value(field, value)}")
    text = f"{u.op.name} {', '.join(items)}".rstrip()
    return f"{text} : {' '.join(keyed)}" if keyed else text


def _value(field: Field, value: Any) -> str:
    if field.type == "literal":
        return format_literal(value)
    return value.name if field.type in ("dtype", "op") else str(value)

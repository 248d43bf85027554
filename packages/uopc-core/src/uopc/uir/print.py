"""Graph to text."""

from __future__ import annotations

from typing import Any

import numpy as np

from uopc.dtype import boolean, f16, f32, i32
from uopc.uop import Field, Literal, Ops, UOp, toposort


def format_literal(literal: Literal) -> str:
    """The shortest text that reads back as the same bits."""
    value, dtype = literal.value, literal.dtype
    if dtype is boolean:
        return f"{'true' if value else 'false'}:bool"
    if dtype is f32:
        return str(np.float32(value))
    if dtype is f16:
        return f"{np.float16(value)}:f16"
    if dtype is i32:
        return str(value)
    text = repr(value)
    return f"{text}:{dtype.name}"


def to_uir(root: UOp) -> str:
    """One line per node, children first; the root is the last line.

    Scalar constants are written where they are used and take no number.
    """
    names: dict[UOp, str] = {}
    lines: list[str] = []
    for u in toposort([root]):
        if u.op is Ops.CONST and u is not root:
            names[u] = format_literal(u.arg)
            continue
        names[u] = f"%{len(lines)}"
        lines.append(f"{names[u]} = {_body(u, names)}")
    return "\n".join(lines)


def _body(u: UOp, names: dict[UOp, str]) -> str:
    fields = u.op.arg
    values = (u.arg,) if len(fields) == 1 else u.arg or ()
    items = [names[s] for s in u.src]
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

"""Expressions as one line that a person can read, for debug output."""

from __future__ import annotations

from uopc.uop import OpDef, Ops, UOp

MAX_DEPTH = 12  # brackets inside brackets; what lies deeper is left out
_SYMBOLS: dict[OpDef, str] = {
    Ops.ADD: "+",
    Ops.MUL: "*",
    Ops.DIV: "/",
    Ops.FLOORDIV: "//",
    Ops.FLOORMOD: "%",
    Ops.CMPLT: "<",
    Ops.CMPNE: "!=",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.SHL: "<<",
    Ops.SHR: ">>",
}


def infix(u: UOp, width: int = 100) -> str:
    """``u`` with the usual signs, cut to ``width`` characters."""
    text = _infix(u, MAX_DEPTH)
    if text.startswith("(") and u.op in _SYMBOLS:
        text = text[1:-1]
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _infix(u: UOp, depth: int) -> str:
    match u.op:
        case Ops.CONST:
            return str(u.value)
        case Ops.RANGE:
            return f"ridx{u.arg.number}"
        case Ops.BUFFER:
            return f"{'acc' if u.arg.space == 'local' else 'data'}{u.arg.slot}"
        case Ops.PARAM:
            return f"param{u.arg.slot}"
    if depth == 0:
        return "..."
    parts = [_infix(s, depth - 1) for s in u.src[:4]]
    if u.op in _SYMBOLS:
        return f"({f' {_SYMBOLS[u.op]} '.join(parts)})"
    if u.op is Ops.WHERE:
        return f"({parts[0]} ? {parts[1]} : {parts[2]})"
    if u.op is Ops.INDEX:
        read = f"{parts[0]}[{', '.join(parts[1:2])}]"
        return f"({parts[2]} ? {read} : 0)" if len(parts) > 2 else read
    more = ", ..." if len(u.src) > 4 else ""
    return f"{u.op.name}({', '.join(parts)}{more})"

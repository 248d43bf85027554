"""Text to graph: a tokenizer and one small parser per line. No evaluation."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn

from uopc.dtype import DTYPES, DType, boolean, f32, i32
from uopc.plugins import current, registry
from uopc.uop import REQUIRED, Field, Literal, OpDef, UOp

_TOKEN = re.compile(
    r"\s*(?:(?P<node>%\d+)"
    r"|(?P<number>[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|(?:inf|nan)\b))"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<mark>[=,:()])"
    r"|(?P<end>(?:\#.*)?$))"
)
MAX_DIGITS = 400  # longer numbers cannot be values of any element type


class UirError(ValueError):
    """Text that is not a graph; says where and what was expected."""


class _Part(NamedTuple):
    """A source or argument, and where it is written."""

    value: Any
    column: int
    text: str


class _Line:
    """The tokens of one line, with a position for errors."""

    def __init__(self, text: str, number: int) -> None:
        self.text, self.number, self.pos, self.column = text, number, 0, 1
        self.kind, self.token = "", ""
        self.advance()

    def advance(self) -> str:
        """Step to the next token; return the one left behind."""
        left = self.token
        match = _TOKEN.match(self.text, self.pos)
        if match is None:
            rest = self.text[self.pos :]
            self.column = self.pos + len(rest) - len(rest.lstrip()) + 1
            self.fail("a token", got=rest.strip()[:20])
        self.kind = match.lastgroup or "end"
        self.token = match.group(self.kind)
        self.column = match.start(self.kind) + 1
        self.pos = match.end()
        return left

    def fail(self, expected: str, got: str | None = None, note: str = "") -> NoReturn:
        got = self.token or "the end of the line" if got is None else got
        raise UirError(
            f"line {self.number}, column {self.column}: expected {expected}, "
            f"got {got[:40]!r}{note}"
        )

    def eat(self, mark: str) -> None:
        if self.token != mark:
            self.fail(repr(mark))
        self.advance()

    def take(self, kind: str, what: str) -> str:
        if self.kind != kind:
            self.fail(what)
        return self.advance()


def parse_uir(text: str) -> UOp:
    """The graph that ``text`` describes: the node of its last line.

    Raises UirError, naming line, column and what was expected, for anything
    that is not a graph.
    """
    nodes: dict[str, UOp] = {}
    ops = registry().ops
    root: UOp | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = _Line(raw, number)
        if line.kind == "end":
            continue
        name = line.take("node", "a node such as %0")
        if name in nodes:
            line.fail("a new node number", got=name)
        line.eat("=")
        root = nodes[name] = _node(line, ops, nodes)
    if root is None:
        raise UirError("line 1, column 1: expected at least one node, got none")
    return root


def _node(line: _Line, ops: dict[str, OpDef], nodes: dict[str, UOp]) -> UOp:
    op, column = ops.get(line.token), line.column
    if op is None:
        line.fail("the name of an op", note=current().failure_note())
    line.advance()
    positional = [f for f in op.arg if f.positional]
    items: list[_Part] = []
    while line.kind != "end" and line.token != ":":
        if items:
            line.eat(",")
        items.append(_part(line, nodes))
    count = len(items) - len(positional)
    if count < 0 or (op.arity is not None and count != op.arity):
        line.fail(f"{op.arity} sources and {len(positional)} arguments of {op.name}")
    values = dict(zip((f.name for f in positional), items[count:], strict=True))
    if line.token == ":":
        line.advance()
        _keyed(line, op, values)
    if line.kind != "end":
        line.fail("the end of the line")
    src = tuple(_source(line, item) for item in items[:count])
    args = [_argument(line, f, values, ops) for f in op.arg]
    arg = None if not args else args[0] if len(args) == 1 else tuple(args)
    try:
        return UOp(op, src, arg)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise UirError(f"line {line.number}, column {column}: {error}") from error


def _keyed(line: _Line, op: OpDef, values: dict[str, _Part]) -> None:
    known = {f.name for f in op.arg if not f.positional}
    while line.kind == "name":
        if line.token not in known or line.token in values:
            line.fail(f"one of {sorted(known - set(values))}")
        key = line.advance()
        line.eat("=")
        values[key] = _part(line, {})


def _part(line: _Line, nodes: dict[str, UOp]) -> _Part:
    column = line.column
    value = _item(line, nodes)
    return _Part(value, column, line.text[column - 1 : line.column - 1].strip(" ,"))


def _item(line: _Line, nodes: dict[str, UOp]) -> Any:
    """A node, a constant, a name (as str) or a tuple."""
    if line.kind == "node":
        if line.token not in nodes:
            line.fail("a node defined above")
        return nodes[line.advance()]
    if line.kind == "number" or line.token in ("true", "false"):
        return _literal(line)
    if line.token == "(":
        return _tuple(line, depth=0)
    return line.take("name", "a node, a constant, a name or a tuple")


def _literal(line: _Line) -> Literal | int:
    """A constant; an integer beyond i32 without a dtype can only be an argument."""
    text = line.token
    if len(text) > MAX_DIGITS:
        line.fail("a shorter number")
    whole = re.fullmatch(r"[+-]?\d+", text) is not None
    dtype: DType = boolean if text in ("true", "false") else i32 if whole else f32
    column = line.column
    line.advance()
    # A colon glued to the number gives its dtype; else it starts the keys.
    if line.token == ":" and line.text[line.pos : line.pos + 1].isalpha():
        line.advance()
        if line.token not in DTYPES:
            line.fail("an element type")
        dtype = DTYPES[line.advance()]
    elif whole and not i32.min <= int(text) <= i32.max:
        return int(text)
    try:
        return Literal.of(_number(text, dtype), dtype)
    except (ValueError, OverflowError) as error:
        line.column = column
        line.fail(f"a value of {dtype} ({error})", got=text)


def _number(text: str, dtype: DType) -> bool | int | float:
    if dtype is boolean:
        if text not in ("true", "false"):
            raise ValueError("true or false")
        return text == "true"
    return float(text) if dtype.is_float else int(text)


def _tuple(line: _Line, depth: int) -> tuple[Any, ...]:
    line.eat("(")
    parts: list[Any] = []
    while line.token != ")":
        if line.token == "(" and depth < 1:
            parts.append(_tuple(line, depth + 1))
        else:
            text = line.token
            if len(text) > MAX_DIGITS or not text.lstrip("+-").isdigit():
                line.fail("an integer")
            parts.append(int(text))
            line.advance()
        if line.token != ")":
            line.eat(",")
    line.eat(")")
    return tuple(parts)


def _source(line: _Line, part: _Part) -> UOp:
    item = part.value
    if isinstance(item, UOp):
        return item
    if isinstance(item, Literal):
        return UOp.const(item.value, item.dtype)
    line.column = part.column
    if isinstance(item, int):
        line.fail(f"a value of i32 ({i32.min} to {i32.max})", got=part.text)
    line.fail("a node or a constant as source", got=part.text)


def _argument(
    line: _Line, field: Field, values: dict[str, _Part], ops: dict[str, OpDef]
) -> Any:
    if field.name not in values:
        if field.default is REQUIRED:
            line.column = len(line.text) + 1
            line.fail(f"{field.name}=...")
        return field.default
    item, line.column, text = values[field.name]
    match field.type:
        case "literal" if isinstance(item, Literal):
            return item
        case "int" if isinstance(item, Literal) and item.dtype is i32:
            return item.value
        case "int" if isinstance(item, int):
            return item
        case "ints" | "pairs" if type(item) is tuple:
            return item
        case "dtype" if item in DTYPES:
            return DTYPES[item]
        case "op" if item in ops:
            return ops[item]
        case "name" if isinstance(item, str):
            return item
    line.fail(f"{field.name} of type {field.type}", got=text)

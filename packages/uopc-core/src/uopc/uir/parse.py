"""Text to graph: the tokens of a line, then one small parser. No evaluation.

Tokens carry no position: one is worked out, from the line, when an error needs it.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from uopc.dtype import DTYPES, DType, boolean, f32, i32
from uopc.plugins import current, registry
from uopc.uop import REQUIRED, Field, Literal, OpDef, Ops, UOp, collector_paused

# The last alternative is what no rule allows, up to where a token may begin again.
_TOKEN = re.compile(
    r"%\d+"
    r"|(?:[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|(?:inf|nan)\b)|(?:true|false)\b)"
    r"(?::[A-Za-z]\w*)?"
    r"|[A-Za-z_]\w*"
    r"|[=,:()]"
    r"|#.*"
    r"|[^\s=,:()#]+",
    re.ASCII,
)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CONSTANT = re.compile(r"[+-]?(?:\d|inf\b|nan\b)|(?:true|false)\b", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)

# The product of the longest possible shape can still be printed by Python.
MAX_DIGITS = 100
MAX_MESSAGE = 400

_WORDS = {
    "int": "an integer",
    "ints": "a tuple of integers such as (2, 3)",
    "pairs": "a tuple of pairs such as ((0, 2), (1, 3))",
    "dtype": f"an element type ({', '.join(DTYPES)})",
    "op": "the name of an op",
    "name": "a name",
    "literal": "a constant",
}
_I32 = (
    f"a value of i32 ({i32.min} to {i32.max}), or a type after the number, as in 1:i64"
)


class UirError(ValueError):
    """Text that is not a graph; says where and what was expected."""


class _Line:
    """The tokens of one line, ended by an empty one, and how many are read."""

    __slots__ = ("at", "number", "text", "tokens")

    def __init__(self, text: str, number: int) -> None:
        self.text, self.number, self.at = text, number, 0
        self.tokens: list[str] = _TOKEN.findall(text)
        if self.tokens and self.tokens[-1][0] == "#":
            self.tokens.pop()
        self.tokens.append("")

    def place(self, at: int) -> tuple[int, int]:
        """Where token number ``at`` begins and ends, counted from 0."""
        found = [m.span() for m in _TOKEN.finditer(self.text)]
        end = len(self.text.rstrip())
        return found[at] if at < len(found) else (end, end)

    def fail(
        self, expected: str, at: int | None = None, got: str = "", note: str = ""
    ) -> NoReturn:
        """Raise the error that token ``at``, or the next one, is not ``expected``."""
        at = self.at if at is None else at
        got = got or self.tokens[at] or "the end of the line"
        self.fail_at(at, f"expected {expected}, got {got[:40]!r}{note}")

    def fail_at(
        self, at: int, message: str, cause: Exception | None = None
    ) -> NoReturn:
        """Raise an error at token ``at``: always one line, and never a long one."""
        message = " ".join(message.split())
        if len(message) > MAX_MESSAGE:
            message = message[:MAX_MESSAGE] + " ..."
        place = f"line {self.number}, column {self.place(at)[0] + 1}"
        raise UirError(f"{place}: {message}") from cause

    def eat(self, mark: str) -> None:
        if self.tokens[self.at] != mark:
            self.fail(repr(mark))
        self.at += 1

    def item_text(self, at: int) -> str:
        """The item that begins with token ``at``, as written."""
        last = at
        if self.tokens[at] == "(":
            depth = 1
            while depth and self.tokens[last + 1]:
                last += 1
                depth += {"(": 1, ")": -1}.get(self.tokens[last], 0)
        return self.text[self.place(at)[0] : self.place(last)[1]]


@collector_paused()
def parse_uir(text: str) -> UOp:
    """The graph that ``text`` describes: the node of its last line.

    Raises UirError, naming line, column and what was expected, for anything
    that is not a graph.
    """
    *_, root = parse_nodes(text).values()
    return root


def parse_nodes(text: str) -> dict[str, UOp]:
    """All nodes of ``text`` by the names that it gives them, such as "%0", in order.

    There is at least one. Raises UirError as ``parse_uir`` does.
    """
    parser = _Parser()
    for number, raw in enumerate(text.split("\n"), 1):
        line = _Line(raw, number)
        if line.tokens[0]:
            parser.add(line)
    if not parser.nodes:
        raise UirError("line 1, column 1: expected at least one node, got none")
    return parser.nodes


class _Parser:
    """The nodes so far."""

    def __init__(self) -> None:
        self.nodes: dict[str, UOp] = {}
        self.ops = registry().ops
        # Constants by their text: they come up again and again.
        self.constants: dict[str, Literal | int] = {}

    def add(self, line: _Line) -> None:
        """Parse one line that is not empty."""
        name = line.tokens[0]
        if name[0] != "%" or not "0" <= name[1:2] <= "9":
            line.fail("a node such as %0")
        if name in self.nodes:
            line.fail("a new node number")
        line.at = 1
        line.eat("=")
        op = self.ops.get(line.tokens[2])
        if op is None:
            line.fail("the name of an op", note=current().failure_note())
        line.at = 3
        src, arg = self._operands(line, op)
        try:
            self.nodes[name] = UOp(op, src, arg)
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            line.fail_at(2, str(error), error)
        except Exception as error:  # inference of a plugin's op is anybody's code
            line.fail_at(2, f"{op.name}: {type(error).__name__}: {error}", error)

    def _operands(self, line: _Line, op: OpDef) -> tuple[tuple[UOp, ...], Any]:
        """What follows the op: its sources, and its argument."""
        items, starts = self._items(line)
        names = [f.name for f in op.arg if f.positional] if op.arg else []
        count = len(items) - len(names)
        if count < 0 or (op.arity is not None and count != op.arity):
            allowed = len(names) + (op.arity or 0)
            line.fail(_usage(op), starts[allowed] if len(starts) > allowed else None)
        values: dict[str, tuple[Any, int]] = {}
        for i, name in enumerate(names, count):
            values[name] = items[i], starts[i]
        if line.tokens[line.at] == ":":
            line.at += 1
            self._keyed(line, op, values)
        for i in range(count):
            if not isinstance(items[i], UOp):
                items[i] = _source(line, items[i], starts[i])
        if not op.arg:
            return tuple(items), None
        args = [self._argument(line, field, values) for field in op.arg]
        return tuple(items[:count]), args[0] if len(args) == 1 else tuple(args)

    def _items(self, line: _Line) -> tuple[list[Any], list[int]]:
        """Sources and positional arguments, and the token each begins with."""
        tokens, nodes = line.tokens, self.nodes
        items: list[Any] = []
        starts: list[int] = []
        item: Any
        while tokens[line.at] not in ("", ":"):
            if items:
                line.eat(",")
            start = line.at
            item = nodes.get(tokens[start])
            if item is None:
                item = self._item(line)
            else:
                line.at += 1
            items.append(item)
            starts.append(start)
        return items, starts

    def _keyed(
        self, line: _Line, op: OpDef, values: dict[str, tuple[Any, int]]
    ) -> None:
        left = [f.name for f in op.arg if not f.positional]
        while key := line.tokens[line.at]:
            if key not in left:
                options = [f"{name}=..." for name in left]
                line.fail(" or ".join([*options, "the end of the line"]))
            left.remove(key)
            line.at += 1
            line.eat("=")
            start = line.at
            values[key] = self._item(line), start

    def _item(self, line: _Line) -> Any:
        """A constant, a name (as str) or a tuple."""
        token = line.tokens[line.at]
        if token == "(":
            return _tuple(line)
        constant = self.constants.get(token)
        if constant is not None:
            line.at += 1
            return constant
        if _CONSTANT.match(token):
            constant = self.constants[token] = _constant(line)
            return constant
        if not _is_name(token):
            known = "a node defined above" if token[:1] == "%" else ""
            line.fail(known or "a node, a constant, a name or a tuple")
        line.at += 1
        return token

    def _argument(
        self, line: _Line, field: Field, values: dict[str, tuple[Any, int]]
    ) -> Any:
        if field.name not in values:
            if field.default is REQUIRED:
                line.fail(f"{field.name}=...", len(line.tokens) - 1)
            return field.default
        item, start = values[field.name]
        token = line.tokens[start]
        match field.type:
            case "literal" if isinstance(item, Literal):
                return item
            case "int" if isinstance(item, Literal) and _INTEGER.fullmatch(token):
                return item.value
            case "int" if isinstance(item, int):
                return item
            case "ints" | "pairs" if type(item) is tuple:
                return item
            case "dtype" if token in DTYPES:
                return DTYPES[token]
            case "op" if token in self.ops:
                return self.ops[token]
            case "name" if _is_name(token):
                return token
        what = f"{field.name}, {_WORDS[field.type]}"
        if field.type == "literal" and isinstance(item, int):
            what = _I32
        line.fail(what, start, line.item_text(start))


def _is_name(token: str) -> bool:
    return _NAME.fullmatch(token) is not None


def _usage(op: OpDef) -> str:
    """How a line with ``op`` goes on: ``'reduce SOURCE, op, n'``."""
    sources = ["SOURCE"] * op.arity if op.arity is not None else ["SOURCE ..."]
    names = [f.name for f in op.arg if f.positional]
    return repr(f"{op.name} {', '.join([*sources, *names])}".rstrip())


def _source(line: _Line, item: Any, start: int) -> UOp:
    if isinstance(item, Literal):
        return UOp(Ops.CONST, (), item)
    text = line.item_text(start)
    if isinstance(item, int):
        line.fail(_I32, start, text)
    line.fail("a node or a constant as source", start, text)


def _constant(line: _Line) -> Literal | int:
    """A constant; an integer beyond i32 without a dtype can only be an argument."""
    text, colon, name = line.tokens[line.at].partition(":")
    if len(text) > MAX_DIGITS:
        line.fail(f"a number of at most {MAX_DIGITS} characters")
    whole = _INTEGER.fullmatch(text) is not None
    dtype: DType = i32 if whole else f32
    if colon:
        if name not in DTYPES:
            line.fail(_WORDS["dtype"], got=name)
        dtype = DTYPES[name]
    elif text in ("true", "false"):
        dtype = boolean
    elif whole and not i32.min <= int(text) <= i32.max:
        line.at += 1
        return int(text)
    try:
        literal = Literal.of(_number(text, dtype, whole), dtype)
    except (ValueError, OverflowError) as error:
        line.fail(f"a value of {dtype} ({error})", got=text)
    line.at += 1
    return literal


def _number(text: str, dtype: DType, whole: bool) -> bool | int | float:
    if dtype is boolean or text in ("true", "false"):
        if dtype is not boolean or text not in ("true", "false"):
            raise ValueError("only true and false are bool")
        return text == "true"
    if dtype.is_float:
        return float(text)
    if not whole:
        raise ValueError("an integer")
    return int(text)


def _tuple(line: _Line) -> tuple[Any, ...]:
    """A tuple of integers, or one of those."""
    if line.tokens[line.at + 1] != "(":
        return _integers(line)
    line.eat("(")
    parts: list[Any] = []
    while line.tokens[line.at] != ")":
        parts.append(_integers(line))
        if line.tokens[line.at] != ")":
            line.eat(",")
    line.eat(")")
    return tuple(parts)


def _integers(line: _Line) -> tuple[int, ...]:
    line.eat("(")
    tokens = line.tokens
    parts: list[int] = []
    while (token := tokens[line.at]) != ")":
        if not _INTEGER.fullmatch(token):
            line.fail("an integer")
        if len(token) > MAX_DIGITS:
            line.fail(f"an integer of at most {MAX_DIGITS} characters")
        parts.append(int(token))
        line.at += 1
        if tokens[line.at] != ")":
            line.eat(",")
    line.at += 1
    return tuple(parts)

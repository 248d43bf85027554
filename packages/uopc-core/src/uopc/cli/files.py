"""Graphs in files: what the commands that take a FILE share."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from uopc.spec import SpecError, check
from uopc.uir import UirError, parse_nodes
from uopc.uop import Ops, UOp, toposort

# A graph of ten million nodes is smaller. What does not end, such as /dev/zero, is not.
MAX_BYTES = 1 << 30


class CommandError(Exception):
    """What a command cannot do, in one line for the user; exit status 1."""


@dataclass(frozen=True)
class GraphFile:
    """A parsed file: the name to call it by, and its nodes by the names in it.

    The last node is the root.
    """

    name: str
    nodes: dict[str, UOp]

    @property
    def root(self) -> UOp:
        """The node of the last line."""
        return self.nodes[next(reversed(self.nodes))]

    @property
    def outputs(self) -> tuple[UOp, ...]:
        """What the graph is there to compute: a sink stands for its sources."""
        return self.root.src if self.root.op is Ops.SINK else (self.root,)

    def stage(self) -> str:
        """Which of "graph", "loops" and "plan" this is, by its ops.

        Raises CommandError if it is not legal there.
        """
        order = toposort(self.outputs)
        ops = {u.op for u in order}
        if ops & {Ops.CALL, Ops.AFTER}:
            return "plan"
        if any(op.kind == "loop" for op in ops):
            self._check(toposort([self.root]), "loops")
            return "loops"
        # A placeholder is an input of a graph that is not bound yet.
        self._check([u for u in order if u.op is not Ops.PARAM], "graph")
        return "graph"

    def _check(self, nodes: list[UOp], stage: str) -> None:
        try:
            check(nodes, stage)
        except SpecError as error:
            what = str(error).partition("\n")[0].rstrip(":")
            raise CommandError(f"{self.name}: {what}") from error

    def find(self, name: str) -> UOp:
        """The node that the file calls ``name``, such as "%2" (or "2")."""
        node = self.nodes.get(name if name.startswith("%") else f"%{name}")
        if node is None:
            first, last = next(iter(self.nodes)), next(reversed(self.nodes))
            known = first if first == last else f"{first} to {last}"
            raise CommandError(f"{self.name} has no node {name[:40]!r}; it has {known}")
        return node


def read_graph(path: str) -> GraphFile:
    """Parse a file ("-" is standard input); any fault is a CommandError."""
    name = "standard input" if path == "-" else path
    try:
        return GraphFile(name, parse_nodes(_text(name, _read(path))))
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror or error}") from error
    except UirError as error:
        raise CommandError(f"{name}: {error}") from error


def _read(path: str) -> bytes:
    if path == "-":
        if sys.stdin is None:
            raise CommandError("there is no standard input")
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    if "\0" in path:
        raise CommandError(f"{path!r} is not the name of a file")
    file: BinaryIO
    with open(path, "rb") as file:
        return file.read(MAX_BYTES + 1)


def _text(name: str, data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise CommandError(f"{name} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CommandError(
            f"{name}: line {line}: the byte 0x{data[error.start]:02x} is not UTF-8 text"
        ) from error


def write_text(path: str | None, text: str) -> None:
    """Write to a file, or to standard output for None and "-"."""
    if path is None or path == "-":
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(f"cannot write {path}: {why}") from error

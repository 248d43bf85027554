"""`uopc show`: check a graph and print it, with shapes and types."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from uopc.cli.files import GraphFile, read_graph
from uopc.uir import format_literal, node_lines
from uopc.uop import Ops, UOp

# Longer lines do not push the comments of all others to the right.
MAX_COLUMN = 60


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `uopc show`."""
    parser.add_argument("file", metavar="FILE", help="a .uir file; - reads from stdin")


def run_show(args: argparse.Namespace) -> int:
    """Print the graph as it would be printed after parsing, and what it is."""
    sys.stdout.write(annotated(read_graph(args.file)))
    return 0


def annotated(file: GraphFile) -> str:
    """The text of a graph with comments, so that it is still the text of the graph.

    The first lines say the stage, the inputs and the outputs; every line ends with the
    dtype and shape of its node. Raises CommandError if the graph is not legal.
    """
    stage = file.stage()
    lines = node_lines(file.root)
    name = {u: f"%{i}" for i, u in enumerate(lines)}
    inputs, outputs = _inputs(lines), file.outputs
    if stage == "loops":
        outputs = tuple(dict.fromkeys(u.src[0] for u in lines if u.op is Ops.STORE))
        inputs = [u for u in inputs if u not in outputs]
    # A constant that is not the root has no line, and so no name.
    shown = [name.get(u) or format_literal(u.arg) for u in outputs]
    width = min(MAX_COLUMN, max(map(len, lines.values())))
    head = [
        f"# {stage}: {len(lines)} {'node' if len(lines) == 1 else 'nodes'}",
        f"# inputs: {_listed([name[u] for u in inputs])}",
        f"# outputs: {_listed(shown)}",
    ]
    body = [f"{line:<{width}}  # {describe(u)}" for u, line in lines.items()]
    return "\n".join([*head, *body]) + "\n"


def describe(u: UOp) -> str:
    """Its dtype and shape: ``f32[2, 3]``."""
    return f"{u.dtype}{list(u.shape)}"


def _inputs(nodes: Iterable[UOp]) -> list[UOp]:
    leaves = [u for u in nodes if u.op in (Ops.BUFFER, Ops.PARAM)]
    return [u for u in leaves if u.op is Ops.PARAM or u.arg.space != "local"]


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"

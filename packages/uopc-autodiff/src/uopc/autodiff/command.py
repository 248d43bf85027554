"""`uopc grad`: the gradient of a graph in a file, as a graph."""

from __future__ import annotations

import argparse

from uopc.autodiff.gradient import gradient
from uopc.cli import CommandError, GraphFile, read_graph, write_text
from uopc.plugins import registry
from uopc.uir import to_uir
from uopc.uop import Ops, UOp


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `uopc grad`."""
    parser.add_argument("file", metavar="FILE", help="a .uir file; - reads from stdin")
    parser.add_argument(
        "--wrt",
        metavar="NODE",
        action="append",
        required=True,
        help="a node of the file, such as %%2; several give one sink of gradients",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="where to (else stdout)")


def run_grad(args: argparse.Namespace) -> int:
    """Print the gradients of the file's root; of its sum, if it is not scalar."""
    file = read_graph(args.file)
    found = gradients(file, args.wrt)
    root = found[0] if len(found) == 1 else UOp(Ops.SINK, tuple(found), "gradients")
    write_text(args.output, to_uir(root) + "\n")
    return 0


def gradients(file: GraphFile, names: list[str]) -> list[UOp]:
    """The gradient of the file's root for each named node; faults: CommandError."""
    if len(file.outputs) != 1:
        raise CommandError(
            f"{file.name}: a gradient is of one node, and the sink holds "
            f"{len(file.outputs)}"
        )
    (root,) = file.outputs
    targets = [file.find(name) for name in names]
    for name, node in (("the root", root), *zip(names, targets, strict=True)):
        if not node.dtype.is_float:
            raise CommandError(
                f"{file.name}: {name} has dtype {node.dtype}, which has no derivative"
            )
    try:
        return gradient(root, targets)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise CommandError(f"{file.name}: {error}") from error


def configure_coverage(parser: argparse.ArgumentParser) -> None:
    """The arguments of `uopc coverage`."""
    parser.add_argument("-o", "--output", metavar="OUT", help="where to (else stdout)")


def run_coverage(args: argparse.Namespace) -> int:
    """Run the checks of all ops and print the page; 1 if something is missing."""
    # The checks are imported when they are used, for start-up's sake.
    from uopc.autodiff.coverage import coverage, page

    rows = coverage(registry().ops.values())
    write_text(args.output, page(rows))
    return int(any(row.problems for row in rows))

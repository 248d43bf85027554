"""`uopc graph`: draw a graph, through DOT text and graphviz."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from uopc.cli.files import CommandError, read_graph, write_text
from uopc.cli.show import describe
from uopc.uir import node_lines
from uopc.uop import UOp

TEXT_FORMATS = (".dot", ".gv")
IMAGE_FORMATS = (".svg", ".png", ".pdf")
# The time that dot takes grows with the square of the graph, or worse.
MAX_DRAWN = 2000
MAX_SECONDS = 120


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `uopc graph`."""
    parser.add_argument("file", metavar="FILE", help="a .uir file; - reads from stdin")
    formats = ", ".join([*TEXT_FORMATS, *IMAGE_FORMATS])
    parser.add_argument(
        "-o", "--output", metavar="OUT", help=f"what to write: {formats} (else stdout)"
    )


def run_graph(args: argparse.Namespace) -> int:
    """Write DOT text, or have graphviz make a picture of it."""
    suffix = Path(args.output or "-").suffix.lower()
    to_stdout = args.output in (None, "-")
    if not to_stdout and suffix not in TEXT_FORMATS + IMAGE_FORMATS:
        formats = ", ".join(TEXT_FORMATS + IMAGE_FORMATS)
        raise CommandError(f"{args.output} does not end in one of {formats}")
    root = read_graph(args.file).root
    if suffix in IMAGE_FORMATS:
        _draw(root, args.output, suffix[1:])
    else:
        write_text(args.output, to_dot(root))
    return 0


def to_dot(root: UOp) -> str:
    """The graph in graphviz's language: sources point at what reads them."""
    lines = node_lines(root)
    name = {u: f"n{i}" for i, u in enumerate(lines)}
    text = ["digraph uopc {", "  node [shape=box, fontname=monospace];"]
    for u, line in lines.items():
        label = f"{_quoted(line)}\\n{_quoted(describe(u))}"
        text.append(f'  {name[u]} [label="{label}"];')
        text += [f"  {name[s]} -> {name[u]};" for s in u.src if s in name]
    return "\n".join([*text, "}"]) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _draw(root: UOp, output: str, image: str) -> None:
    dot = shutil.which("dot")
    if dot is None:
        raise CommandError(
            "no dot found, which draws the picture: install graphviz (Debian: apt "
            "install graphviz), or write DOT text with -o out.dot"
        )
    count = len(node_lines(root))
    if count > MAX_DRAWN:
        raise CommandError(
            f"a graph of {count} nodes is too large to draw (at most {MAX_DRAWN}); "
            "-o out.dot writes it as DOT text"
        )
    # The picture comes back through a pipe: no name of a file is an argument of dot.
    try:
        done = subprocess.run(
            [dot, f"-T{image}"],
            input=to_dot(root).encode(),
            capture_output=True,
            timeout=MAX_SECONDS,
            check=True,
        )
        Path(output).write_bytes(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise CommandError(
            f"dot did not end in {MAX_SECONDS} seconds; -o out.dot writes DOT text"
        ) from error
    except subprocess.CalledProcessError as error:
        text = error.stderr.decode(errors="replace").strip()
        why = text.partition("\n")[0] or f"exit status {error.returncode}"
        raise CommandError(f"dot failed: {why}") from error
    except OSError as error:
        why = error.strerror or error
        raise CommandError(f"cannot write {output}: {why}") from error

"""`uopc accuracy`: how exact Tensor's functions are, measured here."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

INPUTS = 10_000_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Where to write, and how many inputs; no row is longer than that."""
    parser.add_argument("-o", "--output", metavar="FILE", help="write the page there")
    parser.add_argument(
        "--inputs", metavar="N", type=_count, default=INPUTS,
        help=f"inputs per function, at least 1000 (default: {INPUTS})",
    )  # fmt: skip


def _count(text: str) -> int:
    value = int(text)
    if value < 1000:
        raise argparse.ArgumentTypeError(f"expected at least 1000, got {value}")
    return value


def run_accuracy(args: argparse.Namespace) -> int:
    """Measure, and write the page; 1 if one of elements is further off than allowed."""
    # Imported here for start-up's sake: other commands need no Tensor.
    from uopc.cli.accuracy_page import accuracy_page
    from uopc.testing.accuracy import ALLOWED, backends

    page, worst = accuracy_page(backends(), args.inputs)
    if args.output is None:
        print(page, end="")
    else:
        Path(args.output).write_text(page, encoding="utf-8")
    if worst > ALLOWED:
        print(f"uopc: an error of {worst:.3g} ulp is too large", file=sys.stderr)
    return int(worst > ALLOWED)

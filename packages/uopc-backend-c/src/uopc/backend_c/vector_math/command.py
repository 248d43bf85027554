"""`uopc ulp`: how exact the functions on vectors are, measured here."""

from __future__ import annotations

import argparse
import sys

from uopc.backend_c.toolchain import CompileError, CompilerNotFoundError
from uopc.backend_c.vector_math.measure import ALL, Measurement, can_measure, measure
from uopc.backend_c.vector_math.page import ulp_page
from uopc.backend_c.vector_math.table import FUNCTIONS
from uopc.cli import CommandError, write_text

_NAMES = {function.name: function for function in FUNCTIONS.values()}


def configure(parser: argparse.ArgumentParser) -> None:
    """Where to write, which functions, how many inputs."""
    parser.add_argument("-o", "--output", metavar="FILE", help="write the page there")
    parser.add_argument(
        "--functions", metavar="NAME,...", type=_names, default=tuple(_NAMES),
        help=f"only these of {', '.join(_NAMES)}",
    )  # fmt: skip
    parser.add_argument(
        "--sample", metavar="N", type=_count,
        help="about so many inputs of each, in place of every f32 "
        f"and {ALL['f64']:,} of f64",
    )  # fmt: skip


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in _NAMES:
            raise argparse.ArgumentTypeError(
                f"no function {name!r}; there are {', '.join(_NAMES)}"
            )
    return names


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {value}")
    return value


def run_ulp(args: argparse.Namespace) -> int:
    """Measure, and write the page; 1 if a function is further off than allowed."""
    found: list[Measurement] = []
    for element in ALL:
        if not can_measure(element):
            print(
                f"uopc: long double has no digits to check {element}", file=sys.stderr
            )
            continue
        for name in args.functions:
            try:
                found.append(measure(_NAMES[name], element, args.sample))
            except (CompileError, CompilerNotFoundError) as error:
                raise CommandError(str(error)) from error
            m = found[-1]
            print(
                f"uopc: {m.name} {m.element}: {m.error:.3f} ulp, {m.seconds:.0f} s",
                file=sys.stderr,
            )
    write_text(args.output, ulp_page(found))
    return int(not all(m.good for m in found))

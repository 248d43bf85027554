"""The page that `uopc accuracy` writes."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from uopc.testing.accuracy import (
    ALLOWED,
    Array,
    Function,
    Measurement,
    measure,
    points,
)
from uopc.testing.functions import EXACT, FUNCTIONS, OTHERS, names_of, parts

INTRODUCTION = """\
# Accuracy

Every function of elements that Tensor has is computed in f32 and compared with its
definition in f64. The error is in units in the last place (ulp) of the true value: 0.5
is correct rounding, and {allowed:g} is allowed. Subnormal results count as any
others. An infinity where the true value is finite counts as the number after the
largest; a NaN or a sign of zero that the definition does not have counts as infinitely
wrong. Beside each error stands the input that shows it.

`uopc accuracy` measured this with {machine}.
The C backend calls the mathematics library of the system, the reference backend NumPy:
other versions of these may give other figures.

Functions of one tensor are measured at about {inputs} numbers: bit patterns at even
distances over all of f32, which meets every exponent and the subnormal numbers; evenly
spaced ones in [-110, 90], [-10, 10] and [-1, 1]; the neighbours of 1 and of multiples
of pi / 2 up to 2**20 times that; zeros, infinities, NaN and the ends of the range.
Functions of two tensors are measured at as many pairs: special values with one another,
bit patterns, numbers of moderate size, multiples of 1/4, whole exponents, and bases
(also next to 1) with exponents that give a finite power. The definitions are those in
`uopc/testing/functions.py`, the inputs those of `uopc/testing/accuracy.py`.
"""


def accuracy_page(names: Sequence[str], count: int) -> tuple[str, float]:
    """The page in Markdown, and the largest error on it."""
    grids = {arity: points(arity, count) for arity in (1, 2)}
    header = ["function"]
    for name in names:
        header += [f"ulp, {name}", f"worst input, {name}"]
    found = {name: _measured(name, grids) for name in names}
    rows = [_row(f, [found[name][f.name] for name in names]) for f in FUNCTIONS]
    worst = max(m.error for errors in found.values() for m in errors.values())
    head = INTRODUCTION.format(machine=_machine(), allowed=ALLOWED, inputs=f"{count:,}")
    table = [_line([*header, "inputs"]), _line("---" for _ in range(len(header) + 1))]
    return "\n".join([head, *table, *rows, "", *_lists()]), worst


def _measured(
    backend: str, grids: Mapping[int, Sequence[Array]]
) -> dict[str, Measurement]:
    """What is measured on one backend, by the name of the function."""
    found: dict[str, Measurement] = {}
    for arity, grid in grids.items():
        functions = [f for f in FUNCTIONS if f.arity == arity]
        results = measure(functions, backend, grid) if functions else []
        found.update(zip((f.name for f in functions), results, strict=True))
    return found


def _machine() -> str:
    libc = " ".join(platform.libc_ver()).strip()
    library = f" and {libc}" if libc else ""
    return f"NumPy {np.__version__}{library} on {platform.machine()}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(f: Function, found: Sequence[Measurement]) -> str:
    cells = [f"`{f.name}`"]
    for m in found:
        cells += [f"{m.error:.2f}", ", ".join(map(str, m.worst))]
    return _line([*cells, f"{found[0].inputs:,}"])


def _lists() -> list[str]:
    """What is not measured, by name."""
    lines = ["## Exact by definition", ""]
    lines += [f"- {why}: {_names(names)}." for why, names in EXACT.items()]
    lines += ["", "## Not functions of elements", ""]
    classes = parts()
    for title, owners in OTHERS.items():
        names = sorted(n for owner in owners for n in names_of(classes[owner]))
        lines.append(f"- {title}: {_names(names)}.")
    return [*lines, ""]


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)

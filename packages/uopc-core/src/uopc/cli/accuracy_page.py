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
from uopc.testing.functions import (
    EXACT,
    FUNCTIONS,
    OTHERS,
    measured,
    names_of,
    parts,
)
from uopc.testing.rows import LENGTHS, ROW_FUNCTIONS, measure_rows

INTRODUCTION = """\
# Accuracy

Every function of numbers that Tensor has is computed in f32 and compared with its
definition in f64: first [those of elements](#functions-of-elements), then
[those over an axis](#functions-over-an-axis). `uopc accuracy` measured this with
{machine}. The C backend has some functions of its own
(see [ulp](ulp.md)) and calls the mathematics library of the system for others, the
reference backend NumPy: other versions of these may give other figures.

## Functions of elements

The error is in units in the last place (ulp) of the true value: 0.5 is correct
rounding, and {allowed:g} is allowed. Subnormal results count as any others. An infinity
where the true value is finite counts as the number after the largest; a NaN or a sign
of zero that the definition does not have counts as infinitely wrong. Beside each error
stands the input that shows it.

Functions of one tensor are measured at about {inputs} numbers: bit patterns at even
distances over all of f32, which meets every exponent and the subnormal numbers; evenly
spaced ones in [-110, 90], [-10, 10] and [-1, 1]; the neighbours of 1 and of multiples
of pi / 2 up to 2**20 times that; zeros, infinities, NaN and the ends of the range.
Functions of two tensors are measured at as many pairs: special values with one another,
bit patterns, numbers of moderate size, multiples of 1/4, whole exponents, and bases
(also next to 1) with exponents that give a finite power. The definitions are those in
`uopc/testing/functions.py`, the inputs those of `uopc/testing/accuracy.py`.
"""


ROWS = """\
## Functions over an axis

Each is computed of rows of numbers, along the row. Rounding errors of a sum are as
large as its terms make them: where terms cancel, the sum is small and its errors are
not. So the column "ulp of" says what the error is measured in ulp of:

- value: the true value, each by itself;
- largest: the largest finite true value of the row;
- terms: the sum of the magnitudes of all that is added up (their mean for `mean`; as
  far as it has come for `cumsum`). The terms of `logsumexp` are the largest element and
  what the logarithm adds to it, those of a loss the logit and the logsumexp.

No bound is promised here, and some errors are above 4 ulp. The C backend adds up f32
numbers in the order of the elements (see [conventions](conventions.md#sums)), the
reference backend as NumPy's `sum` does, or its `einsum` if they are products: the error
grows with the length of the row, most where the terms are of one sign. So it does for
`prod`, and for `scatter_add`, which keeps the order on each backend. `cumsum` and
`cumprod` compute in f64. "softmax, each" has errors of another kind: an element far
below the largest is the exp of a large difference, which is rounded.

Beside each error stands the kind of row that shows it. The kinds are: normal (mean 0,
deviation 1), positive (from 0 to 1), around 100 (deviation 1), of all sizes (normal
numbers times 1e-9 to 20), constant (multiples of 0.1), zeros, huge (up to 3e37 over
the length), tiny (up to 2e-38), half -inf, all -inf, one inf and one NaN (the others
normal). The rows for `prod` and `cumprod` are: next to 1 (deviation 1e-6), mixed signs
(near 1 and -1), of all sizes (with a product in range), half zeros, one inf, constant,
huge, tiny and one NaN. Of each kind there is at least one row. A NaN that should not be
there, or is missing, counts as infinitely wrong; the sign of a zero does not count.

`y` in `x @ y` has two columns of normal numbers, of one without the signs. In
`x.softmax() @ y`, which is attention, `x` are the scores and `y` the values. The losses
are those of each row, with `reduction="none"`. The definitions and the rows are those
of `uopc/testing/rows.py`.
"""


def accuracy_page(names: Sequence[str], count: int) -> tuple[str, float]:
    """The page in Markdown, and the largest error of a function of elements."""
    grids = {arity: points(arity, count) for arity in (1, 2)}
    found = {name: _measured(name, grids) for name in names}
    rows = [_row(f, [found[name][f.name] for name in names]) for f in FUNCTIONS]
    worst = max(m.error for errors in found.values() for m in errors.values())
    head = INTRODUCTION.format(machine=_machine(), allowed=ALLOWED, inputs=f"{count:,}")
    table = _table(["function"], names, "input", "inputs")
    return "\n".join([head, *table, *rows, "", *_axes(names, count), *_lists()]), worst


def _table(first: Sequence[str], names: Iterable[str], what: str, n: str) -> list[str]:
    """The first two lines of a table that has two columns for each backend."""
    header = [*first]
    for name in names:
        header += [f"ulp, {name}", f"worst {what}, {name}"]
    return [_line([*header, n]), _line("---" for _ in range(len(header) + 1))]


def _axes(names: Sequence[str], count: int) -> list[str]:
    """The part about functions over an axis, with rows up to ``count`` long."""
    lines = [ROWS, *_table(["function", "ulp of", "length"], names, "row", "numbers")]
    groups = [group for group in LENGTHS if max(group) <= count]
    found = {
        (group, name): measure_rows(ROW_FUNCTIONS, name, group, count // 8)
        for group in groups
        for name in names
    }
    for i, f in enumerate(ROW_FUNCTIONS):
        for group in groups:
            results = [found[group, name][i] for name in names]
            length = ", ".join(f"{n:,}" for n in group)
            cells = [f"`{f.name}`", f.unit.name, length]
            for m in results:
                cells += [f"{m.error:.2f}", m.kind]
            lines.append(_line([*cells, f"{results[0].numbers:,}"]))
    return [*lines, ""]


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
    lines += ["", "## Not measured", ""]
    classes, above = parts(), measured()
    for title, owners in OTHERS.items():
        every = sorted(n for owner in owners for n in names_of(classes[owner]))
        names = [n for n in every if n not in above]
        lines.append(f"- {title}: {_names(names)}.")
    return [*lines, ""]


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)

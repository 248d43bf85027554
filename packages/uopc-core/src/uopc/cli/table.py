"""Text tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """`rows` as lines, with columns aligned to the left and two spaces apart.

    An empty cell is shown as "-", one of several lines under one another.
    """
    cells = [[(cell or "-").splitlines() for cell in row] for row in rows]
    widths = [
        max(len(line) for cell in column for line in cell)
        for column in zip(*cells, strict=True)
    ]
    lines = (
        "  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True))
        for row in cells
        for parts in zip_longest(*row, fillvalue="")
    )
    return "\n".join(line.rstrip() for line in lines)

"""The text form of a graph: one line per node, printed and parsed exactly.

    %0 = buffer 6 : dtype=f32 slot=0    # what follows a # is a comment
    %1 = reshape %0, (2, 3)
    %2 = reduce %1, add, 1

After the op come its sources, then its arguments; behind a colon those that have a
name. A bare float is f32 and a bare integer i32; any other constant says its type
(``1.0:f64``, ``true:bool``). The last line is the root. ``docs/uir.md`` has the
grammar. ``parse_uir(to_uir(g)) is g``.
"""

from uopc.uir.parse import UirError, parse_nodes, parse_uir
from uopc.uir.print import format_literal, node_lines, to_uir

__all__ = [
    "UirError",
    "format_literal",
    "node_lines",
    "parse_nodes",
    "parse_uir",
    "to_uir",
]

"""The text form of a graph: one line per node, printed and parsed exactly.

Grammar, one node to a line; ``#`` starts a comment::

    line    = "%" NUMBER "=" op [ item { "," item } ] [ ":" { key "=" value } ]
    item    = "%" NUMBER | literal | value       sources first, then arguments
    literal = number [ ":" dtype ]               a scalar constant
    value   = INTEGER | NAME | tuple of integers | tuple of pairs

A bare float is f32 and a bare integer i32; any other constant says its dtype
(``1.0:f64``, ``true:bool``). The last line is the root.
``parse_uir(to_uir(g)) is g``.
"""

from uopc.uir.parse import UirError, parse_uir
from uopc.uir.print import format_literal, to_uir

__all__ = ["UirError", "format_literal", "parse_uir", "to_uir"]

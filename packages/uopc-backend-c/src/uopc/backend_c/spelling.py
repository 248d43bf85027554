"""The text of an op, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spelling:
    """An expression, and the helper function it calls, if any.

    Attributes:
        expression: the text; brackets around anything with an operator.
        helper: the definition of a ``static inline`` function, with the same
            fields, or several; each is emitted once per file and type.
    """

    expression: str
    helper: str | tuple[str, ...] = ()

    @property
    def helpers(self) -> tuple[str, ...]:
        """The definitions, in order."""
        return (self.helper,) if isinstance(self.helper, str) else self.helper

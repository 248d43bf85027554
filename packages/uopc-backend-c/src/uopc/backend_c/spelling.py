"""The text of an op, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spelling:
    """An expression, and the helper functions it calls, if any.

    Attributes:
        expression: the text; brackets around anything with an operator.
        helper: the definition of a ``static inline`` function, with the same
            fields, or several; each is emitted once per file and type.
        vector: the text on vectors, for all lanes at once. Without one, the expression
            is evaluated lane by lane. What it computes for a lane must not depend on
            how many there are, nor may any value in any lane be trapped.
        vector_helper: like ``helper``, for ``vector``.
    """

    expression: str
    helper: str | tuple[str, ...] = ()
    vector: str = ""
    vector_helper: str | tuple[str, ...] = ()

    @property
    def helpers(self) -> tuple[str, ...]:
        """The definitions, in order."""
        return (self.helper,) if isinstance(self.helper, str) else self.helper

    @property
    def vector_helpers(self) -> tuple[str, ...]:
        """The definitions for vectors, in order."""
        helper = self.vector_helper
        return (helper,) if isinstance(helper, str) else helper

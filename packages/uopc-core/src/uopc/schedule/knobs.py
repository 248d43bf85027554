"""What choosers decide by estimates, as data: for those who measure instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Knobs:
    """What to choose otherwise than the estimates say. As it is made, nothing.

    What a kind of kernel does not have, or what would not do for it, is ignored.

    Attributes:
        way: of a contraction, the place of its step among `contraction_ways`, from 1
            on; -1 has it treated as a reduction.
        outputs: of a reduction, whether vectors go across outputs, not across terms.
        groups: vectors of accumulators.
        terms: a reduction of at most so many terms is written out.
        vector: whether there may be vectors.
        blocked: whether what is read across rows may be read in square blocks.
        stream: whether what is stored bypasses the cache.
        first: the output loop that is to be the outermost.
        rounds: parallel rounds, in multiples of what the estimate says; 0: none.
        keep: whether values that nests of a round share may be kept.
        parts: those of each nest, where a program has several; if fewer, the others
            get these.
    """

    way: int | None = None
    outputs: bool | None = None
    groups: int | None = None
    terms: int | None = None
    vector: bool = True
    blocked: bool = True
    stream: bool | None = None
    first: int = 0
    rounds: float = 1.0
    keep: bool = True
    parts: tuple[Knobs, ...] = ()

    def __str__(self) -> str:
        """What differs from what the estimates say."""
        told = (
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)
            if getattr(self, f.name) != f.default
        )
        return f"knobs({', '.join(told)})"

    def of(self, part: int) -> Knobs:
        """Those of one nest of several."""
        if part < len(self.parts):
            return self.parts[part]
        return replace(self, parts=())


AS_ESTIMATED = Knobs()

VALUES: dict[str, tuple[object, ...]] = {
    "outputs": (True, False),
    "groups": (4, 2, 8, 1, 16, 32),
    "terms": (32, 0),
    "vector": (True, False),
    "blocked": (True, False),
    "stream": (True, False),
    "first": (0, 1, 2),
    "rounds": (1.0, 0.25, 4.0, 0.0),
    "keep": (True, False),
}
"""What each may be, likely ones first."""


def neighbours(knobs: Knobs, ways: int, parts: int) -> Iterator[Knobs]:
    """All that differ in one value, of one part.

    ``ways`` is how many a contraction has; ``parts`` how many nests the program has.
    """
    for way in range(ways + 1 if ways else 0):
        if way != (knobs.way or 0):
            yield replace(knobs, way=way)
    if ways and knobs.way != -1:
        yield replace(knobs, way=-1)
    yield from _turned(knobs)
    if parts < 2:
        return
    each = [knobs.of(i) for i in range(parts)]
    for i, part in enumerate(each):
        for new in _turned(part):
            yield replace(knobs, parts=(*each[:i], new, *each[i + 1 :]))


def _turned(knobs: Knobs) -> Iterator[Knobs]:
    for name, values in VALUES.items():
        for value in values:
            if value != getattr(knobs, name):
                yield replace(knobs, **{name: value})  # type: ignore[arg-type]

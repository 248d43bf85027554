"""Which programs run, and how often: for those who want to make them faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uopc.backend_c.program import CProgram


@dataclass
class Watched:
    """A program that was made while somebody watched, and how often it ran."""

    program: CProgram
    runs: int = 0


@dataclass
class Watch:
    """All such programs, in the order in which they were made."""

    programs: list[Watched] = field(default_factory=list)


_watch: Watch | None = None


@contextmanager
def watching() -> Iterator[Watch]:
    """Count the runs of all programs that are made in here, on any thread."""
    global _watch
    before, _watch = _watch, Watch()
    try:
        yield _watch
    finally:
        _watch = before


def counted(program: CProgram, run: Callable[[Any], None]) -> Callable[[Any], None]:
    """A program's entry point; one that counts its runs, if somebody watches."""
    if _watch is None:
        return run
    watched = Watched(program)
    _watch.programs.append(watched)

    def count(table: Any) -> None:
        watched.runs += 1
        run(table)

    return count

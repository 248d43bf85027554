"""The command line of the benchmarks that have several parts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping


def run(sections: Mapping[str, Callable[[], None]]) -> None:
    """Run the sections that the command line names, or all; then exit."""
    names = sys.argv[1:]
    unknown = [n for n in names if n not in sections]
    if unknown:
        print(f"no section {unknown[0]!r}; there are {', '.join(sections)}")
        sys.exit(2)
    for name in names or sections:
        sections[name]()
    sys.exit(0)

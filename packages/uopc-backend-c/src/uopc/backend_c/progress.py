"""How far a long compilation or search is, shown by tqdm where that is installed."""

from __future__ import annotations

import sys
import time
from typing import Any

DELAY = 1.0
"""Seconds before anything is shown."""


class Progress:
    """A bar on stderr, past a second and on a terminal only; cleared at the end.

    Without tqdm (the extra ``uopc-backend-c[progress]``) there is none.
    """

    def __init__(self, total: int, what: str = "compiling", unit: str = "unit") -> None:
        self._total, self._what, self._unit = total, what, unit
        self._begun = time.monotonic()
        self._bar: Any = None
        self._shown = sys.stderr is not None and sys.stderr.isatty()

    def show(self, done: int) -> None:
        """Tell how much is done."""
        if not self._shown or time.monotonic() - self._begun < DELAY:
            return
        if self._bar is None:
            try:
                from tqdm import tqdm  # imported here: most compilations are short
            except ImportError:
                self._shown = False
                return
            self._bar = tqdm(
                total=self._total,
                desc=f"uopc: {self._what}",
                unit=self._unit,
                leave=False,
            )
        self._bar.update(done - self._bar.n)
        self._bar.refresh()

    def close(self) -> None:
        """Clear the bar, if there is one."""
        if self._bar is not None:
            self._bar.close()

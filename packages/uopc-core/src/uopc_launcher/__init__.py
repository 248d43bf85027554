"""Starts the `uopc` command, also where a stray file hides the whole of `uopc`.

One `uopc/__init__.py` or `uopc.py` on the path takes the place of the namespace, and
with it `uopc.cli`. So what the console script imports lies outside of it.
"""

from __future__ import annotations

import importlib.util
import sys


def main() -> int:
    """Run `uopc`, or say which file keeps it from running; the exit code."""
    try:
        from uopc.cli import main as run
    except ModuleNotFoundError as error:
        spec = importlib.util.find_spec("uopc")
        stray = spec.origin if spec is not None and spec.has_location else None
        if error.name not in ("uopc", "uopc.cli") or stray is None:
            raise
        print(
            f"problem: {stray} hides every other distribution of uopc, which is a "
            f"namespace without a module of its own; delete {stray}",
            file=sys.stderr,
        )
        return 1
    return run()

"""The `uopc` command."""

from uopc.cli.main import main

__all__ = ["main"]

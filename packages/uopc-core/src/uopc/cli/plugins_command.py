"""`uopc plugins`: what is there, what it registered, what failed."""

from __future__ import annotations

import argparse

from uopc.cli.table import format_table
from uopc.plugins import PluginInfo, current

HEADER = ("name", "distribution", "version", "file", "registered", "status")


def run_plugins(args: argparse.Namespace) -> int:
    """Print the table of plugins, then the failures; 1 if there are any."""
    host = current()
    plugins, failures = host.plugins, host.failures
    if plugins:
        print(format_table([HEADER, *map(_row, plugins)]))
    else:
        print("no plugins")
    if failures:
        print()
    for failure in failures:
        print(failure)
    return 1 if failures else 0


def _row(info: PluginInfo) -> tuple[str, ...]:
    registered = ", ".join(f"{kind} {n}" for kind, n in info.registered.items())
    origin = info.distribution, info.version
    return info.name, *origin, info.file, registered, info.status

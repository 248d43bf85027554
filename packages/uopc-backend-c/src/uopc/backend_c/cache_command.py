"""`uopc cache`: what the cache on disk holds, and how to empty it."""

from __future__ import annotations

import argparse
import time

from uopc.backend_c.folder import cache_dir
from uopc.backend_c.room import clear, entries
from uopc.cli.table import format_table
from uopc.config import get


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `uopc cache`."""
    parser.add_argument(
        "--clear", action="store_true", help="remove all that no process is compiling"
    )


def run_cache(args: argparse.Namespace) -> int:
    """Show the folder, its entries and their bytes; or remove them."""
    folder = cache_dir()
    found = clear(folder) if args.clear else entries(folder)
    nbytes = sum(entry.nbytes for entry in found)
    if args.clear:
        print(f"removed {len(found)} entries, {nbytes} bytes, from {folder}")
        return 0
    oldest = "none"
    if found:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(found[0].used))
        oldest = f"last used {day}"
    rows = [
        ("folder", str(folder)),
        ("entries", str(len(found))),
        ("bytes", f"{nbytes} of at most {get('UOPC_CACHE_SIZE')}"),
        ("oldest", oldest),
    ]
    print(format_table(rows))
    return 0

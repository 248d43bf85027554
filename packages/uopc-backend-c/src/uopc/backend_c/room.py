"""How much the cache holds, and making room in it.

The files of an entry begin with the same 64 digits. The entries that were used least
recently go, but none that this process uses or that anybody used a minute ago. A
program that runs keeps its code when its file is removed, as POSIX has it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from uopc.config import get

TEMPORARY = ".tmp-"
ABANDONED = 86400.0
"""Seconds after which a temporary folder has no owner any more."""
RECENT = 60.0
"""Seconds for which an entry counts as in use."""
COMPILING = 600.0
"""Seconds for which a source without an object counts as being compiled."""

_FILE = re.compile(
    r"([0-9a-f]{64})\.(?:[A-Za-z0-9_-]+\.)?(?:c|so|so\.sha256|plan|tuned)"
)
_ROOM = 0.8  # what is left of a cache that was too large
_SHARE = 16  # other processes add to it too: each looks after a part of the limit

in_use: set[str] = set()
"""The entries of this process."""

_seen: dict[Path, tuple[int, int]] = {}
"""Bytes that a folder had when it was looked through, and that were added since."""

_swept: set[Path] = set()


@dataclass
class Entry:
    """The files of one entry: bytes, and when it was last used, since the epoch."""

    name: str
    files: list[Path] = field(default_factory=list)
    nbytes: int = 0
    used: float = 0.0

    @property
    def compiling(self) -> bool:
        """Whether a process may be about to finish it."""
        whole = any(file.suffix in (".so", ".plan", ".tuned") for file in self.files)
        return not whole and time.time() - self.used < COMPILING

    @property
    def recent(self) -> bool:
        """Whether a process may be about to open it."""
        return time.time() - self.used < RECENT

    def remove(self) -> None:
        """Remove its files, the checksum first: without it there is no entry."""
        for file in sorted(self.files, key=lambda file: file.suffix != ".sha256"):
            with contextlib.suppress(OSError):
                file.unlink()


def entries(folder: Path) -> list[Entry]:
    """All entries of a folder, the least recently used ones first."""
    found: dict[str, Entry] = {}
    with os.scandir(folder) as files:
        for file in files:
            match = _FILE.fullmatch(file.name)
            if match is None:
                continue
            with contextlib.suppress(OSError):  # somebody else makes room as well
                facts = file.stat(follow_symlinks=False)
                entry = found.setdefault(match[1], Entry(match[1]))
                entry.files.append(Path(file.path))
                entry.nbytes += facts.st_size
                entry.used = max(entry.used, facts.st_mtime)
    for entry in found.values():
        # The clock was wrong then: nobody knows when it was used.
        if entry.used > time.time() + RECENT:
            entry.used = 0.0
    return sorted(found.values(), key=lambda entry: entry.used)


def make_room(new: Path) -> None:
    """Keep the folder of a new shared object within UOPC_CACHE_SIZE.

    The folder is only looked through where it may be too large.
    """
    folder, limit = new.parent, get("UOPC_CACHE_SIZE")
    with contextlib.suppress(OSError):
        if folder in _seen:
            found, added = _seen[folder]
            added += new.stat().st_size
            _seen[folder] = found, added
            if found + added <= limit and added <= limit // _SHARE:
                return
        _seen[folder] = _shrink(entries(folder), limit), 0


def _shrink(found: Sequence[Entry], limit: int) -> int:
    """Remove entries until little enough is left; returns how much that is."""
    total = sum(entry.nbytes for entry in found)
    if total <= limit:
        return total
    for entry in found:
        if total > _ROOM * limit and not (entry.recent or entry.name in in_use):
            entry.remove()
            total -= entry.nbytes
    return total


def clear(folder: Path) -> list[Entry]:
    """Remove all entries but those that are being compiled; returns the removed."""
    removed = [entry for entry in entries(folder) if not entry.compiling]
    for entry in removed:
        entry.remove()
    _seen.pop(folder, None)
    _swept.discard(folder)
    sweep(folder)
    return removed


def sweep(folder: Path) -> None:
    """Remove, once per process, what killed processes left behind days ago."""
    if folder in _swept:
        return
    _swept.add(folder)
    for left in folder.glob(f"{TEMPORARY}*"):
        try:
            # One of the future is as old as one of the past.
            old = abs(time.time() - left.stat().st_mtime) > ABANDONED
        except OSError:
            continue
        if old:
            shutil.rmtree(left, ignore_errors=True)

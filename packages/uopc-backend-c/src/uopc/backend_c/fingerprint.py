"""Which code decides what a plan compiles to: a hash of it, or why there is none.

A cache that is consulted before anything is lowered must not outlive the code that
would lower it. So its key has the versions of all plugins' distributions, and the text
of all files that uopc and the plugins consist of: of a plugin its own package, and the
packages that it imports. What a plugin takes from elsewhere, such as a file of
data, it has to count in by a new version.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from uopc.plugins import PluginHost, current

MAX_FILES = 300
"""A plugin of more files than this, with what it imports, has no fingerprint."""

_KNOWN = frozenset(("uopc", "numpy", "pluggy"))
_TICK = 0.02  # what the clock that processes are started by may be late


class _UnknownError(Exception):
    """There is no telling what the code is."""


def code_fingerprint() -> str | None:
    """A hash of the code behind the active host's plugins.

    None where a hash would not tell one state of the code from the next: a plugin
    without a file or a version, one that observes the passes, or files that changed
    since this process read them.
    """
    host = current()
    return _fingerprint(host, host.registry.stamp)


@functools.lru_cache(maxsize=16)
def _fingerprint(host: PluginHost, stamp: str) -> str | None:
    loaded = [info for info in host.plugins if info.status == "loaded"]
    for info in loaded:
        if not info.version or not info.file or "after_pass" in info.registered:
            return None
    own = {Path(folder) for folder in _uopc_folders()}
    files = [Path(info.file) for info in loaded]
    total = hashlib.sha256(f"{sys.version} {np.__version__} {stamp}".encode())
    try:
        roots = own.union(
            *(_with_imported(_root(f)) for f in files if not _below(f, own))
        )
        for file in _sources(sorted(roots)):
            total.update(_text(file))
    except (_UnknownError, OSError, SyntaxError, ValueError):
        return None
    return total.hexdigest()


def _uopc_folders() -> list[str]:
    """A namespace package has a folder for each place that it is installed in."""
    return list(sys.modules["uopc"].__path__)


def _below(file: Path, folders: Iterable[Path]) -> bool:
    return any(file.is_relative_to(folder) for folder in folders)


def _text(file: Path) -> bytes:
    """One file, with its name and length before it."""
    with file.open("rb") as stream:
        data = stream.read()
        # Not the time of modification, which whoever writes a file can set.
        changed = os.fstat(stream.fileno()).st_ctime
    if changed > _started() + _TICK:
        raise _UnknownError  # this process may have read another text
    return f"{file.name} {len(data)}:".encode() + data


def _sources(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        yield from sorted(root.rglob("*.py")) if root.is_dir() else [root]


def _root(file: Path) -> Path:
    """The topmost package that a module's file is in, or the file itself."""
    root = file
    while (root.parent / "__init__.py").exists():
        root = root.parent
    return root


def _with_imported(root: Path) -> set[Path]:
    """A package, and those that it imports and whose versions are not in the key."""
    found, waiting, count = {root}, [root], 0
    while waiting:
        for file in _sources([waiting.pop()]):
            count += 1
            if count > MAX_FILES:
                raise _UnknownError
            for name in _imports(file):
                new = _origin(name)
                if new is not None and new not in found:
                    found.add(new)
                    waiting.append(new)
    return found


def _imports(file: Path) -> set[str]:
    """The top-level modules that a file imports, but the standard library."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module).partition(".")[0])
    return names - _KNOWN - sys.stdlib_module_names


def _origin(name: str) -> Path | None:
    """The file or folder of a top-level module; None if it is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.origin is None or not spec.has_location:
        raise _UnknownError
    return _root(Path(spec.origin))


@functools.cache
def _started() -> float:
    """When this process began, in seconds since the epoch."""
    try:
        with open("/proc/self/stat") as stream:
            fields = stream.read().rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.time() - age + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return _imported


_imported = time.time()

"""Shared objects on disk, so that nothing is compiled twice.

An entry is three files of one name: the source (``.c``, for the reader), the shared
object (``.so``) and its checksum (``.so.sha256``, as ``sha256sum`` writes it). The
name is a hash of all that decides what the compiler would produce. A lookup reads
files and starts no process.
"""

import atexit
import hashlib
import os
import platform
import re
import shutil
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

from uopc import config
from uopc.backend_c import cpu, toolchain
from uopc.backend_c.toolchain import Stats, stats

__all__ = ["ABI_VERSION", "Stats", "build", "cache_dir", "intact", "stats", "target"]

ABI_VERSION = 1
"""Raised whenever the way generated code is called changes."""

_TEMPORARY = ".tmp-"
_ABANDONED = 86400.0
_UNIT = re.compile(r"[A-Za-z0-9_-]{1,128}")

_private: tuple[int, Path] | None = None
_warned: set[str] = set()
_swept: set[Path] = set()


def build(sources: Mapping[str, str] | str, opt: int) -> Path:
    """The shared object compiled from `sources`, from the cache where possible.

    A mapping holds several translation units by name; they are compiled at once and
    linked together. Raises `CompileError` or `CompilerNotFoundError`.
    """
    units = {"": sources} if isinstance(sources, str) else dict(sources)
    for unit in units:
        if not (isinstance(sources, str) or _UNIT.fullmatch(unit)):
            raise ValueError(
                f"unit name {unit!r}: expected letters, digits, '_' and '-'"
            )
    if not units:
        raise ValueError("nothing to compile: expected at least one translation unit")
    compiler = toolchain.find_compiler()
    name = _digest(
        [_target(compiler, opt), *(x for pair in units.items() for x in pair)]
    )
    folder = cache_dir()
    entry = folder / f"{name}.so"
    if intact(entry):
        stats.hits += 1
        return entry
    stats.misses += 1
    if entry.exists() and _checksum_file(entry).exists():
        stats.damaged += 1
    _sweep(folder)
    with tempfile.TemporaryDirectory(
        prefix=_TEMPORARY, dir=folder, ignore_cleanup_errors=True
    ) as made:
        _fill(entry, units, Path(made), compiler, opt)
    return entry


def target(opt: int) -> str:
    """A hash of all but the source: ABI, flags, processor and compiler.

    It is the target part of a key for caches that are consulted before C exists.
    """
    return _target(toolchain.find_compiler(), opt)


def intact(entry: Path) -> bool:
    """Whether the file exists and is the one its checksum was made for."""
    try:
        expected = _checksum_file(entry).read_bytes().split()[:1]
        with entry.open("rb") as stream:
            actual = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return False
    return expected == [actual.encode()]


def _target(compiler: toolchain.Compiler, opt: int) -> str:
    return _digest(
        [
            str(ABI_VERSION),
            f"{sys.platform} {platform.machine()} {struct.calcsize('P')}",
            cpu.name(),
            *cpu.features(),
            "",
            *toolchain.flags(opt, compiler),
            *toolchain.LIBRARIES,
            "",
            *compiler.argv,
            "",
            *compiler.fingerprint(),
        ]
    )


def _digest(parts: Iterable[str]) -> str:
    total = hashlib.sha256()
    for part in parts:
        data = part.encode()
        # The length first, so that no two lists of parts run into the same bytes.
        total.update(b"%d:" % len(data))
        total.update(data)
    return total.hexdigest()


def _checksum_file(entry: Path) -> Path:
    return entry.with_name(f"{entry.name}.sha256")


def _fill(
    entry: Path,
    units: Mapping[str, str],
    work: Path,
    compiler: toolchain.Compiler,
    opt: int,
) -> None:
    """Compile in `work`, then move the finished files into place one by one."""
    kept = []
    for unit, text in units.items():
        # In place before the compiler runs: its messages name a file that stays.
        source = entry.with_name(
            f"{entry.stem}.{unit}.c" if unit else f"{entry.stem}.c"
        )
        _publish(work / "source.c", source, text.encode())
        kept.append(source)
    built = work / entry.name
    try:
        toolchain.compile_shared(compiler, kept, built, opt)
    except toolchain.CompileError:
        # The error points to the source, so a private folder has to stay as well.
        atexit.unregister(_remove_private)
        raise
    with built.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    _publish(built, entry)
    line = f"{digest}  {entry.name}\n"
    _publish(work / "checksum", _checksum_file(entry), line.encode())


def _publish(made: Path, final: Path, data: bytes | None = None) -> None:
    if data is not None:
        made.write_bytes(data)
    # Under a careless umask the files would be anyone's to change.
    made.chmod(0o600 if data is not None else 0o700)
    os.replace(made, final)


def _sweep(folder: Path) -> None:
    """Remove, once per process, what killed processes left behind days ago."""
    if folder in _swept:
        return
    _swept.add(folder)
    for left in folder.glob(f"{_TEMPORARY}*"):
        try:
            old = time.time() - left.stat().st_mtime > _ABANDONED
        except OSError:
            continue
        if old:
            shutil.rmtree(left, ignore_errors=True)


def cache_dir() -> Path:
    """The folder of the cache, made if need be.

    `UOPC_CACHE_DIR`, else ``$XDG_CACHE_HOME/uopc``, else ``~/.cache/uopc``. Code is
    loaded from it, so it must belong to the user and be writable by nobody else;
    otherwise one warning is given and a private folder serves until the exit.
    """
    chosen = "the home folder's cache"
    try:
        folder = _wanted()
        chosen = str(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        problem = _problem(folder)
    except (OSError, RuntimeError) as error:
        problem = str(error)
    else:
        if not problem:
            return folder
    private = _private_folder()
    if chosen not in _warned:
        _warned.add(chosen)
        warnings.warn(
            f"compiled code cannot be kept in {chosen}: {problem}; using {private} for"
            " this process (set UOPC_CACHE_DIR to a folder of your own)",
            RuntimeWarning,
            stacklevel=2,
        )
    return private


def _wanted() -> Path:
    if named := config.get("UOPC_CACHE_DIR"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    if os.path.isabs(base):
        return Path(base) / "uopc"
    return Path.home() / ".cache" / "uopc"


def _problem(folder: Path) -> str:
    facts = folder.stat()
    if facts.st_uid != os.geteuid():
        return f"it belongs to user {facts.st_uid}, not to {os.geteuid()}"
    if facts.st_mode & 0o022:
        return "others may write to it (chmod go-w would make it safe)"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return "it is not writable"
    return ""


def _private_folder() -> Path:
    global _private
    if _private is None or not _private[1].is_dir():
        _private = os.getpid(), Path(tempfile.mkdtemp(prefix="uopc-"))
        atexit.register(_remove_private)
    return _private[1]


def _remove_private() -> None:
    # A forked child inherits the folder's name, but the folder is its parent's.
    if _private is not None and _private[0] == os.getpid():
        shutil.rmtree(_private[1], ignore_errors=True)

"""Shared objects on disk, so that nothing is compiled twice.

An entry is three files of one name: the source (``.c``, for the reader), the shared
object (``.so``) and its checksum (``.so.sha256``, as ``sha256sum`` writes it). The
name is a hash of all that decides what the compiler would produce. A lookup reads
files and starts no process.
"""

import contextlib
import errno
import hashlib
import io
import os
import platform
import re
import stat
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from uopc.backend_c import cpu, room, toolchain
from uopc.backend_c.ahead import HeadStart
from uopc.backend_c.folder import cache_dir, give_up, keep_private
from uopc.backend_c.load import is_loadable
from uopc.backend_c.scratch import scratch_folder
from uopc.backend_c.toolchain import Stats, stats
from uopc.runtime import count

__all__ = [
    "ABI_VERSION",
    "Stats",
    "build",
    "cache_dir",
    "digest",
    "intact",
    "open_own",
    "stats",
    "target",
    "touch",
    "write",
]

ABI_VERSION = 1
"""Raised whenever the way generated code is called changes."""

_UNIT = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SPACE = 4 << 20  # bytes: with less, a compiler may have failed for want of it


def build(
    sources: Mapping[str, str] | str,
    opt: int,
    is_program: bool = True,
    ahead: HeadStart | None = None,
) -> Path:
    """The shared object compiled from `sources`, from the cache where possible.

    A mapping holds several translation units by name; they are compiled at once and
    linked together. A program counts in `uopc.runtime.stats`. What compilers have made
    `ahead` is not made again. Raises `CompileError` or `CompilerNotFoundError`.
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
    name = digest(
        [_target(compiler, opt), *(x for pair in units.items() for x in pair)]
    )
    folder = cache_dir()
    try:
        entry, found = _build(folder / f"{name}.so", units, compiler, opt, ahead)
    except OSError as error:
        # Full, or gone, or with something else in the entry's place.
        private = give_up(folder, str(error))
        if private is None:
            raise
        entry, found = _build(private / f"{name}.so", units, compiler, opt)
    if is_program:
        count(**{"cache_hits" if found else "compilations": 1})
    return entry


def _build(
    entry: Path,
    units: Mapping[str, str],
    compiler: toolchain.Compiler,
    opt: int,
    ahead: HeadStart | None = None,
) -> tuple[Path, bool]:
    """The shared object, and whether it was there."""
    room.in_use.add(entry.stem)
    touch(entry)
    if intact(entry):
        stats.hits += 1
        return entry, True
    stats.misses += 1
    if entry.exists() and _checksum_file(entry).exists():
        stats.damaged += 1
    room.sweep(entry.parent)
    with scratch_folder(room.TEMPORARY, entry.parent) as made:
        _fill(entry, units, made, compiler, opt, ahead)
    room.make_room(entry)
    return entry, False


def target(opt: int) -> str:
    """A hash of all but the source: ABI, flags, processor and compiler.

    It is the target part of a key for caches that are consulted before C exists.
    """
    return _target(toolchain.find_compiler(), opt)


def intact(entry: Path) -> bool:
    """Whether a shared object is the user's own, for this machine, and undamaged.

    Undamaged is what its checksum was made for.
    """
    try:
        with open_own(_checksum_file(entry)) as stream:
            expected = stream.read(1000)
        with open_own(entry) as stream:
            if not is_loadable(stream.read(20)):
                return False
            stream.seek(0)
            actual = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return False
    return expected == _checksum_line(actual, entry).encode()


def open_own(file: Path) -> io.BufferedReader:
    """Open a file of the cache that is the user's, and writable by nobody else.

    Raises OSError for any other, for links, and for what is not a regular file, which
    might keep its reader waiting.
    """
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    facts = os.fstat(opened)
    if (
        not stat.S_ISREG(facts.st_mode)
        or facts.st_uid != os.geteuid()
        or facts.st_mode & 0o022
    ):
        os.close(opened)
        raise PermissionError(errno.EPERM, "not the user's own", str(file))
    return os.fdopen(opened, "rb")


def _checksum_line(digest: str, entry: Path) -> str:
    return f"{digest}  {entry.name}\n"


def touch(file: Path) -> None:
    """Note that a file is in use, for those who look for what is not."""
    with contextlib.suppress(OSError):
        os.utime(file, follow_symlinks=False)


def write(file: Path, data: bytes) -> None:
    """Write a small file of the cache at once; where that fails, it is left out."""
    with (
        contextlib.suppress(OSError),
        scratch_folder(room.TEMPORARY, file.parent) as made,
    ):
        _publish(made / file.name, file, data)


def _target(compiler: toolchain.Compiler, opt: int) -> str:
    return digest(
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


def digest(parts: Iterable[str]) -> str:
    """A hash of a list of texts, in hexadecimal."""
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
    ahead: HeadStart | None,
) -> None:
    """Compile in `work`, then move the finished files into place one by one."""
    built = work / entry.name
    try:
        _compile(entry, units, work, compiler, opt, ahead)
    except toolchain.CompileError as error:
        # On a full disk it often cannot even say so. Writing is what tells: there may
        # be a quota.
        (work / "space").write_bytes(bytes(_SPACE))
        if error.source.exists():
            # The error points to the source, so a private folder has to stay as well.
            keep_private()
            raise
        # Somebody has just cleared the cache.
        _compile(entry, units, work, compiler, opt)
    with built.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    _publish(built, entry)
    line = _checksum_line(digest, entry)
    _publish(work / "checksum", _checksum_file(entry), line.encode())


def _compile(
    entry: Path,
    units: Mapping[str, str],
    work: Path,
    compiler: toolchain.Compiler,
    opt: int,
    ahead: HeadStart | None = None,
) -> None:
    kept = []
    for unit, text in units.items():
        # In place before the compiler runs: its messages name a file that stays.
        source = entry.with_name(
            f"{entry.stem}.{unit}.c" if unit else f"{entry.stem}.c"
        )
        _publish(work / "source.c", source, text.encode())
        kept.append(source)
    objects = ahead.objects(units) if ahead is not None else None
    toolchain.compile_shared(compiler, kept, work / entry.name, opt, objects)


def _publish(made: Path, final: Path, data: bytes | None = None) -> None:
    if data is not None:
        made.write_bytes(data)
    # Under a careless umask the files would be anyone's to change.
    made.chmod(0o600 if data is not None else 0o700)
    os.replace(made, final)

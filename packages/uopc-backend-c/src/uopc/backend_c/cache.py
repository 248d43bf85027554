"""Shared objects on disk, so that nothing is compiled twice.

An entry is three files of one name: the source (``.c``, for the reader), the shared
object (``.so``) and its checksum (``.so.sha256``, as ``sha256sum`` writes it). The
name is a hash of all that decides what the compiler would produce. A lookup reads
files and starts no process.
"""

import contextlib
import functools
import hashlib
import os
import platform
import re
import stat
import struct
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from uopc.backend_c import cpu, room, toolchain
from uopc.backend_c.folder import cache_dir, keep_private
from uopc.backend_c.toolchain import Stats, stats
from uopc.runtime import count

__all__ = [
    "ABI_VERSION",
    "Stats",
    "build",
    "cache_dir",
    "digest",
    "intact",
    "is_own",
    "stats",
    "target",
    "touch",
    "write",
]

ABI_VERSION = 1
"""Raised whenever the way generated code is called changes."""

_UNIT = re.compile(r"[A-Za-z0-9_-]{1,128}")


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
    name = digest(
        [_target(compiler, opt), *(x for pair in units.items() for x in pair)]
    )
    folder = cache_dir()
    entry = folder / f"{name}.so"
    room.in_use.add(entry.stem)
    touch(entry)
    if intact(entry):
        stats.hits += 1
        count(cache_hits=1)
        return entry
    stats.misses += 1
    if entry.exists() and _checksum_file(entry).exists():
        stats.damaged += 1
    room.sweep(folder)
    with tempfile.TemporaryDirectory(
        prefix=room.TEMPORARY, dir=folder, ignore_cleanup_errors=True
    ) as made:
        _fill(entry, units, Path(made), compiler, opt)
    room.make_room(entry)
    count(compilations=1)
    return entry


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
        expected = _checksum_file(entry).read_bytes().split()[:1]
        with entry.open("rb") as stream:
            if not is_own(stream.fileno()) or _format(stream.read(20)) != _own_format():
                return False
            stream.seek(0)
            actual = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return False
    return expected == [actual.encode()]


def is_own(file: int) -> bool:
    """Whether an open file is the user's, and writable by nobody else."""
    facts = os.fstat(file)
    return (
        stat.S_ISREG(facts.st_mode)
        and facts.st_uid == os.geteuid()
        and not facts.st_mode & 0o022
    )


def _format(head: bytes) -> bytes:
    """What an ELF file says of its class, byte order and machine; else nothing."""
    return head[4:6] + head[18:20] if head[:4] == b"\x7fELF" else b""


@functools.cache
def _own_format() -> bytes:
    try:
        with open(sys.executable, "rb") as stream:
            return _format(stream.read(20))
    except OSError:
        return b""


def touch(file: Path) -> None:
    """Note that a file is in use, for those who look for what is not."""
    with contextlib.suppress(OSError):
        os.utime(file)


def write(file: Path, data: bytes) -> None:
    """Write a small file of the cache at once; where that fails, it is left out."""
    with (
        contextlib.suppress(OSError),
        tempfile.TemporaryDirectory(prefix=room.TEMPORARY, dir=file.parent) as made,
    ):
        _publish(Path(made, file.name), file, data)


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
        keep_private()
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

"""Schedules that were measured, on disk: what `uopc tune` found, nest by nest.

An entry, ``<key>.tuned``, is one schedule as text after a line with its checksum. The
key is a hash of the loop program without its name, of the code that would choose
otherwise, and of the machine. What is damaged, somebody else's, or of another version
is as if it were not there.

A stamp, of the same kind, is another one whenever an entry was added. Programs that are
found by their plan are found by the stamp as well, so none is older than an entry that
would change it. Without a stamp no entry counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from uopc.backend_c import cache, room
from uopc.backend_c.fingerprint import code_fingerprint
from uopc.backend_c.toolchain import CompilerNotFoundError
from uopc.config import get
from uopc.schedule import Target
from uopc.uir import to_uir
from uopc.uop import Ops, UOp

if TYPE_CHECKING:
    from uopc.schedule import Step

_FORMAT = re.compile(r"uopc tuned ([0-9a-f]{64})\n(.*)\n")
_MOST = 1 << 20  # bytes of an entry
_STAMP = "stamp"


def stamp() -> str:
    """What tells one state of all entries from the next; "" if none is used."""
    if get("UOPC_OPT") != 1:
        return ""
    return _read(cache.digest([_STAMP])) or ""


def known_schedule(sink: UOp, target: Target) -> Sequence[Step] | None:
    """The schedule that was found for a loop program on this machine, or None."""
    if not stamp():
        return None
    key = _key(sink, target)
    text = None if key is None else _read(key)
    if text is None:
        return None
    from uopc.schedule.text import from_text  # at need, for start-up's sake

    return from_text(text)


def remember(sink: UOp, target: Target, text: str) -> bool:
    """Keep the text of a schedule for a loop program; whether that was possible."""
    key = _key(sink, target)
    if key is None:
        return False
    _write(key, text)
    if _read(key) != text:
        return False
    # The stamp comes last. Whoever compiles between the two has its program under the
    # old stamp, which nobody will ask for again.
    first = cache.digest([_STAMP])
    _write(first, cache.digest([_read(first) or "", key, text]))
    return True


def anonymous(sink: UOp) -> str:
    """A loop program as text, whatever its name is."""
    return to_uir(UOp(Ops.SINK, sink.src, "k"))


def _key(sink: UOp, target: Target) -> str | None:
    """The name of an entry; None where code or machine cannot be told from others."""
    code = code_fingerprint()
    if code is None:
        return None
    try:
        compiler = cache.target(get("UOPC_OPT"))
    except CompilerNotFoundError:
        return None
    # Not how many cores there are: results, which may differ, must not depend on it.
    machine = str(replace(target, cores=1))
    return cache.digest([_STAMP, code, compiler, machine, anonymous(sink)])


def _file(key: str) -> Path:
    return cache.cache_dir() / f"{key}.tuned"


def _read(key: str) -> str | None:
    """What an entry says, if it is there and whole."""
    file = _file(key)
    try:
        with cache.open_own(file) as stream:
            text = stream.read(_MOST).decode()
    except (OSError, ValueError):
        return None
    found = _FORMAT.fullmatch(text)
    if found is None or found[1] != cache.digest([key, found[2]]):
        return None
    room.in_use.add(key)
    cache.touch(file)
    return found[2]


def _write(key: str, text: str) -> None:
    line = f"uopc tuned {cache.digest([key, text])}"
    cache.write(_file(key), f"{line}\n{text}\n".encode())

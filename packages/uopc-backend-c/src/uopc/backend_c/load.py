"""Opening a shared object and calling its functions."""

import _ctypes
import ctypes
import functools
import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

ENTRY = "uopc_run"
"""The function that runs a plan."""

_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class LoadError(RuntimeError):
    """A shared object cannot be opened, or lacks a function."""


class Library:
    """An open shared object.

    It is unloaded by `close`, after which no function taken from it may be called: its
    code is gone. Otherwise it stays until neither it nor a function of it is in use.
    """

    def __init__(self, path: Path, handle: ctypes.CDLL) -> None:
        self.path = path
        self._handle: ctypes.CDLL | None = handle
        self._unload = weakref.finalize(self, _ctypes.dlclose, handle._handle)
        # At the exit some thread may still be in there, and the system cleans up.
        self._unload.atexit = False

    def function(self, name: str) -> Callable[..., Any]:
        """The function ``void name(void *)``, ready to be called with an address."""
        address = self.address(name)
        if address is None:
            raise LoadError(f"{self.path} has no function {name!r}")
        # Functions that CDLL gives are part of a cycle, so that the code would stay
        # in place until the collector comes; this one goes with its last user.
        pointer = _Function(address)
        pointer.library = self  # type: ignore[attr-defined]
        return pointer

    def address(self, name: str) -> int | None:
        """Where the function or variable of this name is; None if there is none."""
        if self._handle is None:
            raise LoadError(f"{self.path} is closed: cannot take {name!r} from it")
        try:
            return _ctypes.dlsym(self._handle._handle, name)
        except OSError:
            return None

    def close(self) -> None:
        """Unload the library; closing twice is fine."""
        self._handle = None
        self._unload()

    def __enter__(self) -> "Library":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def load(path: str | os.PathLike[str]) -> Library:
    """Open the shared object at `path`, its symbols private to it."""
    # Absolute, because dlopen searches the system's folders for a bare name.
    full = Path(path).absolute()
    try:
        return Library(full, ctypes.CDLL(str(full)))
    except OSError as error:
        hint = ""
        if "failed to map" in str(error) or "not permitted" in str(error):
            hint = (
                "; the folder may forbid execution (noexec):"
                " set UOPC_CACHE_DIR to another"
            )
        raise LoadError(f"cannot load {full}: {error}{hint}") from error


def is_loadable(head: bytes) -> bool:
    """Whether a file that begins so is a shared object for this process's machine.

    Only ELF files are told apart, by class, byte order, machine and type.
    """
    own = _elf_target(_own_head())
    if not own:
        return True
    shared = int.from_bytes(head[16:18], sys.byteorder) == 3
    return shared and _elf_target(head) == own


def _elf_target(head: bytes) -> bytes:
    return head[4:6] + head[18:20] if head[:4] == b"\x7fELF" else b""


@functools.cache
def _own_head() -> bytes:
    # sys.executable may be a script, or nothing where Python is part of a program.
    for file in ("/proc/self/exe", sys.executable):
        try:
            with open(file, "rb") as stream:
                head = stream.read(20)
        except (OSError, TypeError):
            continue
        if _elf_target(head):
            return head
    return b""

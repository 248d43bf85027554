"""Opening a shared object and calling its functions."""

import _ctypes
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any


class LoadError(RuntimeError):
    """A shared object cannot be opened, or lacks a function."""


class Library:
    """An open shared object.

    A function taken from it must not be called after `close`: its code is gone.
    """

    def __init__(self, path: Path, handle: ctypes.CDLL) -> None:
        self.path = path
        self._handle: ctypes.CDLL | None = handle

    def function(self, name: str) -> Callable[..., Any]:
        """The function ``void name(void *)``, ready to be called with an address."""
        if self._handle is None:
            raise LoadError(f"{self.path} is closed: cannot take {name!r} from it")
        try:
            # Indexing, unlike attribute access, makes a new pointer each time, so
            # nobody else's change of argtypes can reach it.
            pointer = self._handle[name]
        except AttributeError:
            raise LoadError(f"{self.path} has no function {name!r}") from None
        pointer.argtypes = [ctypes.c_void_p]
        pointer.restype = None
        return pointer

    def close(self) -> None:
        """Unload the library; closing twice is fine."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _ctypes.dlclose(handle._handle)

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

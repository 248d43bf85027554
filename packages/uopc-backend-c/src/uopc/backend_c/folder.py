"""The folder of the cache: where it is, and whether it may be used."""

import atexit
import os
import shutil
import tempfile
import warnings
from pathlib import Path

from uopc import config

_private: tuple[int, Path] | None = None
_warned: set[str] = set()


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


def keep_private() -> None:
    """Leave a private folder behind at the exit: an error points into it."""
    atexit.unregister(_remove_private)


def _remove_private() -> None:
    # A forked child inherits the folder's name, but the folder is its parent's.
    if _private is not None and _private[0] == os.getpid():
        shutil.rmtree(_private[1], ignore_errors=True)

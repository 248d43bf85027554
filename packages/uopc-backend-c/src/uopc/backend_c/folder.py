"""The folder of the cache: where it is, and whether it may be used."""

import atexit
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from uopc import config
from uopc.runtime.interrupts import interrupts_held
from uopc.uop import fork_safe, warn_caller

_private: tuple[int, Path] | None = None
_lock = fork_safe(threading.Lock())  # while the private folder is made
_warned: set[str] = set()
_given_up: set[Path] = set()
_kept = False


def cache_dir() -> Path:
    """The folder of the cache, made if need be.

    `UOPC_CACHE_DIR`, else ``$XDG_CACHE_HOME/uopc``, else ``~/.cache/uopc``. Code is
    loaded from it, so it must belong to the user and be writable by nobody else;
    otherwise one warning is given and a private folder serves until the exit.
    """
    folder, problem = chosen_folder()
    if isinstance(folder, Path):
        if folder in _given_up:
            return _private_folder()
        if not problem:
            return folder
    return _instead(str(folder), problem)


def chosen_folder() -> tuple[Path | str, str]:
    """The folder that the variables name, made if need be, and what is wrong with it.

    What is wrong is "" if nothing is; where there is no such folder, it is described.
    """
    folder: Path | str = "the home folder's cache"
    try:
        folder = _wanted()
        if folder in _given_up:
            return folder, "it took no file"
        _make(folder)
        return folder, _problem(folder)
    except (OSError, RuntimeError) as error:
        return folder, str(error)


def give_up(folder: Path, problem: str) -> Path | None:
    """A private folder in place of one that takes no files; None if it is that one."""
    if _private is not None and folder == _private[1]:
        return None
    _given_up.add(folder)
    return _instead(str(folder), problem)


def _instead(chosen: str, problem: str) -> Path:
    private = _private_folder()
    if chosen not in _warned:
        _warned.add(chosen)
        warn_caller(
            f"compiled code cannot be kept in {chosen}: {problem}; using {private} for"
            " this process (set UOPC_CACHE_DIR to a folder of your own)"
        )
    return private


def _make(folder: Path) -> None:
    """Make a folder, and those above it, the user's own under any umask."""
    if not folder.parent.exists():
        _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def _wanted() -> Path:
    if named := config.get("UOPC_CACHE_DIR"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    if os.path.isabs(base):
        return Path(base) / "uopc"
    home = os.environ.get("HOME", "")
    # Where it says nothing, or what depends on the current folder, the account does.
    own = Path(home) if os.path.isabs(home) else _home_of_account()
    return own / ".cache" / "uopc"


def _home_of_account() -> Path:
    if sys.platform == "win32":
        return Path.home()
    import pwd

    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise RuntimeError("there is no HOME, nor an account that has one") from None


def _problem(folder: Path) -> str:
    facts = folder.stat()
    if facts.st_uid != os.geteuid():
        return f"it belongs to user {facts.st_uid}, not to {os.geteuid()}"
    if facts.st_mode & 0o022:
        return "others may write to it (chmod go-w would make it safe)"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return "it is not writable"
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        return "its file system forbids execution (noexec)"
    return ""


def _private_folder() -> Path:
    global _private
    with _lock, interrupts_held():
        if _private is None or not _private[1].is_dir():
            _private = os.getpid(), Path(tempfile.mkdtemp(prefix="uopc-"))
            atexit.register(_remove_private)
            # Its processes end without the functions that atexit knows.
            if pool := sys.modules.get("multiprocessing.util"):
                pool.Finalize(None, _remove_private, exitpriority=0)
        return _private[1]


def keep_private() -> None:
    """Leave a private folder behind at the exit: an error points into it."""
    global _kept
    _kept = True


def _remove_private() -> None:
    # A forked child inherits the folder's name, but the folder is its parent's.
    if not _kept and _private is not None and _private[0] == os.getpid():
        shutil.rmtree(_private[1], ignore_errors=True)

"""The folder that the cache lives in: where it is, and whether it may be used."""

import errno
import multiprocessing
import os
import pwd
import stat
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from uopc.backend_c import cache

pytestmark = pytest.mark.usefixtures("own_cache")

SOURCE = "void f(void **p) { ((int *)p[0])[0] += 7; }\n"
UNITS = {
    "one": "int helper(int x) { return 2 * x; }\n",
    "two": "int helper(int);\nvoid f(void **p) { *(int *)p[0] = helper(21); }\n",
}

Run = Callable[..., int]
Script = Callable[[str], list[str]]
Environment = Callable[..., dict[str, str]]
Fallback = Callable[[str], Path]


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def fallen_back(call: Run) -> Callable[[str], Path]:
    """The private folder, with the one warning that announces it."""

    def fallen_back(match: str) -> Path:
        with pytest.warns(RuntimeWarning, match=match) as caught:
            folder = cache.cache_dir()
        assert [w.filename for w in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert cache.cache_dir() == folder
            made = cache.build(SOURCE, 1)
            assert made.parent == folder
            assert call(made, 1) == 8
            assert cache.build(SOURCE, 1) == made
        assert cache.stats.compiler_runs == 1
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        return folder

    return fallen_back


def test_the_order_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.cache_dir() == tmp_path / "cache"
    monkeypatch.setenv("UOPC_CACHE_DIR", "~/mine")
    assert cache.cache_dir() == tmp_path / "home" / "mine"
    monkeypatch.delenv("UOPC_CACHE_DIR")
    assert cache.cache_dir() == tmp_path / "xdg" / "uopc"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.cache_dir() == tmp_path / "home" / ".cache" / "uopc"
    assert stat.S_IMODE(cache.cache_dir().stat().st_mode) == 0o700


def test_a_relative_folder_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UOPC_CACHE_DIR", "here")
    assert cache.cache_dir() == tmp_path / "here"


def test_without_home_the_account_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Run
):
    for name in ("HOME", "XDG_CACHE_HOME", "UOPC_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    account = SimpleNamespace(pw_dir=str(tmp_path / "account"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: account)
    assert cache.cache_dir() == tmp_path / "account" / ".cache" / "uopc"
    assert call(cache.build(SOURCE, 1), 1) == 8


def test_without_home_or_account(
    monkeypatch: pytest.MonkeyPatch, fallen_back: Fallback
):
    for name in ("HOME", "XDG_CACHE_HOME", "UOPC_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    fallen_back("the home folder's cache")


def test_a_path_below_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fallen_back: Fallback
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("UOPC_CACHE_DIR", str(tmp_path / "file" / "cache"))
    fallen_back("Not a directory")


def test_a_file_in_place_of_the_folder(own_cache: Path, fallen_back: Fallback):
    own_cache.touch()
    fallen_back("File exists")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_may_write_to(
    own_cache: Path, mode: int, fallen_back: Fallback
):
    own_cache.mkdir()
    own_cache.chmod(mode)
    fallen_back("others may write to it")
    assert not names(own_cache)


def test_a_folder_of_another_user(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, fallen_back: Fallback
):
    mine = os.geteuid()
    own_cache.mkdir(mode=0o700)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: mine + 1)
        # What is in the private folder is now another user's as well.
        patched.setattr(cache, "open_own", lambda file: file.open("rb"))
        fallen_back(f"belongs to user {mine}")


def test_a_read_only_folder(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, fallen_back: Fallback
):
    own_cache.mkdir(mode=0o700)
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode, **_: path != own_cache)
        fallen_back("not writable")


@pytest.mark.parametrize("value", ["", "relative"])
def test_a_home_that_depends_on_the_current_folder_is_not_used(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("XDG_CACHE_HOME", "UOPC_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", value)
    monkeypatch.chdir(tmp_path)
    account = SimpleNamespace(pw_dir=str(tmp_path / "account"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: account)
    assert cache.cache_dir() == tmp_path / "account" / ".cache" / "uopc"


def test_a_file_system_that_forbids_execution(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, fallen_back: Fallback
):
    real = os.statvfs

    def noexec(path: Path) -> object:
        flag = os.ST_NOEXEC if path == own_cache else 0
        return SimpleNamespace(f_flag=real(path).f_flag | flag)

    monkeypatch.setattr(os, "statvfs", noexec)
    fallen_back("noexec")


@pytest.mark.parametrize("when", ["source", "compiler", "checksum"])
def test_a_disk_that_fills_up(
    when: str,
    own_cache: Path,
    fake: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    call: Run,
):
    """The compiler cannot even say so: its messages go to that disk, too."""
    files = {"source": "source.c", "compiler": "space", "checksum": "checksum"}
    write = Path.write_bytes

    def full(file: Path, data: bytes) -> int:
        if file.name == files[when] and file.is_relative_to(own_cache):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    if when == "compiler":
        fake(f'case "$*" in *" {own_cache}/"*) exit 1;; esac; exec gcc "$@"')
    with pytest.warns(RuntimeWarning, match="No space left on device") as caught:
        made = cache.build(SOURCE, 1)
    assert len(caught) == 1
    assert call(made, 1) == 8
    assert not list(own_cache.glob(".tmp-*"))
    # From now on the other folder is used.
    cache.stats.reset()
    assert cache.build(SOURCE, 1) == made
    assert cache.build(UNITS, 1).parent == made.parent
    assert cache.stats.misses == 1


def test_threads_share_one_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = tmp_path / "made"
    made.mkdir()
    monkeypatch.setenv("UOPC_CACHE_DIR", str(tmp_path / "file" / "x"))
    monkeypatch.setattr("tempfile.tempdir", str(made))
    (tmp_path / "file").touch()
    mkdtemp = tempfile.mkdtemp

    def slow(**words: str) -> str:
        time.sleep(0.02)
        return mkdtemp(**words)

    monkeypatch.setattr("tempfile.mkdtemp", slow)
    with warnings.catch_warnings(), ThreadPoolExecutor(8) as pool:
        warnings.simplefilter("ignore")
        found = list(pool.map(lambda _: cache.cache_dir(), range(8)))
    assert len(set(found)) == len(names(made)) == 1


@pytest.mark.filterwarnings("ignore")
def test_a_worker_takes_its_private_folder_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The processes of multiprocessing end without what atexit knows."""
    made = tmp_path / "made"
    made.mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setenv("UOPC_CACHE_DIR", str(tmp_path / "file" / "x"))
    monkeypatch.setattr("tempfile.tempdir", str(made))
    worker = multiprocessing.get_context("fork").Process(target=cache.cache_dir)
    worker.start()
    worker.join(30)
    assert worker.exitcode == 0
    assert not names(made)


def test_a_forked_process_that_ends_takes_nothing_along(
    tmp_path: Path, script: Script, environment: Environment
):
    """It is forked while the compiler runs for another thread."""
    slow = tmp_path / "slow"
    slow.write_text(
        '#!/bin/sh\n: > "$0.runs"\nwhile [ ! -e "$0.go" ]; do sleep 0.01; done\n'
        'exec gcc "$@"\n'
    )
    slow.chmod(0o755)
    text = f"""
import os, sys, threading, time
from pathlib import Path
from uopc.backend_c import cache

thread = threading.Thread(target=lambda: print(cache.build({SOURCE!r}, 1).is_file()))
thread.start()
while not os.path.exists({str(slow)!r} + ".runs"):
    time.sleep(0.01)
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
Path({str(slow)!r} + ".go").touch()
thread.join()
"""
    done = subprocess.run(
        script(text),
        env=environment(UOPC_CC=str(slow)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_spaces_in_the_temporary_folder(
    tmp_path: Path, script: Script, environment: Environment
):
    (tmp_path / "file").touch()
    (tmp_path / "a temporary folder").mkdir()
    text = f"""
from uopc.backend_c import cache, load
made = cache.build({UNITS!r}, 1)
load.load(made).function("f")
print(made)
"""
    done = subprocess.run(
        script(text),
        env=environment(
            TMPDIR=str(tmp_path / "a temporary folder"),
            UOPC_CACHE_DIR=str(tmp_path / "file" / "x"),
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(tmp_path / "a temporary folder"))
    assert done.stderr.count("RuntimeWarning") == 1
    # The private folder goes with the process.
    assert not names(tmp_path / "a temporary folder")


def test_a_private_folder_stays_for_the_reader_of_an_error(
    tmp_path: Path, script: Script, environment: Environment
):
    (tmp_path / "file").touch()
    text = "from uopc.backend_c import cache\ncache.build('int x = ;', 1)\n"
    done = subprocess.run(
        script(text),
        env=environment(TMPDIR=str(tmp_path), UOPC_CACHE_DIR=str(tmp_path / "file/x")),
        capture_output=True,
        text=True,
        check=False,
    )
    line = next(x for x in done.stderr.splitlines() if x.startswith("  source:"))
    assert Path(line.partition(":")[2].strip()).read_text() == "int x = ;"


def test_a_careless_umask_opens_nothing(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    before = os.umask(0)
    try:
        monkeypatch.setenv("UOPC_CACHE_DIR", str(own_cache / "a" / "b"))
        made = cache.build(UNITS, 1)
    finally:
        os.umask(before)
    for folder in (own_cache, own_cache / "a", own_cache / "a" / "b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for entry in made.parent.iterdir():
        assert not entry.stat().st_mode & 0o077

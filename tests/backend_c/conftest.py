"""Fixtures of the tests of the toolchain, the cache and the loader."""

import ctypes
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from uopc.backend_c import cache, load, room
from uopc.backend_c import folder as cache_folder


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of this test's own, and counters that start at zero."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("UOPC_CACHE_DIR", str(folder))
    monkeypatch.delenv("UOPC_CC", raising=False)
    monkeypatch.setattr(cache_folder, "_private", None)
    monkeypatch.setattr(cache_folder, "_warned", set())
    monkeypatch.setattr(cache_folder, "_given_up", set())
    monkeypatch.setattr(cache_folder, "_kept", False)
    monkeypatch.setattr(room, "_swept", set())
    monkeypatch.setattr(room, "_seen", {})
    monkeypatch.setattr(room, "in_use", set())
    cache.stats.reset()
    yield folder
    cache_folder._remove_private()


@pytest.fixture
def run() -> Callable[..., int]:
    """Run `f` of a library on one integer."""

    def run(library: load.Library, value: int = 0) -> int:
        cell = ctypes.c_int(value)
        table = (ctypes.c_void_p * 1)(ctypes.addressof(cell))
        library.function("f")(ctypes.addressof(table))
        return cell.value

    return run


@pytest.fixture
def call(run: Callable[..., int]) -> Callable[..., int]:
    """Run `f` of a shared object on one integer."""

    def call(path: Path, value: int = 0) -> int:
        with load.load(path) as library:
            return run(library, value)

    return call


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], list[str]]:
    """The command that runs a text as a Python program."""

    def script(text: str) -> list[str]:
        file = tmp_path / "program.py"
        file.write_text(text)
        return [sys.executable, str(file)]

    return script


@pytest.fixture
def environment(own_cache: Path) -> Callable[..., dict[str, str]]:
    """This process's environment and imports, for another one, with additions."""

    def environment(**extra: str) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **extra}

    return environment


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make a compiler out of shell lines, and let UOPC_CC name it."""

    def make(body: str, name: str = "fake cc", chosen: bool = True) -> Path:
        program = tmp_path / "fakes" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        if chosen:
            monkeypatch.setenv("UOPC_CC", shlex.quote(str(program)))
        return program

    return make

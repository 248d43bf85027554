"""Compilations that take long: the bar, and interrupting them."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from uopc.backend_c import cache, progress

pytestmark = pytest.mark.usefixtures("own_cache")

Script = Callable[[str], list[str]]
Environment = Callable[..., dict[str, str]]

UNITS = {"a": "void f(void **p) { *(int *)p[0] = 7; }", "b": "int b;"}


class FakeBar:
    """Stands in for tqdm, which is not always installed."""

    made: ClassVar[list[Any]] = []

    def __init__(self, **options: Any) -> None:
        self.n, self.closed, self.total = 0, False, options["total"]
        self.seen: list[int] = []
        self.made.append(self)

    def update(self, n: int) -> None:
        self.n += n
        self.seen.append(self.n)

    def refresh(self) -> None: ...

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[FakeBar]:
    """The bars that are shown from now on, on what seems to be a terminal."""
    monkeypatch.setattr(FakeBar, "made", [])
    tqdm: Any = ModuleType("tqdm")
    tqdm.tqdm = FakeBar
    monkeypatch.setitem(sys.modules, "tqdm", tqdm)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    return FakeBar.made


def test_a_bar_appears_where_it_takes_long(
    bars: list[FakeBar], monkeypatch: pytest.MonkeyPatch
):
    cache.build(UNITS, 1)
    assert not bars
    monkeypatch.setattr(progress, "DELAY", 0.0)
    cache.build(UNITS, 0)
    units, link = bars
    assert (units.total, units.seen[0], units.closed) == (2, 0, True)
    assert (link.total, link.closed) == (1, True)


def test_the_bar_goes_when_the_compiler_fails(
    bars: list[FakeBar], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with pytest.raises(cache.toolchain.CompileError):
        cache.build({"a": "int x = ;"}, 1)
    assert [bar.closed for bar in bars] == [True]


@pytest.mark.parametrize("missing", ["terminal", "tqdm", "stderr"])
def test_no_bar(
    missing: str,
    bars: list[FakeBar],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    if missing == "terminal":
        monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    elif missing == "tqdm":
        monkeypatch.setitem(sys.modules, "tqdm", None)
    else:
        monkeypatch.setattr(sys, "stderr", None)
    assert cache.build(UNITS, 1).is_file()
    assert not bars


def test_a_delay_of_a_second(bars: list[FakeBar], monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    shown = progress.Progress(3)
    now[0] = 0.9
    shown.show(1)
    assert not bars
    now[0] = 1.1
    shown.show(2)
    shown.show(2)
    assert [bar.seen for bar in bars] == [[2, 2]]


def test_an_interrupted_program_goes_on(
    tmp_path: Path, own_cache: Path, script: Script, environment: Environment
):
    """Ctrl-C while a plan compiles; the next try compiles it and is right."""
    fake = tmp_path / "cc"
    fake.write_text(
        '#!/bin/sh\n[ -e "$0.go" ] && exec gcc "$@"\n'
        'sleep 60 &\necho $$ $! > "$0.part"; mv "$0.part" "$0.pids"; wait\n'
    )
    fake.chmod(0o755)
    text = f"""
import os, pathlib, signal
import numpy as np
from uopc.tensor import Tensor
signal.signal(signal.SIGINT, signal.default_int_handler)
x = Tensor(np.arange(4, dtype=np.float32)) * 3 + 1
try:
    x.numpy()
except KeyboardInterrupt:
    print(sorted(p.name for p in pathlib.Path({str(own_cache)!r}).glob(".*")))
pathlib.Path({str(fake)!r} + ".go").touch()
print(x.numpy().tolist())
"""
    process = subprocess.Popen(
        script(text),
        env=environment(UOPC_CC=shlex.quote(str(fake)), UOPC_BACKEND="c"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pids, deadline = tmp_path / "cc.pids", time.monotonic() + 60
    while not pids.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert output.splitlines() == ["[]", "[1.0, 4.0, 7.0, 10.0]"], errors
    for pid in map(int, pids.read_text().split()):
        assert _gone(pid)
    kinds = {name.partition(".")[2] for name in os.listdir(own_cache)}
    assert kinds == {"c", "so", "so.sha256"}


def test_an_interrupt_while_the_compiler_starts(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    """It has begun, and nobody has taken note of it yet."""
    begun: list[int] = []
    popen = subprocess.Popen

    def start(command: Any, **options: Any) -> Any:
        process = popen(["sleep", "60"], **options)
        begun.append(process.pid)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            cache.build(UNITS, 1)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(begun) == 1
    assert _gone(begun[0])
    assert not list(own_cache.glob(".*"))


def _gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not, in a few seconds."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except FileNotFoundError:
            return True
        if text.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False

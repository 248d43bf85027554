"""`uopc tune` as a whole: a script runs, its nests are searched, winners are used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uopc.backend_c import plans, toolchain, tuned
from uopc.backend_c.backend import spellings
from uopc.backend_c.tuning import command, profile
from uopc.backend_c.tuning.search import Found
from uopc.backend_c.watch import watching
from uopc.cli import main
from uopc.config import overriding
from uopc.schedule import Simplify, Split
from uopc.schedule.candidates import Candidate
from uopc.tensor import Tensor
from uopc.uop import UOp

pytestmark = pytest.mark.usefixtures("own_cache")

Environment = Callable[..., dict[str, str]]

SCRIPT = """
import sys
import numpy as np
from uopc.runtime import jit
from uopc.tensor import Tensor

x = Tensor(np.arange(6000, dtype=np.float32).reshape(60, 100))

@jit
def f(x):
    return (x * 2).sum(0)

for _ in range(5):
    y = f(x)
print(__name__, sys.argv[1:], y.numpy()[:2])
"""
PRINTED = "__main__ ['--a', 'b'] [354000. 354120.]"


@pytest.fixture(autouse=True)
def _known_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (plans, tuned, command):
        monkeypatch.setattr(module, "code_fingerprint", lambda: "this code")
    with overriding(UOPC_CHECK=1, UOPC_BACKEND="c"):
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return script


def rows(text: str) -> list[list[str]]:
    """The cells of the table, without its head."""
    lines = text[text.index("nest") :].partition("\n\n")[0].splitlines()
    return [line.split(maxsplit=6) for line in lines[1:]]


def test_a_process_of_its_own(file: Path, environment: Environment) -> None:
    words = [sys.executable, "-m", "uopc.cli", "tune", "--seconds", "1.5", str(file)]
    done = subprocess.run(
        [*words, "--a", "b"],
        env=environment(UOPC_BACKEND="c"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith(f"{PRINTED}\n")
    assert "ms before" in done.stdout
    (row,) = rows(done.stdout)
    assert row[:2] == ["r_100", "5"]


class Rigged:
    """A search that finds one schedule at once."""

    def __init__(self, plain: UOp, current: Candidate, *args: Any) -> None:
        self.current = current

    def run(self, deadline: float) -> Found:
        winner = Candidate((Split(0, 10, 7), Simplify()), self.current.sink)
        return Found(2e-3, 1e-3, winner, 3)


def test_the_winner_is_used(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    own_cache: Path,
) -> None:
    monkeypatch.setattr(command, "Search", Rigged)
    argv, path = sys.argv, sys.path
    assert main(["tune", str(file), "--a", "b"]) == 0
    assert (sys.argv, sys.path) == (argv, path)
    out = capsys.readouterr().out
    assert out.startswith(PRINTED)
    assert rows(out) == [
        ["r_100", "5", "3", "2000.0", "1000.0", "0.50", "split(ridx0, 10), simplify"]
    ]
    assert out.endswith("all of these runs: 10.000 ms before, 5.000 after\n")
    assert len(list(own_cache.glob("*.tuned"))) == 2
    x = Tensor(np.arange(6000, dtype=np.float32).reshape(60, 100))
    with overriding(UOPC_DEBUG=2):
        np.testing.assert_array_equal((x * 2).sum(0).numpy()[:2], [354000, 354120])
    assert "schedule of r_100: split(ridx0, 10), simplify" in capsys.readouterr().out


def test_an_interrupt_keeps_what_there_is(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: Any) -> Found:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_search", interrupted)
    # Another plan than other tests have made: this process would find that one.
    file.write_text(SCRIPT.replace("x * 2", "x * 11"))
    assert main(["tune", str(file), "--a", "b"]) == command.INTERRUPTED
    assert "0.000 ms before" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text, message",
    [
        ("raise ValueError('oh')", "raised ValueError"),
        ("import sys; sys.exit(3)", "ended with 3"),
        ("x = (", "raised SyntaxError"),
        ("pass", "ran nothing on the C backend"),
        ("import sys; sys.exit(0)", "ran nothing on the C backend"),
    ],
)
def test_scripts_that_do_not_do(
    text: str, message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert main(["tune", str(file)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"uopc: {file} {message}"


def test_no_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.py"
    assert main(["tune", str(missing)]) == 1
    said = f"uopc: cannot read {missing}: there is no such file\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "nan", "inf"])
def test_no_time(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "--seconds", seconds, "any.py"])
    assert "expected a number above 0" in capsys.readouterr().err


def test_no_compiler(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UOPC_CC", "/no/such/compiler")
    assert main(["tune", str(file)]) == 1
    assert "no C compiler found" in capsys.readouterr().err
    with pytest.raises(toolchain.CompilerNotFoundError):
        toolchain.find_compiler()


def test_nothing_to_tune(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with overriding(UOPC_OPT=0):
        assert main(["tune", str(file)]) == 1
    assert "UOPC_OPT=0" in capsys.readouterr().err
    monkeypatch.setattr(command, "code_fingerprint", lambda: None)
    assert main(["tune", str(file)]) == 1
    assert "could not be found again" in capsys.readouterr().err


def test_what_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nests of the most time; equal ones of several plans are one."""
    x = Tensor(np.ones((40, 50), np.float32))
    with watching() as watch:
        for _ in range(3):
            (x * 3).realize()
        (x.sum(1) + 0).realize()
        (Tensor(np.ones((40, 50), np.float32)) * 3).realize()
        with overriding(UOPC_OPT=0):
            (x * 5).realize()
    (x * 7).realize()
    times = {"e_40_50": 2.0, "e_2000": 2.0, "r_40": 0.5}
    monkeypatch.setattr(profile, "_seconds", lambda at, sink: times[sink.arg])
    (nest,) = profile.nests_of_most_time(watch)
    assert (nest.runs, nest.seconds, nest.total) == (4, 2.0, 8.0)
    monkeypatch.setattr(profile, "MOST", 0.99)
    assert [n.runs for n in profile.nests_of_most_time(watch)] == [4, 1]
    assert spellings()


def test_functions_of_a_program_are_timed() -> None:
    with watching() as watch:
        (Tensor(np.ones((40, 50), np.float32)) * 23).realize()
    (nest,) = profile.nests_of_most_time(watch)
    assert nest.seconds > 0
    assert profile._seconds(None, nest.current.sink) == 0


@pytest.mark.parametrize("verbose", [False, True])
def test_how_far_it_is(
    verbose: bool,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bar of seconds; or a line for each candidate, and no bar among them."""
    shown: list[int] = []

    class Bar:
        def __init__(self, *given: Any) -> None:
            assert given == (3, "tuning", "s")

        def show(self, done: int) -> None:
            shown.append(done)

        def close(self) -> None:
            shown.append(-1)

    monkeypatch.setattr(command, "Progress", Bar)
    file.write_text(SCRIPT.replace("x * 2", f"x * {13 + verbose}"))
    words = ["--seconds", "2.5", *(["-v"] if verbose else [])]
    assert main(["tune", *words, str(file)]) == 0
    err = capsys.readouterr().err
    assert shown[-1] == -1
    assert (len(shown) > 2) != verbose
    assert ("r_100: x" in err) == verbose

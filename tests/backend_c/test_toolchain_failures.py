"""The compiler: run, and its failures reported."""

import pickle
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from processes import gone

from uopc.backend_c import cache, cpu, toolchain

pytestmark = pytest.mark.usefixtures("own_cache")

SOURCE = "void f(void **p) { ((int *)p[0])[0] = 7; }\n"
GCC = shutil.which("gcc") or ""

Fake = Callable[..., Path]


def failure(source: str = SOURCE) -> toolchain.CompileError:
    with pytest.raises(toolchain.CompileError) as caught:
        cache.build(source, 1)
    return caught.value


def temporaries(folder: Path) -> list[Path]:
    return list(folder.glob(".tmp-*"))


def test_an_error_carries_all_that_is_known(own_cache: Path):
    source = "int x = ;\n"
    error = failure(source)
    assert error.status == 1
    assert error.command[0].endswith("cc")
    assert "expected expression" in error.stderr
    assert error.source.parent == own_cache
    assert error.source.read_text() == source
    text = str(error)
    for part in ("exit status 1", str(error.source), "-march=native", "expected expr"):
        assert part in text
    assert not temporaries(own_cache)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.source) == (text, error.source)
    # A failure is not an entry.
    failure(source)
    assert cache.stats.compiler_runs == 2


def test_long_output_is_trimmed_in_the_message_only(fake: Fake):
    fake('i=0; while [ $i -lt 500 ]; do i=$((i+1)); echo "line $i"; done; exit 4')
    error = failure()
    assert error.status == 4
    assert len(error.stderr.splitlines()) == 500
    text = str(error)
    assert "line 1\n" in text
    assert "... (465 more lines)" in text
    assert text.endswith("line 500")
    assert toolchain.trim("x" * 1000) == ["x" * 297 + "..."]


def test_output_that_is_not_text(fake: Fake):
    fake(r"printf '\377\376 broken'; exit 1")
    assert "broken" in str(failure())


def test_warnings_do_no_harm(fake: Fake, capfd: pytest.CaptureFixture[str]):
    fake(f'echo "warning: odd" >&2; echo more; exec {GCC} "$@"')
    assert cache.build(SOURCE, 1).is_file()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["SEGV", "KILL"])
def test_a_signal_is_named(fake: Fake, name: str):
    fake(f"kill -{name} $$")
    error = failure()
    assert (error.status or 0) < 0
    assert f"killed by signal SIG{name}" in str(error)


def test_a_hanging_compiler_is_stopped_with_its_children(
    fake: Fake, own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    fake('sleep 60 & echo $! > "$0.pid"; wait')
    monkeypatch.setattr(toolchain, "TIMEOUT", 0.5)
    begun = time.monotonic()
    error = failure()
    assert time.monotonic() - begun < 10
    assert error.status is None
    assert "it took more than 0.5 seconds" in str(error)
    assert not temporaries(own_cache)
    child = int((own_cache.parent / "fakes" / "fake cc.pid").read_text())
    deadline = time.monotonic() + 5
    while not gone(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(child)


def test_a_program_that_cannot_start(fake: Fake):
    program = fake("")
    program.write_bytes(b"\x00\x01 not a program")
    error = failure()
    assert error.status is None
    assert "it could not be started" in str(error)


@pytest.mark.parametrize(
    "body", ["exit 0", 'for x; do [ "$l" = -o ] && : >"$x"; l=$x; done']
)
def test_success_without_output(fake: Fake, body: str):
    fake(body)
    assert "reported success but wrote no output" in str(failure())


@pytest.mark.parametrize("option", ["-c", "-E"])
def test_what_it_wrote_cannot_be_loaded(option: str, fake: Fake, own_cache: Path):
    fake(f'exec {GCC} "$@" {option}')
    assert "no shared object for this machine" in str(failure())
    assert not list(own_cache.glob("*.so"))


def test_it_fails_at_the_linking(fake: Fake):
    fake(f'case "$*" in *" -c "*) exec {GCC} "$@";; esac; echo no -lm; exit 1')
    with pytest.raises(toolchain.CompileError, match="no -lm"):
        cache.build({"a": SOURCE, "b": "int b;"}, 1)


def test_without_a_path_the_compiler_finds_its_linker(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("PATH")
    assert cache.build(SOURCE, 1).is_file()


@pytest.mark.parametrize("home", [None, "", "relative", "/proc/nothing"])
def test_zig_gets_a_folder_where_home_has_none(
    home: str | None, fake: Fake, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    fake(f'mkdir "$ZIG_GLOBAL_CACHE_DIR" && exec {GCC} "$@"')
    assert cache.build(SOURCE, 1).is_file()


def test_no_shell_looks_at_the_words(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "a $(touch pwned) ; 'b' \"c\" & \\ d"
    monkeypatch.setenv("UOPC_CACHE_DIR", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.chdir(tmp_path)
    assert cache.build({"a": SOURCE, "b": "int b;"}, 1).parent == folder
    assert not (tmp_path / "pwned").exists()


def test_the_compiler_leaves_nothing_in_the_system_folder(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "system temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    fake(f': > "$TMPDIR/scratch"; {GCC} "$@"; kill -KILL $$')
    failure()
    assert not list(folder.iterdir())


def test_the_first_failing_unit_is_the_one_reported():
    with pytest.raises(toolchain.CompileError) as caught:
        cache.build({"good": SOURCE, "bad": "int x = ;", "late": "int y;"}, 1)
    assert caught.value.source.name.endswith(".bad.c")


def test_units_are_compiled_at_once(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, own_cache: Path
):
    # Each compilation waits for the other to have begun.
    fake(
        'cd "$(dirname "$0")"; case "$*" in *.a.c*) : >a; n=b;; *.b.c*) : >b; n=a;; '
        f'*) exec {GCC} "$@";; esac\nwhile [ ! -e $n ]; do sleep 0.01; done\n'
        f'exec {GCC} "$@"'
    )
    monkeypatch.setattr(cpu, "cores", lambda: 2)
    monkeypatch.setattr(toolchain, "TIMEOUT", 20.0)
    assert cache.build({"a": SOURCE, "b": "int b;"}, 1).is_file()

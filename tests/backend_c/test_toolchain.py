"""The compiler: found, described, run, and its failures reported."""

import os
import pickle
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from uopc import config
from uopc.backend_c import cache, cpu, toolchain

SOURCE = "void f(void **p) { ((int *)p[0])[0] = 7; }\n"
GCC = shutil.which("gcc") or ""

Fake = Callable[..., Path]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("UOPC_CACHE_DIR", str(folder))
    monkeypatch.delenv("UOPC_CC", raising=False)
    cache.stats.reset()
    return folder


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
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


def failure(source: str = SOURCE) -> toolchain.CompileError:
    with pytest.raises(toolchain.CompileError) as caught:
        cache.build(source, 1)
    return caught.value


def temporaries(folder: Path) -> list[Path]:
    return list(folder.glob(".tmp-*"))


def gone(pid: int) -> bool:
    """Whether the process has ended, reaped or not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


# Finding


def test_the_path_is_searched_in_order(fake: Fake, monkeypatch: pytest.MonkeyPatch):
    clang = fake("", "clang", chosen=False)
    monkeypatch.setenv("PATH", str(clang.parent))
    assert toolchain.find_compiler().argv == (str(clang),)
    # The memory is per PATH, so another folder is searched afresh.
    other = clang.parent / "other"
    other.mkdir()
    for name in ("gcc", "cc"):
        shutil.copy(clang, other / name)
        monkeypatch.setenv("PATH", f"{other}:{clang.parent}:{name}")
        assert toolchain.find_compiler().argv == (str(other / name),)


def test_a_compiler_that_disappears_is_looked_for_again(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
):
    gcc, clang = fake("", "gcc", chosen=False), fake("", "clang", chosen=False)
    monkeypatch.setenv("PATH", str(gcc.parent))
    assert toolchain.find_compiler().path == gcc
    gcc.unlink()
    assert toolchain.find_compiler().path == clang


def test_a_link_is_called_by_its_name_and_described_by_its_target(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
):
    real = fake("", "gcc-99", chosen=False)
    folder = real.parent / "bin"
    folder.mkdir()
    (folder / "cc").symlink_to(real)
    monkeypatch.setenv("PATH", str(folder))
    found = toolchain.find_compiler()
    assert (found.argv, found.path) == ((str(folder / "cc"),), real)


def test_uopc_cc_may_have_arguments_and_spaces(fake: Fake, tmp_path: Path):
    log = tmp_path / "log"
    program = fake(f'echo "$1|$2" > {shlex.quote(str(log))}; exec {GCC} "$@"')
    command = f"{shlex.quote(str(program))} -DA='1 2' -g0"
    with config.overriding(UOPC_CC=command):
        assert toolchain.find_compiler().argv == (str(program), "-DA=1 2", "-g0")
        cache.build(SOURCE, 1)
    assert log.read_text() == "-DA=1 2|-g0\n"


@pytest.mark.parametrize("command", ["no-such-cc -O9", "gcc 'unclosed", "''"])
def test_a_wrong_uopc_cc_is_not_replaced_by_another(
    command: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("UOPC_CC", command)
    with pytest.raises(toolchain.CompilerNotFoundError) as caught:
        toolchain.find_compiler()
    assert f"UOPC_CC={command!r}" in str(caught.value)


def test_no_compiler_says_what_was_tried_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    toolchain._find.cache_clear()
    with pytest.raises(toolchain.CompilerNotFoundError) as caught:
        toolchain.find_compiler()
    text = str(caught.value)
    for part in ("cc, gcc, clang", "ziglang", "UOPC_CC", "variable CC"):
        assert part in text
    for remedy in ("apt install gcc", "xcode-select", "uopc-backend-c[zig]", "=interp"):
        assert remedy in text


def test_the_zig_wheel_is_the_last_resort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    wheel = tmp_path / "site" / "ziglang"
    wheel.mkdir(parents=True)
    (wheel / "__init__.py").touch()
    (wheel / "zig").touch()
    (wheel / "__main__.py").write_text(
        "import subprocess, sys\n"
        "assert sys.argv[1] == 'cc'\n"
        f"sys.exit(subprocess.run([{GCC!r}, *sys.argv[2:]]).returncode)\n"
    )
    # gcc itself needs the real PATH, so only the search is made to find nothing.
    monkeypatch.setattr("shutil.which", lambda word, path=None: None)
    monkeypatch.syspath_prepend(str(wheel.parent))
    monkeypatch.setenv("PYTHONPATH", str(wheel.parent))
    toolchain._find.cache_clear()
    try:
        found = toolchain.find_compiler()
        assert found.argv[1:] == ("-m", "ziglang", "cc")
        assert (found.path, found.kind) == (wheel / "zig", "zig")
        assert cache.build(SOURCE, 1).is_file()
    finally:
        toolchain._find.cache_clear()


@pytest.mark.parametrize(
    ("banner", "version", "kind"),
    [
        ("gcc (Debian 12.2.0-14) 12.2.0", "gcc (Debian 12.2.0-14) 12.2.0", "gcc"),
        ("cc 12.2.0\nCopyright Free Software Foundation", "cc 12.2.0", "gcc"),
        (
            "Debian clang version 14.0.6\nTarget: x",
            "Debian clang version 14.0.6",
            "clang",
        ),
        ("tcc version 0.9.27", "tcc version 0.9.27", "unknown"),
        ("", "unknown", "unknown"),
    ],
)
def test_version_and_kind(fake: Fake, banner: str, version: str, kind: str):
    fake(f"cat <<'END'\n{banner}\nEND", "plain")
    found = toolchain.find_compiler()
    assert cache.stats.compiler_runs == 0
    assert (found.version, found.kind) == (version, kind)
    assert cache.stats.compiler_runs == 1


# Flags


def test_flags():
    assert "-O1" in toolchain.flags(0)
    assert "-O3" in toolchain.flags(1)
    assert "-O3" in toolchain.flags(2)
    for opt in (0, 1, 2):
        present = toolchain.flags(opt)
        assert "-ffast-math" not in present
        assert {*toolchain.BASE_FLAGS, "-march=native"} <= set(present)
    with pytest.raises(ValueError, match="optimisation level 3: expected one of 0, 1"):
        toolchain.flags(3)


def test_a_target_in_uopc_cc_wins(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("UOPC_CC", "gcc -march=x86-64")
    assert "-march=native" not in toolchain.flags(1, toolchain.find_compiler())


def test_a_refused_target_is_left_out_and_remembered(fake: Fake):
    refusal = "error: bad value 'native' for '-march=' switch"
    fake(
        f'case "$*" in *-march*) echo "{refusal}" >&2; exit 1;; esac\nexec {GCC} "$@"',
        "old",
    )
    assert cache.build(SOURCE, 1).is_file()
    assert cache.stats.compiler_runs == 2
    cache.build({"a": SOURCE, "b": "int b;"}, 1)
    assert cache.stats.compiler_runs == 2 + 3
    # An error of the program itself is not run twice.
    assert "-march" not in failure("int x = ;").command
    assert cache.stats.compiler_runs == 6


# Failures


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


def test_progress_is_shown_on_a_terminal_past_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    now = time.monotonic()
    assert toolchain._progress(now - 2, "", 1, 3) == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert toolchain._progress(now, "", 1, 3) == ""
    shown = toolchain._progress(now - 2, "", 1, 3)
    assert toolchain._progress(now - 2, shown, 1, 3) == shown
    assert capsys.readouterr().err == "\ruopc: compiling, 1 of 3 done"


# The processor


def test_cpuinfo_of_several_kinds():
    text = "processor : 0\nmodel name\t: Some CPU @ 2GHz\nflags\t: sse avx2 fpu\n"
    assert cpu.parse_cpuinfo(text) == ("Some CPU @ 2GHz", ("avx2", "fpu", "sse"))
    arm = "Features : fp asimd\nCPU implementer : 0x41\nCPU part : 0xd0c\n"
    assert cpu.parse_cpuinfo(arm) == ("0x41:0xd0c", ("asimd", "fp"))
    assert cpu.parse_cpuinfo("")[1] == ()


@pytest.mark.parametrize(
    ("present", "width"),
    [
        (("avx2", "avx512f"), 512),
        (("avx", "avx2"), 256),
        (("avx",), 128),
        (("asimd", "sve"), 128),
        ((), 128),
    ],
)
def test_vector_width(
    present: tuple[str, ...], width: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cpu, "features", lambda: present)
    assert cpu.vector_width() == width


def test_only_the_first_processor_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "cpuinfo"
    file.write_text("model name : one\nflags : a\n\nmodel name : two\nflags : b\n")
    monkeypatch.setattr(cpu, "CPUINFO", file)
    assert cpu._described.__wrapped__() == ("one", ("a",))
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "absent")
    assert cpu._described.__wrapped__()[1] == ()


def test_cores_are_those_this_process_may_use():
    assert 1 <= cpu.cores() <= (os.cpu_count() or 1)

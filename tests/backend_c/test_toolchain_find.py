"""The compiler: found, described, and given its flags."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from uopc import config
from uopc.backend_c import cache, toolchain

pytestmark = pytest.mark.usefixtures("own_cache")

SOURCE = "void f(void **p) { ((int *)p[0])[0] = 7; }\n"
GCC = shutil.which("gcc") or ""

Fake = Callable[..., Path]


def failure(source: str = SOURCE) -> toolchain.CompileError:
    with pytest.raises(toolchain.CompileError) as caught:
        cache.build(source, 1)
    return caught.value


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


def test_a_program_that_may_not_be_run_is_told_from_one_that_is_not_there(fake: Fake):
    fake("").chmod(0o644)
    with pytest.raises(toolchain.CompilerNotFoundError, match="is not executable"):
        toolchain.find_compiler()


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
    assert "-O2" in toolchain.flags(1)
    assert "-O2" in toolchain.flags(2)
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

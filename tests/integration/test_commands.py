"""The `uopc` script on the real installation: `plugins` and `doctor`."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from uopc.autodiff.rules import RULES, batching, linear
from uopc.backend_c import threads
from uopc.backend_c.spellings import SPELLINGS
from uopc.backend_c.target import current_target
from uopc.uop import BUILTIN_OPS

DISTRIBUTIONS = ("uopc-core", "uopc-autodiff", "uopc-backend-c", "uopc-nn")
# Name -> distribution, the end of the file's path, what it registers.
PLUGINS = {
    "core": (
        "uopc-core",
        "uopc/plugins/builtin.py",
        f"ops {len(BUILTIN_OPS)}, backends 1",
    ),
    "autodiff": (
        "uopc-autodiff",
        "uopc/autodiff/plugin.py",
        f"vjps {len(RULES)}, jvps {len(linear.RULES)}, "
        f"batchings {len(batching.RULES)}, commands 2, gradient 1, jvp 1",
    ),
    "c": (
        "uopc-backend-c",
        "uopc/backend_c/plugin.py",
        f"backends 1, spellings {len(SPELLINGS)}, commands 4, doctor 1",
    ),
}


def table(text: str) -> list[list[str]]:
    """The cells of the lines up to the first empty one."""
    lines = text.partition("\n\n")[0].splitlines()
    return [re.split(r"  +", line) for line in lines]


def rows(text: str) -> dict[str, str]:
    """`uopc doctor`'s table, by label."""
    return {row[0]: row[1] for row in table(text) if row[0]}


@pytest.mark.parametrize("block", ["", "c", "core"])
def test_plugins_lists_what_is_installed(run_uopc: Any, block: str) -> None:
    done = run_uopc("plugins", UOPC_PLUGINS_BLOCK=block)
    header, *found = table(done.stdout)
    assert header == [
        "name",
        "distribution",
        "version",
        "file",
        "registered",
        "status",
    ]
    assert [row[0] for row in found] == list(PLUGINS)
    for name, distribution, version, file, registered, status in found:
        wanted, end, counts = PLUGINS[name]
        assert (distribution, version) == (
            wanted,
            importlib.metadata.version(distribution),
        )
        if name == block:
            assert (file, registered, status) == ("-", "-", "blocked")
        else:
            assert file.endswith(end)
            assert Path(file).is_file()
            assert (registered, status) == (counts, "loaded")
    assert done.stderr == ""


def test_doctor_shows_the_installation(run_uopc: Any, kernel_cache: Path) -> None:
    done = run_uopc("doctor")
    found = rows(done.stdout)
    for name in DISTRIBUTIONS:
        assert found[name] == importlib.metadata.version(name)
    assert found["plugins"] == "core, autodiff, c"
    assert Path(found["C compiler"].split()[0]).is_absolute()
    assert re.search(r"\d+\.\d+", found["C compiler version"])
    assert found["vector width"] == f"{current_target().vector_bytes * 8} bits"
    assert found["threads"] == str(threads())
    assert found["cache folder"] == str(kernel_cache)
    assert found["backend interp"] == "available, priority 0"
    assert found["backend c"] == "available, priority 10"
    assert found["active backend"].startswith("c, ")
    assert done.stdout.endswith("\n\nno problems found\n")
    assert done.stderr == ""


def test_doctor_without_a_compiler(run_uopc: Any, tmp_path: Path) -> None:
    done = run_uopc("doctor", status=1, PATH=str(tmp_path))
    found = rows(done.stdout)
    assert found["C compiler"].startswith("none: no C compiler found: tried cc, gcc")
    assert found["backend c"].startswith("unavailable: no C compiler found")
    assert found["backend c"].endswith(", priority 10")
    assert found["active backend"].startswith("interp, ")
    # What to do is said once, with what is wrong.
    assert done.stdout.count("Install one:") == 1
    [problem] = [x for x in done.stdout.splitlines() if x.startswith("problem: ")]
    assert problem.startswith("problem: no C compiler found: tried cc, gcc")
    assert "Install one: `apt install gcc`" in problem
    done = run_uopc("doctor", PATH=str(tmp_path), UOPC_BACKEND="interp")
    assert done.stdout.endswith("\n\nno problems found\n")
    done = run_uopc("doctor", status=1, PATH=str(tmp_path), UOPC_BACKEND="c")
    assert "\nproblem: UOPC_BACKEND='c': no C compiler found" in done.stdout


def test_doctor_on_a_folder_that_cannot_hold_the_cache(
    run_uopc: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    folder.chmod(0o777)
    done = run_uopc("doctor", status=1, UOPC_CACHE_DIR=str(folder))
    assert rows(done.stdout)["cache folder"] == f"{folder}, unusable"
    problem = f"problem: compiled code cannot be kept in {folder}: others may write"
    assert f"\n\n{problem}" in done.stdout
    assert done.stderr == ""  # the doctor's problem, so no warning as well


def test_doctor_with_a_compiler_of_ones_own(run_uopc: Any, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "these tests need a C compiler"
    for tool in ("as", "ld"):  # which the compiler looks for, and doctor compiles
        if found_tool := shutil.which(tool):
            (tmp_path / tool).symlink_to(found_tool)
    done = run_uopc("doctor", PATH=str(tmp_path), UOPC_CC=f"{compiler} -Wall")
    found = rows(done.stdout)
    assert found["C compiler"] == f"{compiler} -Wall"
    assert found["UOPC_CC"] == repr(f"{compiler} -Wall")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            "no-such-cc",
            "no C compiler found: UOPC_CC='no-such-cc': there is no program",
        ),
        ("false", "UOPC_CC='false' does not compile: exit status 1"),
        ("true", "UOPC_CC='true' does not compile: it reported success but wrote no"),
        (
            "cc -no-such-flag",
            "UOPC_CC='cc -no-such-flag' does not compile: exit status",
        ),
    ],
)
def test_doctor_with_a_wrong_compiler(run_uopc: Any, command: str, reason: str) -> None:
    done = run_uopc("doctor", status=1, UOPC_CC=command)
    [problem] = [x for x in done.stdout.splitlines() if x.startswith("problem: ")]
    assert problem.startswith(f"problem: {reason}")
    assert "problem" not in rows(done.stdout)


@pytest.mark.parametrize("command", ["plugins", "doctor"])
def test_strict_loading_takes_neither_command_away(run_uopc: Any, command: str) -> None:
    run_uopc(command, UOPC_PLUGINS_STRICT="1")


def test_doctor_finds_a_stray_file_that_hides_nothing(
    run_uopc: Any, tmp_path: Path
) -> None:
    """An old-style namespace file: everything is still found, for now."""
    stray = tmp_path / "uopc" / "__init__.py"
    stray.parent.mkdir()
    stray.write_text("from pkgutil import extend_path\n")
    with stray.open("a") as file:
        file.write("__path__ = extend_path(__path__, __name__)\n")
    done = run_uopc("doctor", status=1, PYTHONPATH=str(tmp_path))
    assert "no problems found" not in done.stdout
    [problem] = [x for x in done.stdout.splitlines() if x.startswith("problem: ")]
    assert problem == (
        f"problem: {stray} hides every other distribution of uopc, which is a "
        f"namespace without a module of its own; delete {stray}"
    )


@pytest.mark.parametrize("name", ["uopc/__init__.py", "uopc.py"])
@pytest.mark.parametrize("command", ["plugins", "doctor"])
def test_a_stray_file_that_hides_the_command_is_named(
    run_uopc: Any, tmp_path: Path, name: str, command: str
) -> None:
    stray = tmp_path / name
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("")
    done = run_uopc(command, status=1, PYTHONPATH=str(tmp_path))
    assert done.stdout == ""
    assert done.stderr == (
        f"problem: {stray} hides every other distribution of uopc, which is a "
        f"namespace without a module of its own; delete {stray}\n"
    )


def test_the_module_does_what_the_script_does(run_python: Any, run_uopc: Any) -> None:
    program = """
        import runpy, sys

        sys.argv = ["uopc", "plugins"]
        runpy.run_module("uopc.cli", run_name="__main__")
    """
    assert run_python(program).stdout == run_uopc("plugins").stdout


def test_wrong_usage_and_version(run_uopc: Any) -> None:
    version = importlib.metadata.version("uopc-core")
    assert run_uopc("--version").stdout == f"uopc {version}\n"
    assert "usage: uopc" in run_uopc(status=2).stderr
    assert "invalid choice: 'docter'" in run_uopc("docter", status=2).stderr

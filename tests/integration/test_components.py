"""The distributions as installed: each joins in by its entry point, and can be absent.

Every test runs a fresh process, as a user's program is one.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

FORWARD = """
import numpy as np
from uopc.tensor import Tensor

x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
print((x @ x.T + 1).relu().sum(0).tolist())
"""
FORWARD_PRINTS = "[21.0, 66.0]\n"
BACKWARD = """
from uopc.tensor import Tensor

w = Tensor([1.0, 2.0], requires_grad=True)
(w * w).sum().backward([w])
print(w.grad.tolist())
"""
BACKWARD_PRINTS = "[2.0, 4.0]\n"
# Which backend is in use.
BACKEND = """
from uopc.runtime import default_backend

print(default_backend().name)
"""
# What a program has imported of each distribution besides core.
IMPORTED = """
import sys

parts = ("uopc.autodiff", "uopc.backend_c", "uopc.nn")
print(*(p for p in parts if any(m.startswith(p) for m in sys.modules)))
"""
ENGINE = "RuntimeError: backward needs a gradient engine: pip install uopc-autodiff"


def last_line(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]


def test_backward_without_autodiff_says_what_to_install(run_python: Any) -> None:
    done = run_python(BACKWARD, status=1, UOPC_PLUGINS_BLOCK="autodiff")
    assert last_line(done.stderr) == ENGINE
    assert done.stdout == ""


def test_a_gradient_engine_that_fails_to_load_is_quoted(run_python: Any) -> None:
    broken = "import sys; sys.modules['uopc.autodiff.plugin'] = None\n"
    done = run_python(broken + BACKWARD, status=1)
    line = last_line(done.stderr)
    version = importlib.metadata.version("uopc-autodiff")
    assert line.startswith(f"{ENGINE}; note: plugin 'autodiff' (uopc-autodiff ")
    assert f"(uopc-autodiff {version}) failed in import: " in line


@pytest.mark.parametrize(
    ("block", "imported"),
    [
        ("", "uopc.autodiff uopc.backend_c"),
        ("autodiff", "uopc.backend_c"),
        ("c", "uopc.autodiff"),
        ("autodiff,c", ""),
    ],
)
def test_each_may_be_absent_and_is_not_imported_then(
    run_python: Any, block: str, imported: str
) -> None:
    done = run_python(FORWARD + IMPORTED, UOPC_PLUGINS_BLOCK=block)
    assert done.stdout == f"{FORWARD_PRINTS}{imported}\n"
    assert done.stderr == ""


def test_without_the_c_plugin_gradients_are_computed_by_the_reference(
    run_python: Any,
) -> None:
    program = BACKWARD + IMPORTED + BACKEND
    done = run_python(program, UOPC_PLUGINS_BLOCK="c")
    assert done.stdout == f"{BACKWARD_PRINTS}uopc.autodiff\ninterp\n"


@pytest.mark.parametrize("module", ["tensor", "uir", "kernelize", "runtime", "cli"])
def test_importing_loads_no_plugin(run_python: Any, module: str) -> None:
    ready = "from uopc.plugins import host; print(host._default._ready)"
    done = run_python(f"import uopc.{module}\n{IMPORTED}{ready}")
    assert done.stdout == "\nFalse\n"


def test_everything_is_registered_by_its_owner(run_python: Any) -> None:
    done = run_python("""
        from uopc.plugins import current, registry
        from uopc.uop import BUILTIN_OPS

        reg = registry()
        assert set(BUILTIN_OPS) <= set(reg.ops.values())
        tables = ("ops", "vjps", "backends", "spellings", "commands")
        for table in tables:
            entries = getattr(reg, table)
            owners = {reg.owners[table, key] for key in entries}
            print(table, bool(entries), *sorted(owners))
            assert {k for kind, k in reg.owners if kind == table} == set(entries)
        for name, result, error in current().call_each("uopc_doctor"):
            print("doctor", name, error)
    """)
    assert done.stdout.splitlines() == [
        "ops True core",
        "vjps True autodiff",
        "backends True c core",
        "spellings True c",
        "commands True autodiff c",
        "doctor c None",
    ]


def test_core_has_no_private_path_either(run_python: Any) -> None:
    """Without its own plugin core has no op and no backend to fall back on."""
    done = run_python(
        """
        from uopc.plugins import registry
        from uopc.tensor import Tensor
        from uopc.uir import parse_uir

        print(registry().ops, registry().backends)
        for ask in (
            lambda: parse_uir("%0 = buffer 3 : dtype=f32 slot=0"),
            lambda: Tensor([1.0]).exp().numpy(),
        ):
            try:
                ask()
            except (RuntimeError, ValueError) as error:
                print(error)
        """,
        UOPC_PLUGINS_BLOCK="core,c",
    )
    assert done.stdout.splitlines() == [
        "{} {}",
        "line 1, column 6: expected the name of an op, got 'buffer'",
        "no backend can run here",
    ]


def test_a_backend_that_is_not_there_names_its_distribution(run_python: Any) -> None:
    done = run_python(FORWARD, status=1, UOPC_PLUGINS_BLOCK="c", UOPC_BACKEND="c")
    line = last_line(done.stderr)
    assert line == (
        "RuntimeError: no backend named 'c' (known: interp); pip install uopc-backend-c"
    )


def test_a_blocked_plugin_may_be_named_twice_or_unknown(run_python: Any) -> None:
    done = run_python(FORWARD + IMPORTED, UOPC_PLUGINS_BLOCK="c, c,nonesuch ,autodiff")
    assert done.stdout == f"{FORWARD_PRINTS}\n"


# -- without a C compiler -----------------------------------------------------

TWICE = FORWARD + "print((x * 2).sum().item(), (x * 3).sum().item())\n"


@pytest.fixture
def empty_path(tmp_path: Path) -> str:
    """A PATH without any program."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return str(folder)


@pytest.mark.parametrize("form", ["folder", "nothing"])
def test_without_a_compiler_the_reference_runs(
    run_python: Any, empty_path: str, form: str
) -> None:
    done = run_python(TWICE, PATH=empty_path if form == "folder" else "")
    assert done.stdout == f"{FORWARD_PRINTS}30.0 45.0\n"
    assert done.stderr.count("RuntimeWarning: ") == 1
    assert "backend 'c' cannot run here, using the next one: no C comp" in done.stderr
    assert "Install one: " in done.stderr


def test_without_a_compiler_gradients_are_right(
    run_python: Any, empty_path: str
) -> None:
    done = run_python(BACKWARD, PATH=empty_path)
    assert done.stdout == BACKWARD_PRINTS


@pytest.mark.parametrize("variables", [{}, {"UOPC_CC": "no-such-cc"}])
def test_asking_for_c_without_a_compiler_is_an_error(
    run_python: Any, empty_path: str, variables: dict[str, str]
) -> None:
    done = run_python(FORWARD, status=1, PATH=empty_path, UOPC_BACKEND="c", **variables)
    assert "\nuopc.backend_c.toolchain.CompilerNotFoundError: no C comp" in done.stderr
    assert re.search(r"\bCC\b", done.stderr)
    assert "UOPC_CC" in done.stderr
    assert "UOPC_BACKEND=interp still works" in done.stderr
    assert done.stdout == ""


def test_a_compiler_named_in_uopc_cc_needs_no_path(
    run_python: Any, empty_path: str
) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "these tests need a C compiler"
    # The compiler itself looks for its assembler and linker on the PATH.
    wrapper = Path(empty_path, "my-cc")
    wrapper.write_text(f'#!/bin/sh\nPATH=/usr/bin:/bin exec {compiler} "$@"\n')
    wrapper.chmod(0o755)
    done = run_python(FORWARD + BACKEND, PATH="", UOPC_CC=str(wrapper))
    assert done.stdout == f"{FORWARD_PRINTS}c\n"
    assert done.stderr == ""


def test_the_compiler_is_not_sought_where_the_reference_is_wanted(
    run_python: Any, empty_path: str
) -> None:
    done = run_python(FORWARD, PATH=empty_path, UOPC_BACKEND="interp")
    assert done.stdout == FORWARD_PRINTS
    assert done.stderr == ""


def test_python_itself_is_the_installed_one(run_python: Any) -> None:
    """The tests look at what pip installed, not at the folder they lie in."""
    done = run_python("import sys, uopc; print(sys.executable, uopc.__file__)")
    assert done.stdout == f"{sys.executable} None\n"

"""What the source may not contain, and what every package must."""

from __future__ import annotations

import ast
import os
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What tools leave behind.
GENERATED = {".git", ".nox", "__pycache__", ".venv", "venv", "build", "dist"}
PYTHON = sorted([*ROOT.glob("packages/*/src/**/*.py"), *ROOT.glob("examples/**/*.py")])
PACKAGES = sorted(
    folder
    for folder in ROOT.glob("packages/*/src/uopc/*")
    if folder.is_dir() and folder.name not in GENERATED
)
# These change results: infinities, signed zeros, NaNs or the order of sums.
UNSAFE_FLAGS = (
    "fast-math",
    "-Ofast",
    "-funsafe-math-optimizations",
    "-fassociative-math",
    "-freciprocal-math",
    "-ffinite-math-only",
    "-fno-signed-zeros",
    "-ffp-contract=fast",
    "-fopenmp",
)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def files(*patterns: str) -> list[Path]:
    """Files of the project by pattern, without what was built or installed."""
    found: list[Path] = []
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [name for name in inner if name not in GENERATED]
        wanted = [n for n in names if any(fnmatch(n, p) for p in patterns)]
        found += [Path(folder, name) for name in wanted]
    return sorted(found)


def docstrings(tree: ast.AST) -> set[int]:
    """The identities of the constants that are documentation."""
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }


def test_the_namespace_has_no_module_of_its_own() -> None:
    stray = [p for p in files("__init__.py*") if p.parent.name == "uopc"]
    stray += files("uopc.py", "uopc.so")
    assert [relative(p) for p in stray] == []


def test_the_namespace_holds_packages_only() -> None:
    for namespace in ROOT.glob("packages/*/src/uopc"):
        assert [p.name for p in namespace.iterdir() if p.is_file()] == []


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_every_package_is_a_typed_package(folder: Path) -> None:
    assert (folder / "__init__.py").is_file()
    assert (folder / "py.typed").is_file()
    for inner in (p.parent for p in folder.rglob("*.py")):
        assert (inner / "__init__.py").is_file(), f"{relative(inner)} is a namespace"


@pytest.mark.parametrize("name", ["erf", "ste"])
def test_third_parties_do_not_use_the_namespace(name: str) -> None:
    plugin = ROOT / f"examples/plugin_{name}/src"
    names = [p.name for p in plugin.iterdir() if p.name[0] not in "._"]
    assert names == [f"uopc_{name}"]
    assert (plugin / f"uopc_{name}/py.typed").is_file()


@pytest.mark.parametrize("file", PYTHON, ids=relative)
def test_no_text_is_run_as_python(file: Path) -> None:
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        name = node.id if isinstance(node, ast.Name) else ""
        assert name not in {"eval", "exec", "compile", "__import__"}, node.lineno
        if isinstance(node, ast.Attribute) and node.attr in {"eval", "exec"}:
            raise AssertionError(f"line {node.lineno}: .{node.attr}")


@pytest.mark.parametrize("file", PYTHON, ids=relative)
def test_no_flag_that_changes_results(file: Path) -> None:
    tree = ast.parse(file.read_text())
    skip = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in skip:
            used = [f for f in UNSAFE_FLAGS if f in str(node.value)]
            assert not used, f"line {node.lineno}: {used}"


def test_no_flag_that_changes_results_in_settings() -> None:
    for file in files("*.toml", "*.cfg", "*.c", "*.h", "noxfile.py"):
        used = [flag for flag in UNSAFE_FLAGS if flag in file.read_text()]
        assert not used, relative(file)

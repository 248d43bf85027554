"""What importing Tensor loads: what building a graph needs, and nothing else.

Times are for `benchmarks/importing.py`; here it is about what takes the time.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "packages/uopc-core/src/uopc"

# The packages that a graph is built with, and of some of them only these modules.
NEEDED: dict[str, set[str] | None] = {
    "exports": None,
    "config": None,
    "dtype": None,
    "uop": {
        "arguments", "callers", "casting", "collector", "convolution", "forking",
        "infer", "literal", "lowered", "meanings", "node", "opdef", "ops", "walk",
    },
    "composite": {"shape"},
    "runtime": {"buffers", "capture", "origins", "pages", "values"},
    "tensor": {
        "arithmetic", "base", "convolution", "einsum", "elements", "gather", "given",
        "keywords", "movement", "order", "pieces", "random", "reduction",
        "setitem", "tensor",
    },
}  # fmt: skip
# What others of the standard library and of our dependencies take long to import.
HEAVY = {
    "argparse", "asyncio", "concurrent", "csv", "ctypes", "difflib", "email", "hashlib",
    "importlib.metadata", "importlib.resources", "importlib.util", "ipaddress", "json",
    "logging", "multiprocessing", "pathlib", "pkgutil", "pluggy", "random", "shutil",
    "socket", "subprocess", "tempfile", "unittest", "urllib", "zipfile",
}  # fmt: skip
# Prints what a statement loads beyond what NumPy does.
LOADED = """
import sys
import numpy
before = set(sys.modules)
{statement}
print(*sorted(set(sys.modules) - before))
"""
# Packages that import on demand.
LAZY = sorted(
    path.parent.name
    for path in CORE.glob("*/__init__.py")
    if "on_demand(" in path.read_text() and path.parent.name != "exports"
)


def loaded(statement: str) -> set[str]:
    """The modules that a statement loads beyond NumPy's, in a fresh process."""
    program = LOADED.format(statement=statement)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "UOPC_BACKEND": "interp"},
    )
    return set(done.stdout.split())


def unneeded(modules: set[str]) -> set[str]:
    """Those of ``modules`` that nobody needs to build a graph."""
    found = {m for m in modules if any(f"{m}.".startswith(f"{h}.") for h in HEAVY)}
    for module in modules:
        top, _, rest = module.partition(".")
        package, _, inner = rest.partition(".")
        if top != "uopc" or not package:
            continue
        only = NEEDED.get(package, set())
        if package not in NEEDED or (inner and only is not None and inner not in only):
            found.add(module)
    return found


def test_importing_tensor_loads_only_what_builds_graphs() -> None:
    modules = loaded("import uopc.tensor")
    assert "uopc.tensor.tensor" in modules
    assert unneeded(modules) == set()


def test_building_a_graph_loads_no_compiler() -> None:
    modules = loaded("from uopc.tensor import Tensor; (Tensor([1.0]) * 2 + 1).sum()")
    assert unneeded(modules) == set()


def test_computing_loads_the_rest() -> None:
    """So the two tests above look in the right place."""
    modules = loaded("from uopc.tensor import Tensor; (Tensor([1.0]) * 2).numpy()")
    missed = unneeded(modules)
    assert {
        "pluggy",
        "uopc.plugins.host",
        "uopc.runtime.run",
        "uopc.kernelize.plan",
    } < (missed)


def imported_for_types(tree: ast.Module, package: str) -> dict[str, set[str]]:
    """By module of the package, the names that a file imports for type checkers."""
    found: dict[str, set[str]] = {}
    for guard in tree.body:
        if isinstance(guard, ast.If) and ast.unparse(guard.test) == "TYPE_CHECKING":
            for node in guard.body:
                assert isinstance(node, ast.ImportFrom), ast.unparse(node)
                module = str(node.module).removeprefix(f"uopc.{package}.")
                found[module] = {alias.name for alias in node.names}
    return found


def table_of(tree: ast.Module) -> dict[str, set[str]]:
    """The same as the table says it."""
    (call,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "on_demand"
    )
    table: dict[str, str] = ast.literal_eval(call.args[1])
    return {module: set(names.split()) for module, names in table.items()}


@pytest.mark.parametrize("package", LAZY)
def test_names_on_demand_are_those_that_type_checkers_see(package: str) -> None:
    tree = ast.parse((CORE / package / "__init__.py").read_text())
    table = table_of(tree)
    assert table == imported_for_types(tree, package)
    module = importlib.import_module(f"uopc.{package}")
    names = {name for names in table.values() for name in names}
    assert names < set(module.__all__)
    for name in module.__all__:
        value: Any = getattr(module, name)
        assert not isinstance(value, ModuleType), f"{name} is hidden by a module"
    with pytest.raises(AttributeError, match=f"'uopc.{package}' has no attribute 'no'"):
        _ = module.no


@functools.cache
def imports() -> dict[Path, tuple[ast.Import | ast.ImportFrom, ...]]:
    """By file, every import in our distributions."""
    return {
        file: tuple(
            node
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, (ast.Import, ast.ImportFrom))
        )
        for file in sorted(ROOT.glob("packages/*/src/uopc/**/*.py"))
    }


@pytest.mark.parametrize("package", LAZY)
def test_no_import_hides_a_name_on_demand(package: str) -> None:
    """``import uopc.runtime.jit`` would make ``uopc.runtime.jit`` the module."""
    module = importlib.import_module(f"uopc.{package}")
    hidden = {f"uopc.{package}.{name}" for name in module.__all__}
    for file, nodes in imports().items():
        if file == CORE / package / "__init__.py":
            continue
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                assert node.module not in hidden, f"{file}: {node.module}"
            else:
                assert not {alias.name for alias in node.names} & hidden, file

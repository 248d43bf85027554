"""Who may import whom: the layers of core, no private path out of it, no cycles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "packages/uopc-core/src/uopc"

# From the bottom up. Packages of one row may import each other, without cycles.
LAYERS = (
    {"config", "exports"},
    {"dtype"},
    {"uop"},
    {"plugins"},
    {"spec", "uir", "simplify"},
    {"composite"},
    {"kernelize"},
    {"rangeify"},
    {"schedule"},
    {"runtime", "interp"},
    {"tensor"},
    {"cli", "testing"},
)
LEVEL = {package: i for i, row in enumerate(LAYERS) for package in row}
# Core's own plugin ties the parts together, as plugins of others do: nothing imports
# it, the entry point names it.
BUILTIN_PLUGIN = "uopc.plugins.builtin"
# Which packages of this project each distribution may use besides its own.
BELOW = {
    "uopc-core": set(),
    "uopc-autodiff": set(LEVEL),
    "uopc-backend-c": set(LEVEL),
    "uopc-nn": {*LEVEL, "autodiff"},
}
OTHERS = re.compile(r"\buopc\.(autodiff|backend_c|nn)\b")


def module_name(file: Path) -> str:
    """``uopc.uop.node`` for its file, ``uopc.uop`` for the package's."""
    parts = file.with_suffix("").parts
    parts = parts[parts.index("src") + 1 :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {
    module_name(file): ast.parse(file.read_text(), str(file))
    for file in sorted(ROOT.glob("packages/*/src/uopc/**/*.py"))
}
OWNER = {
    folder.name: folder.parents[2].name
    for folder in ROOT.glob("packages/*/src/uopc/*")
    if (folder / "__init__.py").is_file()
}


def statements(tree: ast.AST, *, everything: bool) -> Iterator[ast.AST]:
    """The nodes of a file; only what its import runs, unless ``everything``."""
    for node in ast.iter_child_nodes(tree):
        if not everything:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                continue
        yield node
        yield from statements(node, everything=everything)


def imports(tree: ast.AST, *, everything: bool = True) -> set[str]:
    """The modules of this project that a file imports, by full name."""
    found: set[str] = set()
    for node in statements(tree, everything=everything):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                whole = inner in SOURCES or node.module == "uopc"
                found.add(inner if whole else str(node.module))
    return {name for name in found if name.split(".")[0] == "uopc"}


def package(module: str) -> str:
    return module.split(".")[1]


def test_every_package_of_core_has_a_layer() -> None:
    folders = {p.name for p in CORE.iterdir() if p.is_dir() and p.name[0] != "_"}
    assert folders == set(LEVEL)
    assert set(OWNER.values()) == set(BELOW)


@pytest.mark.parametrize("module", SOURCES)
def test_imports_go_down(module: str) -> None:
    own = package(module)
    for name in imports(SOURCES[module]):
        target = package(name)
        if target == own:
            continue
        if OWNER[own] != "uopc-core":
            siblings = {p for p, owner in OWNER.items() if owner == OWNER[own]}
            assert target in BELOW[OWNER[own]] | siblings
        elif module != BUILTIN_PLUGIN:
            assert target in LEVEL, f"core imports {name}"
            assert LEVEL[target] <= LEVEL[own], f"{own} imports {name}, which is above"


def test_nothing_imports_the_builtin_plugin() -> None:
    users = [m for m, tree in SOURCES.items() if BUILTIN_PLUGIN in imports(tree)]
    assert users == []


def test_layers_have_no_exceptions_at_run_time() -> None:
    """What the type checker alone imports, or a function, must obey as well."""
    upward = "from uopc.tensor import Tensor"
    for text in (
        f"if TYPE_CHECKING:\n    {upward}",
        f"def f():\n    {upward}",
        "import uopc.tensor.base",
        "from uopc import tensor",
    ):
        found = imports(ast.parse(text))
        assert {package(name) for name in found} == {"tensor"}, text


def test_core_names_no_other_distribution() -> None:
    """Not in an import, a string that could be one, or an attribute."""
    for module, tree in SOURCES.items():
        if OWNER[package(module)] != "uopc-core":
            continue
        for node in ast.walk(tree):
            words: list[str] = []
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = [node.value]
            elif isinstance(node, ast.Name):
                words = [f"uopc.{node.id}"]
            elif isinstance(node, ast.Attribute):
                words = [f"uopc.{node.attr}"]
            elif isinstance(node, ast.Import):
                words = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                words = [f"{node.module}.{alias.name}" for alias in node.names]
            assert not [w for w in words if OTHERS.search(w)], f"{module}: {words}"


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """A way from a node back to itself, or nothing."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return path[path.index(node) :]
        if node in done:
            return []
        for target in sorted(graph.get(node, ())):
            if found := visit(target, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in graph if (found := visit(node, []))), [])


def test_no_import_cycles_among_modules() -> None:
    graph = {m: imports(tree, everything=False) for m, tree in SOURCES.items()}
    assert cycle(graph) == []


def test_no_import_cycles_among_packages() -> None:
    """Not even where a function or the type checker alone closes the circle."""
    graph: dict[str, set[str]] = {}
    for module, tree in SOURCES.items():
        if module != BUILTIN_PLUGIN:
            targets = {package(name) for name in imports(tree)} - {package(module)}
            graph.setdefault(package(module), set()).update(targets)
    assert cycle(graph) == []


def test_a_cycle_would_be_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []

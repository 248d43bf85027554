"""What the documents list is what the code has: variables, hooks, distributions."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from uopc.config import VARIABLES
from uopc.plugins import hookspecs

ROOT = Path(__file__).parents[2]
HOOKS = (ROOT / "docs/hooks.md").read_text()
SPECS = {
    name: function
    for name, function in vars(hookspecs).items()
    if name.startswith("uopc_") and inspect.isfunction(function)
}
# What each registering hook is given, and the text of the call.
GIVEN = {
    "uopc_register_ops": (hookspecs.OpRegister.__call__, "register"),
    "uopc_register_vjps": (hookspecs.VjpRegister.__call__, "register"),
    "uopc_register_jvps": (hookspecs.JvpRegister.__call__, "register"),
    "uopc_register_batchings": (hookspecs.BatchingRegister.__call__, "register"),
    "uopc_register_rewrites": (hookspecs.RewritesRegister.__call__, "register"),
    "uopc_register_backends": (hookspecs.BackendRegister.__call__, "register"),
    "uopc_register_spellings": (hookspecs.SpellingRegister.__call__, "register"),
    "uopc_register_commands": (hookspecs.CommandAdder.add, "cli.add"),
}


def signature(function: Any) -> str:
    """The signature as its author wrote it, without self."""
    found = inspect.signature(function)
    parameters = [p for p in found.parameters.values() if p.name != "self"]
    return str(found.replace(parameters=parameters)).replace("'", "")


def default_text(value: object) -> str:
    if value in ("", ()):
        return "empty"
    return str(int(value)) if isinstance(value, bool) else str(value)


def test_the_table_of_variables_is_the_one_in_the_code() -> None:
    text = (ROOT / "docs/environment.md").read_text()
    rows = re.findall(r"^\| `UOPC_.*$", text, re.M)
    assert rows == [
        f"| `{v.name}` | {default_text(v.default)} | {v.doc} |" for v in VARIABLES
    ]


def test_every_variable_is_explained() -> None:
    text = (ROOT / "docs/environment.md").read_text()
    explained = re.findall(r"^\*\*(UOPC_\w+)\*\*", text, re.M)
    assert sorted(explained) == sorted(v.name for v in VARIABLES)


def test_no_document_names_a_variable_that_is_not_there() -> None:
    known = {v.name for v in VARIABLES}
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/*/*.md")]:
        named = set(re.findall(r"\bUOPC_[A-Z_]*[A-Z]\b", path.read_text()))
        assert named <= known, path


def test_every_hook_is_documented_with_its_exact_signature() -> None:
    headings = re.findall(r"^### `(uopc_.*)`$", HOOKS, re.M)
    assert sorted(headings) == sorted(
        f"{name}{signature(function)}" for name, function in SPECS.items()
    )


@pytest.mark.parametrize("hook", GIVEN)
def test_what_a_hook_is_given_is_documented_with_its_exact_signature(hook: str) -> None:
    function, call = GIVEN[hook]
    section = HOOKS.partition(f"### `{hook}(")[2].partition("\n##")[0]
    assert f"\n`{call}{signature(function)}`\n" in section


def test_all_registering_hooks_are_among_them() -> None:
    assert set(GIVEN) == {name for name in SPECS if name.startswith("uopc_register_")}


def test_the_names_in_the_signatures_can_be_imported() -> None:
    from uopc import plugins

    for name in set(re.findall(r"\b\w+Register\b|\bCommandAdder\b", HOOKS)):
        assert hasattr(plugins, name)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 210


def test_the_readme_has_every_distribution_and_page() -> None:
    text = (ROOT / "README.md").read_text()
    for folder in sorted((ROOT / "packages").iterdir()):
        assert f"`{folder.name}`" in text
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert f"(docs/{page.name})" in text


def test_the_readme_has_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "python -m pip install nox && python -m nox -s demo\n" in text
    assert "python -m pip install nox && python -m nox\n" in text


def test_the_changelog_begins_with_the_current_version() -> None:
    project = tomllib.loads((ROOT / "packages/uopc-core/pyproject.toml").read_text())
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert first is not None
    assert first[1] == project["project"]["version"]

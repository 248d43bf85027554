"""No lock that a fork may leave held for ever."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(ROOT.glob("packages/*/src/**/*.py"))
# Their locks are those of plans and of jitted functions; a child starts with new ones.
# And that of forks themselves, which the one who forks holds.
FORGOTTEN_AT_FORKS = {
    "uopc/uop/forking.py",
    "uopc/runtime/backends.py",
    "uopc/runtime/jitting/function.py",
}


def name(node: ast.expr) -> str:
    """The last part of what is called."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: f.stem)
def test_every_lock_is_safe_at_forks(file: Path) -> None:
    tree = ast.parse(file.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    safe = {
        argument
        for call in calls
        if name(call.func) == "fork_safe"
        for argument in call.args
    }
    # A Condition with an argument is of a lock that is there.
    made = [c for c in calls if name(c.func) in ("Lock", "RLock", "Condition")]
    locks = {call for call in made if not call.args}
    if not any(file.match(f"*/{known}") for known in FORGOTTEN_AT_FORKS):
        assert not [lock.lineno for lock in locks - safe]
    # In Python 3.11 it takes a lock that all instances of a class share.
    names = {
        name(node)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Name, ast.Attribute))
    }
    assert "cached_property" not in names, "use uopc.uop.lazy"

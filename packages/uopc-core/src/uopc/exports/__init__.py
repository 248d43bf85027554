"""Packages whose modules are imported with the first of their names that is asked for.

Importing `uopc.tensor` shall cost little, and most programs use few of the functions
that a package offers. Such a package has the names three times, which a test compares:
in `__all__`, in imports for type checkers, and in the table for `on_demand`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["on_demand"]


def on_demand(package: str, table: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package.

    Args:
        package: its ``__name__``.
        table: by module, the names in it that the package offers, with spaces between.
            Nothing but this table may import a module that is called as one of the
            names: Python would bind the module to the name.

    A name is asked for once: it is bound in the package then. What is not in the table
    raises AttributeError.
    """
    home = {name: module for module, names in table.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find

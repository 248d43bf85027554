"""Nested structures: tuples, lists, dicts, named tuples, dataclasses, None.

Whatever else a structure holds is a leaf; so is a dataclass that its constructor would
not make anew from its fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Structure:
    """What is left of a nested structure without its leaves.

    Attributes:
        kind: the type of the container; None for a leaf.
        keys: names of its parts: positions, keys of a dict, or names of fields.
        parts: their structures.
    """

    kind: type | None = None
    keys: tuple[Any, ...] = ()
    parts: tuple[Structure, ...] = ()

    @property
    def size(self) -> int:
        """How many leaves it has."""
        return 1 if self.kind is None else sum(p.size for p in self.parts)

    def filled(self, leaves: Sequence[Any]) -> Any:
        """The structure with these leaves, in order."""
        return self._built(iter(leaves))

    def _built(self, leaves: Iterator[Any]) -> Any:
        if self.kind is None:
            return next(leaves)
        if self.kind is type(None):
            return None
        values = [p._built(leaves) for p in self.parts]
        if self.kind in (tuple, list):
            return self.kind(values)
        named = dict(zip(self.keys, values, strict=True))
        return named if self.kind is dict else self.kind(**named)

    def leaves_of(self, tree: Any) -> list[Any] | None:
        """The leaves of a tree of this structure, in order; None of any other tree."""
        leaves: list[Any] = []
        return leaves if self._collect(tree, leaves) else None

    def _collect(self, tree: Any, leaves: list[Any]) -> bool:
        kind: Any = self.kind
        if kind is None:
            leaves.append(tree)
            return True
        if type(tree) is not kind:
            return False
        if kind is dict:
            if tuple(tree) != self.keys:
                return False
            tree = tree.values()
        elif tree is None:
            return True
        elif not issubclass(kind, (tuple, list)):
            tree = [getattr(tree, key) for key in self.keys]
        if len(tree) != len(self.parts):
            return False
        for part, value in zip(self.parts, tree, strict=True):
            if part.kind is None:
                leaves.append(value)
            elif not part._collect(value, leaves):
                return False
        return True

    def paths(self, root: str) -> list[str]:
        """How to get at each leaf, in Python's words."""
        if self.kind is None:
            return [root]
        named = self.kind is not dict and bool(self.keys)
        found: list[str] = []
        for i, part in enumerate(self.parts):
            key = self.keys[i] if self.keys else i
            step = f".{key}" if named else f"[{key!r}]"
            found += part.paths(root + step)
        return found


LEAF = Structure()


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a nested structure, in order, and the structure itself."""
    leaves: list[Any] = []
    return leaves, _structure(tree, leaves)


def _structure(tree: Any, leaves: list[Any]) -> Structure:
    kind = type(tree)
    keys: tuple[Any, ...] = ()
    if tree is None:
        values: Sequence[Any] = ()
    elif kind in (tuple, list):
        values = tree
    elif kind is dict:
        keys, values = tuple(tree), list(tree.values())
    elif isinstance(tree, tuple) and hasattr(kind, "_fields"):
        keys, values = tuple(kind._fields), tree
    elif _is_record(kind):  # type: ignore[arg-type]
        keys = tuple(f.name for f in dataclasses.fields(tree) if f.init)
        values = [getattr(tree, key) for key in keys]
    else:
        leaves.append(tree)
        return LEAF
    return Structure(kind, keys, tuple([_structure(v, leaves) for v in values]))


@cache
def _is_record(kind: Any) -> bool:
    """Whether a class is a dataclass whose fields are what its constructor takes."""
    if not dataclasses.is_dataclass(kind):
        return False
    # With those that are arguments of the constructor alone, or of the class.
    found: Any = kind.__dataclass_fields__.values()
    initial = ("InitVar", "dataclasses.InitVar")
    alone = [f for f in found if str(f.type).startswith(initial)]
    return not alone and all(f.init for f in dataclasses.fields(kind))


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """The structure with a function applied to every leaf."""
    leaves, structure = flatten(tree)
    return structure.filled([function(leaf) for leaf in leaves])

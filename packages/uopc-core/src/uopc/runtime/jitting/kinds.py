"""What kinds of things Python code can see, and how they are read by C functions alone.

A class may say that its objects have another `__dict__`, and their class another name:
here is asked what the interpreter itself has.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple

_FOREIGN = {*sys.stdlib_module_names, "numpy", "uopc", "pluggy", "builtins"} - {
    "__main__"
}
# Of objects of other foreign types, such as a logger, nothing but the attributes
# themselves is watched.
DEEP = {"argparse", "collections", "enum", "functools", "types", "uopc"}
# Parts of a class that no method reads.
IDLE = {
    "__annotations__", "__dataclass_fields__", "__dataclass_params__", "__doc__",
    "__module__",
}  # fmt: skip

mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
class_space: Callable[[type], Any] = type.__dict__["__dict__"].__get__
class_module: Callable[[type], Any] = type.__dict__["__module__"].__get__
dict_offset: Callable[[type], int] = type.__dict__["__dictoffset__"].__get__
module_space: Callable[[Any], Any] = vars(ModuleType)["__dict__"].__get__
cell_contents: Callable[[Any], Any] = CellType.__dict__["cell_contents"].__get__
of_function = attrgetter("__code__", "__defaults__", "__kwdefaults__", "__dict__")
code_of = attrgetter("__code__", "__defaults__", "__kwdefaults__")

# What holds others for good.
HOLDERS: dict[type, tuple[str, ...]] = {
    BuiltinMethodType: ("__self__",),
    MethodWrapperType: ("__self__",),
    MethodType: ("__self__", "__func__"),
    classmethod: ("__func__",),
    functools.partial: ("func", "args", "keywords"),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
}
# The items of containers, their number, and their names.
ITEMS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], int]]] = {
    deque: (deque.__iter__, deque.__len__),
    dict: (dict.values, dict.__len__),
    list: (list.__iter__, list.__len__),
    set: (set.__iter__, set.__len__),
}

kind_name: Callable[[type], str] = type.__dict__["__name__"].__get__
_USES_GLOBAL = {
    "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_GLOBAL", "LOAD_NAME",
    "STORE_GLOBAL",
}  # fmt: skip


def part(name: str, n: str, plain: bool) -> str:
    """What to call a part of a holder."""
    if n in ("__self__", "func", "fget"):
        return name or "self"
    return name if plain else f"{name}.{n}"


def space_reader(bases: Sequence[type]) -> Callable[[Any], Any] | None:
    """What gives the `__dict__` of an object, whatever its class says that is."""
    for base in bases:
        found = class_space(base).get("__dict__")
        if type(found) in (GetSetDescriptorType, MemberDescriptorType):
            read: Callable[[Any], Any] = found.__get__
            return read
    return None


def is_iterator(bases: Sequence[type]) -> bool:
    """Whether what comes next is known to C code alone; files are as well."""
    for base in bases:
        if "__next__" in class_space(base):
            step = class_space(base)["__next__"]
            is_native = type(step) is WrapperDescriptorType
            return is_native and class_module(base) != "_io"
    return False


def absolute(space: Any, name: str, level: int) -> str:
    """The full name of a module that is imported."""
    if not level:
        return name
    package = space.get("__package__") or str(space.get("__name__"))
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *filter(None, [name])])


def is_foreign(kind: type) -> bool:
    """Whether a class is Python's, NumPy's or uopc's."""
    return is_foreign_name(class_module(kind))


def is_foreign_name(module: Any) -> bool:
    """Whether a module of this name is."""
    return top(module) in _FOREIGN


def top(module: Any) -> str:
    """The package at the top of a module's name; empty if that is no name."""
    return module.partition(".")[0] if type(module) is str else ""


class Names(NamedTuple):
    """What code names, and that of the functions in it.

    Attributes:
        used: globals that it reads or sets.
        attributes: all names, of which some are of attributes.
        imports: modules that it imports, with the number of dots before them.
    """

    used: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[tuple[str, int]]


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> Names:
    """What a function's code names."""
    codes = list(_codes(code))
    used, imports = set[str](), set[tuple[str, int]]()
    for one in codes:
        values: list[Any] = [None, None]
        for instruction in dis.get_instructions(one):
            if instruction.opname in _USES_GLOBAL:
                used.add(instruction.argval)
            elif instruction.opname == "IMPORT_NAME":
                # The level and the names that are wanted were put on the stack.
                level = values[-2] if isinstance(values[-2], int) else 0
                imports.add((instruction.argval, level))
            values.append(instruction.argval)
    attributes = frozenset(n for one in codes for n in one.co_names)
    return Names(frozenset(used), attributes, frozenset(imports))


def _codes(code: CodeType) -> Iterator[CodeType]:
    stack = [code]
    while stack:
        one = stack.pop()
        yield one
        stack += [c for c in one.co_consts if isinstance(c, CodeType)]

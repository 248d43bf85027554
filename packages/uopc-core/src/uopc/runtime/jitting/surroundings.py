"""What a Python function can see without its arguments, and whether it has changed.

That is: closure cells, the globals that its code names, default values, and what these
and its arguments hold: the items of lists and dicts, the attributes of objects, the
methods of their classes, other functions; and so on, but not into modules of Python,
NumPy and uopc.
"""

from __future__ import annotations

import dis
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, is_, itemgetter
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

# Of longer containers, such as a data set, only the length is watched.
MOST_ITEMS = 1000
MOST_CONTAINERS = 10_000

_SCALARS = (int, float, complex, str, bytes, type(None))
_FOREIGN = {*sys.stdlib_module_names, "numpy", "uopc", "pluggy", "builtins"} - {
    "__main__"
}
_EMPTY: Any = object()  # in a closure cell that has no value yet


@dataclass(frozen=True)
class Watch:
    """Some places in one container, and what was in them.

    Attributes:
        name: how the container is called, for messages.
        keys: the names of the places.
        found: what was there.
        read: gives what is there now, of `container`; None if that cannot change.
        container: the container.
        length: how many items it had; -1 where more of them mean nothing.
    """

    name: str
    keys: tuple[str, ...]
    found: tuple[Any, ...]
    read: Callable[[Any], Iterable[Any]] | None = None
    container: Any = None
    length: int = -1

    def change(self) -> str:
        """What is different now, in words; empty if nothing is."""
        if self.length >= 0 and len(self.container) != self.length:
            return f"{self.name} has {len(self.container)} items and had {self.length}"
        if self.read is None:
            return ""
        try:
            now = tuple(self.read(self.container))
        except (LookupError, AttributeError):
            return f"a part of {self.name} is gone"
        for key, is_now, was in zip(self.keys, now, self.found, strict=False):
            if not same(is_now, was):
                return f"{self.name}{key} {difference(is_now, was)}"
        return ""


def same(a: Any, b: Any) -> bool:
    """Whether two things are one, or equal numbers or strings of one type."""
    return a is b or (type(a) is type(b) and isinstance(a, _SCALARS) and a == b)


def difference(now: Any, was: Any) -> str:
    """How to say that something has changed."""
    if all(isinstance(x, _SCALARS) and len(repr(x)) < 40 for x in (now, was)):
        return f"is {now!r} and was {was!r}"
    return f"is another {type(now).__name__}"


class Surroundings:
    """What a function can see now; `change` tells whether that is different later.

    Args:
        function: the function.
        things: what it is given besides: objects among its arguments, by name.
        leaf: which objects are not looked into: tensors.

    Attributes:
        leaves: those that were found, by identity.
        whole: whether all of it is watched; else there was too much.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        things: Iterable[tuple[str, Any]],
        leaf: Callable[[Any], bool],
    ) -> None:
        self.leaves: dict[int, Any] = {}
        self.whole = True
        self._watches: list[Watch] = []  # of what can change
        self._leaf = leaf
        # The objects themselves, so that no new one takes the id of another.
        seen: dict[int, Any] = {}
        stack = [("", function), *things]
        while stack:
            name, item = stack.pop()
            if isinstance(item, _SCALARS) or id(item) in seen:
                continue
            seen[id(item)] = item
            if leaf(item):
                self.leaves[id(item)] = item
                continue
            if len(self._watches) >= MOST_CONTAINERS:
                self.whole = False
                break
            deep = not _is_shallow(item)
            for watch in _watches(name, item):
                if watch.read is not None or watch.length >= 0:
                    self._watches.append(watch)
                for key, value in zip(watch.keys, watch.found, strict=True):
                    if deep or leaf(value):
                        stack.append((f"{watch.name}{key}", value))
        self._quick = [
            (w, w.read or _nothing, w.container, w.found, w.length)
            for w in self._watches
        ]

    def change(self) -> str:
        """The first thing that is different now, in words; empty if nothing is."""
        for watch, read, container, found, length in self._quick:
            try:
                if all(map(is_, read(container), found)) and (
                    length < 0 or len(container) == length
                ):
                    continue
            except (LookupError, AttributeError):
                pass
            if words := watch.change():
                return words
        return ""


def _nothing(_: Any) -> tuple[Any, ...]:
    return ()


def _watches(name: str, item: Any) -> Iterator[Watch]:
    """The places in one object."""
    wrapped = vars(item).get("__wrapped__") if hasattr(item, "__dict__") else None
    if isinstance(item, FunctionType):
        yield from _of_function(name, item)
    elif wrapped is not None and _is_foreign(type(item)):
        yield Watch("", (name,), (wrapped,))
    elif isinstance(item, partial):
        bound = (item.func, item.args, item.keywords)
        yield Watch(name, ("", ".args", ".keywords"), bound)
    elif isinstance(item, MethodType):
        yield Watch(name, ("", ""), (item.__self__, item.__func__))
    elif isinstance(item, (list, dict, set, deque)):
        yield _of_container(name, item)
    elif isinstance(item, (tuple, frozenset)):
        yield Watch(name, _numbered(tuple(item)), tuple(item))
    elif isinstance(item, type):
        if not _is_foreign(item):
            yield from _of_names(name, list(vars(item)), vars(item), ".")
    elif not isinstance(item, ModuleType):
        yield from _of_object(name, item)


def _of_function(name: str, f: FunctionType) -> Iterator[Watch]:
    if _is_foreign(f):
        return
    cells = f.__closure__ or ()
    if cells:
        keys = tuple(f.__code__.co_freevars)
        yield Watch("", keys, tuple(map(_content, cells)), _contents, cells)
    codes = list(_codes(f.__code__))
    names = sorted({n for code in codes for n in _globals(code)})
    space = f.__globals__
    yield from _of_names("", [n for n in names if n in space], space, "")
    attributes = sorted({n for code in codes for n in code.co_names})
    for n in names:
        module = space.get(n)
        if isinstance(module, ModuleType) and not _is_foreign_name(module.__name__):
            inner = vars(module)
            found = [m for m in attributes if m in inner]
            yield from _of_names(module.__name__, found, inner, ".")
    defaults = _defaults(f)
    if defaults:
        keys = tuple(f"default {i} of {f.__name__}" for i in range(len(defaults)))
        yield Watch("", keys, defaults, _defaults, f)


def _defaults(f: FunctionType) -> tuple[Any, ...]:
    return (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values())


def _contents(cells: Iterable[CellType]) -> list[Any]:
    return [_content(c) for c in cells]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _globals(code: CodeType) -> Iterator[str]:
    """The globals that code names; it also has the names of attributes."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval


def _numbered(items: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(f"[{i}]" for i in range(len(items)))


def _of_container(name: str, item: Any) -> Watch:
    if len(item) > MOST_ITEMS:
        return Watch(name, (), (), None, item, len(item))
    if not isinstance(item, dict):
        parts = tuple(item)
        return Watch(name, _numbered(parts), parts, iter, item, len(item))
    keys = tuple(f"[{k!r}]" for k in item)
    read = _reader(list(item))
    return Watch(name, keys, tuple(item.values()), read, item, len(item))


def _of_object(name: str, item: Any) -> Iterator[Watch]:
    """The attributes of an object, and its class unless it is somebody else's."""
    space = getattr(item, "__dict__", None)
    if isinstance(space, dict):
        yield from _of_names(name, list(space), space, ".", len(space))
    kind = type(item)
    slots = [
        n for c in kind.__mro__ for n in _slots(c)
        if n not in ("__dict__", "__weakref__") and hasattr(item, n)
    ]  # fmt: skip
    if slots and (space is not None or not _is_foreign(kind)):
        read = attrgetter(*slots) if len(slots) > 1 else attrgetter(*slots * 2)
        keys = tuple(f".{n}" for n in slots)
        yield Watch(name, keys, tuple(getattr(item, n) for n in slots), read, item)
    if not _is_foreign(kind):
        parts = tuple(c for c in kind.__mro__ if not _is_foreign(c))
        yield Watch("", tuple(c.__name__ for c in parts), parts)


def _slots(kind: type) -> Sequence[str]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _of_names(
    name: str, found: Sequence[str], space: Any, dot: str, length: int = -1
) -> Iterator[Watch]:
    """Names in a namespace."""
    if found:
        keys = tuple(f"{dot}{n}" for n in found)
        values = tuple(space[n] for n in found)
        yield Watch(name, keys, values, _reader(found), space, length)


def _reader(keys: Sequence[Any]) -> Callable[[Any], Iterable[Any]]:
    """What gives the values of some keys, as fast as Python can."""
    if not keys:
        return _nothing
    return itemgetter(*keys) if len(keys) > 1 else itemgetter(*keys, *keys)


def _is_shallow(item: Any) -> bool:
    """Whether only the attributes themselves are watched, as of a logger."""
    top = type(item).__module__.partition(".")[0]
    plain = isinstance(item, (list, dict, tuple, set, frozenset, deque, partial))
    called = isinstance(item, (FunctionType, MethodType, type))
    return top in _FOREIGN and top != "uopc" and not plain and not called


def _is_foreign(item: Any) -> bool:
    return _is_foreign_name(str(getattr(item, "__module__", None)))


def _is_foreign_name(module: str) -> bool:
    return module.partition(".")[0] in _FOREIGN

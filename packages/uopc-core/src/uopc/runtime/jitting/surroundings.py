"""What a Python function can see without its arguments, and whether it has changed.

That is: closure cells, the globals that its code names, default values, and what these
and its arguments hold: the items of lists and dicts, the attributes of objects, the
methods of their classes, other functions; and so on, but not into modules of Python,
NumPy and uopc.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from operator import itemgetter
from types import (
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any

from uopc.runtime.jitting.kinds import (
    DEEP,
    HOLDERS,
    IDLE,
    ITEMS,
    absolute,
    cell_contents,
    class_module,
    class_space,
    code_of,
    dict_offset,
    is_foreign,
    is_foreign_name,
    is_iterator,
    kind_name,
    module_space,
    mro,
    names_of,
    of_function,
    part,
    space_reader,
    top,
)
from uopc.runtime.jitting.watches import (
    EMPTY,
    Collection,
    difference,
    is_scalar,
    key_text,
    number,
    same,
)

__all__ = ["MOST_CONTAINERS", "MOST_ITEMS", "Surroundings", "difference", "same"]

# Of longer containers, such as a data set, only the length is watched.
MOST_ITEMS = 1000
MOST_CONTAINERS = 10_000


class Surroundings:
    """What a function can see now; `change` tells whether that is different later.

    Args:
        function: the function.
        things: what it is given besides: objects among its arguments, by name. They
            are not kept alive, if they can be referred to weakly.
        leaf: which objects are not looked into: tensors.

    Attributes:
        leaves: those that were found, by identity.
        whole: whether all of it is watched; else there was too much.
        unseen: the names of iterators of Python's own: nobody can see where they are.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        things: Iterable[tuple[str, Any]],
        leaf: Callable[[Any], bool],
    ) -> None:
        walk = _Walk([*things, ("", function)], leaf)
        walk.all()
        self.leaves, self.whole, self.unseen = walk.leaves, walk.whole, walk.unseen
        self._watches = walk.found.all()

    def change(self) -> str:
        """The first thing that is different now, in words; empty if nothing is."""
        for watches in self._watches:
            if words := watches.change():
                return words
        return ""


class _Walk:
    """Goes through all that can be seen, and collects the places."""

    def __init__(
        self, stack: list[tuple[str, Any]], leaf: Callable[[Any], bool]
    ) -> None:
        self._stack, self._leaf = stack, leaf
        # The objects themselves, so that no new one takes the id of another.
        self._seen: dict[int, Any] = {}
        # Namespaces of modules: the names in use, what to call them, what was there.
        self._spaces: dict[int, tuple[Any, dict[str, tuple[str, Any]], set[str]]] = {}
        self._modules: list[Any] = []
        self._attributes: set[str] = set()
        self.leaves: dict[int, Any] = {}
        self.whole = True
        self.unseen: list[str] = []
        self.found = Collection(id(item) for _, item in stack[:-1])

    def all(self) -> None:
        """Look at everything."""
        while self._stack:
            self._empty_stack()
            # Any code may get at any module: by a variable, or as an attribute.
            for module in self._modules:
                space = module_space(module)
                found = [n for n in self._attributes if n in space]
                self._use(space, f"{space.get('__name__')}.", found)
        for space, used, absent in self._spaces.values():
            if used:
                places = [*used.values(), next(iter(used.values()))]
                read = itemgetter(*used, next(iter(used)))  # a tuple, even of one
                names = [n for n, _ in places]
                self.found.add(names, read, space, [x for _, x in places], spread=True)
            if absent:
                disjoint, names = space.keys().isdisjoint, [", ".join(sorted(absent))]
                self.found.add(names, disjoint, tuple(absent), [True], words=_appeared)

    def _empty_stack(self) -> None:
        while self._stack:
            name, item = self._stack.pop()
            if is_scalar(item) or id(item) in self._seen:
                continue
            if self.found.containers >= MOST_CONTAINERS:
                self.whole = False
                self._stack.clear()
                return
            self._seen[id(item)] = item
            try:
                self._look(name, item)
            except Exception:
                self.whole = False  # it lies about what it is

    def _is_leaf(self, item: Any) -> bool:
        try:
            return self._leaf(item)
        except Exception:
            return False  # no tensor does that

    def _look(self, name: str, item: Any) -> None:
        kind = type(item)
        bases = mro(kind)
        if self._is_leaf(item):
            self.leaves[id(item)] = item
            if not is_foreign(kind):
                self._look_at_object(
                    name, item, [c for c in bases if not is_foreign(c)]
                )
        elif issubclass(kind, ModuleType):
            if not is_foreign_name(module_space(item).get("__name__")):
                self._modules.append(item)
        elif kind is FunctionType:
            self._look_at_function(item)
        elif issubclass(kind, type):
            if not is_foreign(item):
                self._look_at_class(item)
        elif is_iterator(bases):
            self.unseen.append(name or kind_name(kind))
        elif kind is ContextVar:
            self._look_at_place(f"{name}.get()", item.get, EMPTY)
        else:
            self._look_at_items(name, item, bases)
            self._look_at_object(name, item, bases)

    def _look_at_place(
        self, name: str, read: Callable[[Any], Any], item: Any, refers: bool = False
    ) -> None:
        try:
            found = read(item)
        except (AttributeError, ValueError):
            # A slot or a cell without a value; these are few, and may be slow.
            read, found = functools.partial(_value_or_empty, read), EMPTY
        self.found.add([name], read, item, [found], refers=refers)
        self._stack.append((name, found))

    def _look_at_function(self, f: FunctionType) -> None:
        title = f.__name__
        names = [f"{a}{title}" for a in ("the code of ", "a default of ", "", "")]
        self._watch_function(names, f)
        self._stack.append((f"a default of {title}", f.__defaults__))
        self._stack.append((f"the defaults of {title}", f.__kwdefaults__))
        self._look_at_space(title, f.__dict__)
        cells = zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
        for name, cell in cells:
            self._look_at_place(name, cell_contents, cell)
        space = f.__globals__
        if is_foreign_name(space.get("__name__")):
            return
        used, attributes, imports = names_of(f.__code__)
        self._attributes |= attributes
        self._use(space, "", used)
        modules = {absolute(space, *i) for i in imports}
        modules |= {top(m) for m in modules}  # `import a.b` gives a
        self._use(sys.modules, "module ", [m for m in modules if m in sys.modules])

    def _use(self, space: Any, prefix: str, names: Iterable[str]) -> None:
        """Watch some names of a namespace."""
        _, found, absent = self._spaces.setdefault(id(space), (space, {}, set()))
        for n in names:
            if n not in space:
                absent.add(n)
            elif n not in found:
                found[n] = (f"{prefix}{n}", space[n])
                self._stack.append(found[n])

    def _look_at_class(self, kind: type) -> None:
        title = kind_name(kind)
        self._look_at_place(f"the order of bases of {title}", mro, kind)
        self._stack += [("", c) for c in (*mro(kind), type(kind))]
        self._look_at_space(title, *gc.get_referents(class_space(kind)))

    def _look_at_items(self, name: str, item: Any, bases: Sequence[type]) -> None:
        """The items of a container of Python's, and what a wrapper is of."""
        for base in filter(is_foreign, bases):
            if base in ITEMS:
                self._look_at_container(name, item, base)
            elif base in HOLDERS:
                found = [(n, base.__dict__[n].__get__(item)) for n in HOLDERS[base]]
                plain = base is not functools.partial
                self._stack += [(part(name, n, plain), x) for n, x in found]
            elif base is tuple or base is frozenset:
                self._stack += [(f"{name}[{i}]", x) for i, x in enumerate(item)]
            elif base is MappingProxyType:
                self._stack += [(name, x) for x in gc.get_referents(item)]
            elif base is defaultdict:
                read = defaultdict.__dict__["default_factory"].__get__
                self._look_at_place(f"{name}.default_factory", read, item)
            elif base is OrderedDict and len(item) <= MOST_ITEMS:
                self._watch_keys(f"a key of {name}", item, OrderedDict.__iter__)

    def _look_at_container(self, name: str, item: Any, base: type) -> None:
        read, size = ITEMS[base]
        size = len if type(item) is base else size
        n = size(item)
        if n > MOST_ITEMS:
            self.found.add([name], size, item, [n], equal=True, words=number)
        elif base is dict:
            names = [f"{name}{key_text(k)}" for k in dict.keys(item)]
            self._watch_items(name, item, read, size, names)
            self._watch_keys(f"a key of {name}", item, dict.keys)
        else:
            names = [f"{name}[{i}]" for i in range(n)]
            self._watch_items(name, item, read, size, names)
        if 0 < n <= MOST_ITEMS:
            self._stack += zip(names, read(item), strict=True)

    def _look_at_space(self, name: str, space: Any, deep: bool = True) -> None:
        """The attributes of an object."""
        self._seen[id(space)] = space
        names = [f"{name}.{n}" for n in space]
        self._watch_items(name, space, dict.values, len, names)
        self._watch_keys(f"an attribute of {name}", space, dict.keys)
        found = zip(names, dict.values(space), strict=True)
        for key, (n, x) in zip(space, found, strict=True):
            if key not in IDLE and (deep or self._is_leaf(x)):
                self._stack.append((n, x))

    def _watch_items(
        self,
        name: str,
        item: Any,
        read: Callable[[Any], Any],
        size: Callable[[Any], int],
        names: list[str],
    ) -> None:
        n = len(names)
        self.found.add([name], size, item, [n], equal=True, words=number)
        if n:
            found = [*read(item)]
            self.found.add(names, read, item, found, spread=True, refers=True)

    def _watch_keys(
        self, name: str, item: Any, read: Callable[[Any], Iterable[Any]]
    ) -> None:
        """The order of keys counts as well."""
        if type(item) is dict:
            read = iter  # the same, and quicker
        if keys := [*read(item)]:
            equal = all(type(k) is str for k in keys)
            names = [name] * len(keys)
            self.found.add(names, read, item, keys, spread=True, equal=equal)

    def _watch_function(self, names: list[str], f: FunctionType) -> None:
        found = of_function(f)
        if found[1:3] == (None, None):
            # Most have no defaults, and tuples of code and None can be compared.
            self.found.add(names[:1], code_of, f, [code_of(f)], equal=True)
        else:
            self.found.add(names, of_function, f, [*found], spread=True)

    def _look_at_object(self, name: str, item: Any, bases: Sequence[type]) -> None:
        """The attributes of an object, and its class unless it is somebody else's."""
        kind = type(item)
        is_ours = not is_foreign(kind)
        deep = is_ours or top(class_module(kind)) in DEEP
        read_space = space_reader(bases)
        space = None if read_space is None else read_space(item)
        if space is None and not is_ours:
            return
        if space and not is_ours and "__wrapped__" in space:
            self._stack.append((name, space["__wrapped__"]))
            return
        if read_space is None and dict_offset(kind):
            self.whole = False  # nobody gets at its attributes
        # What tensors refer to is not watched.
        refers = id(item) not in self.leaves
        if type(space) is not dict:
            self._stack.append((name, space))
        elif read_space is not None:
            words = f"the attributes of {name}"
            self.found.add([words], read_space, item, [space], refers=refers)
            self._look_at_space(name, space, deep)
        if deep:
            self._look_at_slots(name, item, bases, refers)
        if is_ours:
            words = f"the class of {name}"
            self.found.add([words], type, item, [kind], refers=refers)
            self._stack.append(("", kind))

    def _look_at_slots(
        self, name: str, item: Any, bases: Sequence[type], refers: bool
    ) -> None:
        for base in bases:
            for n, slot in class_space(base).items():
                if type(slot) is MemberDescriptorType and n != "__dict__":
                    self._look_at_place(f"{name}.{n}", slot.__get__, item, refers)


def _appeared(name: str, now: Any, was: Any) -> str:
    return f"there was no global of these, and now is: {name}"


def _value_or_empty(read: Callable[[Any], Any], item: Any) -> Any:
    try:
        return read(item)
    except (AttributeError, ValueError):
        return EMPTY

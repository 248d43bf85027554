"""Containers and objects of all kinds, also of those that lie about themselves."""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import itertools
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
from looking import around

from uopc.runtime.jitting.surroundings import Surroundings
from uopc.tensor import Tensor


class Base:
    __slots__ = ("__hidden", "late")

    def __init__(self, hidden: Any) -> None:
        self.__hidden = hidden

    def set(self, hidden: Any) -> None:
        self.__hidden = hidden


class Slots(Base):
    __slots__ = ("__hidden", "shown")

    def __init__(self, hidden: Any) -> None:
        super().__init__(1.0)
        self.__hidden = hidden
        self.shown = 1

    def set_own(self, hidden: Any) -> None:
        self.__hidden = hidden


def test_slots_also_private_and_without_a_value() -> None:
    it = Slots([1])
    steps: list[tuple[str, Callable[[], Any], Callable[[], Any] | None]] = [
        ("_Base__hidden", lambda: it.set(2.0), lambda: it.set(1.0)),
        ("_Slots__hidden", lambda: it.set_own([1]), None),
        ("shown", lambda: setattr(it, "shown", 2), lambda: setattr(it, "shown", 1)),
        ("late", lambda: setattr(it, "late", 1), lambda: delattr(it, "late")),
        ("shown", lambda: delattr(it, "shown"), lambda: setattr(it, "shown", 1)),
    ]
    for key, change, undo in steps:
        seen = around(it)
        change()
        assert f"thing.{key}" in seen.change()
        if undo:
            undo()
            assert seen.change() == ""


def test_one_slot_for_another() -> None:
    """What the objects refer to is the same, in the same order."""
    value = object()

    class Two:
        __slots__ = ("a", "b")

    it = Two()
    it.a = value  # type: ignore[attr-defined]
    seen = around(it)
    del it.a  # type: ignore[attr-defined]
    it.b = value  # type: ignore[attr-defined]
    assert seen.change() != ""


class Marked(Tensor):
    """A tensor with attributes, of which some are in slots."""

    scale: float


class Slotted(Tensor):
    __slots__ = ("scale",)
    scale: float


@pytest.mark.parametrize("kind", [Marked, Slotted])
def test_attributes_of_tensors(kind: Any) -> None:
    t = kind(np.ones(2, np.float32))
    t.scale = 1.0
    seen = around(t)
    assert list(seen.leaves.values()) == [t] or len(seen.leaves) == 1
    t.grad = None
    t.assign(t * 2.0).realize()
    assert seen.change() == ""
    t.scale = 2.0
    assert seen.change() == "thing.scale is 2.0 and was 1.0"


def test_the_order_of_dicts_and_what_sets_have() -> None:
    a, b = object(), object()
    for kind in (dict, collections.OrderedDict, collections.Counter):
        d: Any = kind()
        d["a"], d["b"] = a, a
        seen = around(d)
        del d["a"]
        d["a"] = a
        assert "a key of thing is 'b' and was 'a'" in seen.change()
    ordered = collections.OrderedDict([("a", a), ("b", b)])
    seen = around(ordered)
    ordered.move_to_end("a")
    assert seen.change() != ""
    renamed: dict[Any, Any] = {"a": a, 1: a}
    seen = around(renamed)
    renamed[2] = renamed.pop(1)
    assert seen.change() == "a key of thing is 2 and was 1"
    seen = around(renamed)
    renamed[2.0] = renamed.pop(2)
    assert seen.change() == "a key of thing is 2.0 and was 2"
    many: list[Any] = [{a, b}, [a, b], collections.deque([a, b])]
    for container in many:
        seen = around(container)
        container.remove(b)
        add = container.add if type(container) is set else container.append
        add(3)
        assert "thing[" in seen.change()


def test_items_that_go_from_one_container_to_the_next() -> None:
    x = object()
    lists = [[x], [x, x]]
    seen = around(lists)
    lists[0].append(lists[1].pop())
    assert seen.change() != ""


def get_of(kind: type) -> Callable[[], tuple[Any, Callable[[], Any]]]:
    def made() -> tuple[Any, Callable[[], Any]]:
        d = kind({"a": 1})
        return d, lambda: d.update(a=2)

    return made


def bound_get() -> tuple[Any, Callable[[], Any]]:
    d = {"a": 1}
    return d.get, lambda: d.update(a=2)


def bound_item() -> tuple[Any, Callable[[], Any]]:
    items = [1]
    return items.__getitem__, lambda: items.__setitem__(0, 2)


def view() -> tuple[Any, Callable[[], Any]]:
    d = {"a": 1}
    return types.MappingProxyType(d), lambda: d.update(a=2)


def default() -> tuple[Any, Callable[[], Any]]:
    inner = [1]
    d: Any = collections.defaultdict(lambda: inner[0])
    return d, lambda: inner.__setitem__(0, 2)


def partial() -> tuple[Any, Callable[[], Any]]:
    made = functools.partial(max, [1], default={"a": 1})
    return made, lambda: made.keywords["default"].update(a=2)


def chain_map() -> tuple[Any, Callable[[], Any]]:
    inner = {"a": 1}
    return collections.ChainMap({}, inner), lambda: inner.update(a=2)


def namespace(kind: Any) -> Callable[[], tuple[Any, Callable[[], Any]]]:
    def made() -> tuple[Any, Callable[[], Any]]:
        it = kind(a=[1])
        return it, lambda: it.a.append(2)

    return made


def user_list() -> tuple[Any, Callable[[], Any]]:
    it = collections.UserList([1])
    return it, lambda: it.append(2)


def member() -> tuple[Any, Callable[[], Any]]:
    class Kind(enum.IntEnum):
        A = 1

    return Kind.A, lambda: setattr(Kind.A, "_value_", 2)


def context() -> tuple[Any, Callable[[], Any]]:
    it = ContextVar("it", default=1)
    return it, lambda: it.set(2)


def cached() -> tuple[Any, Callable[[], Any]]:
    rate = [1]
    return functools.lru_cache(lambda: rate[0]), lambda: rate.__setitem__(0, 2)


def subclass() -> tuple[Any, Callable[[], Any]]:
    class Layers(list[int]):
        width = 1

    it = Layers([1])
    return it, lambda: setattr(it, "width", 2)


FOREIGN: list[Callable[[], tuple[Any, Callable[[], Any]]]] = [
    bound_get, bound_item, view, default, partial, chain_map, user_list, member,
    context, cached, subclass, namespace(types.SimpleNamespace),
    namespace(argparse.Namespace), get_of(collections.UserDict),
    get_of(collections.OrderedDict), get_of(collections.Counter),
    get_of(type("Own", (dict,), {"__module__": __name__})),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(FOREIGN)))
def test_things_of_the_standard_library(i: int) -> None:
    thing, change = FOREIGN[i]()
    seen = around(thing)
    change()
    assert seen.change() != ""


def test_looking_fills_no_defaultdict() -> None:
    d = collections.defaultdict(list, a=[1])
    seen = around(d)
    assert seen.change() == ""
    assert list(d) == ["a"]


def fail(*_: Any) -> Any:
    raise RuntimeError("nobody may ask")


class Equal:
    """Says it is equal to everything."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


HOSTILE = ["__eq__", "__hash__", "__len__", "__iter__", "__getitem__", "__bool__",
           "__repr__", "__getattr__", "__contains__", "keys", "values"]  # fmt: skip


@pytest.mark.parametrize("base", [object, dict, list, set, float, str])
def test_methods_that_fail_are_not_called(base: Any) -> None:
    space: dict[str, Any] = dict.fromkeys(HOSTILE, fail)
    it = type("Hostile", (base,), {**space, "__module__": __name__})()
    seen = around(it)
    it.a = 1
    assert seen.change() == "thing has 1 items and had 0"


@pytest.mark.parametrize("lie", [fail, lambda self: list])
@pytest.mark.parametrize("name", ["__dict__", "__class__", "uop"])
def test_properties_that_fail_or_lie(name: str, lie: Callable[..., Any]) -> None:
    it = type("Lying", (), {name: property(lie), "__module__": __name__})()
    seen = Surroundings(fail, [("x", it)], lambda x: hasattr(x, "uop"))
    assert seen.change() == ""
    it.a = 1
    # A class that has its own `__dict__` hides the real one from everybody.
    assert seen.whole is not (name == "__dict__")
    assert bool(seen.change()) is seen.whole


def test_classes_of_classes_that_fail() -> None:
    space = dict.fromkeys(("__hash__", "__eq__", "__getattr__"), fail)
    lies = dict.fromkeys(("__name__", "__module__", "__mro__"), property(fail))
    meta: Any = type("Meta", (type,), {**space, **lies})
    it = meta("Made", (), {"__module__": __name__})()
    seen = around(it)
    it.a = 1
    assert seen.change() == "thing has 1 items and had 0"


def test_equal_objects_are_others() -> None:
    box = {"a": Equal(1), "b": [Equal(1)]}
    seen = around(box)
    box["a"] = Equal(1)
    assert seen.change() == "thing['a'] is another Equal"
    array = {"a": np.ones(3)}
    seen = around(array)
    array["a"] = np.ones(3)
    assert seen.change() == "thing['a'] is another ndarray"


def numbers() -> Iterator[int]:
    yield from range(5)


@pytest.mark.parametrize(
    "it", [iter([1]), iter({}), numbers(), itertools.count(), map(abs, [1]), zip([1])]
)
def test_iterators_are_told(it: Any) -> None:
    box = types.SimpleNamespace(it=it)
    seen = Surroundings(lambda: next(box.it), [("argument 0", it)], lambda x: False)
    assert seen.unseen in (["box.it"], ["argument 0"])
    assert next(iter(range(3))) == 0


def test_iterators_in_python_and_files_are_none() -> None:
    class Counting:
        n = 0

        def __next__(self) -> int:
            self.n += 1
            return self.n

    it = Counting()
    seen = around([it, sys.stdout, range(3)])
    it.__next__()
    assert seen.change() == "thing[0] has 1 items and had 0"


def test_what_is_too_much_is_told() -> None:
    all_of_it: Any = [[[] for _ in range(12)] for _ in range(900)]
    assert not Surroundings(lambda: all_of_it, [], lambda x: False).whole
    long = [0] * 5000
    seen = around(long)
    long[0] = 1
    assert seen.change() == ""  # as documented
    long.append(1)
    assert seen.change() == "thing has 5001 items and had 5000"


def test_a_change_costs_little_to_rule_out() -> None:
    config = {i: {"a": i, "b": 2.5 * i, "c": "x"} for i in range(900)}
    seen = around(config)
    times = []
    for _ in range(20):
        start = time.thread_time()
        seen.change()
        times.append(time.thread_time() - start)
    assert min(times) < 2e-3  # some 0.3 ms; it would be 50 times that with repr()

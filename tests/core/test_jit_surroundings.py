"""What a function can see is watched, whatever kind of thing it is in."""

from __future__ import annotations

import functools
import math
import sys
import time
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from looking import around, of

from uopc.runtime import jit
from uopc.runtime.jitting.surroundings import Surroundings, difference, same
from uopc.tensor import Tensor

THIS = sys.modules[__name__]


def module(name: str, **parts: Any) -> Any:
    made = types.ModuleType(name)
    vars(made).update(parts)
    return made


SCALARS = [
    0, 1, 2**200, False, True, 0.0, -0.0, 1.0, math.nan, math.inf, 0j, -0j, 1 + 0j,
    complex(0.0, -0.0), complex(math.nan, 1.0), "", "1", b"", b"1", None,
    np.float32(1.0), np.float64(1.0), np.float64(0.0), np.float64(-0.0), np.int32(1),
    np.bool_(True), (), (1,), (1.0,), (True,), (0.0,), (-0.0,), ((0.0,), "a"),
    ((-0.0,), "a"), (1, 2),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(SCALARS)))
def test_scalars_are_the_same_if_no_code_can_tell_them_apart(i: int) -> None:
    import copy
    import pickle

    for j, other in enumerate(SCALARS):
        again = pickle.loads(pickle.dumps(copy.copy(other)))
        assert same(SCALARS[i], again) is (i == j), (SCALARS[i], other)
        assert difference(SCALARS[i], other)


def test_tuples_of_tuples_do_not_take_for_ever() -> None:
    def tower() -> Any:
        made: Any = (object(),)
        for _ in range(100):
            made = (made, made)
        return made

    start = time.thread_time()
    assert not same(tower(), tower())
    assert time.thread_time() - start < 1.0


@pytest.mark.parametrize("was", [0.0, 1, math.nan, "a"])
def test_equal_values_are_no_change_and_others_are(was: Any) -> None:
    box = [was, {"a": was}, types.SimpleNamespace(a=was)]
    seen = around(box)
    for _ in range(3):
        again = float(str(was)) if isinstance(was, float) else was
        box[0] = box[1]["a"] = box[2].a = again
        assert seen.change() == ""
    box[0] = {0.0: -0.0, 1: True, "a": "b"}.get(was, 0.0)
    assert seen.change().startswith("thing[0] is")


RATE = 1.0


class Accessors:
    """Code that is reached through descriptors."""

    @property
    def prop(self) -> float:
        return RATE

    @staticmethod
    def static() -> float:
        return RATE

    @classmethod
    def of_class(cls) -> float:
        return RATE

    def plain(self, _: int) -> float:
        return RATE

    partial = functools.partialmethod(plain, 1)
    cached = functools.cached_property(lambda self: RATE)
    bound = functools.partial(lambda x: RATE * x, 2)


@pytest.mark.parametrize("name", [n for n in vars(Accessors) if n[0] != "_"])
def test_code_behind_descriptors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    accessor = vars(Accessors)[name]
    cls = type("Made", (), {name: accessor, "__module__": __name__})
    seen = around(cls())
    monkeypatch.setattr(THIS, "RATE", 2.0)
    assert seen.change() == "RATE is 2.0 and was 1.0"
    monkeypatch.undo()
    assert seen.change() == ""


def make() -> Any:
    """Objects and classes to change."""

    class Base:
        factor = 1.0

        def method(self) -> float:
            return 1.0

    class Derived(Base):
        pass

    class Other(Base):
        pass

    return types.SimpleNamespace(Base=Base, Derived=Derived, Other=Other, it=Derived())


def changed_base(x: Any) -> None:
    class New(x.Base):  # type: ignore[misc]
        pass

    x.Derived.__bases__ = (New,)


def added_attribute(f: Any) -> None:
    f.gain = 2


OBJECT_CHANGES: dict[str, Callable[[Any], Any]] = {
    "first attribute": lambda x: setattr(x.it, "a", 1),
    "method on the instance": lambda x: setattr(x.it, "method", lambda: 2.0),
    "attribute of the class": lambda x: setattr(x.Derived, "factor", 2.0),
    "attribute of the base": lambda x: setattr(x.Base, "factor", 2.0),
    "method of the base": lambda x: setattr(x.Base, "method", lambda self: 2.0),
    "new method": lambda x: setattr(x.Base, "__call__", lambda self: 2.0),
    "attribute of the class is gone": lambda x: delattr(x.Base, "factor"),
    "base": changed_base,
    "class": lambda x: setattr(x.it, "__class__", x.Other),
    "__dict__": lambda x: setattr(x.it, "__dict__", {"a": 1}),
    "getattr": lambda x: setattr(x.Base, "__getattr__", lambda self, name: 2.0),
    "code": lambda x: setattr(x.Base.method, "__code__", (lambda self: 3.0).__code__),
    "function attribute": lambda x: added_attribute(x.Base.method),
    "defaults": lambda x: setattr(x.Base.method, "__defaults__", (x.it,)),
    "kwdefaults": lambda x: setattr(x.Base.method, "__kwdefaults__", {"a": 1}),
}


@pytest.mark.parametrize("change", OBJECT_CHANGES)
def test_objects_and_their_classes(change: str) -> None:
    x = make()
    seen = around(x.it)
    OBJECT_CHANGES[change](x)
    assert seen.change() != ""


def test_classes_of_classes() -> None:
    class Meta(type):
        size = 1

    class Made(metaclass=Meta):
        pass

    seen = around(Made)
    Meta.size = 2
    assert seen.change() == "Meta.size is 2 and was 1"


def test_functions_that_functions_call() -> None:
    gain = 1.0

    def inner(x: float = 3.0, *, y: float = 4.0) -> float:
        return x * gain * y

    @functools.wraps(inner)
    def outer() -> float:
        return inner()

    seen = around(outer)
    gain = 2.0
    assert seen.change() == "gain is 2.0 and was 1.0"
    gain = 1.0
    assert seen.change() == ""
    inner.__defaults__ = (5.0,)
    assert seen.change() == "a default of inner is 5.0 and was 3.0"
    inner.__defaults__ = (3.0,)
    assert seen.change() == ""
    (inner.__kwdefaults__ or {})["y"] = 5.0
    assert "is 5.0 and was 4.0" in seen.change()
    (inner.__kwdefaults__ or {})["y"] = 4.0
    inner.level = 1  # type: ignore[attr-defined]
    assert seen.change() == "inner has 1 items and had 0"


def test_cells_without_a_value() -> None:
    def of_cell(later: int) -> Callable[[], int]:
        return lambda: later

    cell = types.CellType()
    f = types.FunctionType(of_cell(0).__code__, globals(), closure=(cell,))
    seen = of(f)
    cell.cell_contents = 1
    assert seen.change() == "later has a value now"
    seen = of(f)
    del cell.cell_contents
    assert seen.change() == "later is gone"


PACKAGE = module("package_of_test", sub=module("package_of_test.sub", CONST=1.0))


def nested_module() -> float:
    part = PACKAGE.sub
    return float(part.CONST)


def test_modules_in_modules() -> None:
    seen = of(nested_module)
    PACKAGE.sub.CONST = 2.0
    try:
        assert seen.change() == "package_of_test.sub.CONST is 2.0 and was 1.0"
    finally:
        PACKAGE.sub.CONST = 1.0


def test_modules_in_cells_and_attributes() -> None:
    inner = module("inner_of_test", shift=1.0)
    box = types.SimpleNamespace(backend=module("other_of_test", scale=1.0))

    def f() -> Any:
        return inner.shift * box.backend.scale

    seen = of(f)
    inner.shift = 2.0
    assert seen.change() == "inner_of_test.shift is 2.0 and was 1.0"
    seen = of(f)
    box.backend.scale = 2.0
    assert seen.change() == "other_of_test.scale is 2.0 and was 1.0"
    seen = of(f)
    box.backend = module("other_of_test", scale=2.0)
    assert seen.change() == "box.backend is another module"


def test_imports_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    top, sub = module("top_of_test", value=1), module("top_of_test.sub", value=1)
    top.sub = sub
    monkeypatch.setitem(sys.modules, "top_of_test", top)
    monkeypatch.setitem(sys.modules, "top_of_test.sub", sub)

    def whole() -> Any:
        import top_of_test.sub  # type: ignore[import-not-found]

        return top_of_test.sub.value, top_of_test.value

    def part() -> Any:
        from top_of_test.sub import value

        return value

    space = {"__name__": "top_of_test.x", "__package__": "top_of_test"}

    def relative() -> Any:
        from .sub import value  # type: ignore[import-not-found]

        return value

    relative = types.FunctionType(relative.__code__, space)
    for f in (whole, part, relative):
        seen = of(f)
        sub.value = 2
        assert "sub.value is 2 and was 1" in seen.change()
        sub.value = 1
        assert seen.change() == ""
        with monkeypatch.context() as context:
            context.setitem(sys.modules, "top_of_test.sub", module("new", value=3))
            assert "is another module" in seen.change()
    seen = of(whole)
    top.value = 2
    assert "top_of_test.value is 2 and was 1" in seen.change()


def reads_what_is_not_there() -> Any:
    return not_there if max(1, 2) == 1 else 0  # type: ignore[name-defined]  # noqa: F821


def sets_a_global() -> None:
    global last_of_test
    last_of_test = 1  # type: ignore[name-defined]


def test_globals_that_are_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("not_there", "max"):
        seen = of(reads_what_is_not_there)
        with monkeypatch.context() as context:
            context.setattr(THIS, name, lambda *_: 1, raising=False)
            assert name in seen.change()
        assert seen.change() == ""
    seen = of(sets_a_global)
    sets_a_global()
    assert "last_of_test" in seen.change()
    del globals()["last_of_test"]


SHIFT = 1.0


@dataclass
class Model:
    w: Tensor
    rates: ClassVar[Mapping[str, float]] = types.MappingProxyType({"a": 2.0})

    @property
    def shift(self) -> float:
        return SHIFT

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.w * self.rates["a"] + self.shift


def test_calls_after_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(Tensor(np.array([3.0, 4.0], np.float32)))
    f, x = jit(lambda x: model(x)), Tensor(np.array([1.0, 2.0], np.float32))

    def check(traces: int) -> None:
        for _ in range(4):
            assert f(x).numpy().tolist() == model(x).numpy().tolist()
        assert f.traces == traces

    check(1)
    monkeypatch.setattr(THIS, "SHIFT", 2.0)
    check(2)
    monkeypatch.setattr(model, "rates", {"a": -0.0}, raising=False)
    check(3)
    monkeypatch.setattr(Model, "__call__", lambda self, x: x * self.w)
    check(4)
    monkeypatch.undo()
    check(4)


def test_arguments_are_not_kept_alive() -> None:
    class Model:
        scale = 1.0

    class Slots:
        __slots__ = ("__weakref__", "scale")

    kinds: list[Any] = [Model, Slots]
    for kind in kinds:
        it = kind()
        it.scale = 2.0
        seen = Surroundings(lambda it: it.scale, [("argument 0", it)], lambda x: False)
        assert seen.change() == ""
        it.scale = 3.0
        assert seen.change() == "argument 0.scale is 3.0 and was 2.0"
        gone = weakref.ref(it)
        del it
        assert gone() is None
        assert "is gone" in seen.change()

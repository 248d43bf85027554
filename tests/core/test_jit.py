"""A function under `jit` does what it does without, call for call, to the bit."""

from __future__ import annotations

import functools
import gc
import types
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from uopc.config import overriding
from uopc.runtime import jit, profile, stats
from uopc.runtime.tree import flatten
from uopc.tensor import Tensor
from uopc.uop.node import live_nodes

Function = Callable[..., Any]
# Makes a function, and the tensors that it changes.
Maker = Callable[[], tuple[Function, list[Tensor]]]


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """A function that runs without replays says so; here none may."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def tensor(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32))


def batch(i: int, n: int = 3) -> Tensor:
    return Tensor(np.random.default_rng(i).standard_normal((n, 2)).astype(np.float32))


def values(tree: Any) -> list[Any]:
    return [x.numpy() if isinstance(x, Tensor) else x for x in flatten(tree)[0]]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(a == b)


def check(make: Maker, arguments: list[tuple[Any, ...]], traces: int = 1) -> None:
    """Run the calls with and without jit: results and state are the same after each."""
    Tensor.manual_seed(7)
    f, state = make()
    expected = [(values(f(*args)), values(state)) for args in arguments]
    Tensor.manual_seed(7)
    g, state = make()
    jitted = jit(g)
    for i, args in enumerate(arguments):
        result = values(jitted(*args))
        wanted, wanted_state = expected[i]
        assert all(map(same, result, wanted)), f"call {i}"
        assert all(map(same, values(state), wanted_state)), f"state after call {i}"
    assert jitted.traces == traces


def pure() -> tuple[Function, list[Tensor]]:
    return (lambda x: (x * 2.0).exp() + 1.0), []


def test_pure_function() -> None:
    check(pure, [(batch(i),) for i in range(6)])


def test_results_that_are_kept_keep_their_values() -> None:
    f = jit(lambda x: (x * 2.0, x.sum()))
    kept = [f(batch(i)) for i in range(8)]
    for i, (double, total) in enumerate(kept):
        x = batch(i)
        assert same(double.numpy(), (x * 2.0).numpy())
        assert same(total.numpy(), x.sum().numpy())


def test_lazy_graphs_on_results_keep_their_values() -> None:
    f = jit(lambda x: x * 2.0)
    kept = [f(batch(i)) + 1.0 for i in range(6)]
    for i, y in enumerate(kept):
        assert same(y.numpy(), (batch(i) * 2.0 + 1.0).numpy())


def counter() -> tuple[Function, list[Tensor]]:
    n, total = tensor(0.0), tensor(1.0, 2.0)

    def f(x: Tensor) -> Tensor:
        n.assign(n + 1.0)
        total.assign(total * 0.5 + x.sum(0))
        return total * n

    return f, [n, total]


def test_state_is_updated() -> None:
    check(counter, [(batch(i),) for i in range(6)])


def test_state_is_read_while_someone_keeps_its_old_values() -> None:
    f, (n, total) = counter()
    f = jit(f)
    kept, expected = [], []
    for i in range(7):
        kept += [n * 1.0, total.detach()]
        expected += [n.numpy(), total.numpy()]
        f(batch(i))
    assert all(same(k.numpy(), e) for k, e in zip(kept, expected, strict=True))


def test_state_assigned_between_calls() -> None:
    f, (n, _) = counter()
    f = jit(f)
    for i in range(6):
        n.assign(tensor(float(10 * i)))
        f(batch(i))
        assert n.item() == 10 * i + 1
    assert f.traces == 1


def swap() -> tuple[Function, list[Tensor]]:
    a, b, c = tensor(1.0, 2.0), tensor(3.0, 4.0), tensor(5.0, 6.0)

    def f(x: Tensor) -> Tensor:
        old = a * 1.0
        a.assign(b + x.sum())
        b.assign(c * 1.0)
        c.assign(old)
        return a + b

    return f, [a, b, c]


def test_rotation_of_state() -> None:
    check(swap, [(batch(i),) for i in range(6)])


def aliases() -> tuple[Function, list[Tensor]]:
    a, b = tensor(1.0, 2.0), tensor(3.0, 4.0)

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        a.assign(b)
        b.assign(x.sum(0))
        return a, x.reshape(2, 3)

    return f, [a, b]


def test_state_assigned_other_state_and_views_of_arguments() -> None:
    check(aliases, [(batch(i),) for i in range(6)])


def several_runs() -> tuple[Function, list[Tensor]]:
    a = tensor(1.0, 2.0)

    def f(x: Tensor) -> Tensor:
        y = (x * a).realize()
        a.assign(a + y.sum(0))
        a.realize()
        a.assign(a * 0.5)
        z = (y + a).realize()
        return z.sum()

    return f, [a]


def test_several_runs_in_one_call() -> None:
    check(several_runs, [(batch(i),) for i in range(6)])


def random() -> tuple[Function, list[Tensor]]:
    def f(x: Tensor) -> Tensor:
        return x * (Tensor.rand(*x.shape) < 0.5)

    return f, []


def test_random_numbers_go_on() -> None:
    check(random, [(batch(i, 50),) for i in range(6)])
    f = jit(random()[0])
    drawn = {f(Tensor.ones(50)).numpy().tobytes() for _ in range(6)}
    assert len(drawn) == 6


def test_new_shapes_and_dtypes_are_traced_and_old_ones_kept() -> None:
    sizes = [3, 3, 5, 5, 3, 5, 3]
    check(pure, [(batch(i, n),) for i, n in enumerate(sizes)], traces=2)
    arguments = [(batch(i).cast(t),) for i, t in enumerate(("f32", "f64", "f16") * 3)]
    check(pure, arguments, traces=3)


class Pair(NamedTuple):
    """A named tuple of arguments."""

    left: Tensor
    right: Tensor


@dataclass
class Bag:
    """A dataclass of arguments."""

    items: list[Tensor]
    scale: float


def test_nested_arguments_and_results() -> None:
    def make() -> tuple[Function, list[Tensor]]:
        def f(pair: Pair, bag: Bag, named: dict[str, Tensor]) -> Any:
            total = sum(bag.items, named["x"]) * bag.scale
            return {"sum": total, "pair": Pair(pair.right, pair.left + 1.0), "n": 3}

        return f, []

    def arguments(i: int) -> tuple[Any, ...]:
        a, b, c = batch(i), batch(i + 1), batch(i + 2)
        return Pair(a, b), Bag([a, b, c], 0.5), {"x": c, "y": a}

    check(make, [arguments(i) for i in range(5)])


def test_numbers_among_arguments() -> None:
    def make() -> tuple[Function, list[Tensor]]:
        return (lambda x, n, flag: x * n if flag else x + n), []

    calls = [(2, True), (2, True), (3, True), (2, False), (3, True), (2, False)]
    check(make, [(batch(i), *c) for i, c in enumerate(calls)], traces=3)


def test_keyword_arguments() -> None:
    f = jit(lambda x, *, scale: x * scale)
    for i in range(5):
        assert same(f(batch(i), scale=batch(9)).numpy(), (batch(i) * batch(9)).numpy())
    assert f.traces == 1


def test_one_tensor_twice() -> None:
    f = jit(lambda x, y: x * 2.0 + y)
    for i in range(4):
        x = batch(i)
        assert same(f(x, x).numpy(), (x * 2.0 + x).numpy())
    for i in range(4):
        x, y = batch(i), batch(i + 1)
        assert same(f(x, y).numpy(), (x * 2.0 + y).numpy())
    x = batch(5)
    assert same(f(x, x).numpy(), (x * 2.0 + x).numpy())


def test_an_argument_that_is_the_state_too() -> None:
    w = batch(0).realize()
    f = jit(lambda x: x * 2.0 + w)
    for _ in range(4):
        assert same(f(w).numpy(), (w * 2.0 + w).numpy())
    for i in range(4):
        assert same(f(batch(i)).numpy(), (batch(i) * 2.0 + w).numpy())
    view = w.detach().realize()
    for _ in range(3):
        assert same(f(view).numpy(), (w * 2.0 + w).numpy())


def test_arguments_that_are_assigned() -> None:
    @jit
    def f(t: Tensor, x: Tensor) -> None:
        t.assign(t + x)

    a, b = batch(0).realize(), batch(1).realize()
    for t in (a, a, a, b, b, a, b):
        before = t.numpy()
        f(t, batch(5))
        assert same(t.numpy(), before + batch(5).numpy())


@dataclass
class Model:
    """State in the attributes of an object."""

    w: Tensor
    scale: float = 2.0
    is_training: bool = True

    def __call__(self, x: Tensor) -> Tensor:
        y = x * self.w * self.scale
        return y + 1.0 if self.is_training else y


def test_attributes_of_an_object_that_is_seen() -> None:
    model = Model(batch(0))
    f = jit(lambda x: model(x))

    def both(i: int) -> None:
        assert same(f(batch(i)).numpy(), model(batch(i)).numpy())

    for i in range(3):
        both(i)
    assert f.traces == 1
    model.scale = 3.0
    both(4)
    assert "scale is 3.0 and was 2.0" in f.reason
    model.is_training = False
    both(5)
    model.w = batch(8)
    both(6)
    assert f.traces == 4
    model.is_training = True
    both(7)
    both(8)
    assert f.traces == 5
    model.is_training = False
    both(9)
    assert f.traces == 5  # it is the fourth again


def test_methods() -> None:
    class Scaled:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @jit
        def apply(self, x: Tensor) -> Tensor:
            return x * self.factor

    two, three = Scaled(2.0), Scaled(3.0)
    for i in range(4):
        assert same(two.apply(batch(i)).numpy(), (batch(i) * 2.0).numpy())
        assert same(three.apply(batch(i)).numpy(), (batch(i) * 3.0).numpy())


RATE = 0.5
SETTINGS = {"bias": 1.0}
OTHER = types.ModuleType("other_module")
OTHER.shift = 1.0  # type: ignore[attr-defined]


def helper(x: Tensor) -> Tensor:
    return x * RATE + SETTINGS["bias"]


def test_named_globals_also_of_functions_that_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = jit(lambda x: helper(x) + OTHER.shift)
    x = batch(0).realize()

    def result() -> np.ndarray[Any, Any]:
        return np.asarray(f(x).numpy())

    first = [result() for _ in range(3)]
    assert f.traces == 1
    monkeypatch.setitem(globals(), "RATE", 0.25)
    assert same(result(), (x * 0.25 + 1.0 + 1.0).numpy())
    monkeypatch.setitem(SETTINGS, "bias", 2.0)
    assert same(result(), (x * 0.25 + 2.0 + 1.0).numpy())
    monkeypatch.setattr(OTHER, "shift", 5.0)
    assert same(result(), (x * 0.25 + 2.0 + 5.0).numpy())
    monkeypatch.undo()
    assert same(result(), first[0])
    monkeypatch.setitem(globals(), "helper", lambda x: x * 0.0)
    assert same(result(), (x * 0.0 + 1.0).numpy())


def test_globals_with_the_name_of_an_attribute_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Model(batch(0))
    f = jit(lambda x: x * model.w)
    for i in range(5):
        monkeypatch.setitem(globals(), "w", i)
        f(batch(i))
    assert f.traces == 1


def test_closure_cells_and_defaults() -> None:
    rate = 1.0

    def scaled(x: Tensor, by: float = 3.0) -> Tensor:
        return x * rate * by

    f, x = jit(scaled), batch(0).realize()
    for _ in range(3):
        assert same(f(x).numpy(), (x * 1.0 * 3.0).numpy())
    rate = 2.0
    assert same(f(x).numpy(), (x * 2.0 * 3.0).numpy())
    assert f.reason == "rate is 2.0 and was 1.0"
    scaled.__defaults__ = (5.0,)
    assert same(f(x).numpy(), (x * 2.0 * 5.0).numpy())


def test_lists_of_tensors_that_grow() -> None:
    layers = [batch(0)]
    f = jit(lambda x: sum((x * w for w in layers), x))
    for i in range(6):
        if i == 4:
            layers.append(batch(1))
        expected = batch(i)
        for w in layers:
            expected = expected + batch(i) * w
        assert same(f(batch(i)).numpy(), expected.numpy())


def test_a_scalar_tensor_that_is_assigned_in_between() -> None:
    scale = Tensor(2.0)
    f = jit(lambda x: x * scale)
    for i in range(6):
        if i == 3:
            scale.assign(Tensor(5.0))
        expected = batch(i) * (2.0 if i < 3 else 5.0)
        assert same(f(batch(i)).numpy(), expected.numpy())


def test_lazy_state_from_outside() -> None:
    w = batch(0).realize()
    doubled = w * 2.0
    f = jit(lambda x: x + doubled)
    x = batch(1).realize()
    expected = (x + w * 2.0).numpy()
    for i in range(5):
        assert same(f(x).numpy(), expected)
        if i == 2:
            w.assign(w * 0.0)


def test_an_equal_graph_outside_is_another_value() -> None:
    """What was computed before, of an equal graph, is computed again by a replay."""
    w = batch(0).realize()
    outside = (w * 2.0).sum()
    outside.realize()
    f = jit(lambda: (w * 2.0).sum())
    for i in range(6):
        assert same(f().numpy(), (w * 2.0).sum().numpy())
        w.assign(batch(i))


def test_state_that_is_gone() -> None:
    box = {"w": batch(0).realize()}
    f = jit(lambda x: x * box["w"])
    for i in range(3):
        f(batch(i))
    box["w"] = batch(7).realize()
    gc.collect()
    assert same(f(batch(1)).numpy(), (batch(1) * batch(7)).numpy())


def test_no_results_and_constant_results() -> None:
    n = tensor(0.0)

    @jit
    def f() -> tuple[None, str, int]:
        n.assign(n + 1.0)
        return None, "text", 3

    for i in range(5):
        assert f() == (None, "text", 3)
        assert n.item() == i + 1
    assert f.traces == 1


def test_a_function_that_computes_nothing() -> None:
    f = jit(lambda x: (x, x.reshape(2, 3)))
    for i in range(4):
        x = batch(i)
        same_one, view = f(x)
        assert same_one is x
        assert same(view.numpy(), x.numpy().reshape(2, 3))


def test_empty_tensors() -> None:
    check(pure, [(Tensor(np.zeros((0, 2), np.float32)),) for _ in range(4)])


def test_jit_inside_of_jit() -> None:
    inner = jit(lambda x: x * 2.0)
    f = jit(lambda x: inner(x) + 1.0)
    for i in range(4):
        assert same(f(batch(i)).numpy(), (batch(i) * 2.0 + 1.0).numpy())
    assert (f.traces, inner.traces) == (1, 0)


def test_one_native_call_and_no_plan_looked_up() -> None:
    f, _ = counter()
    f = jit(f)
    for i in range(4):
        f(batch(i).realize())
    x = batch(9).realize()
    before = stats()
    for _ in range(10):
        f(x)
    done = stats() - before
    assert (done.plans_made, done.plans_found, done.native_calls) == (0, 0, 10)
    assert done.bytes_allocated == 0


def test_overridden_settings_make_a_trace_of_their_own() -> None:
    f = jit(lambda x: x * 2.0)
    for i in range(3):
        f(batch(i))
    with overriding(UOPC_OPT=0):
        for i in range(3):
            assert same(f(batch(i)).numpy(), (batch(i) * 2.0).numpy())
    assert f.traces == 2


def test_profile_sees_the_kernels_of_replays() -> None:
    f, state = counter()
    f = jit(f)
    for i in range(4):
        f(batch(i))
    kept = state[1].numpy()
    with profile() as seen:
        f(batch(5))
    assert len(seen.runs) >= 2
    assert same(state[1].numpy(), (tensor(*kept) * 0.5 + batch(5).sum(0)).numpy())


def test_what_is_no_function() -> None:
    with pytest.raises(TypeError, match="jit takes a function, not 3"):
        jit(3)  # type: ignore[arg-type]

    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="numbers is a generator or a coroutine"):
        jit(numbers)


def test_errors_of_the_function_pass_through() -> None:
    def f(x: Tensor) -> Tensor:
        if x.shape[0] == 4:
            raise KeyError("four")
        return x * 2.0

    g = jit(f)
    for i in range(3):
        g(batch(i))
    with pytest.raises(KeyError, match="four"):
        g(batch(0, 4))
    assert same(g(batch(1)).numpy(), (batch(1) * 2.0).numpy())


def test_callables_of_every_kind() -> None:
    model = Model(batch(0))
    bound = functools.partial(lambda scale, x: x * scale, 3.0)
    for plain in (model, model.__call__, bound, helper, jit(helper)):
        f = jit(plain)
        for i in range(4):
            assert same(f(batch(i)).numpy(), plain(batch(i)).numpy())
        assert f.traces == 1
    model.scale = 5.0
    f = jit(model)
    for i in range(4):
        model.scale = float(i // 2)
        assert same(f(batch(i)).numpy(), model(batch(i)).numpy())


@pytest.mark.parametrize("kind", [list, set, deque])
def test_containers_of_numbers(kind: Any) -> None:
    seen = kind([1.0, 2.0])
    f = jit(lambda x: x * sum(seen))
    for i in range(3):
        assert same(f(batch(i)).numpy(), (batch(i) * 3.0).numpy())
    seen.remove(2.0)
    getattr(seen, "append", getattr(seen, "add", None))(7.0)
    assert same(f(batch(1)).numpy(), (batch(1) * 8.0).numpy())


def test_setitem_and_in_place_operators() -> None:
    def make() -> tuple[Function, list[Tensor]]:
        table, total = Tensor(np.zeros((4, 2), np.float32)), tensor(0.0, 0.0)

        def f(x: Tensor, i: Tensor) -> Tensor:
            table[i] = x
            table[0] += 1.0
            total[...] += x.sum(0)
            return table[i]

        return f, [table, total]

    rng = np.random.default_rng(0)
    rows = [rng.permutation(4)[:3].astype(np.int32) for _ in range(5)]
    check(make, [(batch(i), Tensor(rows[i])) for i in range(5)])


def test_nans_are_found_in_a_jitted_function() -> None:
    f = jit(lambda x: x.log())
    for _ in range(4):
        f(tensor(1.0, 2.0))
    with (
        overriding(UOPC_NANS=True),
        pytest.raises(FloatingPointError, match=r"nan in the result of log"),
    ):
        f(tensor(1.0, -2.0))


def test_nothing_outlives_a_jitted_function() -> None:
    f, state = counter()
    g = jit(f)
    for i in range(4):
        g(batch(i))
    gone = [weakref.ref(g), weakref.ref(state[0]), weakref.ref(g._replays[0])]
    del f, g, state
    gc.collect()
    assert [ref() for ref in gone] == [None, None, None]


def test_results_of_many_calls_do_not_pile_up() -> None:
    f = jit(lambda x: x * 2.0)
    x = batch(0).realize()
    for _ in range(4):
        f(x)
    gc.collect()
    before = live_nodes()
    for _ in range(200):
        f(x)
    kept = [f(x) for _ in range(50)]
    del kept
    gc.collect()
    assert live_nodes() <= before + 8

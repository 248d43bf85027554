"""Calls that look like earlier ones, and are not; and what a call must leave alone."""

from __future__ import annotations

import copy
import functools
import gc
import itertools
import pickle
import random
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np
import pytest

from uopc.runtime import jit
from uopc.tensor import Tensor


def vector(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


def refused(f: Any, call: Callable[[int], None], calls: int = 6) -> str:
    """Make the calls; the words of the warning that there must be."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(calls):
            call(i)
    assert [w.category for w in caught] == [RuntimeWarning]
    return str(caught[0].message)


# -- arguments ----


def test_state_as_an_argument() -> None:
    w = vector(1.0)

    @jit
    def f(x: Tensor) -> Tensor:
        w.assign(w + 1.0)
        return x * 2.0

    for _ in range(4):
        assert f(vector(3.0)).item() == 6.0
    assert f(w).item() == 12.0
    assert f(w).item() == 14.0
    assert w.item() == 7.0


def test_an_argument_that_is_assigned_as_another_argument_too() -> None:
    @jit
    def f(x: Tensor, y: Tensor) -> Tensor:
        x.assign(x + 1.0)
        return x + y

    a, b = vector(1.0), vector(10.0)
    for i in range(4):
        assert f(a, b).item() == 12.0 + i
    assert f(a, a).item() == 12.0


def test_arguments_that_shared_memory() -> None:
    f = jit(lambda a, b: a + b * 2.0)
    x, z = vector(1.0), vector(100.0)
    for _ in range(4):
        assert f(x, x).item() == 3.0
    assert f(z, x).item() == 102.0
    assert f(x, z).item() == 201.0


def test_branches_on_whether_arguments_are_the_same() -> None:
    f = jit(lambda a, b: a * 2.0 if a is b else a * 3.0)
    x, y = vector(1.0), vector(1.0)
    for _ in range(4):
        assert f(x, y).item() == 3.0
    for _ in range(4):
        assert f(x, x).item() == 2.0
    assert f(x, y).item() == 3.0


def test_traits_of_tensors_that_a_function_asks_for() -> None:
    a, b = vector(2.0), vector(3.0)
    f = jit(lambda x: x * 2.0 if x.grad is None else x.grad + x)
    g = jit(lambda x: x * (2.0 if a.grad is None else 3.0))
    h = jit(lambda x: x * (2.0 if b.requires_grad else 3.0))
    for _ in range(4):
        assert [f(b).item(), g(b).item(), h(a).item()] == [6.0, 6.0, 6.0]
    a.grad = vector(10.0)
    for _ in range(4):
        assert [f(a).item(), f(b).item(), g(b).item()] == [12.0, 6.0, 9.0]
    b.requires_grad = True
    assert h(a).item() == 4.0
    b.grad = vector(100.0)
    for _ in range(3):
        assert [f(a).item(), f(b).item()] == [12.0, 103.0]


# -- results ----


@dataclass
class Odd:
    """Its constructor does not take what it holds."""

    x: Tensor
    scale: InitVar[float]
    extra: float = field(default=5.0, init=False)

    def __post_init__(self, scale: float) -> None:
        self.extra = scale


@pytest.mark.parametrize(
    "wrap",
    [
        lambda t: OrderedDict(t=t),
        lambda t: {1, 2, id(t)} and [functools.partial(print, t)],
        lambda t: (y for y in [t]),
        lambda t: Odd(t, 2.0),
    ],
)
def test_results_that_may_hold_tensors(wrap: Callable[[Tensor], Any]) -> None:
    f = jit(lambda x: wrap(x * 2.0))

    def call(i: int) -> None:
        made = f(vector(float(i)))
        t = {
            "OrderedDict": lambda r: r["t"],
            "list": lambda r: r[0].args[0],
            "generator": next,
            "Odd": lambda r: r.x,
        }[type(made).__name__](made)
        assert t.item() == 2.0 * i
        assert not isinstance(made, Odd) or made.extra == 2.0

    assert "it returns a" in refused(f, call)


def test_results_that_are_state_keep_their_gradients() -> None:
    """That a result has no graph is a matter of the result, not of the state."""
    w = vector(1.0, 2.0)
    w.requires_grad = True
    f = jit(lambda x: (w.reshape(2, 1), w.detach(), x + 1.0))
    for _ in range(5):
        column, same, _ = f(vector(0.0))
        assert column.tolist() == [[1.0], [2.0]]
        assert same.tolist() == [1.0, 2.0]
        w.grad = None
        loss = (w * w).sum()
        try:
            loss.backward([w])
        except RuntimeError as error:
            assert "gradient engine" in str(error)  # it got past the check


# -- choices, streams, threads ----


def test_random_choices_of_python() -> None:
    ws, x = [vector(1.0), vector(2.0)], vector(1.0)

    @jit
    def f(x: Tensor) -> Tensor:
        return ws[random.randrange(2)] * x

    random.seed(3)
    expected = [float(1 + random.randrange(2)) for _ in range(12)]
    random.seed(3)

    def call(i: int) -> None:
        assert f(x).item() == expected[i]

    assert "random numbers of Python's or NumPy's" in refused(f, call, 12)


def test_effects_and_results_that_differ_from_call_to_call() -> None:
    turn, w = itertools.count(), [vector(0.0), vector(0.0)]

    @jit
    def assigns(x: Tensor) -> None:
        w[next(turn) % 2].assign(x)

    def call(i: int) -> None:
        assigns(vector(float(i)))
        assert w[i % 2].item() == i

    refused(assigns, call)
    turn = itertools.count()
    counts = jit(lambda x: (x, next(turn)))

    def count(i: int) -> None:
        assert counts(vector(1.0))[1] == i

    refused(counts, count)


def test_a_tensor_that_another_thread_changes_while_it_is_traced() -> None:
    w, x = vector(1.0), vector(10.0)

    @jit
    def f(x: Tensor) -> Tensor:
        thread = threading.Thread(target=lambda: w.assign(vector(2.0)))
        thread.start()
        thread.join()
        return x * w

    assert "was given another value meanwhile" in refused(f, lambda i: f(x) and None)
    w.assign(vector(100.0))
    assert w.item() == 100.0


def test_what_other_threads_compute_inside() -> None:
    @jit
    def f(x: Tensor) -> Tensor:
        found: list[Tensor] = []
        thread = threading.Thread(target=lambda: found.append((x * 2.0).realize()))
        thread.start()
        thread.join()
        return found[0] + 1.0

    def call(i: int) -> None:
        value = float(max(i - 3, 0))  # the same in the calls that are compared
        assert f(vector(value)).item() == 2.0 * value + 1.0

    assert "another thread" in refused(f, call, 8)


# -- memory, copies ----


def test_arguments_and_objects_are_let_go() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = vector(2.0)

        @jit
        def forward(self, x: Tensor) -> Tensor:
            return x * self.w

    gone = []
    for _ in range(4):
        model = Model()
        for i in range(4):
            x = Tensor(np.full(1000, i, np.float32)).realize()
            assert model.forward(x).numpy()[0] == 2.0 * i
        gone.append(weakref.ref(model))
        gone.append(weakref.ref(x))
        del model, x
    Model().forward(vector(1.0))
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


def plain(x: Tensor) -> Tensor:
    return x * 2.0


def test_copies_and_pickles_of_a_jitted_function() -> None:
    f = jit(plain)
    for _ in range(4):
        f(vector(1.0))
    for g in (copy.copy(f), copy.deepcopy(f)):
        assert g.traces == 0
        assert [g(vector(3.0)).item() for _ in range(4)] == [6.0] * 4
    g = pickle.loads(pickle.dumps(f))
    assert [g(vector(3.0)).item() for _ in range(4)] == [6.0] * 4


def test_a_partial_of_a_coroutine_function() -> None:
    async def later(x: Tensor) -> Tensor:
        return x

    with pytest.raises(TypeError, match="later is a generator or a coroutine"):
        jit(functools.partial(later))


def test_an_error_leaves_gradients_where_they_were() -> None:
    """A run that fails, and did not write, has not taken the old gradients."""
    w = vector(1.0)
    other = vector(5.0)

    @jit
    def f(x: Tensor) -> None:
        w.grad = x * 2.0

    for _ in range(5):
        f(other)
    assert w.grad is not None
    (replay,) = f._replays

    def fail(*_: Any) -> Iterator[None]:
        raise KeyboardInterrupt

    replay._natives[0] = fail
    with pytest.raises(KeyboardInterrupt):
        f(vector(7.0))
    assert w.grad is not None
    assert w.grad.item() == 10.0

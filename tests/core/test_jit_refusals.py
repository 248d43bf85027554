"""Where a replay would not do what the function does, the function is run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.runtime import jit
from uopc.tensor import Tensor


def batch(i: int) -> Tensor:
    return Tensor(np.random.default_rng(i).standard_normal((3, 2)).astype(np.float32))


def warned(f: Any, call: Callable[[int], Any], calls: int = 6) -> str:
    """Make the calls; returns the one warning that there was."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Garbage of other tests may be collected just now.
        warnings.simplefilter("ignore", ResourceWarning)
        for i in range(calls):
            call(i)
    assert len(caught) == 1, [str(w.message) for w in caught]
    assert caught[0].category is RuntimeWarning
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert f.__qualname__ in text
    return text


def test_reading_a_value_inside() -> None:
    @jit
    def f(x: Tensor) -> Tensor:
        return x * 2.0 if x.sum().item() > 0 else x * 3.0

    def call(i: int) -> None:
        x = batch(i)
        factor = 2.0 if x.numpy().sum() > 0 else 3.0
        assert np.array_equal(f(x).numpy(), x.numpy() * np.float32(factor))

    text = warned(f, call)
    assert "runs without replays" in text
    assert "a value is read inside of it" in text
    assert "where()" in text
    assert f.traces == 0
    assert "a value is read" in repr(f)


@pytest.mark.parametrize(
    "read", [str, bool, float, np.asarray, lambda t: t.tolist(), lambda t: f"{t:.2f}"]
)
def test_every_way_of_reading(read: Callable[[Tensor], Any]) -> None:
    @jit
    def f(x: Tensor) -> Tensor:
        total = x.sum().realize()
        read(total)
        return total

    assert "a value is read" in warned(f, lambda i: f(batch(i)))


def test_python_state_that_the_function_changes() -> None:
    class Counter:
        calls = 0

    it, n = Counter(), 0
    it.calls = 0

    @jit
    def attribute(x: Tensor) -> Tensor:
        it.calls += 1
        return x * float(it.calls)

    @jit
    def cell(x: Tensor) -> Tensor:
        nonlocal n
        n += 1
        return x * float(n)

    def call(f: Any) -> Callable[[int], None]:
        def one(i: int) -> None:
            expected = batch(i).numpy() * np.float32(i + 1)
            assert np.array_equal(f(batch(i)).numpy(), expected)

        return one

    assert "it.calls is 4 and was 3" in warned(attribute, call(attribute))
    assert "n is 4 and was 3" in warned(cell, call(cell))
    assert (it.calls, n) == (6, 6)


def test_tensors_that_the_function_stores_elsewhere() -> None:
    class Box:
        last: Tensor | None = None

    box, log = Box(), list[Tensor]()
    box.last = batch(0)

    @jit
    def f(x: Tensor) -> Tensor:
        box.last = x * 2.0
        return box.last + 1.0

    @jit
    def g(x: Tensor) -> Tensor:
        log.append(x * 2.0)
        return log[-1] + 1.0

    assert "box.last is another Tensor" in warned(f, lambda i: f(batch(i)))
    assert "log has" in warned(g, lambda i: g(batch(i)))
    assert len(log) == 6


def test_arguments_that_change_every_time() -> None:
    f = jit(lambda x, rate: x * rate)
    text = warned(f, lambda i: f(batch(i), 1.0 + i), 8)
    assert "traced 5 times in a row, and no trace was used again" in text
    assert "is 7.0 and was 6.0" in text or "is 6.0 and was 5.0" in text
    assert "must be in Tensors" in text


def test_numpy_arrays_among_arguments_are_not_frozen() -> None:
    f = jit(lambda x: Tensor(x) * 2.0)
    array = np.ones((3, 2), np.float32)

    def call(i: int) -> None:
        array[:] = i
        assert np.array_equal(f(array).numpy(), array * 2)

    assert "is a NumPy array; pass a Tensor" in warned(f, call)


def test_old_and_new_value_of_a_tensor_in_two_runs() -> None:
    w = batch(0).realize()

    @jit
    def f(x: Tensor) -> Tensor:
        old = w * 2.0
        w.assign(w + x)
        w.realize()
        return (old + w).realize()

    expected = w.numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(6):
            x = batch(i).numpy()
            assert np.array_equal(f(batch(i)).numpy(), expected * 2 + (expected + x))
            expected = expected + x
            assert np.array_equal(w.numpy(), expected)


def test_numpy_data_that_differs_from_call_to_call() -> None:
    rng, images = np.random.default_rng(0), np.ones((3, 2), np.float32)
    same = np.random.default_rng(0)
    place = iter(range(100))

    @jit
    def noisy(x: Tensor) -> Tensor:
        return x + Tensor(rng.standard_normal((3, 2)).astype(np.float32))

    @jit
    def chosen(x: Tensor) -> Tensor:
        return x * 2.0 if next(place) % 2 else x * 3.0

    @jit
    def constant(x: Tensor) -> Tensor:
        return x + Tensor(images)

    def call(i: int) -> None:
        noise = same.standard_normal((3, 2)).astype(np.float32)
        assert np.array_equal(noisy(batch(i)).numpy(), batch(i).numpy() + noise)

    def choose(i: int) -> None:
        factor = np.float32(2.0 if i % 2 else 3.0)
        assert np.array_equal(chosen(batch(i)).numpy(), batch(i).numpy() * factor)

    assert "computes something else for the same arguments" in warned(noisy, call)
    assert "it can see an iterator (place)" in warned(chosen, choose)
    for i in range(5):
        assert np.array_equal(constant(batch(i)).numpy(), batch(i).numpy() + images)
    assert constant.traces == 1

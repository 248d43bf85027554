"""Updates in place when something fails, and when other threads read."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import DType, f32
from uopc.tensor import Tensor, realize_all
from uopc.testing.assignments import memory_of

Array = np.ndarray[Any, Any]
# The files in which a realization may be stopped.
WHERE = ("/runtime/values.py", "/runtime/together.py", "/runtime/run.py",
         "/runtime/buffers.py", "/interp/backend.py")  # fmt: skip


def data(*shape: int, dtype: DType = f32, seed: int = 0) -> Tensor:
    values = np.random.default_rng(seed).integers(0, 9, shape)
    return Tensor(values.astype(np.float64), dtype=dtype)


# -- what goes wrong ----------------------------------------------------------


@pytest.mark.parametrize("debug", [0, 1])
def test_an_error_leaves_every_value_as_it_was(
    debug: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, q = data(4, 4), data(4, 4, seed=1)
    a, b, places = p.numpy(), q.numpy(), (memory_of(p), memory_of(q))

    def failing(*values: Array) -> Array:
        raise ArithmeticError("it broke")

    p.assign(p + q)
    q.assign(q.sum(0) * 0 + 5 + q)
    with monkeypatch.context() as patch, overriding(UOPC_DEBUG=debug):
        patch.setattr("uopc.interp.backend.evaluate", _fails_at(3, failing))
        with pytest.raises(ArithmeticError, match="it broke"):
            realize_all([p, q])
    realize_all([p, q])
    assert (memory_of(p), memory_of(q)) == places
    np.testing.assert_array_equal(p.numpy(), a + b)
    np.testing.assert_array_equal(q.numpy(), b + 5)


def _fails_at(number: int, failing: Callable[..., Any]) -> Callable[..., Any]:
    """The evaluator, but the given call of it fails."""
    from uopc.interp import evaluate

    calls: list[int] = []

    def run(*given: Any, **named: Any) -> Any:
        calls.append(1)
        return failing() if len(calls) == number else evaluate(*given, **named)

    return run


def test_a_value_that_is_not_finite_is_found_before_anything_is_replaced() -> None:
    p = Tensor([0.0, 1.0])
    p.assign(p.log() * 1)
    with overriding(UOPC_NANS=True), pytest.raises(FloatingPointError, match="inf"):
        p.realize()
    np.testing.assert_array_equal(p.numpy(), np.float32([-np.inf, 0]))


def test_kernel_by_kernel_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    p, q = data(4, 4), data(4, 4, seed=1)
    expected = p.numpy() + (p.numpy() @ q.numpy()).sum(0), p.numpy().T.copy()
    place = memory_of(p)
    was = p.T + 0
    p.assign(p + (p @ q).realize().sum(0))
    with overriding(UOPC_DEBUG=1):
        realize_all([p, was])
    assert memory_of(p) == place
    assert " over " in capsys.readouterr().out
    np.testing.assert_array_equal(p.numpy(), expected[0])
    np.testing.assert_array_equal(was.numpy(), expected[1])


# What is raised while a generator is closed goes nowhere.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGUSR1])
def test_a_handler_that_raises_applies_updates_once_or_not_at_all(
    number: signal.Signals,
) -> None:
    """Wherever Python runs handlers: after calls of C, and where functions begin."""
    p, q = data(4), data(4, seed=1)
    a, b = p.numpy(), q.numpy()

    def update() -> None:
        p.assign(p + 1)
        q.assign(q + p)

    def raising(*_: object) -> None:
        raise TimeoutError

    places, profiler = itertools.count(), sys.getprofile()
    place, stopped, passed = 0, 0, False

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        here = frame.f_code.co_filename.endswith(WHERE)
        if here and event in ("call", "c_return") and next(places) == place:
            signal.raise_signal(number)

    before = signal.signal(number, raising)
    try:
        while not passed:
            update()
            try:
                sys.setprofile(interrupt)
                realize_all([p, q])
                passed = next(places) <= place
            except TimeoutError:
                stopped += 1
            finally:
                sys.setprofile(profiler)
            a, b = a + 1, b + a + 1
            np.testing.assert_array_equal([p.numpy(), q.numpy()], [a, b], str(place))
            assert signal.getsignal(number) is raising
            places, place = itertools.count(), place + 1
    finally:
        sys.setprofile(profiler)
        signal.signal(number, before)
    assert stopped > 100


def test_released_data_says_why() -> None:
    p = data(3)
    node = p.uop * 2.0
    p.assign(p + 1)
    p.realize()
    with pytest.raises(RuntimeError, match="assigned a new value since"):
        Tensor(node).numpy()


# -- threads ------------------------------------------------------------------


def in_threads(works: Sequence[Callable[[], object]]) -> None:
    """Run them at once; the first error is raised here."""
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            with overriding(UOPC_BACKEND="interp"):
                work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(w,)) for w in works]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive()
    if errors:
        raise errors[0]


def test_threads_read_lazy_values_while_another_updates() -> None:
    p = data(8, 8)
    value = p.numpy()
    for _ in range(40):
        readers = [(p * (k + 1)).T + p.sum(0) for k in range(3)]
        got: dict[int, Array] = {}

        def read(k: int, t: Tensor, got: dict[int, Array] = got) -> None:
            got[k] = t.numpy()

        p.assign(p + 1)
        works: list[Callable[[], object]] = [
            lambda k=k, t=t: read(k, t)  # type: ignore[misc]
            for k, t in enumerate(readers)
        ]
        in_threads([*works, p.realize, p.numpy])
        for k, found in got.items():
            np.testing.assert_array_equal(found, (value * (k + 1)).T + value.sum(0))
        value = value + 1
        np.testing.assert_array_equal(p.numpy(), value)


def test_threads_that_want_one_update_apply_it_once() -> None:
    p = data(64)
    value = p.numpy()
    for _ in range(40):
        p.assign(p * 2 - p + 1)
        after = [p + k for k in range(3)]
        in_threads([p.realize, p.numpy, *(t.numpy for t in after)])
        value = value + 1
        np.testing.assert_array_equal(p.numpy(), value)
        for k, t in enumerate(after):
            np.testing.assert_array_equal(t.numpy(), value + k)


def test_who_needs_a_value_that_is_being_written_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from uopc.interp import evaluate

    started, go_on = threading.Event(), threading.Event()

    def slow(*given: Any, **named: Any) -> Any:
        if threading.current_thread().name == "writer":
            started.set()
            assert go_on.wait(60)
        return evaluate(*given, **named)

    monkeypatch.setattr("uopc.interp.backend.evaluate", slow)
    p = data(4)
    old, place = p.numpy(), memory_of(p)
    p.assign(p + 1)
    after, apart = p * 2, data(4, seed=1) + 1
    got: dict[str, Array] = {}

    def run(name: str, t: Tensor) -> threading.Thread:
        def work() -> None:
            with overriding(UOPC_BACKEND="interp"):
                got[name] = t.numpy()

        thread = threading.Thread(target=work, name=name)
        thread.start()
        return thread

    threads = [run("writer", p)]
    assert started.wait(60)
    run("apart", apart).join(60)
    assert "apart" in got  # it reads nothing of that
    threads += [run("after", after), run("same", p)]
    threads[1].join(0.05)
    assert set(got) == {"apart"}
    go_on.set()
    for t in threads:
        t.join(60)
    np.testing.assert_array_equal(got["writer"], old + 1)
    np.testing.assert_array_equal(got["same"], old + 1)
    np.testing.assert_array_equal(got["after"], (old + 1) * 2)
    assert memory_of(p) == place

"""Passes pause the cycle collector, and always bring it back."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from uopc.dtype import f32
from uopc.kernelize import make_plan
from uopc.runtime import lower
from uopc.uir import UirError, parse_uir
from uopc.uop import UOp, collector_paused


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    was = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was else gc.disable)()


def test_pauses_nest() -> None:
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_the_pause() -> None:
    with pytest.raises(KeyError), collector_paused():
        raise KeyError
    assert gc.isenabled()
    with pytest.raises(UirError):
        parse_uir("%0 = nonsense")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_paused():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_pauses_of_threads_overlap() -> None:
    """The collector is back when the last of them ends, whatever their order."""
    began, go_on = threading.Event(), threading.Event()

    def other() -> None:
        with collector_paused():
            began.set()
            go_on.wait(10)

    thread = threading.Thread(target=other)
    with collector_paused():
        thread.start()
        assert began.wait(10)
    assert not gc.isenabled()  # the other one is still in its pause
    go_on.set()
    thread.join(10)
    assert gc.isenabled()


@pytest.mark.parametrize("name", ["make_plan", "lower", "parse_uir"])
def test_no_collection_happens_in_a_pass(name: str) -> None:
    u = UOp.buffer(4, f32, 0)
    for i in range(1500):
        u = u + float(i)
    text = "%0 = buffer 4 : dtype=f32 slot=0\n" + "\n".join(
        f"%{i + 1} = exp2 %{i}" for i in range(1500)
    )
    work = {
        "make_plan": lambda: make_plan([u]),
        "lower": lambda: lower(u.src[0].src[0], "k"),
        "parse_uir": lambda: parse_uir(text),
    }[name]
    # What is imported at the first use is no part of a pass.
    make_plan([UOp.buffer(4, f32, 0) + 1.0])
    lower(UOp.buffer(4, f32, 0) + 1.0, "k")
    parse_uir("%0 = buffer 4 : dtype=f32 slot=0")
    seen: list[str] = []

    def note(phase: str, info: object) -> None:
        seen.append(phase)

    gc.callbacks.append(note)
    try:
        made = work()
        during = len(seen)
        garbage = [[k] for k in range(3000)]
    finally:
        gc.callbacks.remove(note)
    assert made is not None
    assert garbage
    assert len(seen) > during, "collections are seen at all"
    assert during <= 2  # the one that was due, at the pause's end

"""Large arrays lie in blocks of pages, which are kept and used again."""

from __future__ import annotations

import gc
import multiprocessing
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.dtype import DType, bf16, f32, u8
from uopc.runtime import buffer_data, buffers, new_buffer, pages, release_memory
from uopc.runtime.buffers import ALIGNMENT, POOLED, empty, take
from uopc.runtime.pages import HUGE_PAGE, PERIOD, Pool, block_size
from uopc.tensor import Tensor
from uopc.uop import UOp

Array = np.ndarray[Any, Any]
MB = 1 << 20
BYTES = np.dtype(np.uint8)


class Clock:
    """The time, as a test sets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the blocks that the system was asked for."""
    sizes: list[int] = []
    original = pages._mapped

    def note(size: int) -> memoryview:
        sizes.append(size)
        return original(size)

    monkeypatch.setattr(pages, "_mapped", note)
    return sizes


def address(array: Array) -> int:
    where: int = array.__array_interface__["data"][0]
    return where


# -- what the arrays are ------------------------------------------------------


@pytest.mark.parametrize("dtype", [u8, bf16, f32], ids=str)
@pytest.mark.parametrize("nbytes", [0, 4, 400, POOLED - 4, POOLED, 5 * MB + 4])
def test_arrays_are_aligned_and_can_be_written(nbytes: int, dtype: DType) -> None:
    a = empty(nbytes // dtype.itemsize, dtype)
    assert a.dtype == dtype.storage
    assert a.shape == (nbytes // dtype.itemsize,)
    assert address(a) % ALIGNMENT == 0
    a[:] = 3
    assert (a == 3).all()
    assert not isinstance(a.base, np.ndarray)
    assert a[1:].view(np.uint8).base is a


def test_huge_pages_can_be_used() -> None:
    assert address(empty(HUGE_PAGE, u8)) % HUGE_PAGE == 0


def test_little_of_a_block_is_left_over() -> None:
    for n in (*range(POOLED, POOLED + 300), *range(POOLED, 300 * MB, 99_991)):
        assert n <= block_size(n) < 1.07 * n
        assert block_size(block_size(n)) == block_size(n)


# -- used again ---------------------------------------------------------------


def test_memory_is_used_again(mapped: list[int]) -> None:
    pool = Pool()
    a, b = pool.array(MB, BYTES), pool.array(MB // 4, np.dtype(np.float32))
    places = {address(a), address(b)}
    del a, b
    a, b = pool.array(MB - 100, BYTES), pool.array(MB // 8 - 5, np.dtype(np.float64))
    assert {address(a), address(b)} == places
    assert mapped == [MB, MB]


def test_what_is_referred_to_stays(mapped: list[int]) -> None:
    """By a view, a view of a view, a memoryview, or a cycle that is collected later."""
    pool = Pool()
    views: list[Callable[[Any], Any]] = [
        lambda a: a[5:],
        lambda a: a[6:].view(np.uint16)[::2],
        lambda a: memoryview(a),
        lambda a: np.asarray(memoryview(a[7:])),
        lambda a: np.broadcast_to(a.reshape(2, -1)[0], (3, MB // 2)),
    ]
    for i, view in enumerate(views):
        kept: Any = view(pool.array(MB, BYTES))
        assert pool.used == MB, i
        del kept
        assert (pool.used, pool.kept) == (0, MB), i
    gc.disable()
    try:
        cycle: list[Any] = [pool.array(MB, BYTES)]
        cycle.append(cycle)
        del cycle
        assert pool.used == MB
        gc.collect()
    finally:
        gc.enable()
    assert (pool.used, pool.kept) == (0, MB)
    assert mapped == [MB]


def test_the_array_of_a_tensor_is_its_own_memory() -> None:
    t = Tensor(np.arange(MB, dtype=np.float32)).realize()
    array = t.numpy()
    del t
    others = [Tensor(np.zeros(MB, np.float32)).realize() for _ in range(3)]
    assert (array == np.arange(MB)).all()
    array += 1
    assert not any(o.numpy().any() for o in others)


@pytest.mark.parametrize("size", [10, MB])
def test_memory_is_taken_only_if_nobody_else_has_it(size: int) -> None:
    node = new_buffer(empty(size, u8))
    for other in (
        buffer_data(node),
        buffer_data(node)[3:],
        memoryview(node_data(node)),
    ):
        assert take(node, "a test") is None, type(other)
        del other
    assert take(node, "a test") is not None


def node_data(node: UOp) -> Any:
    return buffer_data(node)[1:].view(np.int8)


# -- how much is kept ---------------------------------------------------------


def test_no_more_is_kept_than_was_in_use(mapped: list[int]) -> None:
    pool = Pool(Clock())
    for size in (1, 3, 7, 20, 50):
        pool.array(size * MB, BYTES)
    assert pool.kept == 50 * MB  # 31 at first, then of all the oldest went
    del mapped[:]
    pool.array(50 * MB, BYTES)
    assert mapped == []
    assert pool.release() == 50 * MB
    assert pool.kept == 0


def test_what_was_free_for_longest_goes_first(mapped: list[int]) -> None:
    clock = Clock()
    pool = Pool(clock)
    for size in (2, 8, 16, 5):
        clock.now += 1
        pool.array(size * MB, BYTES)
    assert pool.kept == 5 * MB  # of 31, when there may be 16
    del mapped[:]
    pool.array(5 * MB, BYTES)
    assert mapped == []


@pytest.mark.parametrize("order", [(64, 60, 56), (56, 60, 64), (60, 64, 56)])
def test_a_loop_over_many_sizes_finds_all_again(
    mapped: list[int], order: tuple[int, ...]
) -> None:
    pool = Pool(Clock())
    for turn in range(4):
        if turn == 2:
            del mapped[:]
        for size in order:
            pool.array(size * MB, BYTES)
    assert mapped == []


def test_a_small_array_does_not_take_a_large_block() -> None:
    pool = Pool(Clock())
    pool.array(64 * MB, BYTES)
    small = pool.array(MB, BYTES)
    assert pool.used == MB
    del small


def test_memory_of_a_program_that_is_over_is_let_go() -> None:
    clock = Clock()
    pool = Pool(clock)
    model = [pool.array(10 * MB, BYTES) for _ in range(5)]
    del model
    assert pool.kept == 50 * MB
    for _ in range(30):
        clock.now += PERIOD / 10
        pool.array(MB, BYTES)
    assert pool.kept == MB


def test_it_is_let_go_as_well_if_only_small_arrays_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    pool = Pool(clock)
    monkeypatch.setattr(buffers, "pool", pool)
    empty(10 * MB, u8)
    for _ in range(15):
        clock.now += PERIOD / 10
        empty(1, u8)
    assert pool.kept == 10 * MB
    for _ in range(15):
        clock.now += PERIOD / 10
        empty(1, u8)
    assert pool.kept == 0


@pytest.mark.parametrize(
    ("inside", "between"), [(0.1, 0), (0.1, 1.5), (0.1, 100), (1.5, 0.1), (100, 0.1)]
)
def test_a_step_finds_its_memory_again(
    mapped: list[int], inside: float, between: float
) -> None:
    """However many periods it takes, or the pause before it."""
    clock = Clock()
    pool = Pool(clock)
    for step in range(5):
        if step == 1:
            del mapped[:]
        pool.tidy()
        arena, result = pool.array(20 * MB, BYTES), pool.array(2 * MB, BYTES)
        clock.now += inside * PERIOD
        del arena
        pool.tidy()
        del result
        clock.now += between * PERIOD
    assert mapped == []


# -- threads, forks, failures -------------------------------------------------


def test_threads_never_share_a_block() -> None:
    pool = Pool()
    wrong: list[int] = []

    def work(me: int) -> None:
        rng = random.Random(me)
        mine: list[Array] = []
        for _ in range(300):
            if len(mine) < 4:
                a = pool.array(rng.choice([MB // 8, MB // 4]), BYTES)
                a[::4096] = me
                mine.append(a)
            else:
                a = mine.pop(rng.randrange(4))
                if (a[::4096] != me).any():
                    wrong.append(me)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    pool.array(MB // 8, BYTES)  # some may have been given back while it was locked
    assert pool.used == 0
    assert 0 < pool.kept <= 16 * MB // 4


def test_what_is_given_back_while_others_have_the_lock_is_not_lost(
    mapped: list[int],
) -> None:
    """Arrays are collected anywhere: that must not wait."""
    pool = Pool()
    array = pool.array(MB, BYTES)
    taken, given_back = threading.Event(), threading.Event()

    def hold() -> None:
        with pages._lock:
            taken.set()
            given_back.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    taken.wait(60)
    del array
    assert pool.kept == 0
    given_back.set()
    other.join()
    again = pool.array(MB, BYTES)
    assert mapped == [MB]
    assert (pool.used, pool.kept) == (again.nbytes, 0)


def _in_child(array: Array, queue: Any) -> None:
    others = [empty(MB, u8) for _ in range(3)]
    for o in others:
        o[:] = 9
    queue.put((bool((array == 5).all()), address(array) in map(address, others)))
    array[:] = 7


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_has_memory_of_its_own() -> None:
    array, free = empty(MB, u8), empty(MB, u8)
    array[:], free[:] = 5, 5
    del free
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(array, queue))
    child.start()
    assert queue.get() == (True, False)
    child.join()
    assert child.exitcode == 0
    assert (array == 5).all()
    assert (empty(MB, u8) != 9).any()


@pytest.mark.parametrize("nbytes", [1 << 60, 1 << 70])
def test_too_much_is_an_error_that_says_so(nbytes: int) -> None:
    kept = empty(MB, u8)
    del kept
    with pytest.raises(MemoryError, match=f"no memory for {nbytes:,} bytes"):
        empty(nbytes, u8)


def test_what_is_kept_is_let_go_before_memory_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = Pool()
    pool.array(3 * MB, BYTES)
    original, failed = pages._mapped, []

    def short(size: int) -> memoryview:
        if pool.kept:
            failed.append(size)
            raise MemoryError
        return original(size)

    monkeypatch.setattr(pages, "_mapped", short)
    array = pool.array(MB, BYTES)
    assert failed == [MB]
    assert (pool.used, pool.kept) == (array.nbytes, 0)


def test_release_memory_tells_how_much_it_was() -> None:
    release_memory()
    array = empty(3 * MB, u8)
    del array
    assert release_memory() == 3 * MB
    assert release_memory() == 0


def test_arrays_that_live_to_the_end_are_no_trouble() -> None:
    program = (
        "import builtins\n"
        "from uopc.dtype import u8\n"
        "from uopc.runtime.buffers import empty\n"
        "builtins.last = [empty(1 << 20, u8) for _ in range(3)]\n"
        "builtins.last.append(builtins.last)\n"
        "other = empty(1 << 20, u8)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""

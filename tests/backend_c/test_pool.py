"""The threads of parallel loops: rounds, callers, forks, and when there are none."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uopc.backend_c import cache, pool, set_threads, threads
from uopc.backend_c.load import Library, load
from uopc.backend_c.pool import use_pool
from uopc.config import overriding
from uopc.tensor import Tensor

PROGRAM = """
static void serially(void (*task)(void**, long), void** table, long rounds) {
  for (long i = 0; i < rounds; i++) task(table, i);
}
void (*uopc_parallel)(void (*)(void**, long), void**, long) = serially;

/* Tables are: results, number of rounds, and what is said below. */
#define ROUNDS (*(long*)table[1])

static void count(void** table, long i) { ((long*)table[0])[i]++; }
void run_count(void** table) { uopc_parallel(count, table, ROUNDS); }

/* Within each round as many rounds again. */
static void row(void** table, long i) {
  long* counts = (long*)table[0] + i * ROUNDS;
  void* inner[] = {counts};
  uopc_parallel(count, inner, ROUNDS);
}
void run_rows(void** table) { uopc_parallel(row, table, ROUNDS); }

/* Which thread runs a round, after all rounds have begun, or some seconds. */
static __thread char own;
static void meet(void** table, long i) {
  int* begun = table[2];
  __atomic_fetch_add(begun, 1, __ATOMIC_SEQ_CST);
  for (long k = 0; k < 400000000; k++)
    if (__atomic_load_n(begun, __ATOMIC_SEQ_CST) == ROUNDS) break;
  ((void**)table[0])[i] = &own;
}
void run_meet(void** table) { uopc_parallel(meet, table, ROUNDS); }

static void who(void** table, long i) { ((void**)table[0])[i] = &own; }
void run_who(void** table) { uopc_parallel(who, table, ROUNDS); }

/* As meet, with much on the stack. */
static void deep(void** table, long i) {
  volatile char large[7 << 20];
  for (long k = 0; k < sizeof large; k += 4096) large[k] = 1;
  meet(table, i);
  ((long*)table[0])[i] = large[0];
}
void run_deep(void** table) { uopc_parallel(deep, table, ROUNDS); }
"""
PORTABLE = "#define UOPC_PORTABLE\n"

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*multi-threaded, use of fork:DeprecationWarning"
)


@pytest.fixture(params=["futex", "portable"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The pool's text: as it is on Linux, and with what other systems have."""
    file = tmp_path / "pool.c"
    before = PORTABLE if request.param == "portable" else ""
    file.write_text(before + pool.SOURCE.read_text())
    return file


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No pool is loaded, and nobody has said how many threads."""
    monkeypatch.setattr(pool, "_loaded", {})
    monkeypatch.setattr(pool, "_chosen", None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    yield
    set_threads(1)


@pytest.fixture
def program(
    fresh: None, source: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Library]:
    """Parallel loops, on a pool of two threads."""
    monkeypatch.setattr(pool, "SOURCE", source)
    library = load(cache.build(PROGRAM, 1))
    use_pool(library)
    set_threads(2)
    yield library
    # Whatever the last test did, its workers go home.
    set_threads(1)
    counts(library, 2)


def call(
    library: Library, name: str, results: np.ndarray[Any, Any], rounds: int
) -> None:
    extra = ctypes.c_long(rounds), ctypes.c_int(0)
    table = (ctypes.c_void_p * 3)(
        results.ctypes.data, *(ctypes.addressof(x) for x in extra)
    )
    library.function(f"run_{name}")(table)


def counts(library: Library, rounds: int) -> list[int]:
    """How often each round ran; there is a place too many."""
    found = np.zeros(rounds + 1, np.int64)
    call(library, "count", found, rounds)
    return found.tolist()


def on_threads(library: Library, rounds: int = 2, name: str = "meet") -> int:
    """On how many threads the rounds ran."""
    found = np.zeros(rounds, np.int64)
    call(library, name, found, rounds)
    return len(set(found.tolist()))


def in_child(work: Callable[[], bool]) -> bool:
    """Whether ``work`` is true in a forked process."""
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


# Rounds


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_round_runs_once(program: Library, count: int):
    set_threads(count)
    for rounds in (0, 1, 2, 3, 16, 1000):
        for _ in range(100):
            assert counts(program, rounds) == [1] * rounds + [0]


def test_rounds_run_at_once(program: Library):
    assert on_threads(program) == 2
    set_threads(3)
    assert on_threads(program, 3) == 3
    set_threads(1)
    assert on_threads(program, 8, "who") == 1
    set_threads(2)
    assert on_threads(program) == 2


def test_workers_that_are_not_wanted_end(program: Library):
    def others() -> int:
        return len(os.listdir("/proc/self/task")) - before

    set_threads(1)
    counts(program, 2)
    before = len(os.listdir("/proc/self/task"))
    set_threads(5)
    assert on_threads(program, 5) == 5
    assert others() > 2  # some that went home before may have been counted
    set_threads(1)
    counts(program, 2)
    end = time.monotonic() + 20
    while others() > 0 and time.monotonic() < end:
        time.sleep(0.001)
    assert others() <= 0


def test_a_loop_in_a_round(program: Library):
    found = np.zeros((20, 20), np.int64)
    for _ in range(20):
        call(program, "rows", found, 20)
    assert (found == 20).all()


def test_several_callers(program: Library):
    wrong: list[list[int]] = []

    def work(rounds: int) -> None:
        for _ in range(300):
            if (found := counts(program, rounds)) != [1] * rounds + [0]:
                wrong.append(found)

    callers = [threading.Thread(target=work, args=(n,)) for n in (2, 3, 40, 100)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_rounds_may_use_the_stack(program: Library):
    found = np.zeros(2, np.int64)
    call(program, "deep", found, 2)
    assert found.tolist() == [1, 1]


def test_workers_leave_signals_to_the_program(program: Library):
    def blocked(thread: str) -> int:
        status = Path(f"/proc/self/task/{thread}/status").read_text()
        return int(status.partition("SigBlk:")[2].split()[0], 16)

    before = set(os.listdir("/proc/self/task"))
    set_threads(3)
    on_threads(program, 3)
    new = set(os.listdir("/proc/self/task")) - before
    assert new
    ordinary = (1 << 31) - 1 - (1 << 8) - (1 << 18)  # but SIGKILL and SIGSTOP
    assert all(blocked(thread) & ordinary == ordinary for thread in new)
    assert not blocked(str(os.getpid())) & ordinary


def test_results_are_the_same_on_any_number_of_threads(program: Library):
    rng = np.random.default_rng(0)
    a = Tensor(rng.standard_normal((300, 500)).astype(np.float32))
    b = Tensor(rng.standard_normal((500, 400)).astype(np.float32))
    large = Tensor(rng.standard_normal(1 << 20).astype(np.float32))
    results = []
    with overriding(UOPC_BACKEND="c", UOPC_OPT=1):
        for count in (1, 2, 3):
            set_threads(count)
            for x in (a @ b, large.sum(), large.reshape(1024, 1024).sum(0)):
                results.append(x.numpy().tobytes())
    assert results[:3] == results[3:6] == results[6:]
    assert pool._loaded["pool"] is not None


# Processes


def test_forked_processes_have_their_own(program: Library):
    assert on_threads(program) == 2
    assert in_child(lambda: on_threads(program) == 2)
    assert in_child(lambda: in_child(lambda: on_threads(program) == 2))
    assert on_threads(program) == 2


def test_a_fork_while_a_loop_runs(program: Library):
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            counts(program, 1000)

    busy = threading.Thread(target=work)
    busy.start()
    try:
        assert all(in_child(lambda: on_threads(program) == 2) for _ in range(10))
    finally:
        stop.set()
        busy.join()
    assert on_threads(program) == 2


def test_a_process_on_one_processor_has_no_workers(program: Library):
    set_threads(None)

    def alone() -> bool:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        once = on_threads(program, 8, "who") == 1
        return threads() == 1 and once and len(os.listdir("/proc/self/task")) == 1

    assert in_child(alone)


EXIT = """
import sys
sys.path.insert(0, {folder!r})
import test_pool
from uopc.backend_c import cache, set_threads
from uopc.backend_c.load import load
from uopc.backend_c.pool import use_pool
with load(cache.build(test_pool.PROGRAM, 1)) as library:
    use_pool(library)
    set_threads(3)
    assert test_pool.on_threads(library, 3) == 3
print("done")
"""


def test_a_process_ends_while_workers_sleep():
    text = EXIT.format(folder=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# Without a pool


@pytest.mark.usefixtures("fresh")
def test_only_parallel_loops_load_it(own_cache: Path):
    with load(
        cache.build("void uopc_run(void **table) { (void)table; }\n", 1)
    ) as plain:
        use_pool(plain)
        assert pool._loaded == {}
    with load(cache.build(PROGRAM, 1)) as parallel:
        use_pool(parallel)
        assert pool._loaded["pool"] is not None
        first = dict(pool._loaded)
        use_pool(parallel)
        assert pool._loaded == first
    assert cache.stats.compiler_runs == 3


@pytest.mark.usefixtures("fresh")
def test_without_a_pool_there_is_one_thread(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pool, "SOURCE", tmp_path / "pool.c")
    pool.SOURCE.write_text("no C\n")
    with load(cache.build(PROGRAM, 1)) as library:
        with pytest.warns(RuntimeWarning, match="run on one thread: the C compiler"):
            use_pool(library)
        use_pool(library)
        assert counts(library, 50) == [1] * 50 + [0]
        assert on_threads(library, 50, "who") == 1


# How many


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("variable", "count"),
    [("3", 3), (" 5 ", 5), ("4,2", 4), ("", 0), ("0", 0), ("-1", 0), ("many", 0)],
)
def test_the_usual_variable(variable: str, count: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert threads() == (count or len(os.sched_getaffinity(0)))
    set_threads(2)
    assert threads() == 2
    set_threads()
    assert threads() == (count or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_numbers_of_threads_that_are_none(count: int):
    with pytest.raises(ValueError, match="expected 1 to 1024"):
        set_threads(count)
    with pytest.raises(TypeError):
        set_threads(1.5)  # type: ignore[arg-type]

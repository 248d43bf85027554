"""Native code is unloaded with the plan it belongs to, and never under a run."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

from uopc import kernelize
from uopc.backend_c import cache, load
from uopc.config import overriding
from uopc.runtime import backend_named, new_buffer, realize, stats
from uopc.uop import UOp

MAPS = Path("/proc/self/maps")


def mapped(folder: Path) -> set[str]:
    """The shared objects of a folder that are in this process's memory."""
    lines = MAPS.read_text().splitlines()
    return {line.split()[-1] for line in lines if str(folder) in line}


@pytest.fixture(autouse=True)
def no_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernelize.plan, "_plans", {})
    monkeypatch.setenv("UOPC_BACKEND", "c")


X = np.linspace(-1, 1, 5).astype(np.float32)


def graph(n: int) -> UOp:
    """Graphs of as many structures as there are n."""
    x = new_buffer(X)
    for bit in f"{n:b}":
        x = x * 0.5 if bit == "1" else x + 0.25
    return x


def test_forgotten_plans_leave_no_code_behind(own_cache: Path) -> None:
    gc.disable()  # plans and programs are no cycles: the collector is not needed
    try:
        with overriding(UOPC_PLANS=3, UOPC_OPT=0):
            sizes = []
            for n in range(1, 13):
                realize([graph(n)])
                sizes.append(len(mapped(own_cache)))
            assert sizes == [1, 2, *[3] * 10]
            before = stats()
            realize([graph(12)])
            assert (stats() - before).plans_made == 0
            (again,) = realize([graph(1)])
            np.testing.assert_array_equal(again, X * np.float32(0.5))
            made = stats() - before
        assert (made.plans_made, made.compilations, made.cache_hits) == (1, 0, 1)
        assert len(mapped(own_cache)) == 3
        kernelize.plan._plans.clear()
        assert mapped(own_cache) == set()
    finally:
        gc.enable()


def test_a_program_that_someone_has_keeps_its_code(own_cache: Path) -> None:
    backend = backend_named("c")
    with overriding(UOPC_PLANS=1, UOPC_OPT=0):
        plan, _ = kernelize.make_plan([graph(5)], None, backend.supports, "c")
        program = backend.compile(plan)
        del plan
        realize([graph(1)])
        assert len(mapped(own_cache)) == 2
        out = np.empty(5, np.float32)
        program([X, out])
        np.testing.assert_array_equal(out, (X * np.float32(0.5) + 0.25) * 0.5)
        del program
        assert len(mapped(own_cache)) == 1


def test_a_function_keeps_its_library_open_until_it_is_closed(own_cache: Path) -> None:
    path = cache.build("void f(void **t) { *(int *)t = 7; }\n", 0)
    function = load.load(path).function("f")
    gc.collect()
    number = np.zeros(1, np.int32)
    function(number.ctypes.data)
    assert number[0] == 7
    assert mapped(own_cache) == {str(path)}
    del function
    assert mapped(own_cache) == set()
    library = load.load(path)
    kept = library.function("f")
    library.close()
    library.close()
    assert mapped(own_cache) == set()
    del kept, library


def test_eight_threads_run_plans_that_others_throw_out(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UOPC_PLANS", "1")
    monkeypatch.setenv("UOPC_OPT", "0")
    expected = {n: realize([graph(n)])[0] for n in range(1, 5)}
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            for i in range(40):
                n = (seed + i) % 4 + 1
                (got,) = realize([graph(n)])
                if not np.array_equal(got, expected[n]):
                    wrong.append((n, got))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert len(mapped(own_cache)) == 1

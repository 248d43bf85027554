"""Threads, pickles, forks and interrupts, on both backends."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from uopc.autodiff import gradient
from uopc.config import get, overriding
from uopc.kernelize import Plan, make_plan
from uopc.runtime import backend_named
from uopc.runtime.backends import made_once
from uopc.tensor import Tensor
from uopc.uop import UOp

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@pytest.fixture(params=["c", "interp"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with overriding(UOPC_BACKEND=request.param):
        yield request.param


def work(seed: int) -> list[bytes]:
    """A value, its gradient and that one's gradient, of a function like no other's."""
    rng = np.random.default_rng(seed)
    x = Tensor(rng.uniform(0.5, 1.5, (3, seed % 5 + 2)).astype(np.float32))
    y = x
    for kind in rng.integers(4, size=5):
        match kind:
            case 0:
                y = (y * x).sin()
            case 1:
                y = y.softmax(1) + x
            case 2:
                y = (y.square() + 1.0).sqrt()
            case _:
                y = y @ (x.T @ x)
    (first,) = gradient(y.sum().uop, [x.uop])
    (second,) = gradient(Tensor(first).sum().uop, [x.uop])
    found = [y, Tensor(first), Tensor(second)]
    return [t.numpy().tobytes() for t in found]


def test_eight_threads_differentiate_and_run_as_one_does(backend: str) -> None:
    def on_backend(seed: int) -> list[bytes]:
        with overriding(UOPC_BACKEND=backend):  # a thread starts without overrides
            return work(seed)

    seeds = [s for s in range(6) for _ in range(2)]  # also the same graph at once
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            at_once = list(pool.map(on_backend, seeds))
    finally:
        sys.setswitchinterval(interval)
    assert at_once == list(map(work, seeds))


@pytest.mark.parametrize("fails", [False, True])
def test_threads_that_need_the_same_thing_make_it_once(fails: bool) -> None:
    """If that fails, another of them tries."""
    plan, made = Plan((), (), ()), []
    gate = threading.Barrier(8)

    def make() -> object:
        made.append(object())
        time.sleep(0.02)
        if fails and len(made) == 1:
            raise MemoryError
        return made[-1]

    def need(_: int) -> object:
        gate.wait()
        try:
            return made_once(plan, "a backend", make)
        except MemoryError:
            return None

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(need, range(8)))
    assert len(made) == 1 + fails
    assert found.count(made[-1]) == 8 - fails
    assert plan.programs == {"a backend": made[-1]}


# -- pickles ----


def a_plan() -> tuple[Plan, list[UOp], Array]:
    """A plan that has run, its inputs, and what it computed."""
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    root = ((x @ x.T).softmax(1) + 1.0).uop
    supports = backend_named(get("UOPC_BACKEND")).supports
    value = Tensor(root).numpy()
    plan, inputs = make_plan([root], None, supports, get("UOPC_BACKEND"))
    return plan, inputs, value


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))]
)
def test_a_copied_plan_compiles_again_and_computes_the_same(how, backend: str) -> None:
    plan, _, value = a_plan()
    assert plan.programs
    again = how(plan)
    assert not again.programs
    assert again.buffers == plan.buffers
    assert [k.ast for k in again.kernels] == [k.ast for k in plan.kernels]
    arrays = [np.zeros(b.size, b.dtype.storage) for b in again.buffers]
    arrays[0][:] = np.arange(6)
    backend_named(backend).compile(again)(arrays)
    assert_array_equal(arrays[again.outputs[0]].reshape(value.shape), value)


def test_tensors_and_graphs_pickle() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    lazy, plain = pickle.loads(pickle.dumps([x * 2.0 + 1.0, x]))
    assert_array_equal(lazy.numpy(), [3.0, 5.0])
    assert plain.requires_grad
    (plain * lazy).sum().backward([plain])
    assert_array_equal(plain.grad.numpy(), [3.0, 5.0])
    graph = UOp.param(0, x.dtype, (2,)).exp2() + 1.0
    assert pickle.loads(pickle.dumps(graph)) is graph


def test_tensors_and_plans_in_a_process_that_starts_afresh(backend: str) -> None:
    """Nothing of this process is there but the pickles."""
    plan, _, value = a_plan()
    lazy = Tensor([1.0, 2.0]) * 2.0 + 1.0
    printed = python(
        f"""
        import pickle
        import numpy as np
        from uopc.runtime import backend_named

        t, plan = pickle.loads(bytes.fromhex("{pickle.dumps([lazy, plan]).hex()}"))
        arrays = [np.zeros(b.size, b.dtype.storage) for b in plan.buffers]
        arrays[0][:] = np.arange(6)
        backend_named("{backend}").compile(plan)(arrays)
        print(t.tolist(), arrays[plan.outputs[0]].tolist())
        """,
        backend,
    )
    assert printed == [f"[3.0, 5.0] {value.ravel().tolist()}"]


# -- forks ----


def loaded(seed: int, parent: Tensor) -> tuple[list[bytes], Tensor]:
    """What a worker of a data loader does: it computes, and sends tensors back."""
    return work(seed), parent * float(seed)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_pool_of_forked_workers_computes_after_native_work() -> None:
    """Workers run plans of the parent, and compile ones that it does not have."""
    seeds = range(20, 24)
    expected = {s: work(s) for s in seeds if s % 2}
    x = Tensor([1.0, 2.0])
    with multiprocessing.get_context("fork").Pool(3) as pool:
        jobs = [pool.apply_async(loaded, (s, x)) for s in seeds]
        for s, job in zip(seeds, jobs, strict=True):
            values, t = job.get(timeout=60)
            assert values == expected.get(s, values) == work(s)
            assert_array_equal(t.numpy(), [s, 2.0 * s])


def python(program: str, backend: str) -> list[str]:
    """The lines that a program prints, run by itself."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "UOPC_BACKEND": backend},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_fork_while_other_threads_compute_does_not_hang(backend: str) -> None:
    printed = python(
        """
        import os, signal, sys, threading
        from uopc.tensor import Tensor

        sys.setswitchinterval(1e-5)
        stop = threading.Event()
        (Tensor([1.0, 2.0]) * 2.0 + 1.0).numpy()  # plugins are loaded

        def busy(k):
            while not stop.is_set():
                (Tensor([1.0, float(k)]) * 2.0 + 1.0).numpy()

        threads = [threading.Thread(target=busy, args=(k,)) for k in range(3)]
        for t in threads:
            t.start()
        for n in range(20):
            child = os.fork()
            if not child:
                signal.alarm(10)  # kills it if it hangs
                ok = (Tensor([1.0, 2.0]) * 2.0 + 1.0).tolist() == [3.0, 5.0]
                os._exit(0 if ok else 1)
            status = os.waitpid(child, 0)[1]
            if status:
                print("child", n, status)
        stop.set()
        print("done")
        """,
        backend,
    )
    assert printed == ["done"]


def test_a_fork_while_a_plan_is_made_does_not_hang() -> None:
    """Of the same plan, and of another that is lowered and printed."""
    printed = python(
        """
        import os, signal, threading
        from uopc.kernelize import Plan
        from uopc.runtime.backends import made_once
        from uopc.uop import lazy

        begun, finish = threading.Event(), threading.Event()
        plan = Plan((), (), ())

        class Text:
            @lazy
            def text(self):
                if threading.current_thread() is not threading.main_thread():
                    begun.set()
                    finish.wait()
                return "text"

        first, second = Text(), Text()
        make = lambda: first.text
        thread = threading.Thread(target=made_once, args=(plan, "name", make))
        thread.start()
        begun.wait()
        child = os.fork()
        if not child:
            signal.alarm(10)  # kills it if it hangs
            os._exit(made_once(plan, "name", lambda: second.text) != "text")
        print(os.waitpid(child, 0)[1])
        finish.set()
        thread.join()
        print(plan.programs, first.text is first.text)
        """,
        "c",
    )
    assert printed == ["0", "{'name': 'text'} True"]


def test_a_fork_during_the_first_computation_does_not_hang(
    backend: str, tmp_path: Path
) -> None:
    """When what computes is still being imported, and when its locks are made."""
    printed = python(
        f"""
        import os, signal, sys, threading
        from uopc.tensor import Tensor

        os.environ["UOPC_CACHE_DIR"] = {str(tmp_path)!r}
        sys.setswitchinterval(1e-4)
        work = lambda: ((Tensor([1.0, 2.0]) * 2.0).sum() + 1.0).item()
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            child = os.fork()
            if not child:
                signal.alarm(30)  # kills it if it hangs
                os._exit(0 if work() == 7.0 else 1)
            status = os.waitpid(child, 0)[1]
            if status:
                print("child", status)
        print("done")
        """,
        backend,
    )
    assert printed == ["done"]


def test_locks_made_while_a_fork_waits_are_free_in_the_child() -> None:
    """The fork waits for a lock; who holds it makes another, and holds that."""
    printed = python(
        """
        import os, signal, sys, threading, time
        from uopc.uop import fork_safe

        sys.unraisablehook = lambda u: print("ignored", u.exc_value, flush=True)
        first, made = fork_safe(threading.Lock()), []
        begun = threading.Event()

        def make():
            with first:
                begun.set()
                time.sleep(0.2)
                made.append(fork_safe(threading.Lock()))
                made[0].acquire()
            time.sleep(0.2)
            made[0].release()

        thread = threading.Thread(target=make)
        thread.start()
        begun.wait()
        child = os.fork()
        if not child:
            signal.alarm(10)  # kills it if it hangs
            with first, made[0]:
                os._exit(0)
        print(os.waitpid(child, 0)[1])
        thread.join()
        with first, made[0]:
            print("free")
        """,
        "interp",
    )
    assert printed == ["0", "free"]


def test_a_child_is_told_what_another_thread_was_writing_at_the_fork() -> None:
    """And the parent is not; a new value helps."""
    printed = python(
        """
        import os, threading
        import numpy as np
        from uopc.kernelize import Plan
        from uopc.runtime import backend_named
        from uopc.tensor import Tensor

        p = Tensor(np.zeros(4, np.float32))
        p.assign(p + 1).realize()
        begun, finish = threading.Event(), threading.Event()
        program = type(backend_named("interp").compile(Plan((), (), ())))
        run = program.__call__

        def slowly(self, arrays):
            if threading.current_thread() is thread:
                begun.set()
                finish.wait()
            run(self, arrays)

        program.__call__ = slowly
        thread = threading.Thread(target=lambda: p.assign(p + 1).realize())
        thread.start()
        begun.wait()
        child = os.fork()
        if not child:
            try:
                p.numpy()
            except RuntimeError as error:
                print(str(error).partition(": ")[2])
            print(p.assign(Tensor([5.0] * 4)).tolist(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        finish.set()
        thread.join()
        print(p.tolist())
        """,
        "interp",
    )
    assert printed == [
        "another thread was writing over it at the fork",
        "[5.0, 5.0, 5.0, 5.0]",
        "[2.0, 2.0, 2.0, 2.0]",
    ]


# -- interrupts ----


def test_an_interrupt_during_a_native_call_leaves_nothing_broken() -> None:
    printed = python(
        """
        import os, signal, threading, time
        import numpy as np
        from uopc.tensor import Tensor
        from uopc.nn import SGD

        # A job in the background starts its children with interrupts turned off.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        a = np.random.default_rng(0).standard_normal((768, 768)).astype(np.float32)
        w = Tensor(a, requires_grad=True)
        optimizer = SGD([w], lr=0.5)

        def step():
            loss = (w @ Tensor(a)).square().mean()
            loss.backward([w])
            optimizer.step(loss)
            optimizer.zero_grad()
            return loss

        start = time.perf_counter()
        step()  # compiles
        once = time.perf_counter() - start
        start = time.perf_counter()
        step()
        once = time.perf_counter() - start
        expected = [w.numpy()]
        saved = w.numpy()
        step()
        expected = w.numpy()
        w.assign(Tensor(saved).realize())

        me = os.getpid()
        threading.Timer(once / 2, os.kill, (me, signal.SIGINT)).start()
        try:
            step()
            time.sleep(5)
            print("not interrupted in time")
        except KeyboardInterrupt:
            print("interrupted")
        optimizer.zero_grad()
        w.assign(Tensor(saved).realize())
        step()
        print(np.array_equal(w.numpy(), expected))
        """,
        "c",
    )
    assert printed == ["interrupted", "True"]

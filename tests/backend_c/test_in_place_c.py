"""Updates in place in C: one pointer for what is read and written over."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from uopc.backend_c import print_plan
from uopc.backend_c.backend import spellings
from uopc.backend_c.plans import _structure
from uopc.config import overriding
from uopc.dtype import DType, bf16, f16, f32, f64, i32, u8
from uopc.kernelize import make_plan
from uopc.runtime import new_buffer, stats
from uopc.tensor import Tensor, realize_all
from uopc.testing.assignments import MAKERS, Assignments, memory_of
from uopc.uop import UOp

N = 3
APART = {"matmul", "square", "turned", "turned sum", "own turn", "reversed",
         "reversed sum", "rows", "shifted"}  # fmt: skip


@pytest.fixture(autouse=True)
def in_c() -> object:
    with overriding(UOPC_BACKEND="c"):
        yield


@pytest.mark.parametrize("dtype", [f32, bf16, i32], ids=str)
@pytest.mark.parametrize("opt", [0, 1])
def test_every_kind_of_update(dtype: DType, opt: int) -> None:
    """One plan; what reads its own value at other places has memory of its own."""
    rng = np.random.default_rng(0)
    p: dict[str, Tensor] = {}
    expected: dict[str, np.ndarray] = {}  # type: ignore[type-arg]
    q = rng.integers(0, 5, (N, N))
    for name, make in MAKERS.items():
        x = rng.integers(0, 5, (N, N))
        p[name] = Tensor(x.astype(np.float64), dtype=dtype)
        expected[name] = np.broadcast_to(make(x, q), (N, N))
    other = Tensor(q.astype(np.float64), dtype=dtype)
    places = {name: memory_of(t) for name, t in p.items()}
    for name, make in MAKERS.items():
        p[name].assign(make(p[name], other).detach())
    with overriding(UOPC_OPT=opt):
        realize_all(list(p.values()))
    for name, t in p.items():
        np.testing.assert_array_equal(t.numpy().astype(int), expected[name], name)
    assert {n for n, t in p.items() if memory_of(t) != places[n]} <= APART | {"steps"}
    assert {"add", "more", "mixed", "reshaped", "total"} <= {
        n for n, t in p.items() if memory_of(t) == places[n]
    }


def test_a_large_update_in_place() -> None:
    """More than a vector, and no multiple of one; a sum in its kernel."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((129, 65)).astype(np.float32) for _ in range(2))
    p, q = Tensor(x), Tensor(y)
    place = memory_of(p)
    p.assign(p * 0.5 - (q @ q.T) @ q * 0.01 + p * p)
    before = stats()
    p.realize()
    assert memory_of(p) == place
    allocated = (stats() - before).bytes_allocated
    assert allocated < 4 * 129 * 129 + 64
    expected = x * 0.5 - (y @ y.T) @ y * 0.01 + x * x
    np.testing.assert_allclose(p.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_one_pointer_serves_both_and_updates_share_one_loop() -> None:
    p, q, g = (new_buffer(np.zeros(6, np.float32)) for _ in range(3))
    roots = [p - g, q - g, p.flip((0,)) * 2.0, g - p]
    with overriding(UOPC_OPT=1):  # kernels are joined
        plan, inputs = make_plan(roots, None, homes={0: p, 1: q})
        source = print_plan(plan, spellings())
    over = {k.out: k.over for k in plan.kernels}
    assert [over[o] for o in plan.outputs] == [
        inputs.index(p), inputs.index(q), None, None
    ]  # fmt: skip
    functions = re.findall(r"void (e_6\w*)\((.*)\) \{", source)
    # The others read what is written over, so they come first.
    assert [text.count("restrict") for _, text in functions] == [4, 3]
    assert len(re.findall(r"^  (e_6\w*)\(", source, re.M)) == 2


def test_in_place_or_not_is_part_of_the_name_in_the_cache() -> None:
    p = new_buffer(np.zeros(6, np.float32))
    plans = [make_plan([p + 1.0], None, homes=homes)[0] for homes in ({}, {0: p})]
    assert len({_structure(plan) for plan in plans}) == 2


def test_plans_in_place_are_found_again_after_an_hour_of_others() -> None:
    p = Tensor(np.arange(6, dtype=np.float32))
    for i in range(4):
        p.assign(p + 1)
        p.realize()
        assert p.tolist() == [float(k + i + 1) for k in range(6)]


def test_swaps_and_products_of_themselves() -> None:
    a, b = Tensor(np.eye(4, dtype=np.float32) * 2), Tensor(np.ones((4, 4), np.float32))
    x, y = a.numpy(), b.numpy()
    for _ in range(3):
        first, second = b + 1, a @ a / 2
        a.assign(first)
        b.assign(second)
        del first, second
        realize_all([a, b])
        x, y = y + 1, x @ x / 2
        np.testing.assert_array_equal(a.numpy(), x)
        np.testing.assert_array_equal(b.numpy(), y)


def test_threads_read_what_another_writes_over() -> None:
    """Each sees the value of the time when its tensor was built, and whole."""
    n = 200_000
    p = Tensor(np.zeros(n, np.float32))
    wrong: list[str] = []

    def read(t: Tensor, value: float) -> None:
        with overriding(UOPC_BACKEND="c"):
            got = t.numpy()
        if not (got == value).all():
            wrong.append(f"{np.unique(got)} instead of {value}")

    for i in range(30):
        reader, alias = p * 3, p.detach()
        p.assign(p + 1)
        after = p * 2
        works = [(reader, 3.0 * i), (p, i + 1.0), (after, 2.0 * (i + 1)), (alias, i)]
        threads = [threading.Thread(target=read, args=w) for w in works]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
    assert not wrong


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also in a background job of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_applies_an_update_once_or_not_at_all() -> None:
    n = 300_000
    p = Tensor(np.zeros(n, np.float32))
    p.assign(p + 1)
    p.realize()
    done, stopped = 1, 0
    for round_ in range(60):
        p.assign(p + 1)
        delay = (round_ % 20) * 2e-4
        timer = threading.Thread(
            target=lambda d=delay: (time.sleep(d), signal.raise_signal(signal.SIGINT))  # type: ignore[misc]
        )
        try:
            timer.start()
            for _ in range(3):
                p.realize()
            timer.join()
            time.sleep(0.001)
        except KeyboardInterrupt:
            stopped += 1
        timer.join()
        done += 1
        got = p.numpy()
        assert (got == done).all(), (round_, np.unique(got), done)
    assert stopped > 10


TYPES = (f32, f16, bf16, i32, f64, u8)


@pytest.mark.parametrize("opt", [0, 1])
def test_random_programs_of_assignments(opt: int) -> None:
    """Few expressions, so that there are few plans to compile."""
    with overriding(UOPC_CHECK=1, UOPC_OPT=opt):
        for seed in range(opt, 12, 2):
            Assignments(seed, TYPES[seed % 6], steps=16, shapes=2).run()


def test_a_node_over_memory_that_was_written_over_says_so() -> None:
    p = Tensor(np.zeros(3, np.float32))
    node: UOp = p.uop * 2.0
    p.assign(p + 1)
    p.realize()
    with pytest.raises(RuntimeError, match="assigned a new value since"):
        Tensor(node).numpy()

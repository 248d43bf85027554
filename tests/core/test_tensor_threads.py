"""Several threads that build graphs, and tensors, at once."""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import f32
from uopc.tensor import Tensor
from uopc.uop import UOp, live_nodes, toposort


@pytest.fixture(autouse=True)
def hasty() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def in_threads(work: Callable[[int], object], count: int = 6) -> dict[int, object]:
    """The results of ``work(k)``, each from a thread; an error is raised here."""
    results: dict[int, object] = {}
    errors: list[BaseException] = []

    def run(k: int) -> None:
        try:
            with overriding(UOPC_BACKEND="interp"):
                results[k] = work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    if errors:
        raise errors[0]
    return results


def test_threads_update_their_own_tensors() -> None:
    def work(k: int) -> list[float]:
        x = Tensor(np.full(8, k, np.float32))
        got = []
        for _ in range(20):
            x.assign(x + 1)
            got.append((x * 2).sum().item())
        return got

    expected = {k: [16.0 * (k + i) for i in range(1, 21)] for k in range(6)}
    assert in_threads(work) == expected


def test_threads_read_one_lazy_tensor() -> None:
    for _ in range(5):
        x = Tensor(np.arange(50, dtype=np.float32))
        y = (x * 2 + 1).exp2().log2()
        values = in_threads(lambda _, y=y: y.numpy().tolist())
        assert all(v == values[0] for v in values.values())
        np.testing.assert_allclose(values[0], np.arange(50) * 2 + 1, rtol=1e-5)


def test_threads_never_draw_the_same_numbers() -> None:
    Tensor.manual_seed(0)

    def work(k: int) -> list[float]:
        return [v for _ in range(8) for v in Tensor.rand(25).numpy().tolist()]

    values = [v for part in in_threads(work).values() for v in part]
    # 1,200 numbers out of 2**24: one repeat by chance is unlikely already.
    assert len(set(values)) > len(values) - 4


def test_threads_make_and_drop_tensors() -> None:
    def work(k: int) -> float:
        total = Tensor(0.0)
        for i in range(60):
            total = total + Tensor([float(i), float(k)]).sum()
        return total.item()

    assert in_threads(work) == {k: float(sum(range(60)) + 60 * k) for k in range(6)}


def grown(seed: int, steps: int) -> UOp:
    """A random graph of many shared nodes: of one seed it is the same everywhere."""
    rng = random.Random(seed)
    nodes = [UOp.buffer(6, f32, 4000 + k) for k in range(3)]
    for _ in range(steps):
        a, b = rng.choice(nodes[-8:]), rng.choice(nodes)
        match rng.randrange(4):
            case 0:
                nodes.append(a + b)
            case 1:
                nodes.append(a.exp2())
            case 2:
                nodes.append(a.reshape((2, 3)).permute((1, 0)).reshape((6,)))
            case _:
                nodes.append((a < b).where(a, b))
    return nodes[-1]


def test_threads_build_and_free_graphs_of_which_some_are_the_same() -> None:
    """Equal nodes are one object while anybody has them, and none is left over."""
    gc.collect()
    before = live_nodes()
    barrier = threading.Barrier(6, timeout=60)

    def work(k: int) -> list[UOp]:
        rng = random.Random(k)
        kept: list[UOp] = []
        for i in range(40):
            if i % 4 == 0:
                barrier.wait()  # all build the same graph, which nobody has
            kept.append(grown(i, 60))
            grown(1000 * (k + 1) + i, 30)  # one of its own, freed at once
            if rng.random() < 0.5:
                kept.pop(rng.randrange(len(kept)))
        return kept

    graphs = [u for roots in in_threads(work).values() for u in roots]  # type: ignore[attr-defined]
    nodes = toposort(graphs)
    assert len({(u.op, u.src, u.arg) for u in nodes}) == len(nodes)
    assert live_nodes() == before + len(nodes)
    del graphs, nodes
    gc.collect()
    assert live_nodes() == before


def test_threads_take_turns_in_making_and_freeing_one_node() -> None:
    """The worst for the table: a key whose node dies while others ask for it."""
    before = live_nodes()

    def work(k: int) -> int:
        wrong = 0
        for i in range(3000):
            a = UOp.buffer(6, f32, 5000 + i % 3)
            b = UOp.buffer(6, f32, 5000 + i % 3)
            wrong += a is not b or (a + b) is not (b + a)
            del a, b
        return wrong

    assert set(in_threads(work, 8).values()) == {0}
    gc.collect()
    assert live_nodes() == before

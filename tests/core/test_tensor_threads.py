"""Several threads with tensors of their own, and one random stream for all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from uopc.config import overriding
from uopc.tensor import Tensor


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

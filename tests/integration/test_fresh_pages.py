"""What is computed again touches no page for the first time.

The arrays here are of less than 2 MiB, so that their pages are of 4 KiB: a single array
in new memory would be seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.nn import SGD, Linear, parameters
from uopc.runtime import jit, release_memory
from uopc.tensor import Tensor

ROWS, COLUMNS = 300, 1000  # 1.2 MB, 293 pages
FEW = 100  # pages, of Python's own objects

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="it counts page faults as Linux does"
)


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    with overriding(UOPC_BACKEND="c"):
        yield


def touched(work: Callable[[], object], first: int, rounds: int = 2) -> list[int]:
    """Pages that were touched for the first time, by round, after the ``first``."""
    import resource

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    for _ in range(first):
        work()
    found = []
    for _ in range(rounds):
        before = faults()
        work()
        found.append(faults() - before)
    return found


def data(*shape: int) -> Tensor:
    values = np.random.default_rng(0).standard_normal(shape)
    return Tensor(values.astype(np.float32)).realize()


def test_fresh_memory_would_be_seen() -> None:
    kept: list[Any] = []
    x = data(ROWS, COLUMNS)
    release_memory()
    assert min(touched(lambda: kept.append(x.numpy()), 1)) > FEW


def test_an_eager_op() -> None:
    x = data(ROWS, COLUMNS)
    assert max(touched(lambda: ((x * 3).relu() + 1).realize(), 1)) < FEW


def test_values_as_arrays_and_arrays_as_values() -> None:
    x = data(ROWS, COLUMNS)
    array = x.numpy()
    assert max(touched(lambda: (x + 1).numpy(), 1)) < FEW
    assert max(touched(lambda: Tensor(array).realize(), 1)) < FEW


def test_an_op_with_several_large_temporaries() -> None:
    x = data(ROWS, COLUMNS)
    y = data(ROWS, COLUMNS)
    work = lambda: ((x - y).softmax(1) * (x + y).softmax(0)).realize()  # noqa: E731
    assert max(touched(work, 1)) < FEW


class Network:
    """Two layers, of which the inner results take over a megabyte each."""

    def __init__(self) -> None:
        Tensor.manual_seed(0)
        self.first, self.second = Linear(8, COLUMNS), Linear(COLUMNS, 2)
        self.opt = SGD(parameters([self.first, self.second]), lr=1e-3)
        self.x, self.y = data(ROWS, 8), Tensor(np.arange(ROWS) % 2).realize()

    def step(self) -> Tensor:
        """Train once."""
        hidden = self.first(self.x)
        logits = self.second(hidden.relu() + hidden.sigmoid())
        loss = logits.cross_entropy(self.y)
        self.opt.zero_grad()
        loss.backward(self.opt.params)
        self.opt.step(loss)
        return loss


def test_a_training_step() -> None:
    network = Network()
    assert max(touched(lambda: network.step().item(), 1)) < FEW


def test_a_training_step_under_jit() -> None:
    """Two calls are noted, and one makes the memory of the replays."""
    network = Network()
    train = jit(network.step)
    assert max(touched(lambda: train().item(), 4)) < FEW

"""Values outlive the tensors that had them for as long as somebody reads them."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest

from uopc.runtime import buffers
from uopc.tensor import Tensor, realize_all


def held_bytes() -> int:
    gc.collect()
    return sum(a.nbytes for a in buffers._data.values())


@pytest.mark.parametrize(
    "make", [Tensor.zeros, Tensor.ones, lambda n: Tensor.arange(n) * 1.0]
)
def test_an_equal_constant_is_right_after_one_was_assigned(make) -> None:
    expected = make(2).numpy()
    m = make(2).realize()
    for _ in range(2):
        m.assign(m * 0.5 + 1).realize()
    assert make(2).numpy().tolist() == expected.tolist()
    w = Tensor([5.0, 6.0])
    w.assign(make(2)).realize()
    w.assign(w + 1).realize()
    assert make(2).numpy().tolist() == expected.tolist()
    assert w.numpy().tolist() == (expected + 1).tolist()


def test_a_result_that_reads_nothing_can_be_read_whatever_it_was_made_with() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    zeros = w.apply(lambda u: u.const_like(0))
    for _ in range(2):
        assert zeros.numpy().tolist() == [0.0, 0.0]


def test_results_that_read_nothing_are_freed() -> None:
    before = held_bytes()
    for i in range(5):
        Tensor.arange(100_000 + i).numpy()
        Tensor.full((50_000 + i,), float(i)).numpy()
    assert held_bytes() - before < 100_000


def test_a_reader_of_a_value_between_two_updates() -> None:
    w = Tensor(np.arange(3, dtype=np.float32))
    w.assign(w * 2)
    y = w + 1
    w.numpy()
    w.assign(w * 3)
    w.numpy()
    assert y.tolist() == [1, 3, 5]


def test_a_reader_of_a_value_whose_tensor_is_gone() -> None:
    w = Tensor(np.arange(3, dtype=np.float32), requires_grad=True)
    h = w * 2
    h.numpy()
    z = h + 1
    del h
    w.assign(w + 100).realize()
    gc.collect()
    assert z.tolist() == [1, 3, 5]


def program(rng: random.Random) -> list[str]:
    """Random assignments, aliases, readers and reads of three tensors."""
    log: list[str] = []
    tensors = [
        Tensor(np.full(2, i + 1, np.float32), requires_grad=rng.random() < 0.3)
        for i in range(3)
    ]
    truth = [np.full(2, i + 1, np.float32) for i in range(3)]
    lazy: list[tuple[Tensor, np.ndarray]] = []
    for _ in range(14):
        i, j, what = rng.randrange(3), rng.randrange(3), rng.randrange(9)
        log.append(f"{what} {i} {j}")
        t, u = tensors[i], tensors[j]
        if what == 0:
            t.assign(u * 0.5 + 1)
            truth[i] = truth[j] * np.float32(0.5) + 1
        elif what == 1:
            t.assign(u)
            truth[i] = truth[j].copy()
        elif what == 2:
            t.assign(u.flip(0))
            truth[i] = truth[j][::-1].copy()
        elif what == 3:
            t.assign(Tensor.ones(2))
            truth[i] = np.ones(2, np.float32)
        elif what in (4, 5):
            lazy.append((t * 0.25 + u, truth[i] * np.float32(0.25) + truth[j]))
        elif what == 6:
            t.realize()
        elif what == 7:
            realize_all(tensors)
        elif lazy:
            got, expected = lazy.pop(rng.randrange(len(lazy)))
            assert got.tolist() == expected.tolist(), log
    for got, expected in [*lazy, *zip(tensors, truth, strict=True)]:
        assert got.tolist() == expected.tolist(), log
    return log


def test_random_programs_of_assignments() -> None:
    for seed in range(150):
        assert len(program(random.Random(seed))) == 14

"""The order in which kernels run: possible, never worse, and good where it matters."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from uopc.kernelize.order import run_order

Links = list[list[int]]


def peak(order: list[int], reads: Links, sizes: list[int]) -> int:
    """The largest live set, found by asking at every step who is alive."""
    at = {k: p for p, k in enumerate(order)}
    dies = dict(at)
    for k, read in enumerate(reads):
        for v in read:
            dies[v] = max(dies[v], at[k])
    return max(
        (
            sum(sizes[k] for k in order if at[k] <= p <= dies[k])
            for p in range(len(order))
        ),
        default=0,
    )


def random_work(seed: int, most: int) -> tuple[Links, Links, list[int]]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, most + 1))
    links: tuple[Links, Links] = ([], [])
    for i in range(n):
        for found, chance in zip(links, (0.8, 0.2), strict=True):
            near = rng.integers(max(0, i - 12), i, 3).tolist() if i else []
            found.append(sorted({k for k in near if rng.random() < chance}))
    return *links, rng.choice([0, 1, 8, 50], n).tolist()


def check_possible(order: list[int], reads: Links, waits: Links) -> None:
    assert sorted(order) == list(range(len(reads)))
    at = {k: p for p, k in enumerate(order)}
    for k in order:
        assert all(at[k] > at[v] for v in (*reads[k], *waits[k]))


@pytest.mark.parametrize("seed", range(80))
def test_it_is_possible_and_never_worse(seed: int) -> None:
    reads, waits, sizes = random_work(seed, 40)
    given = list(range(len(reads)))
    order = run_order(reads, waits, sizes)
    check_possible(order, reads, waits)
    now, before = (peak(o, reads, sizes) for o in (order, given))
    assert now < before or order == given
    assert run_order(reads, waits, sizes) == order


def test_it_is_near_the_best_there_is() -> None:
    """Of eight kernels every order can be tried."""
    found = []
    for seed in range(1000, 1025):
        reads, waits, sizes = random_work(seed, 7)
        best = min(
            peak(list(o), reads, sizes)
            for o in itertools.permutations(range(len(reads)))
            if all(
                o.index(k) > o.index(v)
                for k in o
                for v in (*reads[k], *waits[k])
            )
        )  # fmt: skip
        found.append(peak(run_order(reads, waits, sizes), reads, sizes) / max(best, 1))
    assert np.mean(found) < 1.02


def test_gradients_of_weights_are_computed_at_once() -> None:
    """Given as they are on the page: first all cotangents, then all gradients."""
    n = 10
    reads: Links = [[i - 1] if i else [] for i in range(n)]  # layers
    reads += [[n + i - 1] for i in range(n)]  # cotangents, from the last layer's on
    reads += [[i, 2 * n - 1 - i] for i in range(n)]  # gradients of weights
    sizes = [100] * (2 * n) + [0] * n
    order = run_order(reads, [[] for _ in reads], sizes)
    assert peak(list(range(3 * n)), reads, sizes) == 2 * n * 100
    assert peak(order, reads, sizes) == (n + 1) * 100


def test_what_is_large_and_soon_to_be_had_is_put_off() -> None:
    """Masks, each of which one layer reads, given before all layers."""
    n = 10
    reads: Links = [[] for _ in range(n)]
    reads += [[n + i - 1, i] if i else [0] for i in range(n)]
    sizes = [100] * n + [1] * n
    assert peak(list(range(2 * n)), reads, sizes) > n * 100
    order = run_order(reads, [[] for _ in reads], sizes)
    assert peak(order, reads, sizes) == 102
    # Nothing draws the last two forward, since they fill more than they free.
    reads, sizes = [[], [], [1], [2], [0, 3]], [100, 10, 110, 20, 0]
    assert run_order(reads, [[]] * 5, sizes) == [1, 2, 3, 0, 4]


def test_it_waits() -> None:
    """Kernel 3 fills nothing and frees much, but is to run after the last one."""
    reads: Links = [[], [], [1], [0]]
    waits: Links = [[], [], [], [2]]
    assert run_order(reads, waits, [100, 100, 0, 0]).index(3) == 3
    assert run_order(reads, [[]] * 4, [100, 100, 0, 0]) == [0, 3, 1, 2]


def test_nothing_to_gain_changes_nothing() -> None:
    assert run_order([], [], []) == []
    assert run_order([[], [0], [1]], [[]] * 3, [5, 5, 0]) == [0, 1, 2]
    assert run_order([[], [], [1], [0]], [[]] * 4, [0, 0, 0, 0]) == [0, 1, 2, 3]


def test_ten_thousand_kernels_are_ordered_soon() -> None:
    rng = np.random.default_rng(0)
    n = 10_000
    reads = [np.unique(rng.integers(max(0, i - 50), i, 3)).tolist() if i else []
             for i in range(n)]  # fmt: skip
    sizes = rng.integers(0, 1000, n).tolist()
    start = time.process_time()
    order = run_order(reads, [[] for _ in reads], sizes)
    assert time.process_time() - start < 5  # 0.7 here
    assert order != list(range(n))

"""Random differentiable graphs: values and all derivatives to order 2 against JAX.

``--fuzz FIRST:COUNT`` asks for other graphs. Each is differentiated by uopc in reverse
and forward mode, and for the second order in three ways, and run by both backends.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from against_jax import Tally, by_jax, compare_seeds, compared

from uopc.autodiff import gradient
from uopc.interp import evaluate
from uopc.testing import random_graph
from uopc.testing.derivatives import Derivatives, derive
from uopc.uop import UOp

BATCH = 50
NATIVE = 10  # batches that run in C as well: compiling one takes a minute

Reports = dict[range, "Future[tuple[Tally, dict[int, str]]]"]


def batches(config: pytest.Config) -> list[range]:
    first, _, count = config.getoption("--fuzz").partition(":")
    every = range(int(first), int(first) + int(count))
    return [every[i : i + BATCH] for i in range(0, len(every), BATCH)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "batch" in metafunc.fixturenames:
        chosen = batches(metafunc.config)
        ids = [f"{b.start}-{b.stop - 1}" for b in chosen]
        metafunc.parametrize("batch", chosen, ids=ids)


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest) -> Iterator[Reports]:
    """What is wrong with every batch; all processors work on it."""
    chosen = batches(request.config)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield {
            b: pool.submit(compare_seeds, b, k < NATIVE) for k, b in enumerate(chosen)
        }
        pool.shutdown(cancel_futures=True)


def test_derivatives_are_those_of_jax(batch: range, reports: Reports) -> None:
    _, wrong = reports[batch].result()
    texts = [
        f"random_graph({seed}, differentiable=True):\n{text}"
        for seed, text in sorted(wrong.items(), key=lambda pair: len(pair[1]))
    ]
    assert not texts, f"{len(texts)} differ: {[*wrong]}. The shortest:\n{texts[0]}"


def test_all_were_compared(
    reports: Reports, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    total = Tally()
    for future in reports.values():
        total.add(future.result()[0])
    assert total.graphs == sum(map(len, batches(request.config)))
    assert all(total.counts[name] for name in ("value", "first", "second", "moved"))
    with capsys.disabled():
        print(f"\n{total}")


def test_numpy_computes_what_jax_would() -> None:
    for seed in range(8):
        d = derive(random_graph(seed, differentiable=True), gradient)
        for name, arrays in by_jax(d, compiled=True).items():
            for a, b in zip(by_jax(d)[name], arrays, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def twice(root: UOp, targets: Sequence[UOp]) -> list[UOp]:
    return [g * 2.0 for g in gradient(root, targets)]


def run(d: Derivatives) -> dict[str, list[np.ndarray]]:
    return d.arrays(evaluate(d.nodes(), dict(d.data)))


def test_a_wrong_gradient_is_noticed() -> None:
    noticed = 0
    for seed in range(6):
        g = random_graph(seed, differentiable=True)
        right, wrong = derive(g, gradient), derive(g, twice)
        want = by_jax(right)
        assert not compared(right, run(right), want, Tally())
        if any(np.abs(x).max(initial=0) > 1e-3 for x in want["first"]):
            noticed += 1
            assert any("first" in p for p in compared(wrong, run(wrong), want, Tally()))
    assert noticed > 1

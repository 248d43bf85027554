"""The benchmarks of `benchmarks/peers`: what they compute, and what they print."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bench
from peers import in_numpy, in_uopc, machine, workloads
from peers.checks import difference, digest, disagreements
from peers.columns import BY_NAME, Column
from peers.measure import sample
from peers.result import Result
from peers.suite import Settings, environment, order, run_one
from peers.tables import Table, number
from peers.workloads import Gpt, Workload
from uopc.config import overriding

ROOT = Path(__file__).parents[2]
NUMPY, UOPC = BY_NAME["numpy"], BY_NAME["uopc"]
ROUND, ODD = workloads.BY_NAME["matmul1024"], workloads.BY_NAME["matmul_odd"]
SMALL = Gpt(layers=2, width=8, length=5, vocabulary=7)
TINY = [
    workloads.matmul("matmul", 3, 5, 4),
    workloads.over_array("gelu", "", 20),
    workloads.over_array("sum", "", 21),
    workloads.over_array("sum0", "", 5, 6),
    workloads.over_array("max1", "", 5, 6),
    workloads.over_array("softmax", "", 3, 7),
    workloads.over_array("layernorm", "", 3, 7),
    workloads.conv("conv", 2, 3, 5, 4, 6),
    workloads.attention("attention", "", 2, 5, 3),
    workloads.embedding("gather", "", "gather", 7, 5),
    workloads.embedding("scatter", "", "scatter", 7, 5),
    workloads.mlp("mlp", "", 5, (6, 4, 3)),
    workloads.cnn("cnn", "", 2, side=8, c=2),
    workloads.gpt("gpt", "", 2, train=True, size=SMALL),
    workloads.gpt("logits", "", 1, train=False, size=SMALL),
    workloads.deep("deep", "", 3, 4),
]


def result(workload: str, column: str, median: float = 1.0, **more: object) -> Result:
    return replace(
        Result(workload=workload, column=column, threads=2), median=median, **more
    )


@pytest.mark.parametrize("workload", TINY, ids=lambda w: w.kind)
def test_uopc_computes_each_workload(workload: Workload) -> None:
    with overriding(UOPC_BACKEND="interp"):
        call = in_uopc.make(workload, threads=1)
        made = [call() for _ in range(4)]
    if workload.kind == "deep":
        assert made == [None] * 4
        return
    if isinstance(made[0], float):
        assert made[3] < made[2] < made[1] < made[0], "the loss falls"
    if workload.kind in NUMPY.without:
        return
    peer = in_numpy.make(workload, threads=1)
    for own in made:
        other = peer()
        if isinstance(own, float):
            assert difference([own], [other]) < 1e-6
        else:
            assert difference(digest(in_uopc.as_numpy(own)), digest(other)) < 1e-6


def test_the_inputs_are_the_same_each_time() -> None:
    for workload in TINY:
        first, second = (str(workload.inputs()) for _ in range(2))
        assert first == second


def test_work_is_counted() -> None:
    # Forward and the weights' gradients of one layer; the inputs' of the second, too.
    assert workloads.mlp("", "", 5, (2, 3)).flops == 2 * (2 * 5 * 2 * 3)
    assert workloads.mlp("", "", 1, (2, 3, 4)).flops == 2 * 12 + 3 * 24
    assert workloads.matmul("", 2, 3, 5).flops == 60
    assert ODD.share == ODD.flops / ROUND.flops
    odd, whole = (workloads.BY_NAME[n] for n in ("conv_odd", "conv_large"))
    assert odd.share == pytest.approx(odd.flops / whole.flops)
    gelu = workloads.BY_NAME["gelu"]
    assert gelu.read == gelu.written == 4 * 2**24
    assert workloads.BY_NAME["sum"].written == 0


def test_values_agree_within_the_tolerance() -> None:
    results = [
        result("mlp", "numpy", values=[2.0, 1.5]),
        result("mlp", "uopc", values=[2.0, 1.50001]),
        result("mlp", "torch", values=[2.0, 1.5001]),
        result("mlp", "jax", values=[2.0, float("nan")]),
        result("mlp", "uopc_plain", values=[2.0]),
        result("mlp", "uopc_avx2", error="it failed"),
        result("deep", "uopc"),
    ]
    found = [line.split()[1] for line in disagreements(results)]
    assert found == ["torch", "jax", "uopc_plain"]
    assert difference([1000.0], [1000.005]) < 1e-5, "relative to large numbers"
    assert difference([1e-9, 0.0], [0.0, 1e-9]) < 1e-5, "absolute for small ones"


def test_a_digest_sees_each_end_and_the_middle() -> None:
    a = np.zeros(20000)
    for i in (0, 10000, 19999):
        b = a.copy()
        b[i] = 1
        assert digest(a) != digest(b), i


def test_rounds_go_forth_and_back() -> None:
    columns = [NUMPY, UOPC]
    contended = workloads.BY_NAME["mlp_contended"]
    plan = [
        (c.name, w.name, n)
        for c, w, n in order([ROUND, contended], columns, [1, 2], rounds=2)
    ]
    one = [(c, "matmul1024", n) for c in ("numpy", "uopc") for n in (1, 2)]
    back = [(c, "matmul1024", n) for c in ("uopc", "numpy") for n in (1, 2)]
    taken = [("numpy", "mlp_contended", 2), ("uopc", "mlp_contended", 2)]
    assert plan == [*one, *taken, *back, *taken[::-1]]
    cnn = workloads.BY_NAME["cnn"]
    assert [c for c, _, _ in order([cnn], columns, [1], 1)] == [UOPC]


def test_a_process_has_the_variables_of_its_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UOPC_CHECK", "3")
    found = environment(BY_NAME["uopc_avx2"], 2, "kept", "gcc -pipe")
    own = {k: v for k, v in found.items() if k.startswith("UOPC_")}
    cc = "gcc -pipe -march=x86-64-v3"
    assert own == {"UOPC_CACHE_DIR": "kept", "UOPC_CC": cc}
    assert found["OMP_NUM_THREADS"] == "2"


def test_samples_last_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()

    def clock() -> float:
        return next(ticks) * 1e-3

    calls = itertools.count()
    found = sample(lambda: next(calls), repeats=3, seconds=0.0, clock=clock)
    # A call seems to take a millisecond, so two make a sample.
    assert found == pytest.approx([0.5] * 3)
    assert next(calls) == 1 + 2 + 2 * 3


def lines(columns: list[Column], results: list[Result]) -> list[str]:
    table = Table(columns, [ROUND, ODD], results, lambda w, n: w.flops / 1e9)
    return table.main(2).splitlines()


def test_the_table_has_ratios() -> None:
    torch = BY_NAME["torch"]
    results = [
        result("matmul1024", "numpy", 12.34),
        result("matmul1024", "numpy", 11.0, foreign=0.5),
        result("matmul1024", "torch", 10.0),
        result("matmul1024", "torch", error="it failed"),
        result("matmul1024", "uopc", 5.0),
        result("matmul1024", "uopc", 7.0),
        result("matmul_odd", "uopc", 6.0 * ODD.share),
    ]
    header, rule, *rows = lines([NUMPY, torch, UOPC], results)
    names = "numpy | torch eager | uopc | uopc / best peer | bound | uopc / bound"
    assert header == f"| ms | {names} |"
    assert rule.count("---") == 7
    assert rows[0] == "| matmul 1024 | 11~ | 10 | 5 | 0.50 | 2.15 | 2.33 |"
    assert rows[1].startswith("| matmul 1000x1003 @ 1003x997 | - | - | 5.59 | - | 2 |")
    assert rows[2] == (
        "| … time per operation, over matmul 1024 | - | - | x1.20 |  |  |  |"
    )


def test_the_table_leaves_out_what_was_not_measured() -> None:
    assert len(lines([NUMPY, UOPC], [result("matmul1024", "uopc", 5.0)])) == 3
    failed = [result("matmul1024", "uopc", 0.0, error="it failed")] * 2
    table = Table([UOPC], [ROUND], failed)
    assert table.main(2).count("\n") == 1
    assert table.others(2) == ""
    assert table.errors() == ["matmul1024, uopc: it failed"]


def test_first_calls_and_memory_have_a_table() -> None:
    results = [result("gpt", "uopc", first=1234.5, memory=88.8)]
    table = Table([NUMPY, UOPC], workloads.WORKLOADS, results)
    _, _, *rows = table.others(2).splitlines()
    assert rows == [
        "| first call, GPT train step, ms | - | 1234 |",
        "| peak memory, GPT train step, MB | - | 88.8 |",
    ]


def test_numbers_have_three_digits() -> None:
    given = (0.01234, 1.234, 12.34, 123.4, 1234.5)
    assert [number(x) for x in given] == ["0.012", "1.23", "12.3", "123", "1234"]


def test_the_status_says_what_went_wrong() -> None:
    fine = [result("mlp", name, values=[2.0]) for name in ("numpy", "uopc")]
    assert bench.status(fine) == 0
    assert bench.status([*fine, result("gpt", "uopc", error="it failed")]) == 2
    assert bench.status([*fine, result("gpt", "jax", error="it is not there")]) == 0
    assert bench.status([*fine, result("mlp", "uopc", values=[2.1])]) == 1


def test_the_tables_go_into_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nText.\n\n## Figures\n\nOld.\n")
    for _ in range(2):
        bench.write(page, "New.\n")
        assert page.read_text() == "# Title\n\nText.\n\n## Figures\n\nNew.\n"
    assert bench.FIGURES in (ROOT / "docs/benchmarks.md").read_text()


def test_a_process_measures_one_column() -> None:
    settings = Settings(repeats=1, seconds=0.0, patience=0.0)
    threads = 1
    skinny = workloads.BY_NAME["matmul_skinny"]
    made = run_one(NUMPY, skinny, threads, settings, "cc")
    assert made.error == ""
    assert made.version == np.__version__
    assert 0 < made.least <= made.median
    x, y = skinny.inputs()
    assert difference(made.values, digest(x @ y)) < 1e-6
    unknown = replace(NUMPY, name="nobody")
    failed = run_one(unknown, skinny, threads, settings, "cc")
    assert failed.error == "exit status 1: KeyError: 'nobody'"


def test_limits_are_measured() -> None:
    narrow = machine.peak(machine.widths()[0], 1)
    assert 1e8 < narrow < 1e12
    for way in ("read", "copy", "stream"):
        seconds = machine.moving(way, 1 << 20, len(os.sched_getaffinity(0)))
        assert 1e8 < (1 << 20) / seconds < 1e13, way
    product = workloads.matmul("", 64, 64, 64)
    best = max(machine.peak(width, 1) for width in machine.widths())
    assert machine.bound(product, 1) == pytest.approx(1e3 * product.flops / best)
    moved = Workload("", "", "", tuple, read=1 << 20, written=1 << 20)
    ways = [machine.moving(way, 1 << 20, 1) for way in ("copy", "stream")]
    assert machine.bound(moved, 1) == pytest.approx(1e3 * min(ways))

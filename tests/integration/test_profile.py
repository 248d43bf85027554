"""What is seen of kernels while they run: UOPC_DEBUG, `profile`, its trace file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import i32
from uopc.kernelize import make_plan
from uopc.runtime import profile
from uopc.runtime.steps import kernel_work
from uopc.tensor import Tensor
from uopc.testing import buf
from uopc.uir import parse_uir
from uopc.uop import Ops, UOp


@pytest.fixture(params=["c", "interp"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def softmax_of_product() -> Tensor:
    rng = np.random.default_rng(0)
    a, b = (Tensor(rng.standard_normal((4, 4)).astype(np.float32)) for _ in range(2))
    return (a @ b).softmax(1)


def test_kernels_one_by_one_give_what_one_call_gives(backend: str) -> None:
    with overriding(UOPC_BACKEND=backend):
        expected = softmax_of_product().numpy()
        with profile() as outer, profile() as inner:
            again = softmax_of_product().numpy()
        softmax_of_product().numpy()
    np.testing.assert_array_equal(again, expected)
    names = [r.kernel.name for r in inner.runs]
    assert names == ["r_4_4", "r_4", "r_4", "e_4_4"]
    assert outer.runs == inner.runs
    assert all(r.backend == backend and r.seconds > 0 for r in inner.runs)


def test_a_kernel_that_comes_twice_is_one_row(backend: str) -> None:
    with overriding(UOPC_BACKEND=backend), profile() as seen:
        for _ in range(3):
            softmax_of_product().realize()
    header, *rows, last = str(seen).splitlines()
    assert header.split() == ["kernel", "shape", "runs", "ms", "%", "GFLOP/s", "GB/s"]
    assert sorted(row.split()[0] for row in rows) == ["e_4_4", "r_4", "r_4", "r_4_4"]
    assert all(re.search(r"\] +3 ", row) for row in rows)
    assert re.fullmatch(r"all +12 +\d+\.\d{3}", last)


def test_an_empty_profile_is_a_table_too() -> None:
    with profile() as seen:
        pass
    assert str(seen).splitlines()[-1].split() == ["all", "0", "0.000"]


def test_the_saved_file_is_a_chrome_trace(backend: str, tmp_path: Path) -> None:
    with overriding(UOPC_BACKEND=backend), profile() as seen:
        softmax_of_product().realize()
    seen.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == [r.kernel.name for r in seen.runs]
    end = 0.0
    for e in events:
        assert e["ph"] == "X"
        assert isinstance(e["pid"], int)
        assert isinstance(e["tid"], int)
        assert e["ts"] >= end  # microseconds; one thread runs one kernel at a time
        end = e["ts"] + e["dur"]
    assert events[0]["args"] == {"shape": "f32[4, 4]", "flops": 128, "bytes": 192}


def test_debug_prints_a_line_per_kernel(
    backend: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with overriding(UOPC_BACKEND=backend, UOPC_DEBUG=1):
        softmax_of_product().realize()
    lines = capfd.readouterr().err.splitlines()
    number = r"\d+\.\d+"
    rate = rf"{number} us, {number} GFLOP/s, {number} GB/s"
    shapes = ["r_4_4: f32[4, 4]", "r_4: f32[4]", "r_4: f32[4]", "e_4_4: f32[4, 4]"]
    assert len(lines) == len(shapes)
    for line, shape in zip(lines, shapes, strict=True):
        assert re.fullmatch(rf"kernel {re.escape(shape)}, {rate}", line)


def only_kernel(root: UOp) -> UOp:
    plan, _ = make_plan([root])
    (kernel,) = plan.kernels
    return kernel.ast


def test_work_is_counted_on_the_graph() -> None:
    a, b = buf(0, 6).reshape((2, 3)), buf(1, 12).reshape((3, 4))
    wide = (2, 4, 3)
    product = a.reshape((2, 1, 3)).expand(wide) * b.permute((1, 0)).reshape(
        (1, 4, 3)
    ).expand(wide)
    work = kernel_work(only_kernel(product.reduce(Ops.ADD, 1)))
    assert (work.flops, work.nbytes) == (2 * 24, 4 * (6 + 12 + 8))
    # An exponential costs 16; of a slice only what it takes is read.
    some = buf(0, 100).shrink([(10, 20)])
    work = kernel_work(only_kernel(some.exp2() + some))
    assert (work.flops, work.nbytes) == (10 * 17, 4 * (10 + 10))
    # Work on integers is no floating-point work; a gather reads a row per index.
    table, index = buf(0, 100).reshape((10, 10)), buf(1, 2, i32)
    work = kernel_work(only_kernel(table.index(index + 1).exp2()))
    assert (work.flops, work.nbytes) == (20 * 16, 4 * (20 + 2 + 20))


def test_every_stage_is_dumped(backend: str, tmp_path: Path) -> None:
    x = Tensor(np.ones((3, 7), np.float32))
    root = (x.sum(1) * 2.5).uop
    with overriding(UOPC_BACKEND=backend, UOPC_DUMP=tmp_path, UOPC_OPT=1):
        Tensor(root).realize()
    files = {re.sub(r"\d+\.", ".", p.name, count=1): p for p in tmp_path.iterdir()}
    native = (
        {"plan.c", "r_.rangeify.uir", "r_.schedule.uir"} if backend == "c" else set()
    )
    assert set(files) == {"graph.uir", "plan.uir", *native}
    graph = parse_uir(files["graph.uir"].read_text())
    assert graph.src == (root,)
    assert parse_uir(files["plan.uir"].read_text()).arg == "plan"

"""Cases about the system around the values, as functions named after their ids."""

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from adapter import grads
from registry import case, python

from uopc.autodiff import NoGradientRule, gradient
from uopc.backend_c import cache, cpu, print_plan
from uopc.backend_c.backend import spellings
from uopc.config import overriding
from uopc.dtype import f32, f64, i8, i32
from uopc.kernelize import make_plan
from uopc.nn import SGD, Embedding
from uopc.runtime import backend_named, jit
from uopc.tensor import Tensor
from uopc.testing import buf, random_graph
from uopc.testing.compare import run as run_graphs
from uopc.uop import Ops, UOp

SMALL = """
    from uopc.tensor import Tensor
    for n in range(1, {count} + 1):
        print((Tensor([1.0] * n) * 2.0).sum().item())
"""


# -- sizes of indices ----


def c_of(*roots: UOp) -> str:
    plan, _ = make_plan(roots, None, backend_named("c").supports, "c")
    return print_plan(plan, spellings())


@case
def index_overflow_2p31(_: Path) -> None:
    for n, wide in ((2**31 + 8, True), (64, False)):
        view = buf(0, 2, i8).reshape((1, 2)).expand((n, 2))
        for root in (view.reduce(Ops.MAX, 2), view.permute((1, 0)).reduce(Ops.MAX, 2)):
            assert ("long long ridx" in c_of(root)) == wide


# -- toolchain and cache ----


def answers(count: int) -> list[str]:
    return [str(2.0 * n) for n in range(1, count + 1)]


@case
def cache_concurrent_writers(tmp_path: Path) -> None:
    def one(_: int) -> str:
        return python(SMALL.format(count=6), UOPC_CACHE_DIR=str(tmp_path / "c"))

    with ThreadPoolExecutor(8) as pool:
        for printed in pool.map(one, range(8)):
            assert printed.split() == answers(6)
    assert not [f for f in (tmp_path / "c").rglob("*") if f.name.startswith(".tmp")]


@case
def cache_dir_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for variables in (
        {"UOPC_CACHE_DIR": str(tmp_path / "file" / "cache")},
        {"HOME": str(tmp_path / "file"), "UOPC_CACHE_DIR": "", "XDG_CACHE_HOME": ""},
    ):
        printed = python(SMALL.format(count=3), **variables)
        assert printed.split()[:3] == answers(3)
        assert printed.count("RuntimeWarning") == 1


@case
def cache_key_cpu_compiler_flags(tmp_path: Path) -> None:
    source = "void f(void **p) { (void)p; }\n"
    entries = []
    with pytest.MonkeyPatch.context() as patch, overriding(UOPC_CACHE_DIR=tmp_path):
        for features in (("avx2", "fma"), ("avx2",), ("avx2", "fma")):
            patch.setattr(cpu, "features", lambda features=features: features)
            entries.append(cache.build(source, 1))
    assert entries[0] == entries[2] != entries[1]


@case
def cache_truncated_entry(tmp_path: Path) -> None:
    for _ in range(2):
        printed = python(SMALL.format(count=3), UOPC_CACHE_DIR=str(tmp_path / "c"))
        assert printed.split() == answers(3)
        objects = list((tmp_path / "c").rglob("*.so"))
        assert len(objects) == 4  # one is what the compiler says of its target
        for file in objects:
            os.truncate(file, file.stat().st_size // 2)


@case
def compiler_missing(tmp_path: Path) -> None:
    text = """
        from uopc.tensor import Tensor
        try:
            print((Tensor([1.0]) + Tensor([2.0])).tolist())
        except Exception as error:
            print(type(error).__name__, error)
    """
    nowhere = {"PATH": str(tmp_path), "UOPC_CC": ""}
    printed = python(text, UOPC_BACKEND="c", **nowhere)
    assert printed.startswith("CompilerNotFoundError")
    assert "CC" in printed
    assert python(text, UOPC_BACKEND="interp", **nowhere).strip() == "[3.0]"


@case
def compiler_variants(tmp_path: Path) -> None:
    spaced = tmp_path / "a b"
    spaced.mkdir()
    found = [c for c in ("gcc", "clang") if shutil.which(c)]
    assert found
    for command in (*found, f"env {found[0]}", f"{found[0]} -std=c2x"):
        where = {"UOPC_CACHE_DIR": str(spaced / command.replace("/", "_"))}
        printed = python(
            SMALL.format(count=2), UOPC_CC=command, TMPDIR=str(spaced), **where
        )
        assert printed.split() == answers(2)


# -- processes ----


@case
def fork_after_compute(tmp_path: Path) -> None:
    printed = python(
        """
        import os, signal
        from uopc.tensor import Tensor
        x = Tensor([1.0, 2.0])
        print((x * 3.0).tolist(), flush=True)
        child = os.fork()
        if not child:
            signal.alarm(20)
            print((x * 3.0).tolist(), (x * 5.0).tolist(), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
        UOPC_CACHE_DIR=str(tmp_path / "c"),
    )
    assert printed.split("\n") == ["[3.0, 6.0]", "[3.0, 6.0] [5.0, 10.0]", ""]


@case
def python_threads(_: Path) -> None:
    def work(seed: int) -> list[bytes]:
        graphs = [random_graph(s, steps=6) for s in range(seed, seed + 12)]
        found = [a for values in run_graphs(graphs, "c", 0) for a in values]
        for g in graphs:
            for root in g.roots:
                if root.dtype.is_float:
                    leaves = [u for u in g.inputs if u.dtype.is_float]
                    differentiated(root, leaves)
        return [a.tobytes() for a in found]

    starts = range(0, 96, 12)
    with ThreadPoolExecutor(8) as pool:
        at_once = list(pool.map(work, starts))
    assert at_once == list(map(work, starts))


def differentiated(root: UOp, targets: list[UOp]) -> list[UOp]:
    try:
        return gradient(root, targets)
    except NoGradientRule:
        return []


# -- debugging ----


@case
def anomaly_report(_: Path) -> None:
    line = r"gradient of sqrt, called at .*system_cases\.py:\d+, 'y = \(x\.sqrt\(\)"
    with overriding(UOPC_NANS=1):
        x = Tensor([0.0], dtype=f64, requires_grad=True)
        y = (x.sqrt() * 0.0).sum()
        with pytest.raises(FloatingPointError, match=line):
            grads(y, [x])[0].numpy()


# -- time ----


def best(action: Callable[[], object], times: int = 5) -> float:
    """Of a few runs, after one that compiles."""
    action()
    took = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        took.append(time.perf_counter() - start)
    return min(took)


@case
def embedding_cost(_: Path) -> None:
    index = Tensor(np.arange(256) % 500, dtype=i32)
    few, many = (Embedding(rows, 64) for rows in (500, 50000))
    Tensor.realize_all([few.weight, many.weight])
    times = [best(lambda table=t: table(index).numpy()) for t in (few, many)]
    assert times[1] < 3 * times[0]


@case
def sinkhorn_compile_time(tmp_path: Path) -> None:
    def took(n: int) -> float:
        x = Tensor(np.random.default_rng(n).standard_normal((16, 16)), dtype=f32)
        y = x
        for k in range(n):
            top = y.max(axis=k % 2, keepdim=True).detach()
            y = y - ((y - top).exp().sum(axis=k % 2, keepdim=True).log() + top)
        (g,) = grads(y.square(), [x])
        start = time.process_time()
        text = c_of(g.uop)
        assert text
        return time.process_time() - start

    assert took(16) <= 6 * took(4)


@case
def training_loop_no_recompile(_: Path) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = SGD([w], lr=0.1)
    runs = []
    for t in range(100):
        optimizer.lr = 0.1 / (1 + t)
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward([w])
        optimizer.step(loss)
        runs.append(cache.stats.compiler_runs)
    assert runs[1] == runs[-1]


# -- what there is no way to try yet ----


@case
def export_c_buffer_sizes(_: Path) -> None:
    from uopc.backend_c import export

    text = export((Tensor(np.zeros(10, np.float32)) + 1.0).uop)
    assert "[10]" in text


@case
def rand_inside_captured(_: Path) -> None:
    drawn = jit(lambda: Tensor.rand(4, dtype=f64))
    passes = []
    for _ in range(2):
        Tensor.manual_seed(0)
        passes.append([drawn().numpy().tobytes() for _ in range(5)])
    Tensor.manual_seed(0)
    passes.append([Tensor.rand(4, dtype=f64).numpy().tobytes() for _ in range(5)])
    assert len(set(passes[0])) == 5
    assert passes[1] == passes[2] == passes[0]
    assert drawn.traces == 1

"""Finding plans: what it costs per node, and that a training needs no second one.

Run from the root of the project, on a machine that does little else::

    python benchmarks/plans.py             # everything, about a minute
    python benchmarks/plans.py lookup      # only these of lookup, training, forgetting

Times are processor time, the least of some rounds. The bound of the design is 1 us per
node of a step's graph; nothing here fails when it is missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import uopc.runtime.run as running
from sections import run
from uopc.config import overriding
from uopc.dtype import f32
from uopc.kernelize import make_plan
from uopc.kernelize.key import graph_key
from uopc.nn import AdamW, Linear, parameters
from uopc.runtime import stats
from uopc.tensor import Tensor
from uopc.uop import UOp, toposort

Graph = tuple[Sequence[UOp], dict[UOp, UOp]]
MAPS = Path("/proc/self/maps")


class Training:
    """A network of equal layers, trained on data that stays."""

    def __init__(self, layers: int, width: int) -> None:
        rng = np.random.default_rng(0)
        self.layers = [Linear(width, width) for _ in range(layers)]
        self.opt = AdamW(parameters(self.layers))
        self.images = Tensor(rng.standard_normal((8, width)).astype(np.float32))
        self.labels = Tensor(rng.integers(0, width, 8).astype(np.int32))
        self.scale = Tensor(np.asarray(1.0, np.float32))

    def step(self, lr: float, scale: float) -> Tensor:
        """One step; both numbers may be others each time."""
        self.opt.lr = lr
        self.scale.assign(Tensor(np.asarray(scale, np.float32)))
        x = self.images
        for layer in self.layers:
            x = layer(x).relu()
        loss = x.cross_entropy(self.labels)
        self.opt.zero_grad()
        (loss * self.scale).backward(self.opt.params)
        for p in self.opt.params:
            assert p.grad is not None
            p.grad = p.grad / self.scale
        self.opt.step(loss)
        return loss


def step_graph(layers: int) -> Graph:
    """The largest graph that a training step computes."""
    seen: list[Graph] = []

    def watch(roots: Sequence[UOp], leaves: dict[UOp, UOp], *rest: Any) -> Any:
        seen.append((list(roots), leaves))
        return make_plan(roots, leaves, *rest)

    training = Training(layers, 16)
    training.step(1e-3, 1.0)
    with mock.patch.object(running, "make_plan", watch):
        training.step(1e-3, 1.0)
    return max(seen, key=lambda graph: len(graph[0]))


def chain(length: int) -> Graph:
    """Sums and products, one after the other."""
    x = UOp.buffer(6, f32, 0)
    u = x
    for i in range(length):
        u = u * x if i % 2 else u + x
    return [u], {}


def least(work: Callable[[], Any], count: int) -> float:
    """Microseconds per node, the least of some rounds."""
    times = []
    for _ in range(max(5, 100_000 // count)):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times) / count * 1e6


def lookup() -> None:
    """Microseconds per node: the whole look-up, and parts of it."""
    print("\nFinding a plan, us per node (bound: 1)")
    print(f"{'graph':<28}{'nodes':>8}{'look-up':>10}{'key':>8}{'hash':>8}{'a walk':>8}")
    graphs = {f"a step, {n} layers": step_graph(n) for n in (2, 10, 50)}
    graphs["a chain"] = chain(10_000)
    for name, (roots, leaves) in graphs.items():
        print(f"{name:<28}" + _costs(roots, leaves))


def _costs(roots: Sequence[UOp], leaves: dict[UOp, UOp]) -> str:
    def walk() -> list[UOp]:
        return toposort(roots, lambda u: () if u in leaves else u.src)

    count = len(walk())
    make_plan(roots, leaves)
    key, _ = graph_key(roots, leaves)
    works: list[Callable[[], Any]] = [
        lambda: make_plan(roots, leaves),
        lambda: graph_key(roots, leaves),
        lambda: hash(key),
        walk,
    ]
    cells = zip((least(work, count) for work in works), (10, 8, 8, 8), strict=True)
    return f"{count:>8}" + "".join(f"{c:>{width}.2f}" for c, width in cells)


def training() -> None:
    """Two layers and AdamW for 1,000 steps, the learning rate and scale changing."""
    trained = Training(2, 24)
    marks, snapshots = (0, 1, 2, 10, 1000), [stats()]
    begun = time.perf_counter()
    for first, last in pairwise(marks):
        for i in range(first, last):
            trained.step(1e-2 / (1 + i), 2.0 ** (i % 7)).item()
        snapshots.append(stats())
    spent = time.perf_counter() - begun
    print(f"\nA training of 1,000 steps, in {spent:.1f} s")
    for (first, last), (a, b) in zip(pairwise(marks), pairwise(snapshots), strict=True):
        print(f"steps {first + 1} to {last}: {b - a}")


def resident() -> float:
    """Megabytes of memory in use; 0 where the system does not say it in this way."""
    file = Path("/proc/self/statm")
    return int(file.read_text().split()[1]) * 4096 / 1e6 if file.exists() else 0.0


def forgetting() -> None:
    """Shared objects and memory while more and more plans are made."""
    print("\nPlans made with UOPC_PLANS=50: those mapped, and memory")
    x = Tensor(np.ones(4, np.float32)).realize()
    with overriding(UOPC_PLANS=50, UOPC_OPT=0):
        for n in range(1, 401):
            t = x
            for bit in f"{n:b}":
                t = t * 0.5 if bit == "1" else t + 0.25
            t.realize()
            if n % 50 == 0:
                text = MAPS.read_text() if MAPS.exists() else ""
                objects = {s.split()[-1] for s in text.splitlines() if "/uopc" in s}
                made = [o for o in objects if o.endswith(".so")]
                print(f"{n:>5} plans: {len(made):>4} mapped, {resident():.0f} MB")


SECTIONS = {"lookup": lookup, "training": training, "forgetting": forgetting}


if __name__ == "__main__":
    run(SECTIONS)

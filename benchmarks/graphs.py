"""What graphs cost: making nodes, walking them, and every pass per node.

Run from the root of the project, on a machine that does little else::

    python benchmarks/graphs.py                # everything, some minutes
    python benchmarks/graphs.py nodes chain    # only these of nodes, chain,
                                               # sharing and passes

Prints tables: the least and the median of some rounds, in processor time, so that
other processes disturb little. The least is what the machine can do. Bounds that the
design sets are in the first table; nothing here fails when they are missed.
"""

from __future__ import annotations

import functools
import gc
import itertools
import pickle
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from sections import run
from uopc.dtype import f32, i32
from uopc.kernelize import _plans, make_plan
from uopc.plugins import current, registry
from uopc.runtime import lower, new_buffer, realize
from uopc.simplify import Simplifier
from uopc.tensor import Tensor
from uopc.uir import parse_uir, to_uir
from uopc.uop import Literal, Ops, UOp, collector_paused, toposort

COUNT = 2000  # nodes made in one round
ROUNDS = 40
MILLION = 1_000_000
LEVELS = 60

Work = Callable[[], Any]


def seconds(work: Work, rounds: int = 1) -> list[float]:
    """Processor time of each round; what a round makes is freed after the clock."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        made = work()
        times.append(time.process_time() - start)
        del made
    return times


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as its rows come, first column to the left."""
    print(f"\n{title}\n" + "-" * len(title))
    print(_line(head), flush=True)
    for row in rows:
        print(_line(row), flush=True)


def _line(cells: Sequence[object]) -> str:
    texts = [f"{c:.2f}" if isinstance(c, float) else str(c) for c in cells]
    return f"{texts[0]:<34}" + "".join(f"{t:>12}" for t in texts[1:])


# -- making nodes -------------------------------------------------------------


def _makers() -> dict[str, Work]:
    """What makes COUNT new nodes and nothing else (but reading them from a list)."""
    buffers = [UOp.buffer(6, f32, i) for i in range(COUNT + 1)]
    literals = [Literal.of(i, i32) for i in range(COUNT)]
    pairs = list(itertools.pairwise(buffers))
    return {
        "a + b": lambda: [a + b for a, b in pairs],
        "UOp(Ops.ADD, (a, b))": lambda: [UOp(Ops.ADD, p) for p in pairs],
        "a.exp2()": lambda: [b.exp2() for b in buffers],
        "a.reshape((2, 3))": lambda: [b.reshape((2, 3)) for b in buffers],
        "a.shrink([(1, 4)])": lambda: [b.shrink([(1, 4)]) for b in buffers],
        "a.reduce(Ops.ADD, 1)": lambda: [b.reduce(Ops.ADD, 1) for b in buffers],
        "UOp(Ops.CONST, (), literal)": lambda: [
            UOp(Ops.CONST, (), n) for n in literals
        ],
        "UOp.const(n, i32)": lambda: [UOp.const(n, i32) for n in range(COUNT)],
        "UOp.buffer(6, f32, n)": lambda: [
            UOp.buffer(6, f32, n) for n in range(COUNT, 2 * COUNT)
        ],
    }


def _ten_thousand(source: UOp) -> UOp:
    u = source
    for _ in range(5000):
        u = (u + source) * source
    return u


def nodes() -> None:
    """New nodes, and a graph that exists already built again."""

    def rows() -> Iterable[Sequence[object]]:
        modes: dict[str, Callable[[], AbstractContextManager[None]]] = {
            "on": nullcontext,
            "paused": collector_paused,
        }
        for name, make in _makers().items():
            for mode, context in modes.items():
                with context():
                    times = [t / COUNT * 1e6 for t in seconds(make, ROUNDS)]
                yield name, mode, min(times), statistics.median(times), "us", 2.5
        source = UOp.buffer(6, f32, 0)
        alive = _ten_thousand(source)
        for mode, context in modes.items():
            with context():
                times = [
                    t * 1e3 for t in seconds(lambda: _ten_thousand(source), ROUNDS)
                ]
            yield (
                "10,000 known nodes",
                mode,
                min(times),
                statistics.median(times),
                "ms",
                15,
            )
        del alive

    head = ("one new node", "collector", "least", "median", "unit", "bound")
    table("Making nodes", head, rows())


# -- a long chain -------------------------------------------------------------


def _chain(length: int, source: UOp) -> UOp:
    u = source
    for i in range(length):
        u = u * source if i % 2 else u + source
    return u


def _resident() -> int:
    """Bytes of memory in use; 0 where the system does not say it in this way."""
    file = Path("/proc/self/statm")
    if not file.exists():
        return 0
    return int(file.read_text().split()[1]) * 4096


def chain() -> None:
    """A chain of a million nodes: build, walk, print, parse, pickle, load, free."""
    made: dict[str, Any] = {"source": UOp.buffer(6, f32, 0)}

    def step(name: str, key: str, work: Work) -> Sequence[object]:
        before = _resident()
        start = time.process_time()
        made[key] = work()
        spent = time.process_time() - start
        grown = (_resident() - before) / MILLION
        return name, spent, spent / MILLION * 1e6, grown

    def free(*keys: str) -> None:
        for key in keys:
            made.pop(key)

    def rows() -> Iterable[Sequence[object]]:
        yield step("build", "u", lambda: _chain(MILLION, made["source"]))
        yield step("build, collector paused", "v", _paused_chain)
        yield step("toposort", "order", lambda: toposort([made["u"]]))
        free("order")
        yield step("print", "text", lambda: to_uir(made["u"]))
        yield step("parse, all nodes alive", "v", lambda: parse_uir(made["text"]))
        assert made["v"] is made["u"]
        yield step("pickle", "data", lambda: pickle.dumps(made["u"]))
        yield step("unpickle, all nodes alive", "v", lambda: _load(made["data"]))
        assert made["v"] is made["u"]
        yield step("free", "", lambda: free("u", "v"))
        yield step("unpickle", "u", lambda: _load(made["data"]))
        yield step("free", "", lambda: free("u"))
        yield step("parse", "u", lambda: parse_uir(made["text"]))
        size = len(made["text"]) / MILLION, len(made["data"]) / MILLION
        yield "bytes of text, of pickle", "", "", "{:.0f}, {:.0f}".format(*size)

    def _paused_chain() -> UOp:
        with collector_paused():
            return _chain(MILLION, UOp.buffer(6, f32, 1))

    def _load(data: bytes) -> UOp:
        loaded: UOp = pickle.loads(data)
        return loaded

    head = ("a chain of 1,000,000", "seconds", "us/node", "bytes/node")
    table("A long chain", head, rows())


# -- sharing ------------------------------------------------------------------


def _levels(source: UOp) -> UOp:
    u = source
    for _ in range(LEVELS):
        u = u + u
    return u


def _steps(backend: Any) -> dict[str, Work]:
    """Every pass over 60 levels of x = x + x, which has 2**60 paths."""
    buffer = new_buffer(Tensor([1.0]).numpy())
    u = _levels(buffer)
    plan, _ = make_plan([u], None, backend.supports, backend.name)
    kernel = plan.kernels[0]
    text = to_uir(u)

    def plan_anew() -> Any:
        _plans.clear()
        return make_plan([u], None, backend.supports, backend.name)

    steps: dict[str, Work] = {
        "build": lambda: _levels(UOp.buffer(1, f32, 9)),
        "toposort": lambda: toposort([u]),
        "print": lambda: to_uir(u),
        "parse": lambda: parse_uir(text),
        "pickle and unpickle": lambda: pickle.loads(pickle.dumps(u)),
        "simplify": lambda: Simplifier()(_levels(UOp.param(0, i32))),
        "make_plan": plan_anew,
        "lower": lambda: lower(kernel.ast, kernel.name),
        "realize": lambda: realize([u], None, backend),
        "realize, the plan known": lambda: realize([u], None, backend),
    }
    if hasattr(current().hook, "uopc_gradient"):
        steps["gradient"] = lambda: current().hook.uopc_gradient(
            root=u, seed=None, targets=[buffer]
        )
    return steps


def sharing() -> None:
    """Sixty levels of sharing through every pass, on each backend."""

    def rows() -> Iterable[Sequence[object]]:
        for name, factory in registry().backends.items():
            backend = factory()
            if backend.unavailable():
                continue
            for step, work in _steps(backend).items():
                yield (
                    step,
                    name,
                    min(seconds(work, 1 if step == "realize" else 3)) * 1e3,
                )

    table("60 levels of x = x + x", ("pass", "backend", "ms"), rows())


# -- passes by size -----------------------------------------------------------


def _wide(size: int) -> UOp:
    """A sum, as a balanced tree, of as many buffers."""
    level = [UOp.buffer(4, f32, i) for i in range(size // 2)]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [a + b for a, b in pairs] + level[len(level) & ~1 :]
    return level[0]


def _reductions(size: int) -> UOp:
    """Sums of rows, one after the other: x = sum(x * w) repeated under every row."""
    x = UOp.buffer(8, f32, 0)
    w = UOp.buffer(64, f32, 1).reshape((8, 8))
    for _ in range(size // 4):
        x = (x.reshape((1, 8)).expand((8, 8)) * w).reduce(Ops.ADD, 1)
    return x


def _views(size: int) -> UOp:
    """Two views and an operation, again and again."""
    x = UOp.buffer(12, f32, 0)
    y = UOp.buffer(12, f32, 1)
    u = x
    for _ in range(size // 4):
        u = (u.reshape((3, 4)).permute((1, 0)).reshape((12,))) + y
    return u


def _integers(size: int) -> UOp:
    """Index arithmetic that does not simplify away."""
    r = UOp(Ops.RANGE, (), (0, 1000, i32))
    u: UOp = r
    for i in range(size // 4):
        u = (u * 3 + r) % (100 + i % 50)
    return u


FAMILIES: dict[str, Callable[[int], UOp]] = {
    "chain": lambda size: _chain(size, UOp.buffer(6, f32, 0)),
    "wide": _wide,
    "reductions": _reductions,
    "views": _views,
}


def passes() -> None:
    """Microseconds per node of passes over graphs of three sizes."""
    sizes = (1000, 10_000, 100_000)

    def per_node(work: Callable[[UOp], Any], make: Callable[[int], UOp]) -> list[float]:
        found = []
        for size in sizes:
            u = make(size)
            count = len(toposort([u]))
            rounds = max(1, 10_000 // size)
            times = seconds(functools.partial(work, u), rounds)
            found.append(min(times) / count * 1e6)
            _plans.clear()
            del u
            gc.collect()
        return found

    def plan(u: UOp) -> Any:
        _plans.clear()
        return make_plan([u])

    def rows() -> Iterable[Sequence[object]]:
        for name, make in FAMILIES.items():
            yield f"make_plan, {name}", *per_node(plan, make)
            yield f"print, {name}", *per_node(to_uir, make)
            if hasattr(current().hook, "uopc_gradient"):
                yield f"gradient, {name}", *per_node(_gradient, make)
        yield "simplify, integers", *per_node(lambda u: Simplifier()(u), _integers)

    head = ("us per node, of nodes:", *(f"{n:,}" for n in sizes))
    table("Passes by size", head, rows())


def _gradient(u: UOp) -> Any:
    target = next(n for n in toposort([u]) if n.op is Ops.BUFFER)
    return current().hook.uopc_gradient(root=u, seed=None, targets=[target])


SECTIONS: dict[str, Work] = {
    "nodes": nodes,
    "chain": chain,
    "sharing": sharing,
    "passes": passes,
}


if __name__ == "__main__":
    run(SECTIONS)

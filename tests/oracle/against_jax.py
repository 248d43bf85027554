"""The derivatives of random graphs, by uopc and by JAX."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.extend
import numpy as np
from in_jax import Point
from numpy_jaxpr import evaluate

from uopc.autodiff import gradient
from uopc.autodiff.forward import tangents
from uopc.dtype import f32
from uopc.interp import evaluate as interpreted
from uopc.testing import random_graph
from uopc.testing.derivatives import Derivatives, derive, run_together
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]
Arrays = dict[str, list[Array]]

jax.config.update("jax_enable_x64", True)

TOLERANCE = 1e-9  # of the largest element of a result, or of 1
NARROW = 1e-4  # where a cast rounds to f32


def value_of(u: UOp, d: Derivatives) -> Array:
    """That of a weight or a direction."""
    flat = u.src[0] if u.op is Ops.RESHAPE else u
    return d.data[flat].reshape(u.shape)


def trace(d: Derivatives) -> Any:
    """All parts as JAX derives them, as a jaxpr, a function of the targets' values."""
    f = Point(d).function(d.graph.roots, d.targets)
    weights = [value_of(w, d) for w in d.weights]
    ways = [value_of(v, d) for v in d.directions]

    def first(xs: Sequence[Any]) -> Sequence[Any]:
        _, pull = jax.vjp(f, xs)
        found: Sequence[Any] = pull(weights)[0]
        return found

    def every(xs: Sequence[Any]) -> list[Sequence[Any]]:
        value, moved = jax.jvp(f, (xs,), (ways,))
        return [value, *jax.jvp(first, (xs,), (ways,)), moved]

    return jax.make_jaxpr(every)([d.data[t] for t in d.targets])


def by_jax(d: Derivatives, compiled: bool = False) -> Arrays:
    """All parts as JAX has them, computed by NumPy, or compiled by JAX."""
    closed = trace(d)
    inputs = [d.data[t] for t in d.targets]
    if compiled:
        run = jax.jit(jax.extend.core.jaxpr_as_fun(closed))
        flat = [np.asarray(x) for x in run(*inputs)]
    else:
        flat = evaluate(closed, inputs)
    n, k = len(d.graph.roots), len(d.targets)
    cuts = np.cumsum([n, k, k])
    value, first, second, moved = (
        flat[a:b] for a, b in zip([0, *cuts], [*cuts, len(flat)], strict=True)
    )
    return {
        "value": value,
        "first": first,
        "second": second,
        "moved": moved,
        "forward over reverse": second,
        "reverse over forward": second,
    }


@dataclass
class Tally:
    """What was compared."""

    graphs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    worst: dict[str, float] = field(default_factory=dict)

    def add(self, other: "Tally") -> None:
        """Count what another one counted."""
        self.graphs += other.graphs
        self.counts += other.counts
        for name, off in other.worst.items():
            self.worst[name] = max(off, self.worst.get(name, 0.0))

    def __str__(self) -> str:
        lines = [f"{self.graphs} graphs"]
        lines += [
            f"{name}: {self.counts[name]} elements, off by {off:.1e} at most"
            for name, off in self.worst.items()
        ]
        return "; ".join(lines)


def compared(
    d: Derivatives, got: Arrays, want: Arrays, tally: Tally, where: str = "interp"
) -> list[str]:
    """What is wrong with the parts of one graph as a backend computed them."""
    narrow = any(u.dtype is f32 for u in toposort(d.graph.roots))
    problems = []
    for name, arrays in got.items():
        what = name if where == "interp" else f"{name} in {where}"
        size = max((np.abs(x).max(initial=0) for x in want[name]), default=0)
        allowed = (NARROW if narrow else TOLERANCE) * max(1.0, float(size))
        for k, (a, b) in enumerate(zip(arrays, want[name], strict=True)):
            if a.shape != b.shape:
                problems.append(f"{what} {k}: shape {a.shape}, JAX has {b.shape}")
                continue
            off = np.abs(a - b)
            bad = ~(off <= allowed)
            tally.counts[what] += a.size
            if not narrow:
                worst = float(off.max(initial=0)) / max(1.0, float(size))
                tally.worst[what] = max(worst, tally.worst.get(what, 0.0))
            if bad.any():
                problems.append(
                    f"{what} {k}: {bad.sum()} of {bad.size} elements differ: "
                    f"{a[bad][:4]}, JAX has {b[bad][:4]}"
                )
    return problems


def compare_seeds(seeds: Sequence[int], native: bool) -> tuple[Tally, dict[int, str]]:
    """What was compared, and what is wrong with which of these graphs.

    Each is interpreted; with ``native``, all are compiled as one C program as well.
    """
    tally, reports = Tally(), {}
    every = [
        derive(random_graph(seed, differentiable=True), gradient, tangents)
        for seed in seeds
    ]
    in_c = run_together(every, "c") if native else [None] * len(every)
    for seed, d, compiled in zip(seeds, every, in_c, strict=True):
        want = by_jax(d)
        got = d.arrays(interpreted(d.nodes(), dict(d.data)))
        problems = compared(d, got, want, tally)
        if compiled is not None:
            problems += compared(d, compiled, want, tally, "c")
        tally.graphs += 1
        if problems:
            reports[seed] = "\n".join([*problems, d.graph.text()])
    return tally, reports

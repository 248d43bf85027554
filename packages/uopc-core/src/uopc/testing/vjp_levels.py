"""What ``check_vjp`` compares at one point, order by order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.dtype import f64
from uopc.interp import evaluate
from uopc.plugins import current
from uopc.testing.bounded import Array
from uopc.testing.slopes import Path, Verdict, apart, first, weighted
from uopc.uop import UOp

ELEMENTS = 256  # of a source, looked at one by one once something is wrong
# Far above the placeholders that graphs and transforms number.
_slots = itertools.count(1 << 44)


@dataclass
class Counts:
    """What ``check_vjp`` has done.

    Attributes:
        samples: how many nodes or calls were differentiated.
        directions: how many directions were tried, over all samples and orders.
        comparisons: how many numbers or arrays were compared.
    """

    samples: int = 0
    directions: int = 0
    comparisons: int = 0


@dataclass(frozen=True)
class Sample:
    """A function at a point.

    Attributes:
        name: the op or the function, for messages.
        text: what it is, for messages.
        outs: what it returns, f64 nodes.
        inputs: the f64 placeholders that it is differentiated by.
        names: what messages call them.
        data: the values of all placeholders.
    """

    name: str
    text: str
    outs: tuple[UOp, ...]
    inputs: tuple[UOp, ...]
    names: tuple[str, ...]
    data: dict[UOp, Array]

    def fail(self, what: str) -> AssertionError:
        """The error that says what is wrong."""
        return AssertionError(f"{self.name}: {what}, in\n{self.text}")


@dataclass(frozen=True)
class Built:
    """Graphs of derivatives and their values, to compare other backends with."""

    sample: Sample
    what: str
    nodes: Sequence[UOp]
    data: dict[UOp, Array]
    values: Sequence[Array]


def like(u: UOp) -> UOp:
    """A new placeholder of the node's shape."""
    return UOp.param(next(_slots), u.dtype, u.shape)


def has_engine() -> bool:
    """Whether a gradient engine is installed."""
    x = UOp.param(0, f64, ())
    found = current().hook.uopc_gradient(root=x, seed=None, targets=[x])
    return found is not None


class Level:
    """One order at one sample: its outputs' derivatives, in every way there is."""

    def __init__(
        self,
        sample: Sample,
        order: int,
        modes: Sequence[str],
        counts: Counts,
        rng: np.random.Generator,
    ) -> None:
        self.sample, self.order, self.modes = sample, order, modes
        self.counts, self.rng = counts, rng
        self.what = "the gradient" + " of the gradient" * (order - 1)
        self.weights = tuple(like(o) for o in sample.outs)
        self.data = dict(sample.data)
        for w in self.weights:
            self.data[w] = self._drawn(w)
        self.grads = self._gradients()
        self.built: list[Built] = []

    def _drawn(self, u: UOp) -> Array:
        return np.asarray(self.rng.standard_normal(u.shape))

    def check(self, directions: int) -> None:
        """Raise AssertionError for the first thing that is wrong."""
        values = self._evaluated(self.what, self.grads, self.data)
        # First, since differences would call it off and not say why.
        if "reverse" in self.modes:
            self._check_linear(values)
        for _ in range(directions if "reverse" in self.modes else 0):
            self.counts.directions += 1
            for i, p in enumerate(self.sample.inputs):
                self._check_source(i, self._drawn(p), values[i])
        if "forward" in self.modes:
            self._check_forward(values)

    def next(self) -> Sample:
        """The gradient as a function of the inputs and of its cotangents."""
        s = self.sample
        names = tuple(f"cotangent {k}" for k in range(len(self.weights)))
        if self.order > 1:
            names = tuple(f"{n} of order {self.order}" for n in names)
        return Sample(
            s.name,
            s.text,
            tuple(self.grads),
            s.inputs + self.weights,
            s.names + names,
            self.data,
        )

    # -- reverse ------------------------------------------------------------------

    def _gradients(self) -> list[UOp]:
        inputs = list(self.sample.inputs)
        total: list[UOp] = []
        for out, w in zip(self.sample.outs, self.weights, strict=True):
            found = self._asked(
                current().hook.uopc_gradient, root=out, seed=w, targets=inputs
            )
            if total:
                found = [a + b for a, b in zip(total, found, strict=True)]
            total = found
        for g, p, name in zip(total, inputs, self.sample.names, strict=True):
            if (g.dtype, g.shape) != (p.dtype, p.shape):
                raise self.sample.fail(
                    f"{self.what} by {name} is {g.dtype}{list(g.shape)}, expected "
                    f"{p.dtype}{list(p.shape)}"
                )
        return total

    def _asked(self, hook: Callable[..., Any], **arguments: Any) -> list[UOp]:
        """What an engine answers; its complaints about a rule are failures of it."""
        try:
            return list(hook(**arguments))
        except (TypeError, ValueError) as error:
            raise self.sample.fail(f"{self.what}: {error}") from error

    def _path(self, way: dict[UOp, Array]) -> Path:
        weights = [self.data[w] for w in self.weights]
        return Path(self.sample.outs, weights, self.data, way)

    def _check_source(self, i: int, v: Array, g: Array) -> None:
        p = self.sample.inputs[i]
        path = self._path({p: v})
        self.counts.comparisons += 1
        found = weighted([g], [v])
        verdict = path.off_total(found)
        if verdict is None:
            return
        self._check_elements(i, g)
        name = self.sample.names[i]
        if verdict.unsure:
            raise self._unsure(name, verdict)
        raise self.sample.fail(
            f"{self.what} by {name} is off along a direction: got {found:.9g}, by "
            f"differences {verdict.wanted:.9g}"
        )

    def _check_elements(self, i: int, g: Array) -> None:
        """Raise for the elements of the gradient that are off by themselves, if any."""
        p, name = self.sample.inputs[i], self.sample.names[i]
        off: list[tuple[list[int], float, float]] = []
        unsure: list[tuple[list[int], Verdict]] = []
        for at in itertools.islice(np.ndindex(p.shape), ELEMENTS):
            unit = np.zeros(p.shape)
            unit[at] = 1.0
            verdict = self._path({p: unit}).off_total(float(g[at]))
            if verdict is not None and verdict.unsure:
                unsure.append((list(at), verdict))
            elif verdict is not None:
                off.append((list(at), float(g[at]), float(verdict.wanted)))
        if off:
            where, got, wanted = max(off, key=lambda e: abs(e[1] - e[2]))
            raise self.sample.fail(
                f"{self.what} by {name} is off at {where}: got {got:.9g}, by "
                f"differences {wanted:.9g} ({len(off)} of {g.size} elements are off)"
                f"{'' if g.any() else self._zero_hint()}"
            )
        if unsure:
            where, verdict = unsure[0]
            raise self._unsure(f"{name} at {where}", verdict)

    def _zero_hint(self) -> str:
        detached = ", or is its second derivative detached" * (self.order > 1)
        return f"; it is 0 everywhere: does the rule return None{detached}?"

    def _unsure(
        self, where: str, verdict: Verdict, at: tuple[int, ...] = ()
    ) -> AssertionError:
        return self.sample.fail(
            f"{where}: the sample is at a kink or a jump of {self._function()}, or "
            f"differences show nothing there, so that nothing can be checked: "
            f"{verdict.reason(at)}; choose another sample"
        )

    def _check_linear(self, values: Sequence[Array]) -> None:
        """Twice one cotangent minus three times another gives the same of gradients."""
        other = {w: self._drawn(w) for w in self.weights}
        mixed = {w: 2 * self.data[w] - 3 * v for w, v in other.items()}
        theirs = evaluate(self.grads, {**self.data, **other})
        both = evaluate(self.grads, {**self.data, **mixed})
        each = zip(self.sample.names, values, theirs, both, strict=True)
        for name, a, b, c in each:
            self.counts.comparisons += 1
            bad = apart(c, 2 * a - 3 * b) & np.isfinite(a) & np.isfinite(b)
            if bad.any():
                at = first(bad)
                raise self.sample.fail(
                    f"{self.what} by {name} is not linear in the cotangent at "
                    f"{list(at)}: 2 a - 3 b gives {c[at]:.9g}, expected "
                    f"{2 * a[at] - 3 * b[at]:.9g}"
                )

    # -- forward ------------------------------------------------------------------

    def _check_forward(self, values: Sequence[Array]) -> None:
        s = self.sample
        seeds = [like(p) for p in s.inputs]
        hook = current().hook.uopc_jvp
        if not hook.get_hookimpls():
            return
        moved = self._asked(
            hook, roots=list(s.outs), inputs=list(s.inputs), tangents=seeds
        )
        drawn = [self._drawn(p) for p in s.inputs]
        self.counts.directions += 1
        data = {**self.data, **dict(zip(seeds, drawn, strict=True))}
        what = f"forward mode of {self._function()}"
        tangents = self._evaluated(what, moved, data)
        path = self._path(dict(zip(s.inputs, drawn, strict=True)))
        self.counts.comparisons += len(tangents) + 1
        off = path.off(tangents)
        if off is not None:
            for k, v in enumerate(off):
                if v.wrong.any():
                    at = first(v.wrong)
                    raise s.fail(
                        f"{what} is off at {list(at)} of result {k}: got "
                        f"{tangents[k][at]:.9g}, by differences {v.wanted[at]:.9g}"
                    )
            k, v = next((k, v) for k, v in enumerate(off) if v.unsure.any())
            at = first(v.unsure)
            raise self._unsure(f"result {k} at {list(at)}", v, at)
        forward = weighted(tangents, path.weights)
        backward = weighted(values, drawn)
        if apart(np.asarray(forward), np.asarray(backward)).any():
            raise s.fail(
                f"{what} and {self.what} differ: <w, J v> is {forward:.9g}, and "
                f"<J^T w, v> is {backward:.9g}"
            )

    def _function(self) -> str:
        return "the function" if self.order == 1 else self.what.partition(" of ")[0]

    def _evaluated(
        self, what: str, nodes: Sequence[UOp], data: dict[UOp, Array]
    ) -> list[Array]:
        with np.errstate(all="ignore"):
            values = list(evaluate(nodes, data))
        self.built.append(Built(self.sample, what, nodes, data, values))
        return values

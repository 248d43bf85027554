"""The derivatives of a random graph, as graphs, in each way there is to get them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from uopc.dtype import f64
from uopc.runtime import backend_named, new_buffer, realize
from uopc.testing.bounded import Array
from uopc.testing.frozen import Difference, Frozen, differences_of
from uopc.testing.graphs import RandomGraph
from uopc.uop import Ops, UOp, substitute

Gradient = Callable[[UOp, Sequence[UOp]], Sequence[UOp]]
Tangents = Callable[[Sequence[UOp], Sequence[UOp], Sequence[UOp]], Sequence[UOp]]


@dataclass(frozen=True)
class Derivatives:
    """Graphs, and the data they need.

    The loss is the sum of the roots' elements, each times a weight.

    Attributes:
        graph: what is differentiated, for its f64 inputs.
        weights: per root, the factors of its elements.
        directions: per target, a direction.
        parts: what was built, by name, each a list of nodes: ``value``, the roots;
            ``first``, the gradient of the loss; ``second``, that of the first times
            the directions. With forward mode also ``moved``, the tangents of the
            roots along the directions, and the second order in two more ways.
        data: values of all leaves.
    """

    graph: RandomGraph
    targets: tuple[UOp, ...]
    weights: tuple[UOp, ...]
    directions: tuple[UOp, ...]
    parts: Mapping[str, Sequence[UOp]]
    data: Mapping[UOp, Array]

    def nodes(self) -> list[UOp]:
        """All that was built."""
        return [u for part in self.parts.values() for u in part]

    def arrays(self, values: Sequence[Array]) -> dict[str, list[Array]]:
        """The values of ``nodes()``, by the name of the part."""
        each = iter(values)
        return {name: [next(each) for _ in part] for name, part in self.parts.items()}

    def frozen(self) -> Frozen:
        """The roots as a smooth function."""
        return Frozen(self.graph.roots, self.graph.inputs)


def targets_of(graph: RandomGraph) -> tuple[UOp, ...]:
    """The inputs that have derivatives, read or not."""
    return tuple(u for u in graph.inputs if u.dtype is f64)


def derive(
    graph: RandomGraph, gradient: Gradient, tangents: Tangents | None = None
) -> Derivatives:
    """All derivatives to order 2 of a graph, by the given engine.

    Weights and directions are random, and the same for the same graph.
    """
    rng = np.random.default_rng(len(graph.choices))
    data = dict(graph.inputs)

    def leaf(u: UOp) -> UOp:
        slot = 1000 + len(data)
        new = UOp.buffer(math.prod(u.shape), f64, slot)
        data[new] = rng.uniform(0.5, 1.5, new.shape) * rng.choice([-1, 1], new.shape)
        return new.reshape(u.shape)

    targets = targets_of(graph)
    weights = tuple(leaf(r) for r in graph.roots)
    directions = tuple(leaf(t) for t in targets)
    loss = _dot(graph.roots, weights)
    first = gradient(loss, targets)
    slope = _dot(first, directions)
    parts = {"value": graph.roots, "first": first, "second": gradient(slope, targets)}
    if tangents is not None:
        moved = tangents(graph.roots, targets, directions)
        parts["moved"] = moved
        parts["forward over reverse"] = tangents(first, targets, directions)
        parts["reverse over forward"] = gradient(_dot(moved, weights), targets)
    return Derivatives(graph, targets, weights, directions, parts, data)


def _dot(nodes: Sequence[UOp], factors: Sequence[UOp]) -> UOp:
    total = UOp.const(0.0, f64)
    for u, factor in zip(nodes, factors, strict=True):
        product = u * factor
        axes = len(product.shape)
        total = total + (product.reduce(Ops.ADD, axes) if axes else product)
    return total


def run_together(
    every: Sequence[Derivatives], backend: str
) -> list[dict[str, list[Array]]]:
    """All parts of each, computed by a backend in one plan."""
    bound: list[UOp] = []
    for d in every:
        live = {
            u: new_buffer(u.dtype.store(x.copy()), u.dtype) for u, x in d.data.items()
        }
        bound += substitute(d.nodes(), live)
    memory = iter(realize(bound, None, backend_named(backend)))
    return [
        d.arrays([u.dtype.load(next(memory)).reshape(u.shape) for u in d.nodes()])
        for d in every
    ]


def by_differences(d: Derivatives, order: int) -> Difference:
    """The derivative of the loss along the directions."""
    f = d.frozen()
    weights = [_value(w, d) for w in d.weights]
    ways = [_value(v, d) for v in d.directions]
    at = [d.data[t] for t in d.targets]

    def loss(step: float) -> np.longdouble:
        moved = {
            t: x.astype(np.longdouble) + step * v
            for t, x, v in zip(d.targets, at, ways, strict=True)
        }
        roots = f.at(moved)
        return sum(
            ((r * w).sum() for r, w in zip(roots, weights, strict=True)),
            np.longdouble(0),
        )

    return differences_of(loss, order)


def along(d: Derivatives, gradients: Sequence[Array]) -> tuple[float, float]:
    """Gradients times the directions, and the sum of the sizes of the terms."""
    terms = [g * _value(v, d) for g, v in zip(gradients, d.directions, strict=True)]
    return (
        float(sum(t.sum() for t in terms)),
        float(sum(np.abs(t).sum() for t in terms)),
    )


def _value(u: UOp, d: Derivatives) -> Array:
    """That of a weight or a direction."""
    flat = u.src[0] if u.op is Ops.RESHAPE else u
    return d.data[flat].reshape(u.shape)

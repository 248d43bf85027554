"""Random graphs, to compare backends and passes with the interpreter.

``random_graph(seed)`` is a small program over the whole op table, with inputs for
which its values are worth comparing: they are evaluated while the graph grows, and a
step that gives mostly NaN, one single number, or numbers that no two backends agree
on is taken back. ``uopc.testing.strategies`` has the same graphs for hypothesis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uopc.runtime import new_buffer
from uopc.testing.bounded import Array, Bounded, evaluate_bounded
from uopc.testing.build import Builder, Options
from uopc.testing.chance import Chance, recorded, seeded
from uopc.testing.differentiable import DifferentiableBuilder
from uopc.uir import to_uir
from uopc.uop import Ops, UOp, substitute, toposort

# Of a graph whose number of steps is not given; most are about this long.
STEPS = (3, 5, 6, 7, 8, 9, 10, 12, 16, 24)


@dataclass(frozen=True)
class RandomGraph:
    """A graph and its inputs.

    Attributes:
        origin: the call that makes it.
        choices: what ``replay`` makes it from.
        roots: the nodes to compute.
        inputs: the values behind each flat BUFFER; slots count from 0.
        expected: the value of each root, and how far a backend may be off.
    """

    origin: str
    choices: tuple[int, ...]
    roots: tuple[UOp, ...]
    inputs: Mapping[UOp, Array]
    expected: tuple[Bounded, ...]

    def bound(self) -> list[UOp]:
        """The roots over live buffers with copies of the inputs, ready to realize."""
        live = {
            u: new_buffer(u.dtype.store(data.copy()), u.dtype)
            for u, data in self.inputs.items()
        }
        return substitute(self.roots, live)

    def part(self, k: int) -> RandomGraph:
        """Node ``%k`` of the text as the only root."""
        root = toposort(self.roots)[k]
        return self._derived(f"part({k})", [root], self.inputs)

    def cut(self, k: int) -> RandomGraph:
        """Node ``%k`` of the text as one more input, which holds its value."""
        node = toposort(self.roots)[k]
        ((value, _),) = evaluate_bounded([node], self.inputs)
        slot = 1 + max((u.arg.slot for u in self.inputs), default=-1)
        flat = UOp.buffer(value.size, node.dtype, slot)
        new = flat if node.shape == flat.shape else flat.reshape(node.shape)
        inputs = {**self.inputs, flat: value.reshape(-1)}
        return self._derived(f"cut({k})", substitute(self.roots, {node: new}), inputs)

    def _derived(
        self, call: str, roots: Sequence[UOp], inputs: Mapping[UOp, Array]
    ) -> RandomGraph:
        read = {u: inputs[u] for u in toposort(roots) if u in inputs}
        expected = tuple(evaluate_bounded(roots, read))
        origin = f"{self.origin}.{call}"
        return RandomGraph(origin, self.choices, tuple(roots), read, expected)

    def text(self) -> str:
        """The graph as ``.uir``, all roots in one, and the line that rebuilds it."""
        joined = UOp(Ops.SINK, self.roots, "roots")
        return f"# {self.origin}\n{to_uir(joined)}\n"


def random_graph(seed: int, **options: Any) -> RandomGraph:
    """The random graph number ``seed``: the same arguments give the same graph.

    Args:
        seed: any integer that is not negative.
        **options: ``steps``, how many nodes to add to the first inputs at most
            (drawn if not given); ``max_elements``, the size of the largest root;
            ``ops``, what to build from (of a plugin's ops, elementwise ones without
            an argument are used: ``ops=(*BUILTIN_OPS, ERF)``); ``dtypes``, the
            element types of inputs and casts (bool and i32 come up in any case, as
            conditions and indices); ``differentiable``, whether derivatives are to be
            compared, as ``uopc.testing.differentiable`` describes.
    """
    origin = f"random_graph({_arguments(seed, options)})"
    return grown(Chance(seeded(seed)), Options(**options), origin)


def replay(choices: Sequence[int], **options: Any) -> RandomGraph:
    """The graph that was made of these choices, with the same ``options``.

    A choice that is out of range is the last one in it; missing ones are 0.
    """
    return grown(Chance(recorded(choices)), Options(**options), "", options)


def grown(
    chance: Chance,
    options: Options,
    origin: str = "",
    given: Mapping[str, Any] | None = None,
) -> RandomGraph:
    """The graph of a stream of choices; ``replay`` is its origin if none is given."""
    kind = DifferentiableBuilder if options.differentiable else Builder
    builder = kind(chance, options)
    for _ in range(chance.pick((1, 2, 3, 3))):
        chance.span(lambda: builder.add(builder.leaf))
    steps = chance.pick(STEPS) if options.steps is None else options.steps
    for _ in range(steps):
        chance.span(builder.step)
    roots = builder.roots()
    expected = tuple(builder.fact(r) for r in roots)
    choices = tuple(chance.choices)
    origin = origin or f"replay({_arguments(list(choices), given or {})})"
    return RandomGraph(origin, choices, roots, builder.inputs, expected)


def _arguments(first: Any, options: Mapping[str, Any]) -> str:
    return ", ".join([repr(first), *(f"{k}={v!r}" for k, v in options.items())])

"""Functions of Tensors as graphs over placeholders.

A transform needs to know what a function does with its arguments, apart from any
other use of the same values: equal graphs are one node. So it calls the function once,
on tensors that are placeholders, and puts the actual arguments in their places.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from uopc.runtime.tree import Structure, flatten
from uopc.tensor import Tensor
from uopc.uop import UOp, substitute

# Far above what anybody numbers placeholders with.
_slots = itertools.count(1 << 40)


def fresh(like: UOp, shape: Sequence[int] | None = None) -> UOp:
    """A placeholder that nothing else is, of the node's shape or another."""
    return UOp.param(next(_slots), like.dtype, like.shape if shape is None else shape)


@dataclass(frozen=True)
class Arguments:
    """Nested arguments of a function, and placeholders for the tensors in them.

    Attributes:
        leaves: all leaves, tensors or not; of tensors the value of that time, which a
            later ``assign`` does not change.
        structure: how they are nested.
        at: which of the leaves are tensors.
        placeholders: a placeholder for each of those.
    """

    leaves: list[Any]
    structure: Structure
    at: list[int]
    placeholders: list[UOp]

    @staticmethod
    def of(tree: Any) -> Arguments:
        """The arguments with a placeholder for every tensor."""
        leaves, structure = flatten(tree)
        leaves = [held_fast(x) if isinstance(x, Tensor) else x for x in leaves]
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        return Arguments(leaves, structure, at, [fresh(leaves[i].uop) for i in at])

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the leaves."""
        return [self.leaves[i] for i in self.at]

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The nested arguments with other things in place of the tensors."""
        leaves = list(self.leaves)
        for i, t in zip(self.at, tensors, strict=True):
            leaves[i] = t
        return self.structure.filled(leaves)

    def traced(self) -> Any:
        """The nested arguments, with placeholder tensors."""
        return self.filled([Tensor(p) for p in self.placeholders])

    def actual(self) -> dict[UOp, UOp]:
        """What each placeholder stands for."""
        nodes = [t.uop for t in self.tensors]
        return dict(zip(self.placeholders, nodes, strict=True))

    def tensors_of(
        self, nodes: Sequence[UOp], others: Sequence[Tensor] = ()
    ) -> list[Tensor]:
        """Tensors of graphs over the placeholders, which give way to the arguments.

        They require a gradient if an argument or one of ``others`` does.
        """
        return made(substitute(nodes, self.actual()), [*self.tensors, *others])


def held_fast(t: Tensor) -> Tensor:
    """The value that a tensor has now, which stays when the tensor gets another."""
    fixed = t._new(t.uop)
    fixed._graph = t._graph
    return fixed


def made(nodes: Sequence[UOp], parents: Sequence[Tensor]) -> list[Tensor]:
    """Tensors that were computed from ``parents``."""
    if not parents:
        return [Tensor(n) for n in nodes]
    first, *rest = parents
    return [first._new(n, *rest) for n in nodes]


def require_function(what: str, f: object) -> None:
    """Raise TypeError, naming the transform, for what cannot be called."""
    if not callable(f):
        raise TypeError(f"{what} takes a function, not {f!r}")


def differentiable(tree: Any, what: str, instead: str) -> Any:
    """Nested arguments with numbers and arrays as tensors, all of float types.

    Raises TypeError for anything else, naming the place in the structure; ``instead``
    is what to do with an argument that is meant to be constant.
    """
    leaves, structure = flatten(tree)
    found = []
    for leaf, path in zip(leaves, structure.paths(what), strict=True):
        number = isinstance(leaf, (int, float)) or hasattr(leaf, "__array__")
        if number and not isinstance(leaf, Tensor):
            leaf = Tensor(leaf)
        if not isinstance(leaf, Tensor):
            raise TypeError(
                f"{path} is a {type(leaf).__name__}; expected a float Tensor, or "
                f"{instead}"
            )
        if not leaf.dtype.is_float:
            raise TypeError(
                f"{path} has dtype {leaf.dtype}, which has no derivative; cast it to a "
                f"float type, or {instead}"
            )
        found.append(leaf)
    return structure.filled(found)


def outputs(
    result: Any, what: str, instead: str = ""
) -> tuple[list[Tensor], Structure]:
    """What a function returned, as tensors; TypeError if it is anything else.

    ``instead`` is the end of its message, where the transform has an alternative.
    """
    leaves, structure = flatten(result)
    for leaf, path in zip(leaves, structure.paths("the result"), strict=True):
        if not isinstance(leaf, Tensor):
            raise TypeError(
                f"{what}: {path} of the function is a {type(leaf).__name__}; expected "
                f"a Tensor{instead}"
            )
    return [held_fast(t) for t in leaves], structure


def fitting(tree: Any, like: Sequence[Tensor], structure: Structure, what: str) -> Any:
    """The tensors of a tree that must look like others; ValueError if not."""
    leaves, got = flatten(tree)
    if got != structure:
        raise ValueError(
            f"{what} must be nested like the tensors it belongs to, "
            f"{structure.filled([_shape(t) for t in like])}, not "
            f"{got.filled([_shape(t) for t in leaves])}"
        )
    found = []
    for leaf, t, path in zip(leaves, like, structure.paths(what), strict=True):
        leaf = leaf if isinstance(leaf, Tensor) else Tensor(leaf, dtype=t.dtype)
        if leaf.shape != t.shape or leaf.dtype is not t.dtype:
            raise ValueError(f"{path} is {_shape(leaf)}, expected {_shape(t)}")
        found.append(leaf)
    return found


def _shape(t: Any) -> Any:
    return _Text(f"{t.dtype}{list(t.shape)}" if isinstance(t, Tensor) else repr(t))


class _Text(str):
    __slots__ = ()
    __repr__ = str.__str__

"""vmap: a function of one example as a function of a whole batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from uopc.autodiff.batching import batched, repeated
from uopc.autodiff.tracing import Arguments, fresh, made, outputs, require_function
from uopc.runtime.tree import Structure, flatten
from uopc.tensor import Tensor
from uopc.uop import UOp

Axis = int | None


def vmap(
    f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0
) -> Callable[..., Any]:
    """A function that applies ``f`` to every element of a batch, in one graph.

    Args:
        f: a function of Tensors and nested structures of them. It is called once, on
            placeholders without the batch axis, so it cannot read values.
        in_axes: which axis of the arguments is the batch: an integer, negative ones
            counted from the end, or None for what is the same for all elements; or a
            tuple or list with one entry per positional argument, which may be nested
            like the argument, an entry counting for all that lies below it.
        out_axes: where the axis goes in the results, likewise; None is for a result
            that does not depend on the batch, and returns it once. With an integer,
            such a result is repeated.

    As in JAX, keyword arguments are batched along axis 0. NumPy arrays become Tensors;
    what is neither (a number, a string) is handed on as it is, whatever its entry says.
    Tensors that ``f`` reads without being given them are the same for all elements, and
    so are random numbers that it draws; give the drawn tensor as an argument to have
    others for each. Gradients flow to the arguments and to all that ``f`` reads. The
    result for an element is what ``f`` gives for it: the graph has the same ops, with
    one more axis in front, and sums are over the same elements in the same order.

    Raises ValueError for axes that do not fit, for lengths that differ and if nothing
    is batched, NoBatchingRule for an op that has none; TypeError for an ``f`` that is
    no function or returns what is no Tensor.
    """
    require_function("vmap", f)

    @functools.wraps(f)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        batch = _Batch(args, kwargs, in_axes)
        traced_args, traced_kwargs = batch.arguments.traced()
        results, structure = outputs(f(*traced_args, **traced_kwargs), "vmap")
        axes = _axes_of(out_axes, structure, "vmap: out_axes")
        whole = batched([t.uop for t in results], batch.nodes)
        paths = structure.paths("the result")
        nodes = [
            _placed(u, has, axis, batch.length, path)
            for (u, has), axis, path in zip(whole, axes, paths, strict=True)
        ]
        return structure.filled(made(nodes, [*batch.tensors, *results]))

    return mapped


class _Batch:
    """The arguments of one call.

    Attributes:
        arguments: all of them, with a placeholder for one element of each Tensor that
            has a batch.
        tensors: those Tensors.
        nodes: for each placeholder the node of the batch, which is its first axis.
        length: how many elements the batch has.
    """

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Any
    ) -> None:
        leaves, structure = flatten((args, kwargs))
        positional, named = structure.parts
        axes = _axes_of(in_axes, positional, "vmap: in_axes")
        axes += _axes_of(0, named, "vmap")
        names = (*range(len(args)), *kwargs)
        parts = (*positional.parts, *named.parts)
        paths = [
            path
            for name, part in zip(names, parts, strict=True)
            for path in part.paths(f"argument {name}")
        ]
        found: list[tuple[int, Tensor, int, str]] = []
        for i, (leaf, axis) in enumerate(zip(leaves, axes, strict=True)):
            if hasattr(leaf, "__array__") and not isinstance(leaf, Tensor):
                leaf = leaves[i] = Tensor(leaf)
            if isinstance(leaf, Tensor) and axis is not None:
                found.append((i, leaf, _axis(axis, leaf, paths[i]), paths[i]))
        self.tensors = [t for _, t, _, _ in found]
        self.length = _common_length(found)
        whole = [_to_front(t.uop, axis) for _, t, axis, _ in found]
        places = [fresh(u, u.shape[1:]) for u in whole]
        at = [i for i, _, _, _ in found]
        self.arguments = Arguments(leaves, structure, at, places)
        self.nodes = dict(zip(places, whole, strict=True))


def _axis(axis: int, t: Tensor, path: str) -> int:
    rank = len(t.shape)
    if not -rank <= axis < rank:
        raise ValueError(
            f"vmap: {path} is {t.dtype}{list(t.shape)}, which has no axis {axis}; "
            "in_axes says which axis is the batch, None that there is none"
        )
    return axis % rank


def _common_length(found: Sequence[tuple[int, Tensor, int, str]]) -> int:
    if not found:
        raise ValueError(
            "vmap: no argument has a batch axis; in_axes must give one to a Tensor"
        )
    lengths = {t.shape[axis] for _, t, axis, _ in found}
    if len(lengths) > 1:
        given = ", ".join(
            f"{path} is {t.dtype}{list(t.shape)} with the batch on axis {axis}"
            for _, t, axis, path in found
        )
        raise ValueError(f"vmap: the lengths of the batch axes differ: {given}")
    return lengths.pop()


def _axes_of(axes: Any, structure: Structure, what: str) -> list[Axis]:
    """One axis per leaf, from axes that are nested like it or less deep."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return [axes] * structure.size
    entries = _entries(axes, structure)
    if entries is None:
        kind = getattr(structure.kind, "__name__", "Tensor")
        keys = structure.keys or range(len(structure.parts))
        parts = f" with the parts {', '.join(map(repr, keys))}" if keys else ""
        raise ValueError(
            f"{what} is {axes!r}, for a {kind}{parts}; expected an integer, None, or "
            "one entry for each part"
        )
    found = []
    for i, (entry, part) in enumerate(zip(entries, structure.parts, strict=True)):
        key = structure.keys[i] if structure.keys else i
        found += _axes_of(entry, part, f"{what}[{key!r}]")
    return found


def _entries(axes: Any, structure: Structure) -> list[Any] | None:
    """The entry for each part of a container; None if they do not fit it."""
    kind, keys, n = structure.kind, structure.keys, len(structure.parts)
    if kind in (tuple, list):
        return list(axes) if type(axes) in (tuple, list) and len(axes) == n else None
    if kind is dict:
        fits = type(axes) is dict and axes.keys() == set(keys)
        return [axes[key] for key in keys] if fits else None
    fits = kind is not None and n > 0 and isinstance(axes, kind)
    return [getattr(axes, key) for key in keys] if fits else None


def _placed(u: UOp, has: bool, axis: Axis, n: int, path: str) -> UOp:
    """A result with the batch where it was asked for."""
    if axis is None:
        if has:
            raise ValueError(
                f"vmap: {path} depends on the batch, {u.dtype}{list(u.shape)} with the "
                "batch first; out_axes must say where its axis goes, not None"
            )
        return u
    u = u if has else repeated(u, n)
    rank = len(u.shape)
    if not -rank <= axis < rank:
        raise ValueError(
            f"vmap: {path} has {rank} axes with that of the batch, so out_axes cannot "
            f"put it at {axis}"
        )
    others = list(range(1, rank))
    others.insert(axis % rank, 0)
    return u if axis % rank == 0 else u.permute(others)


def _to_front(u: UOp, axis: int) -> UOp:
    others = [k for k in range(len(u.shape)) if k != axis]
    return u if axis == 0 else u.permute((axis, *others))

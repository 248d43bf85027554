"""Factors: bool nodes that lie along the axes on which they depend, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple, TypeAlias

from uopc.autodiff.constancy import constant_axes
from uopc.uop import Ops, UOp


class Factor(NamedTuple):
    """A bool node; its axis k is axis ``axes[k]`` of the whole."""

    core: UOp
    axes: tuple[int, ...]


Term: TypeAlias = tuple[Factor, ...]
"""Factors of which all are to be true."""


def factor(u: UOp, axes: Sequence[int], look: bool = True) -> Factor:
    """The node along ``axes``, without the axes along which it is constant.

    ``look``: whether to look for such in its graph; otherwise only EXPAND counts.
    """
    places: list[int | None] = list(axes)
    if look:
        constant = constant_axes(u)
        places = [None if i in constant else a for i, a in enumerate(axes)]
    while u.src:
        inner = u.src[0]
        if u.op is Ops.PERMUTE:
            at = dict(zip(u.arg, places, strict=True))
            places = [at[i] for i in range(len(places))]
        elif u.op is Ops.EXPAND:
            pairs = zip(places, inner.shape, u.shape, strict=True)
            places = [None if n != m else a for a, n, m in pairs]
        elif u.op is Ops.RESHAPE and _long(u) == _long(inner):
            long = iter([a for a, n in zip(places, u.shape, strict=True) if n != 1])
            places = [None if n == 1 else next(long) for n in inner.shape]
        else:
            break
        u = inner
    if None not in places and 1 not in u.shape:
        return Factor(u, tuple(places))  # type: ignore[arg-type]
    kept = [i for i, n in enumerate(u.shape) if places[i] is not None and n != 1]
    if any(n != 1 and i not in kept for i, n in enumerate(u.shape)):
        u = u.shrink([(0, n if i in kept else 1) for i, n in enumerate(u.shape)])
    core = reshaped_node(u, tuple([u.shape[i] for i in kept]))
    return Factor(core, tuple([a for i in kept if (a := places[i]) is not None]))


def placed(core: UOp, axes: Sequence[int], shape: Sequence[int]) -> UOp:
    """The node of which axis k is to be axis ``axes[k]`` of an array of ``shape``."""
    if sorted(axes) != list(axes):
        core = core.permute(sorted(range(len(axes)), key=lambda k: axes[k]))
    if len(axes) == len(shape):
        return core
    ones = tuple([n if i in axes else 1 for i, n in enumerate(shape)])
    u = reshaped_node(core, ones)
    return u if ones == tuple(shape) else u.expand(shape)


def reshaped_node(u: UOp, shape: tuple[int, ...]) -> UOp:
    """The node under another shape, one RESHAPE at most."""
    while u.op is Ops.RESHAPE and u.shape != shape:
        u = u.src[0]
    return u if u.shape == shape else u.reshape(shape)


def conjunction_node(
    term: Sequence[Factor], axes: Sequence[int], lengths: Sequence[int]
) -> UOp:
    """All of these factors, over these axes: those along the same axes come first."""
    groups: dict[tuple[int, ...], list[Factor]] = {}
    for f in term:
        groups.setdefault(tuple(sorted(f.axes)), []).append(f)
    length = dict(zip(axes, lengths, strict=True))
    at = {a: i for i, a in enumerate(axes)}
    nodes = []
    for along, factors in groups.items():
        inner, shape = {a: i for i, a in enumerate(along)}, [length[a] for a in along]
        each = [placed(f.core, [inner[a] for a in f.axes], shape) for f in factors]
        together = reduce(lambda a, b: a & b, each)
        nodes.append(placed(together, [at[a] for a in along], lengths))
    return reduce(lambda a, b: a & b, nodes)


def _long(u: UOp) -> list[int]:
    return [n for n in u.shape if n != 1]

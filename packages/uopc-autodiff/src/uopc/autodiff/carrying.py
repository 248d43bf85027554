"""Sets of live elements through ops that move elements, forward and back.

What is done to a set is done to each factor of each of its alternatives, and to no
more of it than depends on the axes concerned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from uopc.autodiff.constancy import regrouped
from uopc.autodiff.factors import (
    Factor,
    Term,
    conjunction_node,
    factor,
    placed,
    reshaped_node,
)
from uopc.autodiff.liveness import Live, everything, live, meet, union
from uopc.autodiff.remembering import remembered
from uopc.composite import flip, iota, pad, scatter_add
from uopc.dtype import boolean
from uopc.uop import Ops, UOp, toposort

NODES = 64  # how much of a bool node is looked into
MOVING = (Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP)
# Of these windows are made, so that they are known without any data.
WINDOWS = (Ops.IOTA, Ops.CONST, Ops.RESHAPE, Ops.EXPAND, Ops.CMPLT, Ops.AND, Ops.OR)


def parsed(node: UOp) -> Live:
    """The set that a bool node says, as far as it is made of what is known here."""
    inside: set[UOp] = set()
    waiting = [node]
    while waiting and len(inside) < NODES:
        u = waiting.pop()
        if u not in inside and _opens(u):
            inside.add(u)
            waiting += _bools(u)
    found: dict[UOp, Live] = {}
    for u in toposort([node], lambda n: _bools(n) if n in inside else ()):
        if u not in inside:
            whole = factor(u, range(len(u.shape)))
            found[u] = live(u.shape, [[whole]])
        elif u.op is Ops.AND:
            found[u] = meet(found[u.src[0]], found[u.src[1]])
        elif u.op is Ops.OR:
            found[u] = union([found[s] for s in u.src])
        else:
            moved = copied(u, found[u.src[0]])
            assert moved is not None
            found[u] = moved
    return found[node]


def _bools(u: UOp) -> tuple[UOp, ...]:
    return u.src if u.op in (Ops.AND, Ops.OR) else u.src[:1]


def _opens(u: UOp) -> bool:
    if u.op is Ops.REDUCE:
        return u.arg[0] is Ops.MAX
    return u.op in (Ops.AND, Ops.OR) or u.op in MOVING


def copied(u: UOp, x: Live) -> Live | None:
    """The set of ``u`` if ``x`` is that of its first source; None if not known here.

    A sum or maximum is live where any of its elements is.
    """
    if u.op is Ops.RESHAPE:
        return reshaped(x, u.shape)
    if u.op is Ops.EXPAND:
        return expanded(x, u.shape)
    if u.op is Ops.PERMUTE:
        return permuted(x, u.arg)
    if u.op is Ops.SHRINK:
        return shrunk(x, u.arg)
    if u.op is Ops.FLIP:
        return flipped(x, u.arg)
    if u.op is Ops.INDEX:
        return _looked_up(x, len(u.src) - 1, u.shape, lambda g: g.index(*u.src[1:]))
    if u.op is Ops.REDUCE:
        kept = len(x.shape) - u.arg[1]
        return reshaped(anywhere(x, range(kept, len(x.shape))), x.shape[:kept])
    return None


def pulled_back(u: UOp, i: int, x: Live) -> Live | None:
    """The set that reaches source ``i`` of ``u`` from ``x``; None if not known here."""
    shape = u.src[i].shape
    if u.op is Ops.RESHAPE:
        return reshaped(x, shape)
    if u.op is Ops.EXPAND:
        pairs = enumerate(zip(shape, u.shape, strict=True))
        return anywhere(x, [k for k, (n, m) in pairs if n != m])
    if u.op is Ops.PERMUTE:
        return permuted(x, tuple([u.arg.index(k) for k in range(len(shape))]))
    if u.op is Ops.SHRINK:
        ends = zip(u.arg, shape, strict=True)
        return padded(x, [(b, n - e) for (b, e), n in ends])
    if u.op is Ops.FLIP:
        return flipped(x, u.arg)
    if u.op is Ops.STACK:
        one = shrunk(x, [(i, i + 1), *((0, n) for n in shape)])
        return reshaped(one, shape)
    if u.op is Ops.SCATTER_ADD:
        return _looked_up(x, len(u.src) - 1, shape, lambda g: g.index(*u.src[1:]))
    if u.op is Ops.INDEX:
        return _unread(u, x)
    return None


def expanded(x: Live, shape: Sequence[int]) -> Live:
    """Repeated along axes of length 1, and along new ones at the end."""
    return Live(tuple(shape), () if 0 in shape else x.terms)


@remembered
def permuted(x: Live, order: tuple[int, ...]) -> Live:
    """With its axes in another order, as PERMUTE has it."""
    new = {old: k for k, old in enumerate(order)}
    return live(tuple([x.shape[k] for k in order]), _renumbered(x.terms, new))


def flipped(x: Live, axes: Sequence[int]) -> Live:
    """The other way round along some axes."""

    def turned(f: Factor) -> Factor:
        mine = tuple([k for k, a in enumerate(f.axes) if a in axes])
        if f.core.op is Ops.FLIP and f.core.arg == mine:
            return Factor(f.core.src[0], f.axes)
        return Factor(flip(f.core, mine), f.axes)

    return live(x.shape, [[turned(f) for f in t] for t in x.terms])


def shrunk(x: Live, window: Sequence[tuple[int, int]]) -> Live:
    """A window of it."""

    def cut(f: Factor) -> Factor:
        mine = [window[a] for a in f.axes]
        if all(m == (0, n) for m, n in zip(mine, f.core.shape, strict=True)):
            return f
        return factor(f.core.shrink(mine), f.axes, look=False)

    shape = tuple([e - b for b, e in window])
    if 0 in shape:
        return Live(shape, ())
    return live(shape, [[cut(f) for f in t] for t in x.terms])


def padded(x: Live, widths: Sequence[tuple[int, int]]) -> Live:
    """With what is not live before and after each axis.

    What is constant along an axis stays so, and only what is not needs padding; if
    there is no such factor, where the window is becomes one.
    """
    shape = tuple([n + b + a for n, (b, a) in zip(x.shape, widths, strict=True)])
    terms = []
    for term in x.terms:
        along = {a for f in term for a in f.axes}
        factors = [
            Factor(pad(f.core, [widths[a] for a in f.axes]), f.axes) for f in term
        ]
        for k, (before, after) in enumerate(widths):
            if k not in along:
                factors += _window(k, before, shape[k] - after, shape[k])
        terms.append(factors)
    return live(shape, terms)


def _window(axis: int, begin: int, end: int, n: int) -> list[Factor]:
    """Where an axis of length ``n`` is in a window."""
    places = iota(n)
    found = [Factor(places > begin - 1, (axis,))] if begin else []
    return found + ([Factor(places < end, (axis,))] if end < n else [])


@remembered
def reshaped(x: Live, shape: tuple[int, ...]) -> Live:
    """Under another shape."""
    if 0 in shape or x.shape == shape:
        return Live(shape, x.terms)
    groups, same = _groups(x.shape, shape)

    def moved(f: Factor) -> Factor:
        axes = set(f.axes)
        if axes <= same.keys():
            return Factor(f.core, tuple([same[a] for a in f.axes]))
        mine = [g for g in groups if not axes.isdisjoint(g[0])]
        old = [a for g in mine for a in g[0]]
        new = [a for g in mine for a in g[1]]
        at = [old.index(a) for a in f.axes]
        u = placed(f.core, at, [x.shape[a] for a in old])
        # Part of what was one axis may be constant if it was made of several.
        look = u.op in (Ops.EXPAND, Ops.RESHAPE) and len(new) > len(mine)
        return factor(reshaped_node(u, tuple([shape[a] for a in new])), new, look)

    return live(shape, [[moved(f) for f in t] for t in x.terms])


@functools.lru_cache(maxsize=4096)
def _groups(
    old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[Sequence[tuple[list[int], list[int]]], Mapping[int, int]]:
    """The axes that a reshape moves as groups, and those that it moves alone."""
    groups = [
        ([a for a in before if old[a] != 1], [a for a in after if new[a] != 1])
        for before, after in regrouped(old, new)
    ]
    return groups, {o[0]: n[0] for o, n in groups if len(o) == len(n) == 1}


# -- any ----------------------------------------------------------------------


def anywhere(x: Live, axes: Iterable[int]) -> Live:
    """Live where any element along ``axes`` is; they become of length 1.

    "Any" goes to the alternatives, and of one to those factors that change along the
    axes.
    """
    return _anywhere(x, frozenset(axes))


@remembered
def _anywhere(x: Live, over: frozenset[int]) -> Live:
    shape = tuple([1 if i in over else n for i, n in enumerate(x.shape)])
    if 0 in x.shape or not x.terms:
        return Live(shape, ())
    terms = []
    for term in x.terms:
        rest = [f for f in term if over.isdisjoint(f.axes)]
        asked = [f for f in term if f not in rest]
        terms.append([*rest, *_each_asked(asked, over, x.shape)])
    return union([live(shape, [t]) for t in terms])


def _each_asked(
    term: Sequence[Factor], over: frozenset[int], shape: Sequence[int]
) -> list[Factor]:
    """ "Any" of each part of a term that shares none of the axes with others."""
    parts: list[list[Factor]] = []
    for f in term:
        along = over.intersection(f.axes)
        sharing = [p for p in parts if any(along.intersection(g.axes) for g in p)]
        parts = [p for p in parts if p not in sharing]
        parts.append([*(g for p in sharing for g in p), f])
    return [g for p in parts for g in _asked(p, over, shape)]


def _asked(
    factors: Sequence[Factor], over: frozenset[int], shape: Sequence[int]
) -> list[Factor]:
    """The factor that says "any" of all of these at once."""
    along = sorted({a for f in factors for a in f.axes})
    kept = [a for a in along if a not in over]
    order = kept + [a for a in along if a in over]
    u = conjunction_node(factors, order, [shape[a] for a in order])
    somewhere = _is_somewhere(u) if len(along) == 1 else None
    if somewhere is not None:
        return [Factor(UOp.const(somewhere, boolean), ())]
    return [Factor(u.reduce(Ops.MAX, len(order) - len(kept)), tuple(kept))]


def _is_somewhere(node: UOp) -> bool | None:
    """Whether a window of an axis has any place; None if it is something else."""
    inside: set[UOp] = set()
    waiting = [node]
    while waiting:
        u = waiting.pop()
        if u.op not in WINDOWS or len(inside) > NODES:
            return None
        if u not in inside:
            inside.add(u)
            waiting += u.src
    value: dict[UOp, Any] = {}
    for u in toposort([node]):
        assert u.op.numpy is not None
        value[u] = u.op.numpy(u, *(value[s] for s in u.src))
    return bool(value[node].any())


# -- indices ------------------------------------------------------------------


def _looked_up(
    x: Live, n: int, shape: Sequence[int], look: Callable[[UOp], UOp]
) -> Live:
    """Through what replaces the first ``n`` axes and takes slices as they are."""
    m = len(shape) - len(x.shape) + n
    new = {a: a - n + m for a in range(n, len(x.shape))}
    terms = []
    for term in x.terms:
        first = [f for f in term if any(a < n for a in f.axes)]
        rest = tuple([f for f in term if f not in first])
        along = sorted({a for f in first for a in f.axes}.union(range(n)))
        lengths = [x.shape[a] for a in along]
        if first:
            u = conjunction_node(first, along, lengths)
        else:
            u = everything(tuple(lengths)).node()
        there = [*range(m), *(new[a] for a in along[n:])]
        terms.append([factor(look(u), there), *_renumbered([rest], new)[0]])
    return live(tuple(shape), terms)


def _unread(u: UOp, x: Live) -> Live:
    """What reaches the array of an INDEX."""
    source, idx = u.src[0].shape, u.src[1:]
    if any(i.op is not Ops.CONST for i in idx):
        n, lengths = len(idx[0].shape), source[: len(idx)]
        return _looked_up(x, n, source, lambda g: scatter_add(g, idx, lengths))
    whole = reshaped(x, (1,) * len(idx) + x.shape)
    around = [
        (int(i.value), n - 1 - int(i.value)) for i, n in zip(idx, source, strict=False)
    ]
    return padded(whole, around + [(0, 0)] * len(x.shape))


def _renumbered(terms: Sequence[Term], new: dict[int, int]) -> list[list[Factor]]:
    return [[Factor(f.core, tuple([new[a] for a in f.axes])) for f in t] for t in terms]

"""Which elements are live, in a form in which equal sets are equal nodes.

A set of elements is a list of alternatives, each of which is a list of factors: an
element is live if of some alternative all factors are true. A factor is a bool node,
its *core*, and the axes it lies along. It is constant along all others, and has none of
length 1, so that what went through an expansion, a reshape or a permutation and back is
the same factor again. Then what covers what is seen by comparing factors, and nothing
is ever computed for more elements than it depends on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from uopc.autodiff.constancy import constant_axes
from uopc.composite import full
from uopc.dtype import boolean
from uopc.uop import Ops, UOp

# More factors or alternatives than these are joined to one that is not looked into,
# so that the work per guard has a bound.
FACTORS = 8
ALTERNATIVES = 8
ATOMS = 32  # of an alternative, with what its factors ask "any" of


class Factor(NamedTuple):
    """A bool node; its axis k is axis ``axes[k]`` of the whole."""

    core: UOp
    axes: tuple[int, ...]


Term = tuple[Factor, ...]


class Live(NamedTuple):
    """The elements of an array of this shape for which one of the terms is true."""

    shape: tuple[int, ...]
    terms: tuple[Term, ...]

    def axes(self) -> set[int]:
        """The axes along which it may change."""
        return {a for term in self.terms for f in term for a in f.axes}

    def has_rows(self) -> bool:
        """Whether it may leave out whole rows."""
        axes = self.axes()
        return any(n > 1 and i not in axes for i, n in enumerate(self.shape))

    def node(self) -> UOp:
        """The bool node, computed along no more axes than it needs."""
        if not self.terms or () in self.terms:
            return full(self.shape, bool(self.terms), boolean)
        axes = sorted(self.axes())
        lengths = [self.shape[a] for a in axes]
        return placed(_any_of(self.terms, axes, lengths), axes, self.shape)


def everything(shape: tuple[int, ...]) -> Live:
    """All elements of an array."""
    return live(shape, [()])


def live(shape: tuple[int, ...], terms: Iterable[Iterable[Factor]]) -> Live:
    """The set of these alternatives, without those that others cover."""
    if 0 in shape:
        return Live(shape, ())
    known = [t for t in (_conjunction(t, shape) for t in terms) if t is not None]
    kept = _uncovered(known)
    if len(kept) > ALTERNATIVES:
        kept = _grouped(kept, shape)
    if len(kept) > ALTERNATIVES:
        kept = [(_joined(kept, shape),)]
    return Live(shape, tuple(kept))


def union(sets: Sequence[Live]) -> Live:
    """Live where any of them is."""
    nodes = list(sets)
    while len(nodes) > 1:  # as a balanced tree, for there may be thousands
        pairs = zip(nodes[::2], nodes[1::2], strict=False)
        both = [a if a == b else _either(a, b) for a, b in pairs]
        nodes = both + ([nodes[-1]] if len(nodes) % 2 else [])
    return nodes[0]


def _either(a: Live, b: Live) -> Live:
    """Live where one of two is; what alternatives have in common is taken out.

    A & X | A & Y is A & (X | Y), which A still covers, and stays one alternative.
    """
    found = live(a.shape, a.terms + b.terms)
    if len(found.terms) == 1:
        return found
    return Live(a.shape, tuple(_grouped(found.terms, a.shape)))


def meet(a: Live, b: Live) -> Live:
    """Live where both are."""
    if a == b:
        return a
    if len(a.terms) * len(b.terms) > ALTERNATIVES:
        less, more = sorted((a, b), key=lambda s: len(s.terms))
        more = Live(a.shape, ((_joined(more.terms, a.shape),),))
        if len(less.terms) > ALTERNATIVES:
            less = Live(a.shape, ((_joined(less.terms, a.shape),),))
        a, b = less, more
    return live(a.shape, [s + t for s in a.terms for t in b.terms])


# -- factors --------------------------------------------------------------------


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
    kept = [i for i, n in enumerate(u.shape) if places[i] is not None and n != 1]
    if any(n != 1 and i not in kept for i, n in enumerate(u.shape)):
        u = u.shrink([(0, n if i in kept else 1) for i, n in enumerate(u.shape)])
    core = reshaped_node(u, tuple([u.shape[i] for i in kept]))
    return Factor(core, tuple([a for i in kept if (a := places[i]) is not None]))


def placed(core: UOp, axes: Sequence[int], shape: Sequence[int]) -> UOp:
    """The node of which axis k is to be axis ``axes[k]`` of an array of ``shape``."""
    order = sorted(range(len(axes)), key=lambda k: axes[k])
    if order != list(range(len(axes))):
        core = core.permute(order)
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


def _any_of(terms: Sequence[Term], axes: Sequence[int], lengths: Sequence[int]) -> UOp:
    """One of these terms, none of them empty; what all have in common is outside."""
    common = [f for f in terms[0] if all(f in t for t in terms)]
    rest = [[f for f in t if f not in common] for t in terms]
    if not all(rest):
        return conjunction_node(common, axes, lengths)
    each = [conjunction_node(t, axes, lengths) for t in rest]
    u = reduce(lambda a, b: a | b, each)
    return conjunction_node(common, axes, lengths) & u if common else u


def _joined(terms: Sequence[Term], shape: Sequence[int]) -> Factor:
    """Terms as one factor, which is not looked into any more."""
    axes = sorted({a for t in terms for f in t for a in f.axes})
    return Factor(_any_of(terms, axes, [shape[a] for a in axes]), tuple(axes))


def _conjunction(factors: Iterable[Factor], shape: Sequence[int]) -> Term | None:
    """The term of these factors, None if it is surely false."""
    found: dict[Factor, None] = {}
    for f in factors:
        if f.core.op is not Ops.CONST:
            found[f] = None
        elif not f.core.value:
            return None
    term = sorted(found, key=lambda f: f.axes)
    if len(term) > FACTORS:
        term = [_joined([tuple(term[:-1])], shape), term[-1]]
    return tuple(term)


def _grouped(terms: Sequence[Term], shape: Sequence[int]) -> list[Term]:
    """The same with a common factor once, along few axes if there is a choice."""
    left = list(terms)
    while True:
        shared = {f: n for t in left for f in t if (n := sum(f in s for s in left)) > 1}
        if not shared:
            return left
        best = min(shared, key=lambda f: (len(f.axes), -shared[f]))
        mine = [t for t in left if best in t]
        common = [f for f in mine[0] if all(f in t for t in mine)]
        rest = [tuple([f for f in t if f not in common]) for t in mine]
        term = _conjunction([*common, _joined(rest, shape)], shape)
        left = [t for t in left if best not in t]
        left += [] if term is None else [term]


# -- what covers what -------------------------------------------------------------


def _uncovered(terms: Collection[Term]) -> list[Term]:
    """The terms without those that another one covers."""
    kept: list[Term] = []
    for term in terms:
        if not any(_covers(k, term) for k in kept):
            kept = [k for k in kept if not _covers(term, k)]
            kept.append(term)
    return kept


def _covers(wide: Term, narrow: Term) -> bool:
    """Whether ``wide`` surely is true wherever ``narrow`` is.

    It is if all its factors are among those of the other. A factor that says "any" is
    also implied by what it asks of: any(A) by A, and by any(A & B). So all that it asks
    of must be found in ``narrow`` for some choice of the places it may choose.
    """
    if set(wide) <= set(narrow):
        return True
    if not any(_is_any(f.core) for f in wide):
        return False
    known: dict[UOp, list[tuple[int, ...]]] = {}
    for core, names in _atoms(narrow):
        known.setdefault(core, []).append(names)
    choices: list[dict[int, int]] = [{}]
    for core, names in _atoms(wide):
        pairs = [(c, at) for c in choices for at in known.get(core, ())]
        found = [_choice(c, names, at) for c, at in pairs[:ATOMS]]
        choices = [c for c in found if c is not None]
        if not choices:
            return False
    return True


def _choice(
    chosen: dict[int, int], names: Sequence[int], at: Sequence[int]
) -> dict[int, int] | None:
    """The choice with which ``names`` are the places ``at``; None if there is none."""
    chosen = dict(chosen)
    for name, place in zip(names, at, strict=True):
        if (place if name >= 0 else chosen.setdefault(name, place)) != place:
            return None
        if name >= 0 and name != place:
            return None
    return chosen


def _is_any(u: UOp) -> bool:
    return u.op is Ops.REDUCE and u.arg[0] is Ops.MAX


def _atoms(term: Term) -> list[tuple[UOp, tuple[int, ...]]]:
    """The factors and, instead of those that say "any", what they ask of.

    Axes that are asked over have names of their own, below zero.
    """
    found: list[tuple[UOp, tuple[int, ...]]] = []
    waiting: list[tuple[UOp, tuple[int, ...]]] = list(term)
    fresh = 0
    while waiting:
        u, names = waiting.pop()
        core, axes = factor(u, names, look=False)
        if len(found) + len(waiting) < ATOMS:
            if core.op is Ops.AND:
                waiting += [(s, axes) for s in core.src]
                continue
            if _is_any(core):
                n = core.arg[1]
                asked = tuple(range(fresh - n, fresh))
                fresh -= n
                waiting.append((core.src[0], axes + asked))
                continue
        found.append((core, axes))
    return found

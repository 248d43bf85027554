"""Which elements are live, in a form in which equal sets are equal nodes.

A set of elements is a list of alternatives, each of which is a list of factors: an
element is live if of some alternative all factors are true. A factor is a bool node,
its *core*, and the axes it lies along. It is constant along all others, and has none of
length 1, so that what went through an expansion, a reshape or a permutation and back is
the same factor again. Then what covers what is seen by comparing factors, and nothing
is ever computed for more elements than it depends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from uopc.autodiff.covering import uncovered
from uopc.autodiff.factors import Factor, Term, conjunction_node, placed
from uopc.autodiff.remembering import remembered
from uopc.composite import full
from uopc.dtype import boolean
from uopc.uop import Ops, UOp

# More factors or alternatives than these are joined to one that is not looked into,
# so that the work per guard has a bound.
FACTORS = 8
ALTERNATIVES = 8


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

    @remembered
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
    found = [_conjunction(t, shape) for t in terms]
    known = [t for t in found if t is not None]
    kept = uncovered(known) if len(known) > 1 else known
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


@remembered
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


# -- terms as nodes ---------------------------------------------------------------


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

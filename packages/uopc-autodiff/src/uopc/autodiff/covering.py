"""Which terms cover others, so that these need not be computed.

A term is true where all its factors are, so one with more of them is covered by one
with some of these. What a factor was made of is looked at as well: A | B is covered by
what covers both, and any(A) is implied by A, and by any(A & B).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from uopc.autodiff.factors import Term, factor
from uopc.autodiff.remembering import remembered
from uopc.uop import Ops, UOp

ATOMS = 32  # how much of a term is looked at
CASES = 8

Atom: TypeAlias = tuple[UOp, tuple[int, ...]]
"""Like a factor, but axes that are asked over have names of their own, below 0."""


def uncovered(terms: Iterable[Term]) -> list[Term]:
    """The terms without those that others cover."""
    left = list(dict.fromkeys(terms))
    i = 0
    while i < len(left):
        if _covered(left[i], left[:i] + left[i + 1 :]):
            del left[i]
        else:
            i += 1
    return left


def _covered(term: Term, others: Sequence[Term]) -> bool:
    """Whether a term is surely false wherever all others are."""
    mine = frozenset(term)
    if any(mine.issuperset(o) for o in others):
        return True
    opening = any(_opens(f.core) for o in others for f in o)
    if not opening and not any(f.core.op is Ops.OR for f in term):
        return False
    wide = [c for o in others for c in _cases(o)]
    return all(any(_implied(w, case) for w in wide) for case in _cases(term))


def _implied(wide: Sequence[Atom], narrow: Sequence[Atom]) -> bool:
    """Whether ``wide`` surely is true where ``narrow`` is.

    It is if all it asks of is there, for some choice of the places it may choose.
    """
    known: dict[UOp, list[tuple[int, ...]]] = {}
    for core, names in narrow:
        known.setdefault(core, []).append(names)
    if any(core not in known for core, _ in wide):
        return False
    choices: list[dict[int, int]] = [{}]
    for core, names in wide:
        pairs = [(c, at) for c in choices for at in known[core]]
        found = [_choice(c, names, at) for c, at in pairs[:ATOMS]]
        choices = [c for c in found if c is not None]
    return bool(choices)


def _choice(
    chosen: dict[int, int], names: Sequence[int], at: Sequence[int]
) -> dict[int, int] | None:
    """The choice with which ``names`` are the places ``at``; None if there is none."""
    chosen = dict(chosen)
    for name, place in zip(names, at, strict=True):
        if (name if name >= 0 else chosen.setdefault(name, place)) != place:
            return None
    return chosen


def _opens(u: UOp) -> bool:
    return u.op is Ops.OR or (u.op is Ops.REDUCE and u.arg[0] is Ops.MAX)


@remembered
def _cases(term: Term) -> list[list[Atom]]:
    """What a term is made of, a list for each of the ways in which it can be true."""
    done: list[list[Atom]] = []
    waiting: list[tuple[list[Atom], list[Atom]]] = [([], [*term])]
    fresh = steps = 0
    while waiting:
        found, left = waiting.pop()
        while left:
            core, axes = factor(*left.pop(), look=False)
            steps += 1
            if core.op is Ops.AND and steps < ATOMS:
                left += [(s, axes) for s in core.src]
            elif core.op is Ops.OR and len(waiting) + len(done) < CASES:
                a, b = core.src
                waiting.append(([*found], [*left, (b, axes)]))
                left.append((a, axes))
            elif _opens(core) and core.op is not Ops.OR and steps < ATOMS:
                n = core.arg[1]
                asked = tuple(range(fresh - n, fresh))
                fresh -= n
                left.append((core.src[0], axes + asked))
            else:
                found.append((core, axes))
        done.append(found)
    return done

"""Cotangents with guards: zero means zero.

Where a selection did not take a branch, the branch's cotangent is zero, and must stay
zero however large the local derivatives below are. Zero times infinity is NaN, so the
zeros cannot be left to arithmetic: a cotangent carries a *guard*, a bool node that says
which elements are live, and values that were multiplied are masked by it before they
are added to anything else. A guard comes from the selections in what the rules
return, never from comparing a cotangent with 0: that would delete second derivatives.

Tangents of forward mode are the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from uopc.autodiff.carrying import parsed
from uopc.autodiff.constancy import constant_axes
from uopc.autodiff.liveness import Live, meet, union
from uopc.composite import zeros_like
from uopc.uop import Ops, UOp

# Up to here contributions add left to right; more of them as a balanced tree,
# which keeps both the rounding error and the depth of the graph small.
MAX_CHAIN = 16


class Guard:
    """A set of elements that is built when somebody asks for it, which is seldom."""

    __slots__ = ("_broad", "_build", "_covers", "_live", "_node", "_sources")

    def __init__(
        self, build: Callable[..., Live], *sources: Guard, covers: bool = False
    ) -> None:
        """``covers``: one of the sources may be the whole of it."""
        self._build, self._sources, self._covers = build, sources, covers
        self._live: Live | None = None
        self._node: UOp | None = None
        self._broad: bool | None = None

    @staticmethod
    def of(node: UOp) -> Guard:
        """The guard that is this node."""
        guard = Guard(lambda: parsed(node))
        guard._node = node
        return guard

    def live(self) -> Live:
        """The set of live elements."""
        for guard in self._without("_live"):
            if guard._live is None:
                sets = [s._live for s in guard._sources]
                guard._live, guard._sources = guard._build(*sets), ()
        assert self._live is not None
        return self._live

    def node(self) -> UOp:
        """The bool node: True where the element is live."""
        if self._node is None:
            self._node = self.live().node()
        return self._node

    def broad(self) -> bool:
        """Whether it may leave out whole rows; built or not, this is known."""
        for guard in self._without("_broad"):
            if guard._broad is None and guard._sources:
                each = [bool(s._broad) for s in guard._sources]
                guard._broad = any(each) if guard._covers else all(each)
            elif guard._broad is None and guard._node is not None:
                guard._broad = _has_rows(guard._node)
            elif guard._broad is None:
                guard._broad = guard.live().has_rows()
        assert self._broad is not None
        return self._broad

    def _without(self, known: str) -> Iterator[Guard]:
        """This guard after those below it that do not have this attribute yet.

        Sources come first; the chain may be of any length, so nothing recurses.
        """
        stack = [self]
        while stack:
            guard = stack[-1]
            waiting = [s for s in guard._sources if getattr(s, known) is None]
            if waiting:
                stack += waiting
            else:
                yield stack.pop()


def _has_rows(live: UOp) -> bool:
    return any(live.shape[i] > 1 for i in constant_axes(live))


class Cotangent(NamedTuple):
    """A cotangent on its way down.

    Attributes:
        value: what the rules made of it.
        guard: which elements are live; None if all are.
        clean: whether ``value`` is exactly zero where it is not live.
    """

    value: UOp
    guard: Guard | None = None
    clean: bool = True

    def masked(self) -> UOp:
        """The value, with exact zeros where it is not live."""
        if self.clean or self.guard is None:
            return self.value
        return self.guard.node().where(self.value, zeros_like(self.value))


def added(parts: Sequence[Cotangent]) -> Cotangent:
    """The contributions of several uses as one cotangent, live where any is."""
    if len(parts) == 1:
        return parts[0]
    guards = [p.guard for p in parts]
    return Cotangent(_sum([p.masked() for p in parts]), either(guards))


def _sum(values: list[UOp]) -> UOp:
    if len(values) <= MAX_CHAIN:
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total
    while len(values) > 1:
        pairs = [a + b for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + ([values[-1]] if len(values) % 2 else [])
    return values[0]


# -- guards from guards -------------------------------------------------------


def either(guards: Sequence[Guard | None]) -> Guard | None:
    """Live where any of them is."""
    known: dict[Guard, None] = {}
    for guard in guards:
        if guard is None:
            return None
        known[guard] = None
    if len(known) == 1:
        return guards[0]
    return Guard(lambda *sets: union(sets), *known, covers=True)


def both(guard: Guard | None, more: Guard | None) -> Guard | None:
    """Live where both are."""
    if guard is None or more is None:
        return more if guard is None else guard
    return Guard(meet, guard, more)


def opposite(cond: UOp) -> Guard:
    """Live where a bool node is false."""
    return Guard(lambda: parsed(cond.logical_not()))


# -- what an elementwise rule did to a cotangent --------------------------------


def carried(
    part: UOp, given: UOp, c: Cotangent, contraction: bool = False
) -> Cotangent:
    """What a rule returned for a source, seen as a cotangent.

    Args:
        part: what the rule returned.
        given: what stands for ``c`` in it: its value, or the value spread out.
        c: the cotangent that the rule was given.
        contraction: whether this is a product inside a contraction. Its factors are
            not masked element by element, so that no mask gets into the loops of a
            matrix product; an infinite one there made its whole row infinite as well.
    """
    if part is given:
        return c
    if c.guard is None and part.op is not Ops.WHERE:
        return Cotangent(part)  # what most nodes get
    taken, linear = _selection(part, given)
    guard = both(c.guard, taken)
    linear = linear or c.guard is None or (contraction and c.clean)
    return Cotangent(part, guard, c.clean if linear else False)


def _selection(part: UOp, given: UOp) -> tuple[Guard | None, bool]:
    """Where ``part`` takes something, and if all it takes is ``given`` as it is."""
    if part.op is Ops.WHERE and part is not given:
        cond, a, b = part.src
        if is_zero(b):
            taken, linear = _selection(a, given)
            return both(Guard.of(cond), taken), linear
        if is_zero(a):
            taken, linear = _selection(b, given)
            return both(opposite(cond), taken), linear
        (in_a, linear_a), (in_b, linear_b) = (_selection(x, given) for x in (a, b))
        return chosen(cond, in_a, in_b), linear_a and linear_b
    while part is not given:
        # A constant factor is finite, and a conversion of type keeps zeros.
        scaled = part.op is Ops.MUL and is_constant(part.src[1])
        if not scaled and part.op is not Ops.CAST:
            return None, False
        part = part.src[0]
    return None, True


def chosen(cond: UOp, a: Guard | None, b: Guard | None) -> Guard | None:
    """Live where the chosen branch is."""
    if a is None and b is None:
        return None
    if a is None or b is None:
        # cond | (not cond & b) is cond | b.
        here = Guard.of(cond) if a is None else opposite(cond)
        (other,) = (g for g in (a, b) if g is not None)
        return Guard(lambda *sets: union(sets), here, other)
    return Guard(_choice, Guard.of(cond), opposite(cond), a, b)


def _choice(taken: Live, other: Live, a: Live, b: Live) -> Live:
    return a if a == b else union([meet(taken, a), meet(other, b)])


def is_constant(u: UOp) -> bool:
    """Whether a node is one finite number, under any shape."""
    while u.op in (Ops.EXPAND, Ops.RESHAPE):
        u = u.src[0]
    if u.op is not Ops.CONST:
        return False
    value = u.value
    return value == value and abs(value) != float("inf")


def is_zero(u: UOp) -> bool:
    """Whether a node is the constant zero, under any shape."""
    while u.op in (Ops.EXPAND, Ops.RESHAPE):
        u = u.src[0]
    return u.op is Ops.CONST and u.value == 0

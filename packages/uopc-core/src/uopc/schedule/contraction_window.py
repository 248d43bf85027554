"""Windows: a factor of which neighbours overlap is copied once, with its border.

The right factor of a convolution reads most elements several times, by other terms:
it moves with ``x + kx``, not with x and kx by themselves. Packed by columns and terms,
each would be there as often. So the part that a block needs is copied as it is, zeros
around it, and tiles read their vectors from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uopc.schedule.contraction_pattern import Contraction
from uopc.simplify import Bounds
from uopc.simplify.context import conjuncts
from uopc.simplify.linear import decompose, plus
from uopc.uop import Ops, UOp

Form = dict[UOp, int]


@dataclass(frozen=True)
class Coordinate:
    """``loop + sum of factor * term``: all that counts of these loops.

    Attributes:
        loop: one over columns.
        terms: loops of the sum, and their factors.
        first, last: where what is inside the border begins and ends.
    """

    loop: UOp
    terms: tuple[tuple[UOp, int], ...]
    first: int
    last: int

    @property
    def low(self) -> int:
        """The smallest value."""
        return sum(min(0, a * (t.arg.extent - 1)) for t, a in self.terms)

    @property
    def size(self) -> int:
        """How many values there are."""
        steps = (abs(a) * (t.arg.extent - 1) for t, a in self.terms)
        return int(self.loop.arg.extent + sum(steps))


@dataclass(frozen=True)
class Window:
    """The right factor as an array of its own.

    Attributes:
        batch: loops over columns for which there is a window each.
        coordinates: the others, with what belongs to them.
        free: loops of the sum that belong to none.
    """

    batch: tuple[UOp, ...]
    coordinates: tuple[Coordinate, ...]
    free: tuple[UOp, ...]

    @property
    def area(self) -> int:
        """Elements for one round of the free loops."""
        return math.prod(c.size for c in self.coordinates)

    @property
    def inside(self) -> int:
        """Those of them that are not border."""
        return math.prod(c.last - c.first for c in self.coordinates)


def find_window(c: Contraction) -> Window | None:
    """How the right factor can be copied; None if that is not worth it."""
    if c.right.op is not Ops.INDEX:
        return None
    if c.right.dtype is not c.accumulator.dtype:
        return None
    _, at, *gates = c.right.src
    bounds = Bounds()
    where = decompose(at, bounds)[0]
    limits = [_limit(cond, bounds) for gate in gates for cond in conjuncts(gate)]
    forms = [where, *(form for form, _ in limits)]
    loops = {*c.batch, *c.columns, *c.reduced}
    if any(u not in loops for form in forms for u in form):
        return None
    if where.get(c.columns[-1]) != 1:
        return None
    owners = {t: _owner(t, c.columns, forms) for t in c.reduced}
    owned = [r for r in c.columns if any(r is o for o, _ in owners.values())]
    if c.columns[-1] not in owned:
        return None
    first = c.columns.index(owned[0])
    made: list[Coordinate] = []
    for r in c.columns[first:]:
        terms = tuple((t, a) for t, (o, a) in owners.items() if o is r)
        whole = Coordinate(r, terms, 0, 0)
        low, high = whole.low, whole.low + whole.size
        for form, most in limits:
            if (k := form.get(r, 0)) > 0:
                high = min(high, most // k + 1)
            elif k < 0:
                low = max(low, -(most // -k))
        made.append(Coordinate(r, terms, low, high))
    # Conditions that are about nothing else vanish in there.
    about = {u for form, _ in limits for u in form}
    if not about <= {u for m in made for u in (m.loop, *(t for t, _ in m.terms))}:
        return None
    if any(sum(m.loop in form for m in made) != 1 for form, _ in limits):
        return None
    free = tuple(t for t, (o, _) in owners.items() if o is None)
    return Window(c.columns[:first], tuple(made), free)


def _limit(condition: UOp, bounds: Bounds) -> tuple[Form, int]:
    """``sum of factor * loop <= most``, as factors and that limit."""
    if condition.op is not Ops.CMPLT or not condition.src[0].dtype.is_int:
        return {condition: 1}, 0
    a, b = (decompose(s, bounds) for s in condition.src)
    form, constant = plus(a, b, -1)
    return form, -constant - 1


def _owner(
    t: UOp, columns: Sequence[UOp], forms: Sequence[Form]
) -> tuple[UOp | None, int]:
    """The loop that ``t`` always moves along with, and by how much."""
    found = [
        (abs(a), -i, r, a) for i, r in enumerate(columns) for a in _ratio(t, r, forms)
    ]
    if not found:
        return None, 0
    _, _, r, a = min(found, key=lambda f: f[:2])
    return r, a


def _ratio(t: UOp, r: UOp, forms: Sequence[Form]) -> Iterator[int]:
    """The factor a of which all forms have ``r + a * t``, if there is one."""
    ratios = set()
    for form in forms:
        of_r, of_t = form.get(r, 0), form.get(t, 0)
        if of_r and of_t % of_r == 0:
            ratios.add(of_t // of_r)
        elif of_r or of_t:
            return
    # Else they would share nothing: rounds of ``t`` move past all of ``r``.
    if len(ratios) == 1 and 0 < abs(a := ratios.pop()) < r.arg.extent:
        yield a

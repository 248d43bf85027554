"""Reverse mode: cotangents pulled from a root back to its sources, node by node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from uopc.autodiff.carrying import expanded, parsed, pulled_back
from uopc.autodiff.constancy import repeated_axes
from uopc.autodiff.cotangent import (
    Cotangent,
    Guard,
    added,
    carried,
)
from uopc.autodiff.errors import no_rule, require_like
from uopc.autodiff.following import followed
from uopc.autodiff.liveness import Live, everything
from uopc.autodiff.rules import movement, reduction, selection
from uopc.autodiff.rules.selection import CUSTOM
from uopc.composite import spread, zeros_like
from uopc.dtype import boolean
from uopc.plugins import endless, lowered, note_owner, registry
from uopc.runtime import record_gradient, recording
from uopc.uop import OpDef, Ops, UOp, substitute, toposort

VjpRule = Callable[[UOp, UOp], Sequence[UOp | None]]

# Of the engine's own rules it knows what they do to a guard. Those that copy or add up
# elements are applied to it as well, where a sum means "any"; what the selecting ones
# leave out is dead from the start.
OWN = {**movement.RULES, **selection.RULES, **reduction.RULES}
SELECTING = frozenset({Ops.SHRINK, Ops.INDEX, Ops.SCATTER_ADD})


def pull(
    order: Sequence[UOp], targets: Collection[UOp], seed: Cotangent
) -> dict[UOp, Cotangent]:
    """The cotangents of ``targets``, those of them that the root leads to.

    ``order`` is the graph, children first, the root last; ``seed`` the root's
    cotangent.
    """
    rules = registry().vjps
    on_path = set(targets)
    for u in order:
        for s in u.src:
            if s in on_path:
                on_path.add(u)
                break
    arriving = {order[-1]: [seed]} if order[-1] in on_path else {}
    found: dict[UOp, Cotangent] = {}
    forward = set(order) if recording() else None
    for u in reversed(order):
        uses = arriving.pop(u, None)
        if uses is None:
            continue
        c = uses[0] if len(uses) == 1 else added(uses)
        if u in targets:
            found[u] = c
            if on_path.isdisjoint(u.src):
                continue  # what lies below it needs no rule
        if _is_checkpoint(u):
            _require_outside(targets, u)
        parts = pulled(u, c, rules)
        if forward is not None:
            record_gradient(u, [p.value for p in parts if p is not None], forward)
        for s, part in zip(u.src, parts, strict=True):
            if part is not None and s in on_path:
                if s in arriving:
                    arriving[s].append(part)
                else:
                    arriving[s] = [part]
    return found


def pulled(
    u: UOp, c: Cotangent, rules: Mapping[OpDef, VjpRule]
) -> list[Cotangent | None]:
    """One step: what the cotangent of ``u`` contributes to each of its sources."""
    rule = rules.get(u.op)
    if rule is None:
        return _without_rule(u, c)
    if u.op.kind == "elementwise":
        inner = c.guard is not None and _in_contraction(u, c.value)
        parts = _applied(_without_dead(u, c.guard) if inner else u, rule, c.value)
        return [p if p is None else carried(p, c.value, c, inner) for p in parts]
    if _is_checkpoint(u):
        return _computed_again(u, c)
    own = OWN.get(u.op) is rule and not (u.op is Ops.STAGE and u.arg in CUSTOM)
    if not own:
        return _read_off(u, rule, c)
    value = c.masked()
    parts = _applied(u, rule, value)
    if u.op is Ops.REDUCE:
        # What is reduced gets the cotangent spread out, times something elementwise.
        shape = u.src[0].shape
        wide = c.guard and Guard(lambda g: expanded(g, shape), c.guard)
        given = Cotangent(spread(value, shape), wide)
        return [p if p is None else carried(p, given.value, given) for p in parts]
    return [
        p if p is None else Cotangent(p, _moved(u, i, c.guard, rule))
        for i, p in enumerate(parts)
    ]


def _moved(u: UOp, i: int, guard: Guard | None, rule: VjpRule) -> Guard | None:
    """The guard of what a movement or selection passes to its source ``i``."""
    if guard is None and u.op not in SELECTING:
        return None
    if u.op is Ops.STAGE:
        return guard
    if guard is None:
        guard = Guard(lambda: everything(u.shape))

    def build(live: Live) -> Live:
        known = pulled_back(u, i, live)
        if known is not None:
            return known
        part = rule(u, live.node())[i]
        assert part is not None
        return parsed(part)

    return Guard(build, guard)


def _read_off(u: UOp, rule: VjpRule, c: Cotangent) -> list[Cotangent | None]:
    """Through a rule that is somebody else's.

    Placeholders stand for the sources, so that what it returns is a small graph.
    """
    local, actual = stood_in(u)
    seed = stand_in(len(u.src), c, actual)
    given = Cotangent(seed.masked(), seed.guard)
    found = [
        p if p is None else followed(p, given.value, given)
        for p in _applied(local, rule, given.value)
    ]
    return [p if p is None else put_in_place(p, actual) for p in found]


def _in_contraction(u: UOp, value: UOp) -> bool:
    """Whether ``u`` is a product whose terms are summed, as in a matrix product.

    The factors are repeated along different axes, and the cotangent along a third.
    """
    if u.op is not Ops.MUL:
        return False
    a, b = map(repeated_axes, u.src)
    return bool(a - b and b - a and repeated_axes(value))


def _without_dead(u: UOp, guard: Guard | None) -> UOp:
    """The product with zeros for whole rows of its factors that meet no live element.

    They may be infinite, and are not to be multiplied by zero. This costs one choice
    per element of a factor, none per term of the sum.
    """
    if guard is None or not guard.broad():
        return u
    axes = guard.live().axes()
    src = [
        guard.node().where(s, zeros_like(s)) if axes.isdisjoint(repeated_axes(s)) else s
        for s in u.src
    ]
    return u.with_src(tuple(src))


def _without_rule(u: UOp, c: Cotangent) -> list[Cotangent | None]:
    if not u.src or not u.op.differentiable:
        return [None] * len(u.src)
    if u.op.lower is None:
        raise no_rule(u)
    return _through_lower(u, c)


def _through_lower(u: UOp, c: Cotangent) -> list[Cotangent | None]:
    """The rule that follows from what ``u`` is written as in other ops."""
    local, actual = stood_in(u, constants=False)
    ends = {p for p in local.src if p.dtype.is_float}
    seed = stand_in(len(u.src), c, actual)
    try:
        found = pull(toposort([lowered(local)]), ends, seed)
    except RecursionError:
        raise endless(u) from None
    parts = [found.get(p) for p in local.src]
    return [p if p is None else put_in_place(p, actual) for p in parts]


def _computed_again(u: UOp, c: Cotangent) -> list[Cotangent | None]:
    """Through a checkpoint: its inside is computed again, from the sources it names.

    What is computed again waits for the cotangent. That makes it other nodes than
    those of the first time, which therefore need not be kept.
    """
    inside, *sources = u.src
    again = {s: s.after(c.value) for s in sources}
    (clone,) = substitute([inside], again)
    ends = set(again.values())
    order = toposort([clone], lambda n: () if n in ends else n.src)
    found = pull(order, {s for s in ends if s.dtype.is_float}, c)
    return [None, *(found.get(again[s]) for s in sources)]


def _is_checkpoint(u: UOp) -> bool:
    return u.op is Ops.STAGE and u.arg == "checkpoint"


def _require_outside(targets: Collection[UOp], u: UOp) -> None:
    """Refuse targets that only the first computation of a checkpoint has."""
    ends = set(u.src[1:])
    for n in toposort(u.src[:1], lambda n: () if n in ends else n.src):
        if n in targets and n not in ends:
            raise ValueError(
                f"gradient: {n.dtype}{list(n.shape)}, a result of {n.op.name}, is "
                "inside a checkpoint, where nothing is kept; make it an argument of "
                "the checkpointed function to differentiate with respect to it"
            )


def placeholder(slot: int, u: UOp) -> UOp:
    """What stands for a node in a piece of graph that is made once for many."""
    return UOp.param(slot, u.dtype, u.shape)


def stood_in(u: UOp, constants: bool = True) -> tuple[UOp, dict[UOp, UOp]]:
    """The node over placeholders for its sources, and what all of them stand for.

    Constants stay if wanted: rules look at them, such as at an index that is known.
    """
    src = [
        s if constants and s.op is Ops.CONST else placeholder(i, s)
        for i, s in enumerate(u.src)
    ]
    local = u.with_src(tuple(src))
    return local, {**dict(zip(src, u.src, strict=True)), local: u}


def stand_in(slot: int, c: Cotangent, actual: dict[UOp, UOp]) -> Cotangent:
    """Placeholders for a cotangent; ``actual`` is told what they stand for."""
    value = placeholder(slot, c.value)
    actual[value] = c.value
    if c.guard is None:
        return Cotangent(value)
    live = UOp.param(slot + 1, boolean, c.value.shape)
    actual[live] = c.guard.node()
    return Cotangent(value, Guard.of(live), c.clean)


def put_in_place(c: Cotangent, actual: dict[UOp, UOp]) -> Cotangent:
    """A cotangent over placeholders as one over what they stand for."""
    (value,) = substitute([c.value], actual)

    def build(live: Live) -> Live:
        return parsed(substitute([live.node()], actual)[0])

    return Cotangent(value, c.guard and Guard(build, c.guard), c.clean)


def _applied(u: UOp, rule: VjpRule, g: UOp) -> Sequence[UOp | None]:
    """What the rule gives; what goes wrong in it names the plugin it is from."""
    try:
        return _checked(u, rule(u, g))
    except Exception as error:
        note_owner(error, f"gradient rule of op {u.op.name!r}", "vjps", u.op)
        raise


def _checked(u: UOp, parts: Sequence[UOp | None]) -> Sequence[UOp | None]:
    """What a rule gave, which is anybody's code: one gradient or None per source."""
    if not isinstance(parts, (tuple, list)):
        raise TypeError(
            f"the gradient rule of {u.op.name} gave {parts!r}; expected a tuple of one "
            "gradient or None per source"
        )
    if len(parts) != len(u.src):
        raise ValueError(
            f"the gradient rule of {u.op.name} gave {len(parts)} gradients for "
            f"{len(u.src)} sources; give None where no gradient flows"
        )
    for i, (p, s) in enumerate(zip(parts, u.src, strict=True)):
        if p is None:
            continue
        if type(p) is not UOp or p.dtype is not s.dtype or p.shape != s.shape:
            what = f"the gradient rule of {u.op.name}: the gradient of source {i}"
            require_like(p, s, what, "a UOp or None")
    return parts

"""Forward mode: tangents pushed from inputs to roots, node by node.

An op needs no rule of its own for it. Its reverse rule is linear in the cotangent, so
the derivative of what the rule returns, with respect to the cotangent, is the forward
rule: it is derived once for each kind of node, over placeholders.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from uopc.autodiff.cotangent import Cotangent, Guard, added
from uopc.autodiff.errors import require_float, require_like
from uopc.autodiff.following import guard_of_copies
from uopc.autodiff.products import distributed
from uopc.autodiff.remembering import one_pass
from uopc.autodiff.reverse import pull, pulled, put_in_place, stand_in, stood_in
from uopc.autodiff.rules import linear
from uopc.composite import zeros_like
from uopc.dtype import boolean
from uopc.plugins import note_owner, registry
from uopc.uop import Ops, UOp, collector_paused, toposort

Tangent = Cotangent


class NotLinearError(ValueError):
    """A gradient rule that is not linear in the cotangent: no rule at all."""


@collector_paused()
@one_pass()
def tangents(
    roots: Sequence[UOp],
    inputs: Sequence[UOp],
    seeds: Sequence[UOp],
    live: Sequence[UOp | None] | None = None,
) -> list[UOp]:
    """How the roots move when the inputs move: Jacobian times vector, as graphs.

    Args:
        roots: float nodes.
        inputs: float nodes of any shape; what lies below them is constant.
        seeds: the direction, one node per input, of its shape and dtype.
        live: a bool node or None per input, like that of ``gradient``.

    Returns one tangent per root, of its shape and dtype; zeros for a root that
    depends on none of the inputs. Raises TypeError for an integer root or input,
    ValueError for a seed that does not fit, NoGradientRule for an op without a rule,
    NotLinearError for a gradient rule that is not linear. The cost is linear in the
    graph.
    """
    for i, root in enumerate(roots):
        require_float(root, f"tangents: root {i}")
    for i, (u, seed) in enumerate(zip(inputs, seeds, strict=True)):
        require_float(u, f"tangents: input {i}")
        require_like(seed, u, f"tangents: the seed of input {i}")
    alive = [None] * len(seeds) if live is None else live
    moving = {  # grows from the inputs to the roots
        u: Tangent(seed, None if here is None else Guard.of(here))
        for u, seed, here in zip(inputs, seeds, alive, strict=True)
    }
    for u in toposort(roots):
        if u not in moving and not moving.keys().isdisjoint(u.src):
            t = pushed(u, [moving.get(s) for s in u.src])
            if t is not None:
                moving[u] = t
    return [moving[r].masked() if r in moving else zeros_like(r) for r in roots]


def pushed(u: UOp, given: Sequence[Tangent | None]) -> Tangent | None:
    """One step: the tangent of ``u`` from those of its sources."""
    rule = registry().jvps.get(u.op)
    if rule is None:
        found = _derived(u, given)
        if found is not None and u.op is Ops.REDUCE:
            return Tangent(distributed(found.value), found.guard, found.clean)
        return found
    masked = tuple([g and g.masked() for g in given])
    try:
        t = rule(u, masked)
        if t is not None and t is not NotImplemented:
            what = f"the forward-mode rule of {u.op.name}: the tangent"
            require_like(t, u, what, "a UOp, None or NotImplemented")
    except Exception as error:
        note_owner(error, f"forward-mode rule of op {u.op.name!r}", "jvps", u.op)
        raise
    if t is None:
        return None
    if t is NotImplemented:
        return _derived(u, given)
    if rule is linear.on_tangents:
        return Tangent(t, guard_of_copies(t, given))
    passed = [g for g, v in zip(given, masked, strict=True) if v is t]
    return Tangent(t, passed[0].guard if passed and passed[0] else None)


# -- from reverse to forward ---------------------------------------------------


def _derived(u: UOp, given: Sequence[Tangent | None]) -> Tangent | None:
    """The forward rule that follows from the gradient rule."""
    # Guards are built later, when what was stood in for must still be the same.
    local, actual = stood_in(u)
    rules = (registry().vjps.get(u.op), registry().stamp)
    parts = []
    for i, t in enumerate(given):
        if t is not None:
            here = dict(actual)
            seed = stand_in(len(u.src), t, here)
            guarded = seed.guard is not None
            part = _transposed(local, i, guarded, seed.clean, rules)
            if part is not None:
                parts.append(put_in_place(part, here))
    return added(parts) if parts else None


@functools.lru_cache(maxsize=4096)
def _transposed(
    u: UOp, i: int, guarded: bool, clean: bool, rules: tuple[object, str]
) -> Tangent | None:
    """How the tangent of source ``i`` contributes to that of ``u``, over placeholders.

    The gradient rule maps a cotangent P of ``u`` to one of the source, and is linear:
    its derivative with respect to P takes tangents the other way. ``rules`` tells one
    set of rules from another, for the cache.
    """
    p = UOp.param(len(u.src) + 2, u.dtype, u.shape)
    part = pulled(u, Cotangent(p), registry().vjps)[i]
    if part is None:
        return None
    root = part.masked()
    seed = stand_in(len(u.src), Cotangent(root), {})
    if guarded:
        live = UOp.param(len(u.src) + 1, boolean, root.shape)
        seed = Cotangent(seed.value, Guard.of(live), clean)
    found = pull(toposort([root]), {p}, seed).get(p)
    if found is not None and p in toposort([found.value]):
        raise NotLinearError(
            f"the gradient rule of {u.op.name} is not linear in the cotangent, so that "
            "there is no forward mode and no second derivative through it"
        )
    return found

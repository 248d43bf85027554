"""gradient(): reverse mode over a graph, one local rule per op."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.composite import zeros_like
from uopc.plugins import current, registry
from uopc.uop import UOp, collector_paused, substitute, toposort

# Up to here contributions add left to right; more of them as a balanced tree,
# which keeps both the rounding error and the depth of the graph small.
MAX_CHAIN = 16


class NoGradientRule(NotImplementedError):
    """An op on the path to a target has no gradient rule."""


@collector_paused()
def gradient(root: UOp, targets: Sequence[UOp], seed: UOp | None = None) -> list[UOp]:
    """The gradient of ``root`` with respect to each target, as graphs.

    Args:
        root: a float node; if it is not scalar, the gradient of its sum.
        targets: float nodes, of any shape; a target that the root does not
            depend on gets zeros.
        seed: the cotangent of ``root``, of its shape and dtype; ones if None.

    Raises TypeError for an integer root or target, ValueError for a seed of
    another shape or dtype, NoGradientRule for an op without a rule. Nothing is
    computed, and the cost is linear in the graph.
    """
    order = toposort([root])
    _require_pure(order)
    _require_float(root, "the root")
    for t in targets:
        _require_float(t, "a target")
    if seed is not None:
        _require_like(seed, root, "gradient: the seed")
    on_path = set(targets)
    for u in order:
        if any(s in on_path for s in u.src):
            on_path.add(u)
    contributions = {root: [root.const_like(1.0) if seed is None else seed]}
    grads: dict[UOp, UOp] = {}
    for u in reversed(order):
        if u not in contributions or u not in on_path:
            continue
        grads[u] = g = _sum(contributions.pop(u))
        if not any(s in on_path for s in u.src):
            continue  # a target: what lies below it needs no rule
        for s, gs in zip(u.src, _apply_rule(u, g), strict=True):
            if gs is not None and s in on_path:
                contributions.setdefault(s, []).append(gs)
    return [grads[t] if t in grads else zeros_like(t) for t in targets]


def _apply_rule(u: UOp, g: UOp) -> tuple[UOp | None, ...]:
    """The contributions of ``u`` to its sources."""
    rule = registry().vjps.get(u.op)
    if rule is not None:
        return _checked(u, rule(u, g))
    if not u.src or not u.op.differentiable:
        return (None,) * len(u.src)
    if u.op.lower is not None:
        return _through_lower(u, g)
    raise _no_rule(u)


def _through_lower(u: UOp, g: UOp) -> tuple[UOp | None, ...]:
    """The rule that follows from what ``u`` is written as in other ops.

    Placeholders stand for the sources, so that the walk ends there.
    """
    *inputs, seed = (
        UOp.param(slot, s.dtype, s.shape) for slot, s in enumerate((*u.src, g))
    )
    lowered = u.op.lower(u.with_src(tuple(inputs)))  # type: ignore[misc]
    wanted = [p for p in inputs if p.dtype.is_float]
    actual = dict(zip((*inputs, seed), (*u.src, g), strict=True))
    grads = dict(zip(wanted, gradient(lowered, wanted, seed), strict=True))
    found = iter(substitute(grads.values(), actual))
    return tuple(next(found) if p in grads else None for p in inputs)


def _checked(u: UOp, parts: tuple[UOp | None, ...]) -> tuple[UOp | None, ...]:
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
    for i, (part, s) in enumerate(zip(parts, u.src, strict=True)):
        if part is not None:
            what = f"the gradient rule of {u.op.name}: the gradient of source {i}"
            _require_like(part, s, what)
    return parts


def _require_pure(order: list[UOp]) -> None:
    """Refuse loops and effects anywhere: off the path they are as wrong as on it."""
    rules = registry().vjps
    for u in reversed(order):
        if u.op.kind == "loop" and u.op not in rules:
            raise _no_rule(u)


def _no_rule(u: UOp) -> NoGradientRule:
    return NoGradientRule(
        f"no gradient rule for {u.op.name} (autodiff only works on pure shape "
        f"graphs); register one with the uopc_register_vjps hook"
        f"{current().failure_note()}"
    )


def _sum(parts: list[UOp]) -> UOp:
    if len(parts) <= MAX_CHAIN:
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total
    while len(parts) > 1:
        pairs = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + ([parts[-1]] if len(parts) % 2 else [])
    return parts[0]


def _require_float(u: UOp, what: str) -> None:
    if not u.dtype.is_float:
        raise TypeError(
            f"gradient: {what} has dtype {u.dtype}, which has no derivative; "
            "cast it to a float type"
        )


def _require_like(given: UOp, like: UOp, what: str) -> None:
    if given.shape != like.shape or given.dtype is not like.dtype:
        raise ValueError(
            f"{what} is {given.dtype}{list(given.shape)}, expected "
            f"{like.dtype}{list(like.shape)}"
        )

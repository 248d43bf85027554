"""gradient(): reverse mode over a graph, one local rule per op."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.composite import zeros_like
from uopc.plugins import current, registry
from uopc.uop import UOp, toposort

# Up to here contributions add left to right; more of them as a balanced tree,
# which keeps both the rounding error and the depth of the graph small.
MAX_CHAIN = 16


class NoGradientRule(NotImplementedError):
    """An op on the path to a target has no gradient rule."""


def gradient(root: UOp, targets: Sequence[UOp], seed: UOp | None = None) -> list[UOp]:
    """The gradient of ``root`` with respect to each target, as graphs.

    Args:
        root: a float node; if it is not scalar, the gradient of its sum.
        targets: float nodes, of any shape; a target that the root does not
            depend on gets zeros.
        seed: the cotangent of ``root``, of its shape and dtype; ones if None.

    Raises TypeError for an integer root or target, NoGradientRule for an op
    without a rule. Nothing is computed, and the cost is linear in the graph.
    """
    order = toposort([root])
    _require_pure(order)
    _require_float(root, "the root")
    for t in targets:
        _require_float(t, "a target")
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
        for s, gs in zip(u.src, _apply_rule(u, g), strict=True):
            if gs is not None and s in on_path:
                contributions.setdefault(s, []).append(gs)
    return [grads[t] if t in grads else zeros_like(t) for t in targets]


def _apply_rule(u: UOp, g: UOp) -> tuple[UOp | None, ...]:
    """The contributions of ``u`` to its sources."""
    rule = registry().vjps.get(u.op)
    if rule is not None:
        return rule(u, g)
    if not u.src or not u.op.differentiable:
        return (None,) * len(u.src)
    raise _no_rule(u)


def _require_pure(order: list[UOp]) -> None:
    """Refuse loops and effects anywhere: off the path they are as wrong as on it."""
    rules = registry().vjps
    for u in order:
        if u.op.kind == "loop" and u.op not in rules:
            raise _no_rule(u)


def _no_rule(u: UOp) -> NoGradientRule:
    return NoGradientRule(
        f"no gradient rule for {u.op.name} (autodiff only works on pure shape "
        f"graphs); register one with the uopc_register_vjps hook"
        f"{current().failure_note()}"
    )


def _sum(parts: list[UOp]) -> UOp:
    while len(parts) > MAX_CHAIN:
        pairs = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + ([parts[-1]] if len(parts) % 2 else [])
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _require_float(u: UOp, what: str) -> None:
    if not u.dtype.is_float:
        raise TypeError(
            f"gradient: {what} has dtype {u.dtype}, which has no derivative; "
            "cast it to a float type"
        )

"""gradient(): reverse mode over a graph, one local rule per op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

from uopc.autodiff.cotangent import Cotangent, Guard
from uopc.autodiff.errors import NoGradientRule, no_rule, require_float, require_like
from uopc.autodiff.remembering import one_pass
from uopc.autodiff.reverse import pull
from uopc.composite import zeros_like
from uopc.plugins import registry
from uopc.uop import UOp, collector_paused, toposort

__all__ = ["NoGradientRule", "gradient"]


@overload
def gradient(
    root: UOp,
    targets: Sequence[UOp],
    seed: UOp | None = None,
    unused: Literal["zero", "error"] = "zero",
    live: UOp | None = None,
) -> list[UOp]: ...


@overload
def gradient(
    root: UOp,
    targets: Sequence[UOp],
    seed: UOp | None,
    unused: Literal["none"],
    live: UOp | None = None,
) -> list[UOp | None]: ...


@collector_paused()
@one_pass()
def gradient(
    root: UOp,
    targets: Sequence[UOp],
    seed: UOp | None = None,
    unused: Literal["zero", "none", "error"] = "zero",
    live: UOp | None = None,
) -> Sequence[UOp | None]:
    """The gradient of ``root`` with respect to each target, as graphs.

    Args:
        root: a float node; if it is not scalar, the gradient of its sum.
        targets: float nodes of any shape, leaves or not, the root itself, or one of
            them several times: each gets the whole gradient with respect to it.
        seed: the cotangent of ``root``, of its shape and dtype; ones if None.
        unused: what a target gets that the root does not depend on: ``"zero"``,
            zeros of its shape; ``"none"``, None; ``"error"``, a ValueError.
        live: bool, of the root's shape: where False, the seed is zero and stays zero
            whatever it is multiplied by, as behind a ``where``.

    Raises TypeError for an integer root or target, ValueError for a seed of
    another shape or dtype, NoGradientRule for an op without a rule. Nothing is
    computed, and the cost is linear in the graph.
    """
    if unused not in ("zero", "none", "error"):
        raise ValueError(
            f"gradient: unused is 'zero', 'none' or 'error', not {unused!r}"
        )
    order = toposort([root])
    _require_pure(order)
    require_float(root, "gradient: the root")
    for i, t in enumerate(targets):
        require_float(t, f"gradient: target {i}")
    if seed is not None:
        require_like(seed, root, "gradient: the seed")
    guard = None if live is None else Guard.of(live)
    start = Cotangent(root.const_like(1.0) if seed is None else seed, guard)
    found = pull(order, set(targets), start)
    if unused == "error":
        for i, t in enumerate(targets):
            if t not in found:
                raise ValueError(
                    f"gradient: the root does not depend on target {i}, "
                    f"{t.dtype}{list(t.shape)}; leave it out, or pass unused='zero'"
                )
    missing = zeros_like if unused == "zero" else lambda t: None
    return [found[t].masked() if t in found else missing(t) for t in targets]


def _require_pure(order: Sequence[UOp]) -> None:
    """Refuse loops and effects anywhere: off the path they are as wrong as on it."""
    rules = registry().vjps
    for u in reversed(order):
        if u.op.kind == "loop" and u.op not in rules:
            raise no_rule(u)

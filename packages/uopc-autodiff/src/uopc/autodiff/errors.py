"""What can be wrong with a request for a derivative."""

from __future__ import annotations

from uopc.plugins import current
from uopc.uop import UOp


class NoGradientRule(NotImplementedError):
    """An op on the path to a target has no gradient rule."""


def no_rule(u: UOp) -> NoGradientRule:
    """The error about an op that nobody has registered a rule for."""
    if u.op.kind == "loop":
        return NoGradientRule(
            f"no gradient rule for {u.op.name} (autodiff only works on pure shape "
            "graphs, and this op is about memory or loops): differentiate the graph "
            "before it is lowered"
        )
    return NoGradientRule(
        f"no gradient rule for {u.op.name} (autodiff only works on pure shape graphs "
        "of ops with rules); register one with the uopc_register_vjps hook, give the "
        "op a 'lower', or, if its derivative is zero everywhere, "
        f"differentiable=False{current().failure_note()}"
    )


def require_float(u: UOp, what: str) -> None:
    """Raise TypeError for a node that has no derivative."""
    if not u.dtype.is_float:
        raise TypeError(
            f"{what} has dtype {u.dtype}, which has no derivative; cast it to a float "
            "type"
        )


def require_like(given: object, like: UOp, what: str, expected: str = "a UOp") -> None:
    """Raise unless something is a node, and of the shape and dtype of another one.

    ``expected`` says what else it may be, for the TypeError about what is no node.
    """
    if not isinstance(given, UOp):
        raise TypeError(f"{what} is {given!r}; expected {expected}")
    if given.shape != like.shape or given.dtype is not like.dtype:
        raise ValueError(
            f"{what} is {given.dtype}{list(given.shape)}, expected "
            f"{like.dtype}{list(like.shape)}"
        )

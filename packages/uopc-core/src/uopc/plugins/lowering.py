"""Asking an op what it is in other ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.plugins.host import note_owner

if TYPE_CHECKING:
    from uopc.uop import UOp


def endless(u: UOp) -> RuntimeError:
    """The error about an op whose ``lower`` leads to ops that are lowered for ever."""
    error = RuntimeError(
        f"{u.op.name}: lowering it does not come to an end; 'lower' must write an op "
        "in other ones, or in itself on something smaller"
    )
    note_owner(error, f"'lower' of op {u.op.name!r}", "ops", u.op.name)
    return error


def lowered(u: UOp) -> UOp:
    """The node written in other ops by its row's ``lower``, which is anybody's code.

    Raises ValueError for a result of another shape or dtype, TypeError for what is no
    node; these and what ``lower`` raises itself name its plugin.
    """
    assert u.op.lower is not None
    try:
        result = u.op.lower(u)
        if not isinstance(result, type(u)):
            raise TypeError(f"{u.op.name}: 'lower' gave {result!r}, expected a node")
        if result.shape != u.shape or result.dtype is not u.dtype:
            raise ValueError(
                f"{u.op.name}: 'lower' gave {result.dtype}{list(result.shape)}, "
                f"expected {u.dtype}{list(u.shape)}"
            )
    except Exception as error:
        note_owner(error, f"'lower' of op {u.op.name!r}", "ops", u.op.name)
        raise
    return result

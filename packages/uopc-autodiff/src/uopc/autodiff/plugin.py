"""What this distribution registers with uopc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uopc.autodiff.gradient import gradient
from uopc.autodiff.rules import RULES
from uopc.plugins import hookimpl
from uopc.uop import UOp


@hookimpl
def uopc_register_vjps(register: Any) -> None:
    """The gradient rules of the built-in ops."""
    for op, rule in RULES.items():
        register(op, rule)


@hookimpl
def uopc_gradient(root: UOp, seed: UOp | None, targets: Sequence[UOp]) -> list[UOp]:
    """The gradient engine behind ``Tensor.backward``."""
    return gradient(root, targets, seed)

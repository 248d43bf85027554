"""What this distribution registers with uopc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from uopc.autodiff.gradient import gradient
from uopc.autodiff.rules import RULES
from uopc.plugins import hookimpl
from uopc.uop import UOp

if TYPE_CHECKING:
    import argparse


@hookimpl
def uopc_register_vjps(register: Any) -> None:
    """The gradient rules of the built-in ops."""
    for op, rule in RULES.items():
        register(op, rule)


@hookimpl
def uopc_gradient(root: UOp, seed: UOp | None, targets: Sequence[UOp]) -> list[UOp]:
    """The gradient engine behind ``Tensor.backward``."""
    return gradient(root, targets, seed)


@hookimpl
def uopc_register_commands(cli: Any) -> None:
    """The command ``uopc grad``."""
    cli.add("grad", "print the gradient of a graph", _configure, _run)


def _configure(parser: argparse.ArgumentParser) -> None:
    # The command is imported when it is used, for start-up's sake.
    from uopc.autodiff.command import configure

    configure(parser)


def _run(args: argparse.Namespace) -> int:
    from uopc.autodiff.command import run_grad

    return run_grad(args)

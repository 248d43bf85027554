"""What this distribution registers with uopc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from uopc.autodiff import forward
from uopc.autodiff.gradient import gradient
from uopc.autodiff.rules import RULES, batching, linear
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
def uopc_register_jvps(register: Any) -> None:
    """The forward rules of the ops that copy elements."""
    for op, rule in linear.RULES.items():
        register(op, rule)


@hookimpl
def uopc_register_batchings(register: Any) -> None:
    """The batching rules of the ops that are not elementwise."""
    for op, rule in batching.RULES.items():
        register(op, rule)


@hookimpl
def uopc_gradient(root: UOp, seed: UOp | None, targets: Sequence[UOp]) -> list[UOp]:
    """The gradient engine behind ``Tensor.backward``."""
    return gradient(root, targets, seed)


@hookimpl
def uopc_jvp(
    roots: Sequence[UOp], inputs: Sequence[UOp], tangents: Sequence[UOp]
) -> list[UOp]:
    """Forward mode over graphs."""
    return forward.tangents(roots, inputs, tangents)


@hookimpl
def uopc_register_commands(cli: Any) -> None:
    """The commands ``uopc grad`` and ``uopc coverage``."""
    cli.add("grad", "print the gradient of a graph", _configure, _run)
    cli.add(
        "coverage",
        "check what each op can do: gradients, forward mode, vmap, C",
        _configure_coverage,
        _run_coverage,
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    # The command is imported when it is used, for start-up's sake.
    from uopc.autodiff.command import configure

    configure(parser)


def _run(args: argparse.Namespace) -> int:
    from uopc.autodiff.command import run_grad

    return run_grad(args)


def _configure_coverage(parser: argparse.ArgumentParser) -> None:
    from uopc.autodiff.command import configure_coverage

    configure_coverage(parser)


def _run_coverage(args: argparse.Namespace) -> int:
    from uopc.autodiff.command import run_coverage

    return run_coverage(args)

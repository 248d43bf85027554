"""Every hook of uopc, with its exact signature.

A plugin implements any of these, under the same name, marked with `hookimpl`. The
`uopc_register_*` hooks run once per host, when it loads; they fill the host's
`Registry` through the callable they are given, return None, and may not keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

if TYPE_CHECKING:
    import argparse

    from uopc.uop import OpDef, UOp

PROJECT = "uopc"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class OpRegister(Protocol):
    """What `uopc_register_ops` is given."""

    def __call__(self, opdef: OpDef, *, override: bool = False) -> None:
        """Add `opdef` to the op table under `opdef.name`."""


class VjpRegister(Protocol):
    """What `uopc_register_vjps` is given."""

    def __call__(
        self,
        op: OpDef,
        rule: Callable[[UOp, UOp], tuple[UOp | None, ...]],
        *,
        override: bool = False,
    ) -> None:
        """Make `rule` the gradient rule of `op`."""


class JvpRegister(Protocol):
    """What `uopc_register_jvps` is given."""

    def __call__(
        self,
        op: OpDef,
        rule: Callable[[UOp, tuple[UOp | None, ...]], UOp | None],
        *,
        override: bool = False,
    ) -> None:
        """Make `rule` the forward-mode rule of `op`."""


class BatchingRegister(Protocol):
    """What `uopc_register_batchings` is given."""

    def __call__(
        self,
        op: OpDef,
        rule: Callable[[UOp, tuple[UOp, ...], tuple[bool, ...]], UOp],
        *,
        override: bool = False,
    ) -> None:
        """Make `rule` the batching rule of `op`."""


class RewritesRegister(Protocol):
    """What `uopc_register_rewrites` is given."""

    def __call__(self, stage: str, rules: Iterable[Any]) -> None:
        """Append `rules` to those of `stage`."""


class BackendRegister(Protocol):
    """What `uopc_register_backends` is given."""

    def __call__(
        self, name: str, factory: Callable[[], Any], *, override: bool = False
    ) -> None:
        """Make `factory` the maker of backend `name`."""


class SpellingRegister(Protocol):
    """What `uopc_register_spellings` is given."""

    def __call__(
        self, backend: str, op: OpDef, spelling: Any, *, override: bool = False
    ) -> None:
        """Make `spelling` the way `backend` writes `op`."""


class CommandAdder(Protocol):
    """What `uopc_register_commands` is given."""

    def add(
        self,
        name: str,
        help: str,
        configure: Callable[[argparse.ArgumentParser], None],
        run: Callable[[argparse.Namespace], int],
    ) -> None:
        """Add the subcommand `uopc name`; `run` returns the exit code."""


@hookspec
def uopc_register_ops(register: OpRegister) -> None:
    """Add ops: call `register(opdef, *, override=False)` for each."""


@hookspec
def uopc_register_vjps(register: VjpRegister) -> None:
    """Add gradient rules: call `register(op, rule, *, override=False)` for each.

    `rule(node, g)` gets a node and the gradient of its value, and returns one
    gradient, or None, for each source of the node.
    """


@hookspec
def uopc_register_jvps(register: JvpRegister) -> None:
    """Add forward-mode rules: `register(op, rule, *, override=False)` for each.

    `rule(node, tangents)` gets a node and, for each of its sources, the tangent or
    None for zero, and returns the tangent of the node, or None. An op without such a
    rule is differentiated forward through its gradient rule.
    """


@hookspec
def uopc_register_batchings(register: BatchingRegister) -> None:
    """Add batching rules: `register(op, rule, *, override=False)` for each.

    `rule(node, sources, batched)` gets a node, its sources for a whole batch, and
    which of them have the batch as an additional first axis; it returns the node for
    the batch, with that axis. Elementwise ops, and ops with a `lower`, need none.
    """


@hookspec
def uopc_register_rewrites(register: RewritesRegister) -> None:
    """Add rewrite rules: call `register(stage, rules)`, for any number of stages.

    For the stage "simplify" they are `uopc.simplify.Rule` objects; for "schedule"
    functions `(sink, target)` of the steps for a kernel, or None. Rules of several
    plugins add up, in the order in which the plugins load.
    """


@hookspec
def uopc_register_backends(register: BackendRegister) -> None:
    """Add backends: call `register(name, factory, *, override=False)` for each.

    `factory()` returns the backend; it should import what it needs, and not before.
    """


@hookspec
def uopc_register_spellings(register: SpellingRegister) -> None:
    """Teach a backend an op: `register(backend, op, spelling, *, override=False)`.

    `backend` is the backend's name. What a spelling is, its documentation says. The
    backend need not be installed.
    """


@hookspec
def uopc_register_commands(cli: CommandAdder) -> None:
    """Add subcommands of `uopc`: `cli.add(name, help, configure, run)`.

    `configure(parser)` adds arguments; `run(args)` returns the exit code.
    """


@hookspec(firstresult=True)
def uopc_gradient(
    root: UOp, seed: UOp | None, targets: Sequence[UOp]
) -> Sequence[UOp] | None:
    """The gradient of `root`, weighted by `seed`, for each of `targets`.

    A seed of None is all ones. The first result that is not None counts.
    """


@hookspec(firstresult=True)
def uopc_jvp(
    roots: Sequence[UOp], inputs: Sequence[UOp], tangents: Sequence[UOp]
) -> Sequence[UOp] | None:
    """The tangent of each of `roots` when `inputs` move along `tangents`.

    The first result that is not None counts.
    """


@hookspec
def uopc_after_pass(name: str, before: Any, after: Any, seconds: float) -> None:
    """Observe a pass of the compiler: its name, input, output, and time taken."""


@hookspec
def uopc_doctor() -> list[tuple[str, str]]:
    """Rows for `uopc doctor`: pairs of a label and a value.

    The value of a row labelled "problem" is listed with the problems instead.
    """
    return []

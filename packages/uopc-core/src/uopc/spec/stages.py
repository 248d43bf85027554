"""The stage specifications and their checker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uopc.dtype import boolean, void
from uopc.uir import to_uir
from uopc.uop import Ops, UOp, toposort

CONTEXT_LINES = 10
_LOOP_STATEMENTS = (Ops.STORE, Ops.END, Ops.SINK)


class SpecError(ValueError):
    """A graph that is not legal at its stage."""


@dataclass(frozen=True)
class Requirement:
    """One named condition on every node of a stage."""

    name: str
    holds: Callable[[UOp], bool]


def _scalar(u: UOp) -> bool:
    return u.op.kind != "elementwise" or u.shape == ()


def _statement_body(u: UOp) -> bool:
    if u.op is Ops.END:
        what, *body = u.src
        runs = what.op is Ops.RANGE or (what.dtype, what.shape) == (boolean, ())
        return runs and all(_is_statement(s) for s in body)
    return u.op is not Ops.SINK or all(_is_statement(s) for s in u.src)


def _operands_have_values(u: UOp) -> bool:
    return u.op in _LOOP_STATEMENTS or all(s.dtype is not void for s in u.src)


def _is_statement(u: UOp) -> bool:
    return u.op in (Ops.STORE, Ops.END)


def _flat_read(u: UOp) -> bool:
    if u.op is not Ops.INDEX:
        return True
    buffer, *at = u.src
    one = len(at) == 1 or (len(at) == 2 and at[1].dtype.kind == "bool")
    return one and buffer.op is Ops.BUFFER and at[0].shape == ()


STAGES: dict[str, tuple[Requirement, ...]] = {
    "graph": (
        Requirement("no loop ops in a graph", lambda u: u.op.kind != "loop"),
        Requirement("a buffer is global", lambda u: u.op is not Ops.BUFFER
                    or u.arg.space == "global"),
        Requirement("no unbound param", lambda u: u.op is not Ops.PARAM),
        Requirement("reads have no gate", lambda u: u.op is not Ops.INDEX
                    or u.src[-1].dtype.kind != "bool"),
    ),
    "loops": (
        Requirement(
            "only scalar ops, reads, loops and stores",
            lambda u: u.op.kind in ("leaf", "elementwise")
            or u.op in (Ops.INDEX, Ops.RANGE, *_LOOP_STATEMENTS),
        ),
        Requirement("elementwise ops are scalar", _scalar),
        Requirement("a read is of a flat buffer at one index", _flat_read),
        Requirement("a body holds statements", _statement_body),
        Requirement("a statement is no operand", _operands_have_values),
        Requirement("no param", lambda u: u.op is not Ops.PARAM),
    ),
}  # fmt: skip


def check(nodes: Sequence[UOp], stage: str) -> None:
    """Raise SpecError, naming the rule and the neighbourhood, if not legal.

    ``nodes`` are all nodes of the graph, children first.
    """
    for u in nodes:
        for requirement in STAGES[stage]:
            if not requirement.holds(u):
                raise SpecError(
                    f"{u.op.name} breaks the {stage} rule "
                    f"'{requirement.name}':\n{_neighbourhood(u)}"
                )


def _neighbourhood(u: UOp) -> str:
    """The last lines of the text form up to ``u``."""
    near = toposort([u])
    if len(near) > 1000:  # show the node over opaque sources
        return repr(u)
    return "\n".join(to_uir(u).splitlines()[-CONTEXT_LINES:])

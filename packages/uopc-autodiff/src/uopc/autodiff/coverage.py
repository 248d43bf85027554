"""`uopc coverage`: what each op can do, as checks show it by running them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from uopc.autodiff.batching import NoBatchingRule, batched
from uopc.autodiff.errors import NoGradientRule
from uopc.dtype import DTYPES
from uopc.interp import evaluate
from uopc.plugins import registry
from uopc.runtime import backend_named
from uopc.testing import check_op, check_vjp, op_samples, sample_inputs
from uopc.testing.slopes import apart
from uopc.testing.vjp import smooth_samples
from uopc.uop import OpDef, Ops, UOp

COLUMNS = ("forward", "gradient", "second gradient", "forward mode", "vmap", "C")
BY_DESIGN, MISSING, FAILED = "none by design", "missing", "FAILED"
BATCH = 3
DIGITS = 1e-12

Check = Callable[[OpDef], str]


@dataclass(frozen=True)
class Row:
    """What was shown of one op.

    Attributes:
        op: the op.
        cells: the text of each column.
        problems: why cells say that something failed or is missing.
    """

    op: OpDef
    cells: tuple[str, ...]
    problems: tuple[str, ...]


def coverage(ops: Iterable[OpDef]) -> list[Row]:
    """Run the checks of each op that a shape graph can hold."""
    return [_row(op) for op in ops if op.kind != "loop"]


def _row(op: OpDef) -> Row:
    checks: tuple[Check, ...] = (
        _forward,
        lambda op: _derivative(op, 1, ("reverse",)),
        lambda op: _derivative(op, 2, ("reverse",)),
        lambda op: _derivative(op, 1, ("forward",)),
        _vmap,
        _spelling,
    )
    cells, problems = [], []
    for column, check in zip(COLUMNS, checks, strict=True):
        try:
            cells.append(check(op))
        except (NoGradientRule, NoBatchingRule) as error:
            cells.append(MISSING)
            problems.append(f"{op.name}, {column}: {error}")
        except Exception as error:  # a plugin's code, which may do anything
            cells.append(FAILED)
            problems.append(f"{op.name}, {column}: {error}")
    return Row(op, tuple(cells), tuple(problems))


def _passed(count: int, how: str = "") -> str:
    return f"{count} passed{how}"


def _forward(op: OpDef) -> str:
    return _passed(check_op(op, order=0))


def _derivative(op: OpDef, order: int, modes: Sequence[str]) -> str:
    if not op.differentiable or op.kind == "leaf":
        return BY_DESIGN
    counts = check_vjp(op, order=order, modes=modes)
    through = op not in registry().vjps and op.lower is not None
    return _passed(counts.samples, " through lower" if through else "")


def _samples(op: OpDef) -> list[UOp]:
    """Samples in one element type: f64 if the op takes it."""
    found = smooth_samples(op)
    names = ("f64", *DTYPES)
    each = (op_samples(op, DTYPES[name]) for name in names)
    return found or next((nodes for nodes in each if nodes), [])


def _vmap(op: OpDef) -> str:
    """Batches against a loop over their elements, each source batched and all."""
    nodes = [u for u in _samples(op) if u.src and sample_inputs(u)]
    if not nodes:
        return BY_DESIGN  # a leaf is the same for every element
    for u in nodes:
        inputs = list(sample_inputs(u))
        for chosen in (inputs, *([p] for p in inputs)):
            _compare_batch(u, chosen)
    through = op.kind != "elementwise" and op not in registry().batchings
    return _passed(len(nodes), " through lower" if through else "")


def _compare_batch(u: UOp, chosen: Sequence[UOp]) -> None:
    draws = [sample_inputs(u, seed) for seed in range(BATCH)]
    whole = {p: UOp.param(1000 + k, p.dtype, (BATCH, *p.shape))
             for k, p in enumerate(chosen)}  # fmt: skip
    ((root, has),) = batched([u], whole)
    if not has:
        raise AssertionError("the result has no batch")
    data = dict(draws[0])
    for p, w in whole.items():
        parts = [UOp.param(k, p.dtype, p.shape) for k in range(BATCH)]
        given = {q: d[p] for q, d in zip(parts, draws, strict=True)}
        (data[w],) = evaluate([UOp.stack(parts)], given)
    (together,) = evaluate([root], data)
    for k, draw in enumerate(draws):
        given = {**draws[0], **{p: draw[p] for p in chosen}}
        (alone,) = evaluate([u], given)
        wrong = together[k] != alone
        if u.dtype.is_float:
            wrong = apart(together[k], alone, DIGITS)
        if wrong.any():
            raise AssertionError(f"element {k} is {together[k]}, expected {alone}")


def _spelling(op: OpDef) -> str:
    if "c" not in registry().backends:
        return "not installed"
    if op is Ops.PARAM:
        return BY_DESIGN  # a placeholder, of which check_op computes nothing
    count = check_op(op, ("c",), order=0)
    as_it_is = backend_named("c").supports(op)
    return _passed(count, "" if as_it_is else " through lower")


def page(rows: Sequence[Row]) -> str:
    """Markdown: the table, and what is wrong."""
    header = ("op", *COLUMNS)
    lines = [header, ("---",) * len(header)]
    lines += [(f"`{row.op.name}`", *row.cells) for row in rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    problems = [p for row in rows for p in row.problems]
    notes = "\n".join(f"- {p.splitlines()[0]}" for p in problems)
    return (
        INTRODUCTION + table + "\n" + (f"\n## Problems\n\n{notes}\n" if notes else "")
    )


INTRODUCTION = """\
# What each op can do

What `uopc coverage` prints: it runs the checks, and a cell says how many samples
passed. `forward` is `check_op`, on samples of every element type that the op takes;
the two gradients and forward mode are `check_vjp`, in f64, against differences; `vmap`
is a batch against a loop over its elements; `C` is `check_op` with that backend. Ops
of loops and statements are left out. *Through lower* means by way of the ops that it
is written in; *none by design* that no gradient is meant to flow, that there is nothing
to batch, or nothing to compute.

"""

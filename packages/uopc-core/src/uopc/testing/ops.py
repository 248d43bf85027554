"""The checks that every row of the op table must pass, a plugin's as well.

``check_op(op)`` takes all it needs from the row: its samples, its properties, its
NumPy meaning and, if there is one, its ``lower``. Nothing is said twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from uopc.dtype import DTYPES, DType, f64
from uopc.interp import evaluate
from uopc.plugins import lowered, note_owner
from uopc.runtime import backend_named, new_buffer, realize
from uopc.simplify import fold
from uopc.spec import check
from uopc.testing.bounded import Array, differences, evaluate_bounded
from uopc.testing.points import float_values, unequal
from uopc.testing.samples import op_samples, sample_inputs
from uopc.testing.vjp import check_vjp, smooth_samples
from uopc.testing.vjp_levels import has_engine
from uopc.uir import parse_uir, to_uir
from uopc.uop import OpDef, Ops, UOp, substitute, toposort

# A ``lower`` is compared in f64, where what composition loses is far below this.
LOWERED_DIGITS = 1e-11

Inputs = Mapping[UOp, Array]


def check_op(op: OpDef, backends: Sequence[str] = ("interp",), order: int = 2) -> int:
    """Check a row of the op table; returns how many samples it was checked on.

    Raises AssertionError, naming the op, the sample and what is wrong: the text form
    reads back, the stage specification lets it pass, the meaning has the inferred
    shape and dtype and is total, whatever the domain, ``commutative``, ``exact`` and
    ``identity`` hold, ``lower`` means the same, backends compute it, and a
    differentiable op has the gradient that ``check_vjp`` demands, up to ``order`` (if a
    gradient engine is installed). What the row's own functions raise is the cause of
    one, with a note that names its plugin.
    """
    if len(op.doc.splitlines()) != 1 or not op.doc.endswith("."):
        raise AssertionError(f"{op.name}: 'doc' must be one line, a sentence")
    nodes = [u for dtype in DTYPES.values() for u in op_samples(op, dtype)]
    if not nodes:
        raise AssertionError(f"{op.name}: no element type gives a sample of it")
    for u in nodes:
        _require(parse_uir(to_uir(u)) is u, u, "the text form reads back otherwise")
        if op.kind == "loop":
            continue
        with _named(u, "the meaning at inputs of its domain"):
            _check_meaning(u)
        if op.kind == "elementwise" and op.numpy is not None:
            with _named(u, "its promises at special values"):
                _check_special_values(u)
        if op.lower is not None and u.dtype is f64:
            with _named(u, "comparing 'lower' with the meaning"):
                _check_lower(u)
    if op.kind != "loop" and op is not Ops.PARAM:
        for name in backends:
            _check_backend(nodes, name)
    if order and op.differentiable and smooth_samples(op) and has_engine():
        check_vjp(op, order=order, backends=backends)
    return len(nodes)


def _require(holds: bool, u: UOp, what: str) -> None:
    if not holds:
        raise AssertionError(f"{u.op.name}: {what}, in\n{to_uir(u)}")


@contextmanager
def _named(u: UOp, what: str) -> Iterator[None]:
    """Names what was checked in what a function of the row raises, and its plugin."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        failure = AssertionError(f"{u.op.name}: {what}: {said}, in\n{to_uir(u)}")
        for note in getattr(error, "__notes__", ()):
            failure.add_note(note)
        if not hasattr(failure, "__notes__"):
            note_owner(failure, f"row of op {u.op.name!r}", "ops", u.op.name)
        raise failure from error


def _bound(u: UOp, inputs: Inputs) -> UOp:
    """The node over buffers that hold the inputs."""
    live = {
        p: new_buffer(p.dtype.store(x.reshape(-1).copy()), p.dtype).reshape(p.shape)
        for p, x in inputs.items()
    }
    return substitute([u], live)[0]


def _check_meaning(u: UOp) -> None:
    inputs = sample_inputs(u)
    check(toposort([_bound(u, inputs)]), "graph")
    if u.op.numpy is not None:
        arrays = evaluate(u.src, inputs)
        with np.errstate(all="ignore"):
            value, again = (u.op.compute(u, *arrays) for _ in range(2))
        got, want = (value.dtype, value.shape), (u.dtype.numpy, u.shape)
        _require(got == want, u, f"the meaning gives {got}, and inference {want}")
        _require(not unequal(value, again).any(), u, "the meaning is not repeatable")


def _special(dtype: DType) -> Array:
    if dtype.is_float:
        return float_values(dtype)
    near = {dtype.min, dtype.min + 1, -2, -1, 0, 1, 2, 3, dtype.max - 1, dtype.max}
    return np.array(sorted(v for v in near if dtype.min <= v <= dtype.max), dtype.numpy)


def _check_special_values(u: UOp) -> None:
    """What the row promises of an elementwise op, at every corner of its types."""
    columns = [_special(s.dtype) for s in u.src]
    if len(columns) > 2:  # all combinations would be too many
        columns = [c[:: 1 + len(c) // 12] for c in columns]
    flat = [m.reshape(-1) for m in np.meshgrid(*columns, indexing="ij")]
    leaves = tuple(
        UOp.param(i, s.dtype, x.shape)
        for i, (s, x) in enumerate(zip(u.src, flat, strict=True))
    )
    with np.errstate(all="ignore"):
        value = _total(u, UOp(u.op, leaves, u.arg), flat)
        if u.op.commutative:
            swapped = _total(u, UOp(u.op, leaves[::-1], u.arg), flat[::-1])
            _require(not unequal(value, swapped).any(), u, "is not commutative")
    if u.op.identity is not None:
        _require(len(flat) == 2, u, "'identity' is for ops of two sources")
        neutral = flat[1] == u.op.identity(u.dtype)
        same = (value == flat[0]) | (value != value) & (flat[0] != flat[0])
        _require(bool(same[neutral].all()), u, "'identity' changes the other source")
    for k in range(0, value.size, 1 + value.size // 50):
        sources = (
            UOp.const(x[k].item(), s.dtype) for x, s in zip(flat, u.src, strict=True)
        )
        folded = fold(UOp(u.op, tuple(sources), u.arg))
        _require(u.op.exact or folded is None, u, "folds though it is not exact")
        if folded is not None:
            constant = np.asarray(folded.value, u.dtype.numpy)
            _require(not unequal(constant, value[k]).any(), u, "folds to another value")


def _total(u: UOp, node: UOp, sources: Sequence[Array]) -> Array:
    """The meaning at special values, of which it may refuse none."""
    try:
        return node.op.compute(node, *sources)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        failure = AssertionError(
            f"{u.op.name}: the meaning raises {said}, at special values"
            f"{_refused(node, sources)}: it must be total, defined for every value of "
            f"its dtype, outside of 'domain' as well (NaN is fine), in\n{to_uir(u)}"
        )
        what = f"NumPy meaning of op {u.op.name!r}"
        note_owner(failure, what, "ops", u.op.name)
        raise failure from error


def _refused(node: UOp, sources: Sequence[Array]) -> str:
    """The first values that a meaning raises at by themselves, for a message."""
    for k in range(sources[0].size):
        each = [x[k : k + 1] for x in sources]
        leaves = (UOp.param(i, s.dtype, (1,)) for i, s in enumerate(node.src))
        try:
            node.op.compute(UOp(node.op, tuple(leaves), node.arg), *each)
        except Exception:
            return f" such as {', '.join(str(x[0]) for x in each)}"
    return ""


def _check_lower(u: UOp) -> None:
    low = lowered(u)
    _require(u.op not in {v.op for v in toposort([low])}, u, "'lower' uses the op")
    inputs = sample_inputs(u)
    if u.op.numpy is not None:
        value, written = evaluate([u, low], inputs)
        near = np.allclose(value, written, rtol=LOWERED_DIGITS, atol=LOWERED_DIGITS)
        _require(near, u, f"'lower' gives {written}, not {value}")


def _check_backend(nodes: Sequence[UOp], name: str) -> None:
    """All samples in one plan, within the bounds that rounding allows."""
    inputs = [sample_inputs(u, seed=1) for u in nodes]
    bound = [_bound(u, x) for u, x in zip(nodes, inputs, strict=True)]
    memory = realize(bound, None, backend_named(name))
    for u, x, flat in zip(nodes, inputs, memory, strict=True):
        meant = u if u.op.numpy is not None or u.op.lower is None else lowered(u)
        if meant.op in (Ops.BUFFER, Ops.PARAM):
            continue
        (want,) = evaluate_bounded([meant], x)
        got = u.dtype.load(flat).reshape(u.shape)
        bad = differences(got, want).any()
        _require(not bad, u, f"{name} gives {got}, not {want.value}")

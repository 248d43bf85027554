"""``check_vjp``: gradient rules against differences, for whoever writes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from uopc.dtype import DType, f64, from_numpy
from uopc.runtime import backend_named, new_buffer, realize
from uopc.tensor import Tensor
from uopc.testing.bounded import Array
from uopc.testing.samples import op_samples, sample_inputs
from uopc.testing.slopes import apart, first
from uopc.testing.vjp_levels import Built, Counts, Level, Sample, has_engine, like
from uopc.uir import to_uir
from uopc.uop import OpDef, Ops, UOp, substitute, toposort

MODES = ("reverse", "forward")
BACKEND_DIGITS = 1e-10  # by which backends may differ; they round in other ways


def check_vjp(
    what: OpDef | Callable[..., Any],
    samples: Iterable[Any] | None = None,
    order: int = 2,
    *,
    backends: Sequence[str] = ("interp",),
    modes: Sequence[str] = MODES,
    directions: int = 2,
    seed: int = 0,
    argnums: Sequence[int] | None = None,
    uops: bool = False,
) -> Counts:
    """Check the derivatives of an op, or of a function, against differences.

    Args:
        what: an op with a row, or a function of Tensors that returns a Tensor.
        samples: of an op, nodes of it over f64 placeholders; its row's if None. Of a
            function, the arguments of each call as a tuple: arrays, or shapes for
            which values are drawn. Arrays of integers and bools are constants.
        order: up to which derivative; 2 is the gradient of the gradient.
        backends: where derivatives are computed; differences always by ``interp``.
        modes: "reverse", "forward" or both.
        directions: how many random directions per sample, source and order.
        seed: of all that is random.
        argnums: by which arguments of a function, if not by all that are f64.
        uops: the function is one of nodes and returns a node.

    At each order, along random directions: the gradient by each source against
    differences, that it has its source's shape and dtype and is linear in the
    cotangent, forward mode against differences and against the gradient. The next
    order does the same with the gradient as a function of sources and cotangent, which
    includes forward over reverse. Differences are of fourth order, in float64.

    Returns how much was compared. Raises AssertionError that names op, sample, source
    and element and gives both numbers, or says that the sample is at a kink or where
    differences do not settle; TypeError for any float type but f64 and for what is no
    op, function or array; ValueError if there is nothing to check; RuntimeError without
    a gradient engine.
    """
    if not has_engine():
        raise RuntimeError("check_vjp needs a gradient engine: install uopc-autodiff")
    if isinstance(what, OpDef):
        points = _of_op(what, samples, seed)
    elif callable(what):
        points = _of_function(what, samples, seed, argnums, uops)
    else:
        raise TypeError(f"check_vjp takes an op or a function, not {what!r}")
    counts = Counts()
    built: list[Built] = []
    for point in points:
        counts.samples += 1
        rng = np.random.default_rng([seed, counts.samples])
        for k in range(1, order + 1):
            level = Level(point, k, modes, counts, rng)
            level.check(directions)
            built += level.built
            point = level.next()
    for name in backends:
        if name != "interp":
            _check_backend(built, name, counts)
    return counts


# -- samples ------------------------------------------------------------------------


def smooth_samples(op: OpDef) -> list[UOp]:
    """The samples of a row whose derivative differences can show: all f64.

    Markers that stop gradients by definition have none.
    """
    nodes = op_samples(op, f64)
    x = UOp.param(0, f64, ())
    if op is Ops.CAST:
        nodes.append(UOp(op, (x,), f64))  # others lose the digits
    elif op.kind == "elementwise" and op.samples is None and op.arity and nodes:
        nodes.append(UOp(op, (x,) * op.arity))  # one node as all sources
    return [u for u in nodes if u.src and not _unfit(u) and not _stops(u)]


def _stops(u: UOp) -> bool:
    return u.op is Ops.STAGE and u.arg == "detach"


def _unfit(u: UOp) -> DType | None:
    """The float type because of which differences of a graph show nothing."""
    if u.dtype is not f64:
        return u.dtype
    floats = (n.dtype for n in toposort([u]) if n.dtype.is_float)
    return next((d for d in floats if d is not f64), None)


def _require_f64(name: str, what: str, dtype: DType | None) -> None:
    if dtype is None or dtype is f64:
        return
    if not dtype.is_float:
        raise TypeError(f"{name}: {what} is {dtype}, which has no derivative; use f64")
    raise TypeError(
        f"{name}: {what} is {dtype}, and derivatives are checked in f64 only: "
        "differences lose half of the digits, so that of the 7 of an f32 too few are "
        "left to tell a wrong rule from rounding"
    )


def _of_op(op: OpDef, samples: Iterable[Any] | None, seed: int) -> list[Sample]:
    if samples is None and not op.differentiable:
        raise ValueError(f"{op.name}: differentiable=False, there is nothing to check")
    nodes = smooth_samples(op) if samples is None else list(samples)
    if not nodes:
        raise ValueError(f"{op.name}: no sample in f64, there is nothing to check")
    return [_of_node(op, u, seed) for u in nodes]


def _of_node(op: OpDef, u: Any, seed: int) -> Sample:
    if not isinstance(u, UOp) or u.op is not op:
        raise TypeError(f"{op.name}: a sample is a node of this op, not {u!r}")
    _require_f64(op.name, "a sample", _unfit(u))
    data = sample_inputs(u, seed)
    inputs = tuple(p for p in data if p.dtype.is_float)
    if not inputs:
        raise ValueError(f"{op.name}: no f64 placeholder in a sample:\n{to_uir(u)}")
    places = {s: k for k, s in reversed(list(enumerate(u.src)))}
    names = tuple(
        f"source {places[p]}" if p in places else f"placeholder {p.arg.slot}"
        for p in inputs
    )
    return Sample(op.name, to_uir(u), (u,), inputs, names, data)


def _of_function(
    f: Callable[..., Any],
    samples: Iterable[Any] | None,
    seed: int,
    argnums: Sequence[int] | None,
    uops: bool,
) -> list[Sample]:
    name = getattr(f, "__name__", repr(f))
    calls = [] if samples is None else list(samples)
    if not calls:
        raise ValueError(f"{name}: give samples, each a tuple of arrays or shapes")
    rng = np.random.default_rng(seed)
    return [_of_call(f, name, call, rng, argnums, uops) for call in calls]


def _of_call(
    f: Callable[..., Any],
    name: str,
    call: Any,
    rng: np.random.Generator,
    argnums: Sequence[int] | None,
    uops: bool,
) -> Sample:
    if not isinstance(call, (tuple, list)):
        raise TypeError(f"{name}: a sample is a tuple of arguments, not {call!r}")
    data: dict[UOp, Array] = {}
    for k, argument in enumerate(call):
        value = _value(name, k, argument, rng)
        dtype = from_numpy(value.dtype)
        if dtype.is_float:
            _require_f64(name, f"argument {k}", dtype)
        data[like(UOp.param(0, dtype, value.shape))] = value
    result = _result(f, name, list(data), uops)
    _require_f64(name, "the result", _unfit(result))
    chosen = range(len(data)) if argnums is None else argnums
    floats = [(k, p) for k, p in enumerate(data) if p.dtype is f64 and k in chosen]
    if not floats:
        raise ValueError(f"{name}: no argument is f64, there is nothing to check")
    names = tuple(f"argument {k}" for k, _ in floats)
    inputs = tuple(p for _, p in floats)
    plain = {p: UOp.param(k, p.dtype, p.shape) for k, p in enumerate(data)}
    text = to_uir(substitute([result], plain)[0])
    return Sample(name, text, (result,), inputs, names, data)


def _result(f: Callable[..., Any], name: str, leaves: list[UOp], uops: bool) -> UOp:
    result = f(*leaves) if uops else f(*map(Tensor, leaves))
    kind = UOp if uops else Tensor
    if not isinstance(result, kind):
        raise TypeError(
            f"{name}: gave a {type(result).__name__}, expected one {kind.__name__}"
        )
    return result.uop if isinstance(result, Tensor) else result


def _value(name: str, k: int, argument: Any, rng: np.random.Generator) -> Array:
    """The array that an argument is, or one of the shape that it is."""
    sequence = isinstance(argument, (tuple, list))
    if isinstance(argument, tuple) and all(type(n) is int for n in argument):
        return np.array(rng.standard_normal(argument))
    nested = sequence and any(isinstance(a, (np.ndarray, Tensor)) for a in argument)
    try:
        value = np.array(argument)
        if not nested and value.dtype.kind not in "OUSmMc":
            return value
    except ValueError:  # rows of several lengths
        pass
    raise TypeError(
        f"{name}: argument {k} is a {type(argument).__name__}, and arguments are "
        "arrays or shapes, not nested; wrap the function in one that takes its arrays "
        "one by one"
    )


# -- backends -----------------------------------------------------------------------


def _check_backend(built: Sequence[Built], name: str, counts: Counts) -> None:
    """All derivatives in one plan, against the values that differences agreed to."""
    nodes = []
    for b in built:
        live = {
            p: new_buffer(p.dtype.store(x.reshape(-1).copy()), p.dtype).reshape(p.shape)
            for p, x in b.data.items()
        }
        nodes += substitute(list(b.nodes), live)
    memory = iter(realize(nodes, None, backend_named(name)))
    for b in built:
        for k, (u, want) in enumerate(zip(b.nodes, b.values, strict=True)):
            got = u.dtype.load(next(memory)).reshape(u.shape)
            counts.comparisons += 1
            bad = apart(got, want, BACKEND_DIGITS)
            if bad.any():
                at = first(bad)
                raise b.sample.fail(
                    f"{b.what}, number {k}, is {got[at]:.9g} at {list(at)} on "
                    f"backend {name!r}, expected {want[at]:.9g}"
                )

"""Evaluate what JAX traced, with NumPy.

Compiling a random graph takes XLA two seconds, for every graph anew; tracing it takes
JAX a tenth of one. All of the differentiation is in the trace, a list of primitive ops.
The frequent ones are computed here by NumPy, the others by JAX, one by one. A test
compares both ways.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

Array = np.ndarray[Any, Any]


def evaluate(closed: Any, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a traced function (a ClosedJaxpr) for flat inputs."""
    with np.errstate(all="ignore"):
        return _evaluate(closed.jaxpr, closed.consts, inputs)


def _evaluate(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Array]:
    values: dict[Any, Array] = {}

    def read(atom: Any) -> Array:
        return np.asarray(atom.val) if hasattr(atom, "val") else values[atom]

    values.update(zip(jaxpr.constvars, map(np.asarray, consts), strict=True))
    values.update(zip(jaxpr.invars, map(np.asarray, inputs), strict=True))
    for e in jaxpr.eqns:
        sources = [read(v) for v in e.invars]
        inner = e.params.get("jaxpr") or e.params.get("call_jaxpr")
        if e.primitive.name in NESTED:
            closed = inner if hasattr(inner, "consts") else None
            body = closed.jaxpr if closed else inner
            out = _evaluate(body, closed.consts if closed else (), sources)
        elif e.primitive.name in PRIMITIVES:
            out = [PRIMITIVES[e.primitive.name](*sources, **e.params)]
        else:
            RARE[e.primitive.name] += 1
            found = e.primitive.bind(*map(jax.numpy.asarray, sources), **e.params)
            many = e.primitive.multiple_results
            out = [np.asarray(x) for x in (found if many else [found])]
        for v, x in zip(e.outvars, out, strict=True):
            x = np.asarray(x)
            if x.dtype != v.aval.dtype or x.shape != v.aval.shape:
                raise TypeError(f"{e.primitive}: {x.dtype}{x.shape} is not {v.aval}")
            values[v] = x
    return [read(v) for v in jaxpr.outvars]


def _broadcast(
    x: Array, *_: Any, shape: Any, broadcast_dimensions: Any, **__: Any
) -> Array:
    ones = [1] * len(shape)
    for axis, n in zip(broadcast_dimensions, x.shape, strict=True):
        ones[axis] = n
    return np.broadcast_to(x.reshape(ones), shape)


def _reshape(x: Array, *, new_sizes: Any, dimensions: Any, **_: Any) -> Array:
    return (x if dimensions is None else x.transpose(dimensions)).reshape(new_sizes)


def _slice(x: Array, *, start_indices: Any, limit_indices: Any, strides: Any) -> Array:
    steps = strides or (1,) * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


def _pad(x: Array, value: Array, *, padding_config: Any) -> Array:
    if any(low < 0 or high < 0 or inner for low, high, inner in padding_config):
        return np.asarray(jax.lax.pad(x, value, padding_config))
    if not padding_config:
        return x
    widths = [(low, high) for low, high, _ in padding_config]
    return np.pad(x, widths, constant_values=value)


def _dot(a: Array, b: Array, *, dimension_numbers: Any, **_: Any) -> Array:
    contracted, batch = dimension_numbers
    assert batch == ((), ())
    return np.tensordot(a, b, contracted)


def _select(which: Array, *cases: Array) -> Array:
    return np.where(which, cases[1], cases[0])


def _reduction(f: Any, **start: Any) -> Callable[..., Array]:
    return lambda x, *, axes, **_: f.reduce(x, axis=tuple(axes), **start)


def _plain(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs, **_: f(*xs)


# What JAX computed.
RARE: Counter[str] = Counter()
NESTED = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")
PRIMITIVES: dict[str, Callable[..., Any]] = {
    "add": _plain(np.add),
    "add_any": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "div": lambda a, b, **_: a / b if a.dtype.kind == "f" else jax.lax.div(a, b),
    "neg": _plain(np.negative),
    "max": _plain(np.maximum),
    "min": _plain(np.minimum),
    "exp": _plain(np.exp),
    "exp2": _plain(np.exp2),
    "log": _plain(np.log),
    "log1p": _plain(np.log1p),
    "sqrt": _plain(np.sqrt),
    "sin": _plain(np.sin),
    "cos": _plain(np.cos),
    "tanh": _plain(np.tanh),
    "square": _plain(np.square),
    "integer_pow": lambda x, *, y, **_: np.power(x, x.dtype.type(y)),
    "sign": _plain(np.sign),
    "floor": _plain(np.floor),
    "rem": _plain(np.fmod),
    "eq": _plain(np.equal),
    "ne": _plain(np.not_equal),
    "lt": _plain(np.less),
    "gt": _plain(np.greater),
    "le": _plain(np.less_equal),
    "ge": _plain(np.greater_equal),
    "and": _plain(np.bitwise_and),
    "or": _plain(np.bitwise_or),
    "not": _plain(np.invert),
    "select_n": _plain(_select),
    "convert_element_type": lambda x, *, new_dtype, **_: x.astype(new_dtype),
    "stop_gradient": _plain(lambda x: x),
    "copy": _plain(lambda x: x),
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "squeeze": lambda x, *, dimensions: x.squeeze(tuple(dimensions)),
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, tuple(dimensions)),
    "transpose": lambda x, *, permutation: x.transpose(permutation),
    "rev": lambda x, *, dimensions: np.flip(x, dimensions),
    "slice": _slice,
    "pad": _pad,
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "dot_general": _dot,
    "reduce_sum": _reduction(np.add),
    "reduce_max": _reduction(np.maximum, initial=-np.inf),
    "reduce_prod": _reduction(np.multiply),
    "reduce_and": _reduction(np.logical_and),
    "reduce_or": _reduction(np.logical_or),
}

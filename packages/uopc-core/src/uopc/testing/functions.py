"""Tensor's functions of elements, each with its definition in f64.

``FUNCTIONS`` is what is measured, with ``ROW_FUNCTIONS`` of ``uopc.testing.rows``, and
``EXACT`` what needs no measuring. Together they name all that ``uopc.tensor`` computes
with numbers: ``unlisted()`` finds what is missing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from uopc.tensor import Tensor
from uopc.testing.accuracy import Array, Function
from uopc.testing.rows import ROW_FUNCTIONS


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def _gated(x: Array, gate: Array) -> Array:
    """x * sigmoid(gate), with the limit at -inf."""
    return np.where(x == -np.inf, -0.0, x * _sigmoid(gate))


def _gelu(x: Array) -> Array:
    return _gated(x, 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def _softplus(x: Array) -> Array:
    return np.where(x < 0, 0.0, x) + np.log1p(np.exp(-np.abs(x)))


def _logsigmoid(x: Array) -> Array:
    return np.where(x < 0, x, 0.0) - np.log1p(np.exp(-np.abs(x)))


def _method(name: str, exact: Callable[..., Array], *others: str) -> Function:
    return Function(name, (name, *others), getattr(Tensor, name), exact)


def _operator(sign: str, name: str, call: Any, exact: Callable[..., Array]) -> Function:
    names = [f"__{prefix}{name}__" for prefix in ("", "r", "i")]
    methods = tuple(n for n in names if hasattr(Tensor, n))
    return Function(f"x {sign} y", methods, call, exact, arity=2)


def _power(exponent: float) -> Function:
    rounded = float(np.float32(exponent))  # what a constant of an f32 graph is

    def exact(x: Array) -> Array:
        # As NumPy's operator: 0.5 is the square root.
        return np.sqrt(x) if exponent == 0.5 else np.power(x, rounded)

    return Function(f"x ** {exponent:.6g}", ("__pow__",), lambda x: x**exponent, exact)


def _base(base: float) -> Function:
    rounded = float(np.float32(base))
    exact = lambda x: np.power(rounded, x)  # noqa: E731
    return Function(f"{base:.6g} ** x", ("__rpow__",), lambda x: base**x, exact)


FUNCTIONS: tuple[Function, ...] = (
    _operator("+", "add", operator.add, np.add),
    _operator("-", "sub", operator.sub, np.subtract),
    _operator("*", "mul", operator.mul, np.multiply),
    _operator("/", "truediv", operator.truediv, np.divide),
    _operator("//", "floordiv", operator.floordiv, np.floor_divide),
    _operator("%", "mod", operator.mod, np.mod),
    _operator("**", "pow", operator.pow, np.power),
    *map(_power, (0, 1, 2, 3, 4, 5, 10, -1, -2, -3, 0.5, -0.5, 1.5, 1 / 3, 2.4)),
    *map(_base, (2, 10, 0.1)),
    Function("-x", ("__neg__",), operator.neg, np.negative),
    _method("abs", np.abs, "__abs__"),
    Function("maximum", ("maximum",), Tensor.maximum, np.maximum, 2, signed=False),
    Function("minimum", ("minimum",), Tensor.minimum, np.minimum, 2, signed=False),
    _method("square", np.square),
    _method("reciprocal", lambda x: 1.0 / x),
    _method("sqrt", np.sqrt),
    _method("exp", np.exp),
    _method("exp2", np.exp2),
    _method("log", np.log),
    _method("log2", np.log2),
    _method("log1p", np.log1p),
    _method("sin", np.sin),
    _method("cos", np.cos),
    _method("tanh", np.tanh),
    _method("sigmoid", _sigmoid),
    _method("logsigmoid", _logsigmoid),
    _method("softplus", _softplus),
    _method("relu", lambda x: np.where(x > 0, x, 0.0)),
    _method("silu", lambda x: _gated(x, x)),
    _method("gelu", _gelu),
)

EXACT: dict[str, tuple[str, ...]] = {
    "Comparisons give true or false": (
        "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "eq", "ne",
        "isnan", "isinf", "isfinite", "any", "all"),
    "Whole numbers and signs": (
        "floor", "ceil", "trunc", "round", "sign", "__floor__", "__ceil__",
        "__trunc__"),
    "Bits of integers and bools": (
        "__and__", "__rand__", "__or__", "__ror__", "__xor__", "__rxor__",
        "__invert__", "__lshift__", "__rshift__"),
    "Copies": ("where", "masked_fill", "clamp", "clip", "detach"),
    "Conversions, which round once": ("cast", "astype", "to"),
    "Elements, chosen by comparisons or moved": (
        "max", "min", "sort", "topk", "diagonal"),
    "Positions are integers": ("argmax", "argmin", "argsort"),
    "0 or 1": ("one_hot",),
}  # fmt: skip
"""Functions whose result leaves nothing to measure, and why."""

OTHERS: dict[str, tuple[str, ...]] = {
    "Movement and indexing, which copy elements": (
        "Movement",
        "Gather",
        "SetItem",
        "Pieces",
    ),
    "Constructors, values and gradients": ("Base", "Tensor"),
    "Sums of products, with the errors of `x @ y`": ("Convolution",),
}
"""What computes nothing with numbers, or nothing new, by the class that defines it."""


def names_of(kind: type) -> list[str]:
    """The public methods and the operators that a class itself defines."""
    return sorted(
        name
        for name, value in vars(kind).items()
        if not name.startswith("_")
        or (name.startswith("__") and callable(value) and not hasattr(object, name))
        or name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")
    )


def parts() -> dict[str, type]:
    """The classes that Tensor is made of, by name."""
    return {kind.__name__: kind for kind in Tensor.__mro__ if kind is not object}


def measured() -> set[str]:
    """The names of Tensor that stand in a function which is measured."""
    of_elements = {name for f in FUNCTIONS for name in f.methods}
    return of_elements | {name for f in ROW_FUNCTIONS for name in f.methods}


def unlisted() -> list[str]:
    """Names of Tensor that are neither measured nor on one of the lists above."""
    listed = measured()
    listed |= {name for names in EXACT.values() for name in names}
    elsewhere = {name for names in OTHERS.values() for name in names}
    return [
        f"{kind.__name__}.{name}"
        for kind in parts().values()
        if kind.__name__ not in elsewhere
        for name in names_of(kind)
        if name not in listed
    ]

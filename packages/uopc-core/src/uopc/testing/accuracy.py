"""How far Tensor's functions of elements are from their definitions, in f32.

The reference is the definition in f64, far more digits than f32 tells apart. An error
is in units in the last place (ulp) of the true value: 0.5 is correct rounding, and
subnormal results count as any others. A NaN or a zero of the wrong sign where the
definition has none is infinitely wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from uopc.config import overriding
from uopc.plugins import registry
from uopc.runtime import backend_named
from uopc.tensor import Tensor

Array = np.ndarray[Any, Any]

ALLOWED = 4.0
"""The largest error, in ulp, that a function of elements may have."""

BLOCK = 1 << 18  # elements that are computed at a time
LARGEST = 2.0**128  # what an infinity is taken for: the next number, had f32 one
SPECIAL = np.array(
    [0.0, 2.0**-149, 3e-40, 2.0**-126 * (1 - 2.0**-23), 2.0**-126, 1e-30, 1e-3, 0.5,
     1 - 2.0**-24, 1.0, 1 + 2.0**-23, 1.5, 2.0, 2.5, 3.0, 7.0, 10.0, 87.5, 103.0,
     2.0**24 - 1, 2.0**24 + 2, 1e30, 2.0**128 * (1 - 2.0**-24), np.inf, np.nan],
    np.float32,
)  # fmt: skip


@dataclass(frozen=True)
class Function:
    """One function of elements, and what is measured of it.

    Attributes:
        name: how it is written, with ``x`` and ``y`` for tensors.
        methods: the names of Tensor that it stands for.
        call: the function itself.
        exact: its definition on f64 arrays.
        arity: how many tensors it takes.
        signed: whether the sign of a zero is part of the definition.
    """

    name: str
    methods: tuple[str, ...]
    call: Callable[..., Tensor]
    exact: Callable[..., Array]
    arity: int = 1
    signed: bool = True


@dataclass(frozen=True)
class Measurement:
    """The largest error of a function on a backend, and where it is made."""

    error: float
    worst: tuple[float, ...]
    inputs: int


def measure(
    functions: Sequence[Function], backend: str, inputs: Sequence[Array]
) -> list[Measurement]:
    """Compute functions of as many tensors as there are f32 arrays, and compare.

    All of them together, a block of elements at a time: so there is one plan.
    """
    size = min(len(inputs[0]), BLOCK)
    found = [Measurement(-1.0, (), 0)] * len(functions)
    for start in range(0, len(inputs[0]), size):
        block = [np.resize(x[start : start + size], size) for x in inputs]
        with overriding(UOPC_BACKEND=backend):
            tensors = [f.call(*map(Tensor, block)) for f in functions]
            Tensor.realize_all(tensors)
            values = [t.numpy() for t in tensors]
        count = min(size, len(inputs[0]) - start)
        for i, (f, value) in enumerate(zip(functions, values, strict=True)):
            found[i] = _worse(found[i], _compared(f, value, block), count)
    return found


def _compared(function: Function, got: Array, inputs: Sequence[Array]) -> Measurement:
    with np.errstate(all="ignore"):
        exact = function.exact(*(x.astype(np.float64) for x in inputs))
    errors = ulps(got, exact, function.signed)
    at = int(np.argmax(errors))
    return Measurement(float(errors[at]), tuple(x[at] for x in inputs), 0)


def _worse(before: Measurement, new: Measurement, count: int) -> Measurement:
    worst = new if new.error > before.error else before
    return replace(worst, inputs=before.inputs + count)


def ulps(
    got: Array, exact: Array, signed: bool = True, size: Array | None = None
) -> Array:
    """The error of every f32 element in ulp of the true value, which is f64.

    With ``size``, f64 of the same shape, in ulp of that number.
    """
    if got.dtype != np.float32 or exact.dtype != np.float64:
        raise TypeError(f"ulps: got {got.dtype} and {exact.dtype}, not f32 and f64")
    with np.errstate(invalid="ignore"):  # a NaN may be of the signalling kind
        value = got.astype(np.float64)
    wrong = np.isnan(value) != np.isnan(exact)
    if signed:
        wrong |= (value == 0) & (exact == 0) & (np.signbit(value) != np.signbit(exact))
    value, true, unit = (
        np.clip(np.nan_to_num(x, nan=0.0, posinf=LARGEST, neginf=-LARGEST),
                -LARGEST, LARGEST)
        for x in (value, exact, exact if size is None else size)
    )  # fmt: skip
    # f32 has 24 digits, fewer below 2**-126.
    digit = np.maximum(np.frexp(unit)[1] - 24, -149)
    digit[unit == 0] = -149
    return np.where(wrong, np.inf, np.abs(value - true) / np.ldexp(1.0, digit))


def backends() -> list[str]:
    """The names of the backends that can run here, in order."""
    names = sorted(registry().backends)
    return [name for name in names if backend_named(name).unavailable() is None]


# -- where functions are measured ---------------------------------------------


def points(arity: int, count: int) -> tuple[Array, ...]:
    """About ``count`` f32 inputs of a function of one or two tensors, repeatable."""
    return (_line(count),) if arity == 1 else _plane(count)


def _line(count: int) -> Array:
    """Half of them bit patterns at even distances: every exponent, and subnormals.

    The others are evenly spaced where functions bend, next to 1, and next to the
    multiples of pi / 2 up to 2**20.
    """
    step = 2**32 // (count // 2) | 1
    patterns = np.arange(0, 2**32, step).astype(np.uint32).view(np.float32)
    ranges = ((-110, 90), (-10, 10), (-1, 1))
    even = [np.linspace(*ends, count // 10) for ends in ranges]
    rng = np.random.default_rng(0)
    turns = np.unique(np.concatenate([
        np.arange(count // 400), rng.integers(0, 2**20, count // 400)
    ])) * (np.pi / 2)  # fmt: skip
    parts = [
        np.concatenate([SPECIAL, -SPECIAL]), patterns, *even,
        _around(np.ones(1), count // 40),
        _around(turns, 8), -_around(turns, 8),
    ]  # fmt: skip
    return np.concatenate([part.astype(np.float32) for part in parts])


def _around(values: Array, reach: int) -> Array:
    """The f32 neighbours of values that are not negative, ``reach`` on either side."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
    near = np.maximum(bits[:, None] + np.arange(-reach, reach + 1), 0)
    return np.asarray(near.astype(np.uint32).view(np.float32).reshape(-1))


def _plane(count: int) -> tuple[Array, Array]:
    """Special values with one another, and pairs drawn from five distributions.

    All bit patterns; numbers of moderate size; multiples of 1/4 up to 40; whole
    exponents; and exponents with which the power of x is neither 0 nor infinite,
    half of these for bases next to 1.
    """
    rng, n = np.random.default_rng(0), count // 5
    values = np.concatenate([SPECIAL, -SPECIAL])
    sign = rng.choice([-1.0, 1.0], (4, n))
    size = np.exp(rng.uniform(-9, 9, (2, n)))
    quarters = rng.integers(-160, 161, (2, n)) / 4
    base = np.exp(rng.uniform(-88, 88, n))
    base[: n // 2] = 1 + rng.integers(-2000, 2001, n // 2) * 2.0**-24
    base = base.astype(np.float32).astype(np.float64)
    base[base == 1] = 2
    pairs = [
        tuple(m.reshape(-1) for m in np.meshgrid(values, values)),
        tuple(rng.integers(0, 2**32, (2, n), np.uint32).view(np.float32)),
        tuple(sign[:2] * size),
        tuple(quarters),
        (sign[2] * size[0], rng.integers(-20, 21, n)),
        (base, rng.uniform(-104, 89, n) / np.log(base)),
    ]
    with np.errstate(over="ignore"):
        x, y = (
            np.concatenate([np.asarray(p[k], np.float32) for p in pairs])
            for k in (0, 1)
        )
    return x, y

"""Measuring the functions: the largest error, and where."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from uopc.backend_c import cache, cpu
from uopc.backend_c.load import load
from uopc.backend_c.target import current_target
from uopc.backend_c.vector_math.measuring import ENTRY, SPECIALS, program
from uopc.backend_c.vector_math.table import Function

ALLOWED = {"f32": 1.0, "f64": 2.0}
"""The largest error in units in the last place."""
ALL = {"f32": 1 << 32, "f64": 100_000_000}
"""How many inputs are tried: every f32, and many of f64."""

_CHUNK = 1 << 22
_OPT = 1


@dataclass(frozen=True)
class Measurement:
    """What was found for one function.

    Attributes:
        name: the function.
        element: "f32" or "f64".
        error: the largest error in ulp, infinite for a NaN or a sign of zero that
            should not be there.
        worst: an input that shows it.
        inputs: how many were tried.
        seconds: the time that took.
    """

    name: str
    element: str
    error: float
    worst: str
    inputs: int
    seconds: float

    @property
    def good(self) -> bool:
        """Whether the error is allowed."""
        return self.error <= ALLOWED[self.element]


class _Job(ctypes.Structure):
    _fields_ = (
        ("first", ctypes.c_ulonglong),
        ("count", ctypes.c_ulonglong),
        ("step", ctypes.c_ulonglong),
        ("error", ctypes.c_double),
        ("worst", ctypes.c_double),
    )


def can_measure(element: str) -> bool:
    """Whether there is a reference with more digits: long double may have none."""
    return element == "f32" or np.finfo(np.longdouble).nmant > 60


def measure(function: Function, element: str, inputs: int | None = None) -> Measurement:
    """Try special inputs and ``inputs`` others, by default `ALL`, on all processors.

    Raises CompileError or CompilerNotFoundError.
    """
    lanes = current_target().vector_bytes // (int(element[1:]) // 8)
    source = program(function, element, lanes)
    begun = time.perf_counter()
    jobs = list(_jobs(element, ALL[element] if inputs is None else inputs))
    with load(cache.build(source, _OPT, is_program=False)) as library:
        run = library.function(ENTRY)
        with ThreadPoolExecutor(cpu.cores()) as pool:
            list(pool.map(lambda job: run(ctypes.addressof(job)), jobs))
    worst = max(jobs, key=lambda job: job.error)
    return Measurement(
        function.name,
        element,
        worst.error,
        str(np.float32(worst.worst) if element == "f32" else np.float64(worst.worst)),
        sum(job.count for job in jobs),
        time.perf_counter() - begun,
    )


def _jobs(element: str, inputs: int) -> Iterator[_Job]:
    """The special inputs, then the others in parts of equal size."""
    yield _Job(0, SPECIALS, 0)
    step = 1
    if element == "f32":
        # Every so many bit patterns; an odd number meets all last digits.
        step = max(1, ALL["f32"] // inputs) | 1
        inputs = ALL["f32"] // step
    for first in range(0, inputs, _CHUNK):
        yield _Job(first * step, min(_CHUNK, inputs - first), step)

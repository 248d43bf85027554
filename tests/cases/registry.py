"""The table of hand-written cases, and what their functions have in common."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from uopc.tensor import Tensor

Case = Callable[[Path], None]
HAND_WRITTEN: dict[str, Case] = {}


def case(function: Case) -> Case:
    HAND_WRITTEN[function.__name__.replace("_", "-")] = function
    return function


def equal(actual: Any, expected: Any) -> None:
    """The same numbers, NaN and the signs of zeros included."""
    actual = actual.numpy() if isinstance(actual, Tensor) else np.asarray(actual)
    np.testing.assert_array_equal(actual, expected)
    if actual.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


def python(program: str, **variables: str | None) -> str:
    """What a program prints, run by itself; None takes a variable away."""
    changed = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    env = {k: v for k, v in changed.items() if v is not None}
    code = textwrap.dedent(program)
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr

"""What the tests of gradients share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from uopc import config
from uopc.interp import evaluate
from uopc.testing import check_vjp
from uopc.uop import Ops, UOp, substitute

# The helpers beside these tests are imported by their plain names.
sys.path.insert(0, str(Path(__file__).parent))

Build = Callable[..., UOp]
Data = Mapping[UOp, np.ndarray]

# Fourth-order central differences: with this step both the truncation and the
# cancellation are below 1e-11 for functions and derivatives of size 1.
STEP = 1e-3


def total(u: UOp) -> UOp:
    """The sum of all elements."""
    return u.reduce(Ops.ADD, len(u.shape)) if u.shape else u


def value(root: UOp, data: Data) -> np.ndarray:
    return evaluate([root], data)[0]


def slope(f: Callable[[float], float]) -> float:
    """f'(0)."""
    near, far = f(STEP) - f(-STEP), f(2 * STEP) - f(-2 * STEP)
    return (8 * near - far) / (12 * STEP)


def along(root: UOp, data: Data, direction: Data) -> float:
    """The derivative of a scalar node along ``direction``, by differences."""

    def moved(t: float) -> float:
        shifted = {p: data[p] + t * v for p, v in direction.items()}
        return float(value(root, {**data, **shifted}))

    return slope(moved)


def dot(grads: Sequence[UOp], weights: Sequence[UOp]) -> UOp:
    parts = [total(g * w) for g, w in zip(grads, weights, strict=True)]
    return sum(parts[1:], parts[0])


def check(
    build: Build,
    arrays: Sequence[np.ndarray],
    wrt: Sequence[int] | None = None,
    fixed: Data | None = None,
    seed: int = 0,
) -> None:
    """``check_vjp`` of ``build(*leaves)`` at a point, to second order.

    ``wrt`` are the numbers of the leaves to differentiate by, all of them if None;
    ``fixed`` has the values of other placeholders.
    """
    extra = dict(fixed or {})
    n = len(arrays)

    def function(*leaves: UOp) -> UOp:
        placed = dict(zip(extra, leaves[n:], strict=True))
        return substitute([build(*leaves[:n])], placed)[0]

    argnums = range(n) if wrt is None else wrt
    sample = (*arrays, *extra.values())
    check_vjp(function, [sample], seed=seed, argnums=argnums, uops=True)


@pytest.fixture
def checker() -> SimpleNamespace:
    """The functions above."""
    return SimpleNamespace(check=check, total=total, value=value, along=along, dot=dot)


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests run on the reference backend with default settings."""
    for variable in config.VARIABLES:
        if variable.name != "UOPC_PLANS":  # else counts of plans stop at it
            monkeypatch.delenv(variable.name, raising=False)
    with config.overriding(UOPC_BACKEND="interp"):
        yield

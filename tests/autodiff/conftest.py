"""A gradient checker in float64, to second order, and what tests share with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from uopc import config
from uopc.autodiff import gradient
from uopc.dtype import f64
from uopc.interp import evaluate
from uopc.uop import Ops, UOp

Build = Callable[..., UOp]
Data = Mapping[UOp, np.ndarray]

# Fourth-order central differences: with this step both the truncation and the
# cancellation are below 1e-11 for functions and derivatives of size 1.
STEP = 1e-3
TOLERANCE = 1e-8


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


def agree(found: np.ndarray, wanted: float, what: str) -> None:
    if not abs(float(found) - wanted) <= TOLERANCE * (1 + abs(wanted)):
        raise AssertionError(f"{what}: {found}, by differences {wanted}")


def check(
    build: Build,
    arrays: Sequence[np.ndarray],
    wrt: Sequence[int] | None = None,
    fixed: Data | None = None,
    seed: int = 0,
) -> None:
    """Compare gradients of ``build(*leaves)`` with differences, to second order.

    The function is made scalar by ``sum((y + y * y) * weights)``, whose gradient
    depends on y: without that a rule's use of the cotangent is not seen. ``wrt``
    are the numbers of the leaves to differentiate by, all of them if None.
    """
    rng = np.random.default_rng(seed)
    leaves = [UOp.param(i, f64, a.shape) for i, a in enumerate(arrays)]
    y = build(*leaves)
    data = {**dict(zip(leaves, arrays, strict=True)), **(fixed or {})}
    weights = UOp.param(1000, f64, y.shape)
    data[weights] = rng.uniform(0.5, 1.5, y.shape)
    loss = total((y + y * y) * weights)
    targets = [leaves[i] for i in (range(len(leaves)) if wrt is None else wrt)]
    grads = gradient(loss, targets)
    for g, t in zip(grads, targets, strict=True):
        assert (g.shape, g.dtype) == (t.shape, t.dtype)
    v, u = (
        [UOp.param(base + i, f64, t.shape) for i, t in enumerate(targets)]
        for base in (2000, 3000)
    )
    first = dot(grads, v)
    second = dot(gradient(first, targets), u)
    for _ in range(3):
        for probe in (*v, *u):
            data[probe] = rng.standard_normal(probe.shape)
        to_v = {t: data[p] for t, p in zip(targets, v, strict=True)}
        to_u = {t: data[p] for t, p in zip(targets, u, strict=True)}
        agree(value(first, data), along(loss, data, to_v), "first order")
        agree(value(second, data), along(first, data, to_u), "second order")


@pytest.fixture
def checker() -> SimpleNamespace:
    """The functions above."""
    return SimpleNamespace(check=check, total=total, value=value, along=along, dot=dot)


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests run on the reference backend with default settings."""
    for variable in config.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    with config.overriding(UOPC_BACKEND="interp"):
        yield

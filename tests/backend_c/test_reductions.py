"""Sums, maxima and positions of maxima over large arrays, as they run natively."""

from __future__ import annotations

import numpy as np
import pytest

from uopc.backend_c import set_threads
from uopc.config import overriding
from uopc.tensor import Tensor

# All axes of a shape, inner, outer and middle ones; lengths that nothing divides.
AXES = [
    ((1 << 24,), 0),
    ((4099, 1021), 0),
    ((4099, 1021), 1),
    ((61, 1031, 67), 1),
    ((61, 1031, 67), (0, 2)),
    ((1 << 20, 3), 0),
    ((3, 1 << 20), 1),
    ((200, 300, 7), (0, 1, 2)),
]


@pytest.mark.parametrize(("shape", "axes"), AXES)
def test_a_sum_of_many_equal_numbers_is_right(shape, axes) -> None:
    for value in (1.0, 0.1):
        x = np.full(shape, value, np.float32)
        exact = x.sum(axis=axes, dtype=np.float64)
        with overriding(UOPC_OPT=1):  # without schedules it is added up in sequence
            found = Tensor(x).sum(axes).numpy()
        np.testing.assert_allclose(found, exact, rtol=1e-6)


def both(compute) -> tuple[np.ndarray, np.ndarray]:
    """A result on one thread, and on two."""
    results = []
    try:
        for n in (1, 2):
            set_threads(n)
            results.append(compute().numpy())
    finally:
        set_threads(None)
    return results[0], results[1]


@pytest.mark.parametrize(("shape", "axes"), AXES)
def test_threads_do_not_change_a_bit(shape, axes) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    one, two = both(lambda: Tensor(x).sum(axes) + Tensor(x).exp().max(axes))
    assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize(("shape", "axes"), AXES[1:])
def test_maxima_and_where_they_are_as_numpy_has_them(shape, axes) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape).astype(np.float32)
    x.flat[rng.integers(0, x.size, 5)] = np.nan
    x.flat[rng.integers(0, x.size, 5)] = np.inf
    np.testing.assert_array_equal(Tensor(x).max(axes).numpy(), x.max(axis=axes))
    if isinstance(axes, int):
        found = Tensor(x).argmax(axes).numpy()
        np.testing.assert_array_equal(found, x.argmax(axis=axes))

"""The table of docs/conventions.md: derivatives where libraries differ, computed here.

PyTorch's column is not computed: it is not installed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from uopc.autodiff import gradient
from uopc.dtype import f64
from uopc.interp import evaluate
from uopc.tensor import Tensor
from uopc.uop import UOp

jax.config.update("jax_enable_x64", True)

PAGE = Path(__file__).parents[2] / "docs" / "conventions.md"
INF = float("inf")


# What is differentiated, in uopc and in JAX, and where.
ROWS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[float]]] = {
    "abs(x)": (lambda t: t.abs(), jnp.abs, [0]),
    "maximum(x, 0)": (lambda t: t.maximum(0), lambda x: jnp.maximum(x, 0), [0]),
    "relu(x)": (lambda t: t.relu(), jax.nn.relu, [0]),
    "max(x)": (lambda t: t.max(), jnp.max, [3, 3]),
    "where(x > 0, sqrt(x), 0)": (
        lambda t: (t > 0).where(t.sqrt(), 0),
        lambda x: jnp.where(x > 0, jnp.sqrt(x), 0),
        [0],
    ),
    "where(x > 0, log(x), 0)": (
        lambda t: (t > 0).where(t.log(), 0),
        lambda x: jnp.where(x > 0, jnp.log(x), 0),
        [0],
    ),
    "sqrt(x)[1:]": (lambda t: t.sqrt()[1:], lambda x: jnp.sqrt(x)[1:], [0, 4]),
    "norm(x)": (lambda t: t.norm(), jnp.linalg.norm, [0, 0]),
    "norm(x, 1)": (lambda t: t.norm(1), lambda x: jnp.linalg.norm(x, 1), [0, 2]),
    "std(x)": (lambda t: t.std(), jnp.std, [1, 1]),
    "logsumexp(x)": (
        lambda t: t.logsumexp(),
        jax.scipy.special.logsumexp,
        [-INF, -INF],
    ),
    "x ** y": (lambda t: t[0] ** t[1], lambda v: v[0] ** v[1], [0, 0]),
    "d(x ** y)/dx": (
        lambda t: Tensor(gradient((t[0] ** t[1]).uop, [t.uop])[0])[0],
        lambda v: jax.grad(lambda w: w[0] ** w[1])(v)[0],
        [2, 0],
    ),
    "x[[7]]": (
        lambda t: t.take(Tensor.arange(7, 8)),
        lambda x: x[jnp.array([7])],
        [1, 2, 3],
    ),
}


def text(values: np.ndarray) -> str:
    """Numbers as the table has them."""
    return ", ".join(f"{x + 0.0:g}" for x in values)


def computed(name: str) -> tuple[str, str, str]:
    """The point, and the gradient of the sum at it, by uopc and by JAX."""
    ours, theirs, at = ROWS[name]
    x = UOp.param(0, f64, (len(at),))
    point = np.array(at, float)
    root = ours(Tensor(x)).uop
    (found,) = evaluate(gradient(root, [x]), {x: point})
    in_jax = jax.grad(lambda v: theirs(v).sum())(point)
    return text(point), text(found), text(np.asarray(in_jax))


def table() -> dict[str, list[str]]:
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 5:
            rows[cells[0].strip("`")] = cells[1:]
    return rows


@pytest.mark.parametrize("name", ROWS)
def test_the_table_says_what_is_computed(name: str) -> None:
    assert table()[name][:3] == [*computed(name)]


def test_the_table_has_no_other_rows() -> None:
    assert [*table()] == [*ROWS]

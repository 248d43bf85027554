"""Functions of elements and powers beside JAX's: where both agree, and where not."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from uopc import composite
from uopc.autodiff import gradient
from uopc.dtype import f64
from uopc.interp import evaluate
from uopc.uop import UOp

jax.config.update("jax_enable_x64", True)

INF, NAN = math.inf, math.nan
IN_JAX = {
    "exp": jnp.exp, "log": jnp.log, "log1p": jnp.log1p, "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid, "softplus": jax.nn.softplus,
    "logsigmoid": jax.nn.log_sigmoid, "silu": jax.nn.silu, "gelu": jax.nn.gelu,
    "relu": jax.nn.relu, "absolute": jnp.abs,
}  # fmt: skip
POINTS = [-INF, -100.0, -3.5, -1.0, -0.3, 0.0, 0.2, 1.0, 4.0, 100.0, INF]
# Where JAX has no limits: the value, the first derivative, the second.
GATED = {-INF: (-0.0, 0, 0), INF: (INF, 1, 0)}


def ours(name: str, x: float) -> list[float]:
    p = UOp.param(0, f64)
    u = getattr(composite, name)(p)
    (first,) = gradient(u, [p])
    (second,) = gradient(first, [p])
    return [float(v) for v in evaluate([u, first, second], {p: np.float64(x)})]


@pytest.mark.parametrize("x", POINTS, ids=str)
@pytest.mark.parametrize("name", IN_JAX)
def test_a_function_and_two_derivatives(name: str, x: float) -> None:
    f = IN_JAX[name]
    theirs = [float(g(x)) for g in (f, jax.grad(f), jax.grad(jax.grad(f)))]
    if name in ("silu", "gelu") and x in GATED:
        assert any(map(math.isnan, theirs))
        assert ours(name, x) == list(GATED[x])
        return
    if name == "absolute" and x == 0:
        theirs[1] = 0.0  # the sign function, which JAX takes
    np.testing.assert_allclose(ours(name, x), theirs, rtol=1e-10, atol=1e-13)


# x and y where JAX has another derivative: ours by x and y, JAX's.
OTHERWISE = {
    (0.0, 0.0): ((0, 0), (NAN, 0)),
    (0.0, -1.0): ((-INF, -INF), (-INF, NAN)),
    (INF, -1.0): ((0, 0), (0, NAN)),
}


@pytest.mark.parametrize("y", [-1.0, 0.0, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("x", [-2.0, 0.0, 0.5, 3.0, INF])
def test_powers(x: float, y: float) -> None:
    p, q = UOp.param(0, f64), UOp.param(1, f64)
    u = composite.power(p, q)
    grads = gradient(u, [p, q])
    point = {p: np.float64(x), q: np.float64(y)}
    value, *mine = (float(v) for v in evaluate([u, *grads], point))
    theirs = [float(jax.grad(jnp.power, k)(x, y)) for k in (0, 1)]
    np.testing.assert_allclose(value, float(jnp.power(x, y)), rtol=1e-12)
    expected, in_jax = OTHERWISE.get((x, y), (theirs, theirs))
    np.testing.assert_allclose(mine, expected, rtol=1e-12)
    np.testing.assert_allclose(theirs, in_jax)

"""Zero means zero through rules that the engine knows nothing about.

Those of plugins and of custom_vjp, and those that replace the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import custom_vjp, gradient, tangents
from uopc.dtype import f64
from uopc.interp import evaluate
from uopc.plugins import PluginHost, hookimpl, use
from uopc.tensor import Tensor
from uopc.uop import OpDef, Ops, UOp

X = UOp.param(900, f64, (4,))
V = UOp.param(901, f64, (4,))
AT = np.array([0.0, 2.0, 0.0, -0.5])
ALONG = np.array([1.0, 2.0, -3.0, 0.5])
LIVE = AT != 0
ZERO = X.const_like(0.0)


def moving(op: OpDef, src: tuple[UOp, ...], arg: Any) -> Any:
    return None, src[0].shape, src[0].dtype


def floats_only(op: OpDef, src: tuple[UOp, ...], arg: Any) -> Any:
    if not src[0].dtype.is_float:
        raise TypeError("mirror takes floats")
    return moving(op, src, arg)


def _mirror(name: str, infer: Any) -> OpDef:
    return OpDef(
        name, "movement", 1, infer, "Turned round.", numpy=lambda u, x: x[::-1].copy()
    )


MIRROR, PICKY = _mirror("mirror", moving), _mirror("picky", floats_only)


def _transposed(u: UOp, g: UOp) -> tuple[UOp]:
    return (g.permute(u.arg) * 1.0,)  # of two axes


class Plugin:
    """Ops whose rules are of their own kind."""

    @hookimpl
    def uopc_register_ops(self, register: Any) -> None:
        register(MIRROR)
        register(PICKY)

    @hookimpl
    def uopc_register_vjps(self, register: Any) -> None:
        register(MIRROR, lambda u, g: (UOp(MIRROR, (g,)),))
        register(PICKY, lambda u, g: (UOp(Ops.FLIP, (g,), (0,)),))
        register(Ops.PERMUTE, _transposed, override=True)


@pytest.fixture(autouse=True)
def _host() -> Iterator[None]:
    host = PluginHost()
    host.register_module(Plugin(), "mine")
    with use(host):
        yield


def inverse_by(bwd: Callable[[Tensor, Tensor], Tensor]) -> Callable[[UOp], UOp]:
    """1 / x, its gradient by ``bwd(x, g)``."""
    f = custom_vjp(lambda x: 1.0 / x)
    f.defvjp(lambda x: (1.0 / x, x), lambda x, g: (bwd(x, g),))
    return lambda u: f(Tensor(u)).uop


def selected(u: UOp) -> UOp:
    """``u`` where X is not 0."""
    return X.ne(0.0).where(u, ZERO)


def turned(op: OpDef) -> UOp:
    """1 / x, turned round by ``op`` and back."""
    return selected(UOp(Ops.FLIP, (UOp(op, (X.recip(),)),), (0,)))


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a product": lambda x, g: -g / x / x,
    "a product from the left": lambda x, g: (1.0 / x / x) * -g,
    "scaled first": lambda x, g: (g * -2.0).cast(f64) / (x * x) * 0.5,
    "a sum": lambda x, g: -(g / x * 0.25 + g / x * 0.75) / x,
    "a choice": lambda x, g: (
        (x > 0).where(g, 0.0) / -x / x + (x > 0).where(0.0, g) / -x / x
    ),
    "a choice of two": lambda x, g: (x > 0).where(g * 1.0, g) / -x / x,
    "through a larger shape": lambda x, g: (
        g.unsqueeze(0).expand(3, 4) / (-3.0 * x) / x
    ).sum(0),
    "padded": lambda x, g: (g.pad([(1, 2)]) / -1.0).shrink([(1, 5)]) / x / x,
    "stacked": lambda x, g: Tensor.stack([g, g * 0.0]).sum(0) / -x / x,
    "gathered": lambda x, g: g.take(3 - Tensor.arange(4)).flip(0) / -x / x,
}
FUNCTIONS: dict[str, Callable[[], UOp]] = {
    **{
        f"custom, {name}": lambda bwd=bwd: selected(inverse_by(bwd)(X))
        for name, bwd in WAYS.items()
    },
    "an op of a plugin": lambda: turned(MIRROR),
    "an op of a plugin that takes no bools": lambda: turned(PICKY),
    "another rule for permute": lambda: selected(
        X.reshape((2, 2)).permute((1, 0)).recip().permute((1, 0)).reshape((4,))
    ),
    "twice": lambda: selected(inverse_by(WAYS["a product"])(X.recip().recip())),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_exactly_zero(name: str) -> None:
    """Of 1 / x where x is not 0: gradient, second derivatives and forward mode."""
    u = FUNCTIONS[name]()
    (g,) = gradient(u, [X])
    (back,) = gradient(g * V, [X])
    (forward,) = tangents([u], [X], [V])
    (mixed,) = tangents([g], [X], [V])
    with np.errstate(all="ignore"):
        found = evaluate([g, back, forward, mixed], {X: AT, V: ALONG})
    first, second = -1 / AT[LIVE] ** 2, 2 / AT[LIVE] ** 3 * ALONG[LIVE]
    wanted = (first, second, first * ALONG[LIVE], second)
    for got, want in zip(found, wanted, strict=True):
        assert (got[~LIVE] == 0).all(), got
        np.testing.assert_allclose(got[LIVE], want, rtol=1e-12)


@pytest.mark.parametrize("name", ["custom, a product", "custom, a choice"])
def test_nan_that_was_chosen_still_shows(name: str) -> None:
    bwd = WAYS[name.removeprefix("custom, ")]
    (g,) = gradient((X < 1.0).where(inverse_by(bwd)(X), ZERO), [X])
    with np.errstate(all="ignore"):
        (got,) = evaluate([g], {X: np.array([0.0, 2.0, np.nan, -0.5])})
    assert not np.isfinite(got[0])
    np.testing.assert_array_equal(got[1:], [0, 0, -4])  # NaN < 1 is false


def test_a_rule_that_is_not_linear_gives_what_it_says() -> None:
    f = custom_vjp(lambda x: x * 1.0)
    f.defvjp(lambda x: (x * 1.0, None), lambda _, g: (g.maximum(-1.0).minimum(1.0),))
    (g,) = gradient(selected(f(Tensor(X)).uop) * V, [X])
    (got,) = evaluate([g], {X: AT, V: ALONG})
    np.testing.assert_array_equal(got, np.where(LIVE, np.clip(ALONG, -1, 1), 0))

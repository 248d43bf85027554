"""Ops of plugins that are not elementwise run in C by their ``lower``."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from uopc.autodiff import grad, vmap
from uopc.config import overriding
from uopc.plugins import PluginHost, hookimpl, use
from uopc.tensor import Tensor
from uopc.testing import check_op
from uopc.uop import OpDef, Ops, UOp
from uopc.uop.opdef import OpKind

KINDS = [kind for kind in get_args(OpKind) if kind not in ("leaf", "loop")]


def over_an_axis(kind: Any, lowered: bool = True) -> OpDef:
    """An op over the last axis: its sum, or what only moves elements, reversed."""
    sums = kind == "reduce"

    def infer(op: OpDef, src: Any, arg: Any) -> Any:
        if not src[0].dtype.is_float:
            raise TypeError("expected floats")
        return None, src[0].shape[: -1 if sums else None], src[0].dtype

    def lower(u: UOp) -> UOp:
        x = u.src[0]
        return x.reduce(Ops.ADD, 1) if sums else x.flip((len(x.shape) - 1,))

    op = OpDef(
        "last", kind, 1, infer, "Something over the last axis.",
        numpy=lambda u, x: x.sum(-1) if sums else x[..., ::-1],
        lower=lower if lowered else None,
        samples=lambda x: [UOp(op, (x,))],
    )  # fmt: skip
    return op


def host_of(op: OpDef) -> PluginHost:
    class Plugin:
        @hookimpl
        def uopc_register_ops(self, register: Any) -> None:
            register(op)

    host = PluginHost()
    host.register_module(Plugin(), "mine")
    return host


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "elementwise"])
def test_an_op_over_an_axis(kind: str) -> None:
    op = over_an_axis(kind)
    rows = np.arange(6.0).reshape(2, 3)
    with use(host_of(op)), overriding(UOPC_BACKEND="c"):
        assert check_op(op, backends=("interp", "c")) > 0

        def f(x: Tensor) -> Tensor:
            return x.apply(lambda u: UOp(op, (u,)))

        want = rows.sum(-1) if kind == "reduce" else rows[:, ::-1]
        assert (f(Tensor(rows)).numpy() == want).all()
        assert (vmap(f)(Tensor(rows)).numpy() == want).all()
        slope = grad(lambda x: f(x * x).sum())(Tensor(rows))
        assert (slope.numpy() == 2 * rows).all()


@pytest.mark.parametrize("kind", KINDS)
def test_an_op_with_neither_lower_nor_spelling(kind: str) -> None:
    op = over_an_axis(kind, lowered=False)
    advice = "uopc_register_spellings" if kind == "elementwise" else "needs a 'lower'"
    with use(host_of(op)), overriding(UOPC_BACKEND="c"):
        x = Tensor([1.0, 2.0]).apply(lambda u: UOp(op, (u,)))
        with pytest.raises(NotImplementedError, match=advice):
            x.realize()

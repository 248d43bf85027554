"""The error function for uopc: a new op, its gradient rule and its spelling in C."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from uopc.composite import exp
from uopc.plugins import OpRegister, SpellingRegister, VjpRegister, hookimpl
from uopc.tensor import Tensor
from uopc.uop import OpDef, UOp, elementwise

if TYPE_CHECKING:
    from uopc.backend_c import Spelling
    from uopc.simplify import Bounds

__all__ = ["ERF", "erf"]

_erf = np.vectorize(math.erf, otypes=[np.float64])

ERF = OpDef(
    name="erf",
    kind="elementwise",
    arity=1,
    infer=elementwise(("float",)),
    doc="Error function: 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.",
    numpy=lambda u, x: _erf(x).astype(x.dtype),
    cost=24,
    domain="real",
)


def erf(x: Tensor) -> Tensor:
    """The error function of each element of a float tensor."""
    return x.apply(lambda node: UOp(ERF, (node,)))


def _vjp(u: UOp, g: UOp) -> tuple[UOp]:
    (x,) = u.src
    return (g * exp(-(x * x)) * (2 / math.sqrt(math.pi)),)


def _spelling(u: UOp, bounds: Bounds) -> Spelling:
    # Only the C backend asks, so it need not be installed for the rest to work.
    from uopc.backend_c import Spelling

    return Spelling("__builtin_erf{f}({0})")


@hookimpl
def uopc_register_ops(register: OpRegister) -> None:
    """The op, known to the `.uir` text and to the reference backend."""
    register(ERF)


@hookimpl
def uopc_register_vjps(register: VjpRegister) -> None:
    """Its gradient, for whatever engine is installed."""
    register(ERF, _vjp)


@hookimpl
def uopc_register_spellings(register: SpellingRegister) -> None:
    """Its text in C."""
    register("c", ERF, _spelling)

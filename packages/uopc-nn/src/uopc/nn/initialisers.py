"""How parameters start."""

from __future__ import annotations

import math

from uopc.tensor import Tensor


def parameter(t: Tensor) -> Tensor:
    """A realized leaf that wants a gradient."""
    t = t.realize()
    t.requires_grad = True
    return t


def uniform(bound: float, *shape: int) -> Tensor:
    """A parameter drawn uniformly from -bound to bound."""
    return parameter(Tensor.rand(*shape) * (2 * bound) - bound)


def by_fan_in(fan_in: int, *shape: int) -> Tensor:
    """A parameter drawn uniformly from +-1/sqrt(fan_in), as torch's layers do.

    That is He's uniform initialisation with a negative slope of sqrt(5) (He et al.,
    Delving Deep into Rectifiers, 2015). ``fan_in`` is how many inputs an output sees.
    """
    return uniform(1 / math.sqrt(fan_in) if fan_in else 0.0, *shape)

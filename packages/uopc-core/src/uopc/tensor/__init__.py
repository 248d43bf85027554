"""The user's Tensor: lazy, thin, everything it does is a graph."""

from uopc.tensor.tensor import Tensor, realize_all

__all__ = ["Tensor", "realize_all"]

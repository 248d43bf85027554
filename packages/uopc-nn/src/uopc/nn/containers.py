"""Layers in a row, dropout, and telling training from use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from uopc.nn.parameters import objects
from uopc.tensor import Tensor

Layer = Callable[[Any], Any]
_Model = TypeVar("_Model")


class Sequential:
    """Functions and layers, each called with the result of the one before.

    Any function of a tensor will do: ``Sequential(Linear(4, 8), Tensor.relu)``.
    """

    def __init__(self, *layers: Layer) -> None:
        for i, layer in enumerate(layers):
            if not callable(layer):
                raise TypeError(
                    f"Sequential: layer {i} is a {type(layer).__name__}, which cannot "
                    "be called"
                )
        self.layers = list(layers)

    def __call__(self, x: Any) -> Any:
        """The last one's result."""
        for layer in self.layers:
            x = layer(x)
        return x

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, i: int) -> Layer:
        return self.layers[i]


class Dropout:
    """Zeros elements at random while ``training``, and scales the others up.

    By 1 / (1 - p), so that the mean stays (Srivastava et al., Dropout, 2014). The
    random numbers are those of `Tensor.manual_seed`.

    Args:
        p: the probability of a zero, from 0 to 1.

    Attributes:
        training: whether it does anything; see `evaluate`.
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: expected a probability, 0 to 1, got {p}")
        self.p, self.training = p, True

    def __call__(self, x: Tensor) -> Tensor:
        """Of the same shape and type."""
        if not self.training or self.p == 0:
            return x
        if self.p == 1:
            return x * 0.0
        kept = Tensor.rand(x.shape) >= self.p
        return kept.where(x * (1 / (1 - self.p)), 0.0)


def train(model: _Model, mode: bool = True) -> _Model:
    """Have layers such as `Dropout` behave as in training; returns the model.

    Sets ``training`` of every object inside that has it, as ``model.train()`` does in
    PyTorch; models are plain objects here, which need no such method.
    """
    for item in objects(model):
        if hasattr(item, "training"):
            item.training = mode
    return model


def evaluate(model: _Model) -> _Model:
    """The opposite of `train`: PyTorch's ``model.eval()``."""
    return train(model, mode=False)

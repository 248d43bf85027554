"""Layers: plain classes whose tensors are parameters."""

from __future__ import annotations

from uopc.nn.initialisers import by_fan_in, parameter
from uopc.tensor import Tensor


class Linear:
    """``x @ weight.T + bias``.

    Args:
        inputs: length of the last axis of ``x``.
        outputs: length of the last axis of the result.
        bias: whether to add one.

    Both are drawn uniformly from +-1/sqrt(inputs), as in PyTorch, and
    ``weight`` has shape (outputs, inputs).
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        self.weight = by_fan_in(inputs, outputs, inputs)
        self.bias = by_fan_in(inputs, outputs) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class Embedding:
    """Rows of a table by index: a gather, whose gradient adds up the rows in use.

    Args:
        vocab: number of rows.
        dim: length of a row. The rows are drawn from a normal distribution with
            standard deviation 0.02.
    """

    def __init__(self, vocab: int, dim: int) -> None:
        self.vocab = vocab
        self.weight = parameter(Tensor.randn(vocab, dim) * 0.02)

    def __call__(self, idx: Tensor) -> Tensor:
        """Integer (...) -> (..., dim).

        An index out of range, negative ones included, gives zeros and no gradient.
        """
        if not idx.dtype.is_int:
            raise TypeError(f"Embedding needs an integer tensor, not {idx.dtype}")
        return self.weight.apply(lambda table, i: table.index(i), idx)

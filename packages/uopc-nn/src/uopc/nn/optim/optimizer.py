"""What optimizers share. Numbers that change from step to step are 0-d buffers.

So every step builds a graph of the same structure and runs the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from uopc.tensor import Tensor, realize_all


def number(value: float) -> Tensor:
    """A number of a step, f64, ()."""
    return Tensor(np.asarray(value, np.float64))


def zeros_like(p: Tensor) -> Tensor:
    """State of a parameter at the start; f32 for half types."""
    return Tensor(np.zeros(p.shape, p.dtype.wide.numpy))


def with_l2(grad: Tensor, p: Tensor, decay: float) -> Tensor:
    """The gradient with that of ``decay / 2`` times the parameter's squares."""
    return grad + p * decay if decay else grad


def _check_parameter(i: int, p: Tensor, seen: set[int]) -> None:
    if not isinstance(p, Tensor):
        raise TypeError(
            f"parameter {i} is a {type(p).__name__}, not a Tensor; parameters(x) "
            "finds the tensors in it"
        )
    if not p.dtype.is_float:
        raise TypeError(f"parameter {i} has dtype {p.dtype}; only floats can be moved")
    if not p.is_leaf:
        raise ValueError(
            f"parameter {i} is the result of other tensors, which would not change "
            "with it; optimize those, or use .detach()"
        )
    if id(p) in seen:
        raise ValueError(f"parameter {i} is there twice; parameters(x) finds it once")


class Optimizer:
    """What all optimizers share: the parameters, the learning rate, ``step``.

    Args:
        params: leaf tensors; they get ``requires_grad``.
        lr: the learning rate; may be set anew at any time.

    Attributes:
        params: the list of parameters.
    """

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        if isinstance(params, Tensor):
            raise TypeError("an optimizer takes a list of tensors, not one tensor")
        self.params = list(params)
        if not self.params:
            raise ValueError("an optimizer needs at least one parameter")
        seen: set[int] = set()
        for i, p in enumerate(self.params):
            _check_parameter(i, p, seen)
            seen.add(id(p))
        for p in self.params:
            p.requires_grad = True
        realize_all(self.params)
        self._lr = number(lr)

    @property
    def lr(self) -> float:
        """The learning rate."""
        return float(self._lr.item())

    @lr.setter
    def lr(self, value: float) -> None:
        self._lr.assign(number(value))

    def zero_grad(self) -> None:
        """Forget all gradients; otherwise ``backward`` adds to them."""
        for p in self.params:
            p.grad = None

    def step(self, loss: Tensor | None = None) -> None:
        """Update the parameters from their gradients.

        One plan computes the gradients, the updates and, if given, the loss.
        Parameters without a gradient stay as they are.
        """
        changed: list[Tensor] = [] if loss is None else [loss]
        used = [(i, p, p.grad) for i, p in enumerate(self.params) if p.grad is not None]
        if not used:
            raise RuntimeError(
                "step: no parameter has a gradient; call loss.backward(opt.params)"
            )
        changed += self._advance()
        for i, p, grad in used:
            changed += [grad, p, *self._move(i, p, grad)]
        realize_all(changed)

    def _move(self, i: int, p: Tensor, grad: Tensor) -> list[Tensor]:
        """Assign parameter ``i`` its new value; returns the state that changed."""
        wide = p.dtype.wide
        new, state = self._update(i, p.detach().cast(wide), grad.detach().cast(wide))
        p.assign(new.cast(p.dtype))
        return state

    def _advance(self) -> list[Tensor]:
        """Move on what all parameters share; returns the tensors to realize."""
        return []

    def _shrunk(self, p: Tensor, decay: float) -> Tensor:
        """A parameter after decoupled weight decay."""
        return p * (1.0 - self._lr * decay).cast(p.dtype)

    def _update(self, i: int, p: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The new value of parameter ``i``, and the state that changed with it.

        Of a parameter of a half type, all of it is in f32.
        """
        raise NotImplementedError

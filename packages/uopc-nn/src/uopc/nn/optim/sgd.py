"""Gradient descent."""

from __future__ import annotations

from collections.abc import Iterable

from uopc.nn.optim.optimizer import Optimizer, with_l2, zeros_like
from uopc.tensor import Tensor


class SGD(Optimizer):
    """Gradient descent, with momentum and L2 weight decay as in PyTorch.

    ``v = momentum * v + grad``, ``p = p - lr * v``; with ``nesterov`` it is ``p - lr *
    (grad + momentum * v)`` (Sutskever et al., On the Importance of Initialization and
    Momentum in Deep Learning, 2013, as PyTorch has it).
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr)
        if nesterov and not momentum:
            raise ValueError("SGD: nesterov needs a momentum above 0")
        self.nesterov = nesterov
        self.momentum, self.weight_decay = momentum, weight_decay
        self._velocity = [zeros_like(p) for p in self.params] if momentum else []

    def _update(self, i: int, p: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        grad = with_l2(grad, p, self.weight_decay)
        lr = self._lr.cast(p.dtype)
        if not self.momentum:
            return p - lr * grad, []
        v = self._velocity[i]
        v.assign(v * self.momentum + grad)
        return p - lr * (grad + v * self.momentum if self.nesterov else v), [v]

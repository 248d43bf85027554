"""Optimizers that scale each element's step by what its gradients were."""

from __future__ import annotations

from collections.abc import Iterable

from uopc.nn.optim.optimizer import Optimizer, number, with_l2, zeros_like
from uopc.tensor import Tensor


class Adam(Optimizer):
    """Steps of a size by the first and second moments (Kingma and Ba, 2015).

    Weight decay is added to the gradient. The defaults and the order of operations are
    PyTorch's.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr)
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self._mean = [zeros_like(p) for p in self.params]
        self._square = [zeros_like(p) for p in self.params]
        # beta ** t, for the bias corrections.
        self._powers = (number(1.0), number(1.0))

    def _advance(self) -> list[Tensor]:
        for power, beta in zip(self._powers, self.betas, strict=True):
            power.assign(power * beta)
        return list(self._powers)

    def _update(self, i: int, p: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        return self._moved(i, p, with_l2(grad, p, self.weight_decay))

    def _moved(self, i: int, p: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        """A value after a step, and the moments."""
        (beta1, beta2), (power1, power2) = self.betas, self._powers
        m, v = self._mean[i], self._square[i]
        m.assign(m * beta1 + grad * (1 - beta1))
        v.assign(v * beta2 + grad.square() * (1 - beta2))
        size = (self._lr / (1.0 - power1)).cast(p.dtype)
        scale = (1.0 - power2).sqrt().cast(p.dtype)
        return p - size * m / (v.sqrt() / scale + self.eps), [m, v]


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019).

    The defaults and the order of operations are PyTorch's.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    def _update(self, i: int, p: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        return self._moved(i, self._shrunk(p, self.weight_decay), grad)


class RMSprop(Optimizer):
    """Gradients over the root of their mean square (Hinton, lecture 6e, 2012).

    The defaults and the order of operations are PyTorch's.

    Args:
        alpha: of the mean square and the mean, what is kept in a step.
        eps: added to the root.
        weight_decay: times the parameter is added to the gradient.
        momentum: what is kept of the last step.
        centered: whether the square of the mean is subtracted under the root. What
            rounding makes of it is not let below 0.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self.alpha, self.eps, self.weight_decay = alpha, eps, weight_decay
        self.momentum, self.centered = momentum, centered
        self._square = [zeros_like(p) for p in self.params]
        self._mean = [zeros_like(p) for p in self.params] if centered else []
        self._velocity = [zeros_like(p) for p in self.params] if momentum else []

    def _update(self, i: int, p: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        grad = with_l2(grad, p, self.weight_decay)
        new, square = 1 - self.alpha, self._square[i]
        square.assign(square * self.alpha + grad.square() * new)
        state, spread = [square], square
        if self.centered:
            mean = self._mean[i]
            mean.assign(mean * self.alpha + grad * new)
            state.append(mean)
            spread = (square - mean.square()).maximum(0.0)
        step = grad / (spread.sqrt() + self.eps)
        if self.momentum:
            velocity = self._velocity[i]
            velocity.assign(velocity * self.momentum + step)
            state.append(velocity)
            step = velocity
        return p - self._lr.cast(p.dtype) * step, state


class Adagrad(Optimizer):
    """Gradients over the root of the sum of their squares (Duchi et al., 2011).

    The defaults and the order of operations are PyTorch's.

    Args:
        lr_decay: in step t the learning rate is ``lr / (1 + (t - 1) * lr_decay)``.
        weight_decay: times the parameter is added to the gradient.
        initial: what the sums start with.
        eps: added to the root.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(params, lr)
        self.lr_decay, self.weight_decay, self.eps = lr_decay, weight_decay, eps
        self._sum = [(zeros_like(p) + initial).realize() for p in self.params]
        self._slower = number(1.0 - lr_decay)

    def _advance(self) -> list[Tensor]:
        self._slower.assign(self._slower + self.lr_decay)
        return [self._slower]

    def _update(self, i: int, p: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        grad = with_l2(grad, p, self.weight_decay)
        total = self._sum[i]
        total.assign(total + grad.square())
        size = (self._lr / self._slower).cast(p.dtype)
        return p - size * grad / (total.sqrt() + self.eps), [total]


class Lion(Optimizer):
    """Steps of one length, by the sign of an average (Chen et al., 2023).

    ``p = p * (1 - lr * decay) - lr * sign(beta1 * m + (1 - beta1) * grad)``, and then
    ``m = beta2 * m + (1 - beta2) * grad``: algorithm 2 of Symbolic Discovery of
    Optimization Algorithms.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr)
        self.betas, self.weight_decay = betas, weight_decay
        self._mean = [zeros_like(p) for p in self.params]

    def _update(self, i: int, p: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        (beta1, beta2), m = self.betas, self._mean[i]
        direction = (m * beta1 + grad * (1 - beta1)).sign()
        m.assign(m * beta2 + grad * (1 - beta2))
        decayed = self._shrunk(p, self.weight_decay)
        return decayed - self._lr.cast(p.dtype) * direction, [m]

"""The updates of optimizers, as NumPy does them in f64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def sgd(
    p: np.ndarray,
    lr: float = 1e-3,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> Callable[..., None]:
    velocity = np.zeros_like(p)

    def step(g: np.ndarray, t: int, lr: float = lr) -> None:
        g = g + weight_decay * p
        velocity[:] = momentum * velocity + g
        p[:] = p - lr * (g + momentum * velocity if nesterov else velocity)

    return step


def adamw(
    p: np.ndarray,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> Callable[..., None]:
    m, v = np.zeros_like(p), np.zeros_like(p)

    def step(g: np.ndarray, t: int, lr: float = lr) -> None:
        p[:] = p - lr * weight_decay * p
        m[:] = betas[0] * m + (1 - betas[0]) * g
        v[:] = betas[1] * v + (1 - betas[1]) * g**2
        m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
        p[:] = p - lr * m_hat / (np.sqrt(v_hat) + eps)

    return step


def adam(
    p: np.ndarray,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Callable[..., None]:
    inner = adamw(p, lr, betas, eps, 0.0)

    def step(g: np.ndarray, t: int, lr: float = lr) -> None:
        inner(g + weight_decay * p, t, lr)

    return step


def rmsprop(
    p: np.ndarray,
    lr: float = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
) -> Callable[..., None]:
    square, mean, velocity = np.zeros((3, *p.shape))

    def step(g: np.ndarray, t: int, lr: float = lr) -> None:
        g = g + weight_decay * p
        square[:] = alpha * square + (1 - alpha) * g * g
        mean[:] = alpha * mean + (1 - alpha) * g
        spread = square - mean**2 if centered else square
        velocity[:] = momentum * velocity + g / (np.sqrt(spread) + eps)
        p[:] = p - lr * velocity

    return step


def adagrad(
    p: np.ndarray,
    lr: float = 1e-2,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial: float = 0.0,
    eps: float = 1e-10,
) -> Callable[..., None]:
    total = np.full(p.shape, initial)

    def step(g: np.ndarray, t: int, lr: float = lr) -> None:
        g = g + weight_decay * p
        total[:] += g * g
        p[:] = p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(total) + eps)

    return step


def lion(
    p: np.ndarray,
    lr: float = 1e-4,
    betas: tuple[float, float] = (0.9, 0.99),
    weight_decay: float = 0.0,
) -> Callable[..., None]:
    m = np.zeros_like(p)

    def step(g: np.ndarray, t: int, lr: float = lr) -> None:
        way = np.sign(betas[0] * m + (1 - betas[0]) * g)
        p[:] = p * (1 - lr * weight_decay) - lr * way
        m[:] = betas[1] * m + (1 - betas[1]) * g

    return step

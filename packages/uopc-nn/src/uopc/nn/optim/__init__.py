"""Optimizers, and what is done to gradients before a step."""

from uopc.nn.optim.adaptive import Adagrad, Adam, AdamW, Lion, RMSprop
from uopc.nn.optim.clipping import clip_grad_norm, clip_grad_value
from uopc.nn.optim.optimizer import Optimizer
from uopc.nn.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Lion",
    "Optimizer",
    "RMSprop",
    "clip_grad_norm",
    "clip_grad_value",
]

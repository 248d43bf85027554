"""Layers, optimizers, and the parameters in between."""

from uopc.nn.functional import scaled_dot_product_attention
from uopc.nn.layers import Embedding, Linear
from uopc.nn.optim import SGD, AdamW, Optimizer
from uopc.nn.parameters import parameters

__all__ = [
    "SGD",
    "AdamW",
    "Embedding",
    "Linear",
    "Optimizer",
    "parameters",
    "scaled_dot_product_attention",
]

"""Layers, optimizers, and the parameters in between."""

from uopc.nn.attention import MultiHeadAttention
from uopc.nn.containers import Dropout, Sequential, evaluate, train
from uopc.nn.convolutions import Conv1d, Conv2d
from uopc.nn.functional import scaled_dot_product_attention
from uopc.nn.layers import Embedding, Linear
from uopc.nn.losses import (
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
)
from uopc.nn.norms import GroupNorm, LayerNorm, RMSNorm
from uopc.nn.optim import (
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Lion,
    Optimizer,
    RMSprop,
    clip_grad_norm,
    clip_grad_value,
)
from uopc.nn.parameters import parameters

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "Lion",
    "MultiHeadAttention",
    "Optimizer",
    "RMSNorm",
    "RMSprop",
    "Sequential",
    "binary_cross_entropy_with_logits",
    "clip_grad_norm",
    "clip_grad_value",
    "evaluate",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "parameters",
    "scaled_dot_product_attention",
    "train",
]

"""Derivatives of graphs by rules, and transforms of functions of Tensors."""

from uopc.autodiff.batching import NoBatchingRule, batched
from uopc.autodiff.checkpoint import checkpoint
from uopc.autodiff.custom import custom_vjp
from uopc.autodiff.forward import NotLinearError, tangents
from uopc.autodiff.gradient import NoGradientRule, gradient
from uopc.autodiff.jacobian import hessian, jacobian
from uopc.autodiff.transforms import (
    grad,
    hvp,
    jvp,
    linearize,
    stop_gradient,
    value_and_grad,
    vjp,
)
from uopc.autodiff.vmap import vmap

__all__ = [
    "NoBatchingRule",
    "NoGradientRule",
    "NotLinearError",
    "batched",
    "checkpoint",
    "custom_vjp",
    "grad",
    "gradient",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "linearize",
    "stop_gradient",
    "tangents",
    "value_and_grad",
    "vjp",
    "vmap",
]

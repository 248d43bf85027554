"""Functions over ops: whatever is composed here has gradients and C for free."""

from typing import TYPE_CHECKING

from uopc.composite.shape import (
    broadcast_shape,
    broadcast_to,
    cat,
    flip,
    full,
    iota,
    pad,
    reduce_axes,
    spread,
    stack,
    sum_to,
    zeros_like,
)
from uopc.exports import on_demand

if TYPE_CHECKING:
    from uopc.composite.contraction import diagonal, einsum
    from uopc.composite.convolution import conv
    from uopc.composite.elementwise import (
        absolute,
        at_most,
        cos,
        exp,
        gelu,
        log,
        log1p,
        logsigmoid,
        power,
        relu,
        sigmoid,
        sigmoid_slope,
        silu,
        softplus,
        square,
        tanh,
    )
    from uopc.composite.gather import (
        from_end,
        index_nodes,
        one_hot_index,
        scatter_add,
    )
    from uopc.composite.loss import cross_entropy, soft_cross_entropy
    from uopc.composite.math import (
        log_softmax,
        logsumexp,
        matmul,
        mean,
        one_hot,
        softmax,
    )
    from uopc.composite.norms import deviation, norm, variance
    from uopc.composite.order import along_last, argmax, argsort
    from uopc.composite.random import blocks, normal, random_bits, threefry, uniform
    from uopc.composite.rounding import (
        ceil,
        floor,
        isfinite,
        isinf,
        isnan,
        nearest,
        sign,
        trunc,
    )
    from uopc.composite.scan import cumulative, product_of_others
    from uopc.composite.update import at_position, inside, last_writer, put, written

__all__ = [
    "absolute",
    "along_last",
    "argmax",
    "argsort",
    "at_most",
    "at_position",
    "blocks",
    "broadcast_shape",
    "broadcast_to",
    "cat",
    "ceil",
    "conv",
    "cos",
    "cross_entropy",
    "cumulative",
    "deviation",
    "diagonal",
    "einsum",
    "exp",
    "flip",
    "floor",
    "from_end",
    "full",
    "gelu",
    "index_nodes",
    "inside",
    "iota",
    "isfinite",
    "isinf",
    "isnan",
    "last_writer",
    "log",
    "log1p",
    "log_softmax",
    "logsigmoid",
    "logsumexp",
    "matmul",
    "mean",
    "nearest",
    "norm",
    "normal",
    "one_hot",
    "one_hot_index",
    "pad",
    "power",
    "product_of_others",
    "put",
    "random_bits",
    "reduce_axes",
    "relu",
    "scatter_add",
    "sigmoid",
    "sigmoid_slope",
    "sign",
    "silu",
    "soft_cross_entropy",
    "softmax",
    "softplus",
    "spread",
    "square",
    "stack",
    "sum_to",
    "tanh",
    "threefry",
    "trunc",
    "uniform",
    "variance",
    "written",
    "zeros_like",
]

if not TYPE_CHECKING:
    # The shapes are what every op needs; the others are imported when they are used.
    __getattr__ = on_demand(
        __name__,
        {
            "contraction": "diagonal einsum",
            "convolution": "conv",
            "elementwise": "absolute at_most cos exp gelu log log1p logsigmoid power "
            "relu sigmoid sigmoid_slope silu softplus square tanh",
            "gather": "from_end index_nodes one_hot_index scatter_add",
            "loss": "cross_entropy soft_cross_entropy",
            "math": "log_softmax logsumexp matmul mean one_hot softmax",
            "norms": "deviation norm variance",
            "order": "along_last argmax argsort",
            "random": "blocks normal random_bits threefry uniform",
            "rounding": "ceil floor isfinite isinf isnan nearest sign trunc",
            "scan": "cumulative product_of_others",
            "update": "at_position inside last_writer put written",
        },
    )

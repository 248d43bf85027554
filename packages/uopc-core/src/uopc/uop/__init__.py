"""The node, the op table, shape and dtype inference, graph walks."""

from uopc.uop.arguments import (
    FIRST_LIVE_SLOT,
    BufferArg,
    ConvArg,
    ParamArg,
    RangeArg,
    ReduceArg,
)
from uopc.uop.callers import calling_frame, warn_caller
from uopc.uop.casting import cast_array
from uopc.uop.collector import collector_paused
from uopc.uop.forking import fork_safe, lazy
from uopc.uop.infer import elementwise
from uopc.uop.literal import Literal, Scalar
from uopc.uop.node import Operand, UOp, live_nodes, scalar_dtype
from uopc.uop.opdef import REQUIRED, Field, OpDef
from uopc.uop.ops import BUILTIN_OPS, Ops
from uopc.uop.walk import substitute, toposort

__all__ = [
    "BUILTIN_OPS",
    "FIRST_LIVE_SLOT",
    "REQUIRED",
    "BufferArg",
    "ConvArg",
    "Field",
    "Literal",
    "OpDef",
    "Operand",
    "Ops",
    "ParamArg",
    "RangeArg",
    "ReduceArg",
    "Scalar",
    "UOp",
    "calling_frame",
    "cast_array",
    "collector_paused",
    "elementwise",
    "fork_safe",
    "lazy",
    "live_nodes",
    "scalar_dtype",
    "substitute",
    "toposort",
    "warn_caller",
]

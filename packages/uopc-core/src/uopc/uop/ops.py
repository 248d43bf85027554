"""The op table: one row per op.

Everything else that treats ops one by one (the text form, stage legality,
constant folding, the interpreter, the per-op tests) is derived from these rows.
Gradient rules and C spellings live with their owners, in the plugin registry.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from uopc.dtype import DTYPES, boolean, i32
from uopc.uop import convolution, infer, lowered, meanings
from uopc.uop.casting import cast_array
from uopc.uop.opdef import Field, OpDef

if TYPE_CHECKING:
    from uopc.uop.node import UOp

NUMBER = ("int", "uint", "float")
INTEGER = ("int", "uint")
ANY = ("bool", "int", "uint", "float")
BITS = ("bool", "int", "uint")
FLOAT = ("float",)


# Examples of ops, as their rows give them: ``x`` is a placeholder of shape (2, 3).


def _node(like: UOp, op: OpDef, src: tuple[UOp, ...], arg: Any = None) -> UOp:
    return type(like)(op, src, arg)


def _reductions(x: UOp) -> list[UOp]:
    kinds = (Ops.ADD, Ops.MUL, Ops.MAX)
    return [x.reduce(op, n) for op in kinds for n in (1, 2)]


def _choices(x: UOp) -> list[UOp]:
    ones = x.const_like(1)
    return [x.ne(0).where(x, ones), (x.flip((0,)) < x).where(ones, x)]


def _contiguous(x: UOp) -> UOp:
    return _node(x, Ops.STAGE, (x,), "contiguous")


def _positions(x: UOp) -> UOp:
    return _node(x, Ops.IOTA, (), 4)


def _scattered(x: UOp) -> list[UOp]:
    """Rows with repeated and missing places, elements, and one that is out of range."""
    places, both = _positions(x), _node(x, Ops.IOTA, (), 6)
    rows = x.reshape((1, 2, 3)).expand((4, 2, 3))
    flat = (x.reshape((6,)), both // 3, both % 3)
    return [
        _node(x, Ops.SCATTER_ADD, (rows, places // 2), (4,)),
        _node(x, Ops.SCATTER_ADD, flat, (2, 3)),
        _node(x, Ops.SCATTER_ADD, (rows, places * 2 + -2), (5,)),
    ]


def _convolutions(x: UOp) -> list[UOp]:
    return convolution.samples(x, Ops.CONV)


def _loop(x: UOp, kind: str = "serial") -> UOp:
    return _node(x, Ops.RANGE, (), (0, 6, i32, kind))


def _statement(x: UOp) -> UOp:
    source, target = (x.buffer(6, x.dtype, slot) for slot in (0, 1))
    element = _node(x, Ops.INDEX, (source, _loop(x)))
    return _node(x, Ops.STORE, (target, _loop(x), element))


def _end(x: UOp) -> UOp:
    return _node(x, Ops.END, (_loop(x), _statement(x)))


def _sink(x: UOp) -> UOp:
    return _node(x, Ops.SINK, (_end(x),), "e_6")


def _call(x: UOp) -> UOp:
    arrays = (x.buffer(6, x.dtype, slot) for slot in (1, 0))
    return _node(x, Ops.CALL, (_sink(x), *arrays))


def _after(x: UOp) -> UOp:
    return _node(x, Ops.AFTER, (x.buffer(6, x.dtype, 1), _call(x)))


class Ops:
    """The built-in ops, as module-level constants under one name."""

    # Leaves.
    CONST = OpDef(
        "const", "leaf", 0, infer.const, "A scalar, keyed by dtype and bits.",
        arg=(Field("value", "literal"),),
        numpy=lambda u: np.asarray(u.value, u.dtype.numpy), cost=0,
        samples=lambda x: (x.const(1, x.dtype), x.const(0, x.dtype)),
    )  # fmt: skip
    BUFFER = OpDef(
        "buffer", "leaf", 0, infer.buffer, "A flat piece of memory.",
        arg=(
            Field("size", "int"),
            Field("dtype", "dtype", positional=False),
            Field("slot", "int", positional=False),
            Field("version", "int", positional=False, default=0),
            Field("space", "name", positional=False, default="global"),
        ), cost=0,
        samples=lambda x: (x.buffer(6, x.dtype, 0),),
    )  # fmt: skip
    PARAM = OpDef(
        "param", "leaf", 0, infer.param, "A placeholder for a value given later.",
        arg=(
            Field("slot", "int"),
            Field("dtype", "dtype", positional=False),
            Field("shape", "ints", positional=False, default=()),
        ), cost=0,
        samples=lambda x: (x,),
    )  # fmt: skip
    IOTA = OpDef(
        "iota", "leaf", 0, infer.iota, "0, 1, ..., n - 1 as i32.",
        arg=(Field("n", "int"),),
        numpy=lambda u: np.arange(u.arg, dtype=np.int32), cost=0,
        samples=lambda x: (_positions(x),),
    )  # fmt: skip

    # Elementwise arithmetic.
    ADD = OpDef(
        "add", "elementwise", 2, infer.elementwise(NUMBER),
        "Sum; integers wrap.", numpy=lambda u, a, b: a + b,
        commutative=True, exact=True,
        identity=lambda dtype: 0,
    )  # fmt: skip
    MUL = OpDef(
        "mul", "elementwise", 2, infer.elementwise(NUMBER),
        "Product; integers wrap.", numpy=lambda u, a, b: a * b,
        commutative=True, exact=True,
        identity=lambda dtype: 1,
    )  # fmt: skip
    DIV = OpDef(
        "div", "elementwise", 2, infer.elementwise(FLOAT),
        "Correctly rounded quotient.", numpy=lambda u, a, b: a / b,
        exact=True, cost=4, domain="nonzero",
        lower=lambda u: u.src[0] * u.src[1].recip(),
    )  # fmt: skip
    POW = OpDef(
        "pow", "elementwise", 2, infer.elementwise(FLOAT),
        "x to the power y as C's pow: 1 where y is 0 or x is 1; NaN where x < 0 and "
        "y is a fraction.", numpy=lambda u, a, b: np.power(a, b),
        cost=32, domain="positive", lower=lowered.power,
    )  # fmt: skip
    FMA = OpDef(
        "fma", "elementwise", 3, infer.elementwise(FLOAT),
        "a * b + c, rounded once; twice where the machine has no such instruction.",
        numpy=meanings.fma, cost=2, lower=lambda u: u.src[0] * u.src[1] + u.src[2],
    )  # fmt: skip
    MAX = OpDef(
        "max", "elementwise", 2, infer.elementwise(ANY),
        "The larger one; NaN if either is NaN.",
        numpy=lambda u, a, b: np.maximum(a, b),
        identity=lambda dtype: -math.inf if dtype.is_float else dtype.min,
    )  # fmt: skip
    RECIP = OpDef(
        "recip", "elementwise", 1, infer.elementwise(FLOAT),
        "1 / x.", numpy=meanings.recip, exact=True, cost=4, domain="nonzero",
    )  # fmt: skip
    EXP2 = OpDef(
        "exp2", "elementwise", 1, infer.elementwise(FLOAT),
        "2 to the power x.", numpy=lambda u, x: np.exp2(x), cost=16,
    )  # fmt: skip
    LOG2 = OpDef(
        "log2", "elementwise", 1, infer.elementwise(FLOAT),
        "Logarithm to base 2.", numpy=lambda u, x: np.log2(x),
        cost=16, domain="positive",
    )  # fmt: skip
    SQRT = OpDef(
        "sqrt", "elementwise", 1, infer.elementwise(FLOAT),
        "Square root.", numpy=lambda u, x: np.sqrt(x),
        exact=True, cost=4, domain="positive",
    )  # fmt: skip
    SIN = OpDef(
        "sin", "elementwise", 1, infer.elementwise(FLOAT),
        "Sine, x in radians.", numpy=lambda u, x: np.sin(x), cost=24,
    )  # fmt: skip
    EXP = OpDef(
        "exp", "elementwise", 1, infer.elementwise(FLOAT),
        "e to the power x.", numpy=lambda u, x: np.exp(x), cost=16,
        lower=lambda u: (u.src[0] * (1 / math.log(2))).exp2(),
    )  # fmt: skip
    LOG = OpDef(
        "log", "elementwise", 1, infer.elementwise(FLOAT),
        "Natural logarithm.", numpy=lambda u, x: np.log(x),
        cost=16, domain="positive",
        lower=lambda u: u.src[0].log2() * math.log(2),
    )  # fmt: skip
    LOG1P = OpDef(
        "log1p", "elementwise", 1, infer.elementwise(FLOAT),
        "log(1 + x), right for small x too.", numpy=lambda u, x: np.log1p(x),
        cost=20, domain="positive", lower=lowered.log1p,
    )  # fmt: skip
    TANH = OpDef(
        "tanh", "elementwise", 1, infer.elementwise(FLOAT),
        "Hyperbolic tangent.", numpy=lambda u, x: np.tanh(x), cost=24,
        lower=lowered.tanh,
    )  # fmt: skip
    SIGMOID = OpDef(
        "sigmoid", "elementwise", 1, infer.elementwise(FLOAT), "1 / (1 + exp(-x)).",
        numpy=meanings.sigmoid, cost=20,
        lower=lambda u: lowered.sigmoid(u, Ops.EXP),
    )  # fmt: skip
    COS = OpDef(
        "cos", "elementwise", 1, infer.elementwise(FLOAT), "Cosine, x in radians.",
        numpy=lambda u, x: np.cos(x), cost=24, lower=lowered.cos,
    )  # fmt: skip
    CAST = OpDef(
        "cast", "elementwise", 1, infer.cast,
        "Convert; out of range saturates, NaN gives 0, integers wrap.",
        arg=(Field("dtype", "dtype", positional=False),),
        numpy=lambda u, x: cast_array(x, u.dtype), exact=True,
        samples=lambda x: [x.cast(d) for d in DTYPES.values() if d is not x.dtype],
    )  # fmt: skip
    WHERE = OpDef(
        "where", "elementwise", 3, infer.where,
        "The second source where the first is true, else the third.",
        numpy=lambda u, c, a, b: np.where(c, a, b), exact=True,
        samples=_choices,
    )  # fmt: skip

    # Comparisons and integers: no gradient flows through these.
    CMPLT = OpDef(
        "cmplt", "elementwise", 2, infer.elementwise(ANY, boolean),
        "a < b; False if either is NaN.", numpy=lambda u, a, b: a < b,
        exact=True, differentiable=False,
    )  # fmt: skip
    CMPNE = OpDef(
        "cmpne", "elementwise", 2, infer.elementwise(ANY, boolean),
        "a != b; True if either is NaN.", numpy=lambda u, a, b: a != b,
        commutative=True, exact=True, differentiable=False,
    )  # fmt: skip
    FLOORDIV = OpDef(
        "floordiv", "elementwise", 2, infer.elementwise(NUMBER),
        "Quotient toward minus infinity; an integer divided by 0 is 0.",
        numpy=lambda u, a, b: np.floor_divide(a, b),
        exact=True, cost=8, domain="integer", differentiable=False,
    )  # fmt: skip
    FLOORMOD = OpDef(
        "floormod", "elementwise", 2, infer.elementwise(NUMBER),
        "Remainder with the divisor's sign; an integer modulo 0 is 0.",
        numpy=lambda u, a, b: np.mod(a, b),
        exact=True, cost=8, domain="nonzero",
    )  # fmt: skip
    AND = OpDef(
        "and", "elementwise", 2, infer.elementwise(BITS),
        "Bitwise and.", numpy=lambda u, a, b: a & b,
        commutative=True, exact=True, domain="integer", differentiable=False,
    )  # fmt: skip
    OR = OpDef(
        "or", "elementwise", 2, infer.elementwise(BITS),
        "Bitwise or.", numpy=lambda u, a, b: a | b,
        commutative=True, exact=True, domain="integer", differentiable=False,
    )  # fmt: skip
    XOR = OpDef(
        "xor", "elementwise", 2, infer.elementwise(BITS),
        "Bitwise exclusive or.", numpy=lambda u, a, b: a ^ b,
        commutative=True, exact=True, domain="integer", differentiable=False,
    )  # fmt: skip
    SHL = OpDef(
        "shl", "elementwise", 2, infer.elementwise(("uint",)),
        "Shift left; a shift by the width or more gives 0.",
        numpy=meanings.shift_left, exact=True, domain="integer", differentiable=False,
    )  # fmt: skip
    SHR = OpDef(
        "shr", "elementwise", 2, infer.elementwise(("uint",)),
        "Shift right; a shift by the width or more gives 0.", domain="integer",
        numpy=meanings.shift_right, exact=True, differentiable=False,
    )  # fmt: skip

    # Movement: each output element is a copy of one input element.
    RESHAPE = OpDef(
        "reshape", "movement", 1, infer.reshape,
        "The same elements, in row-major order, under another shape.",
        arg=(Field("shape", "ints"),), numpy=lambda u, x: x.reshape(u.shape), cost=0,
        samples=lambda x: (x.reshape((3, 2)), x.reshape((1, 6, 1))),
    )  # fmt: skip
    EXPAND = OpDef(
        "expand", "movement", 1, infer.expand, "Repeat axes of length 1.", cost=0,
        arg=(Field("shape", "ints"),), numpy=lambda u, x: np.broadcast_to(x, u.shape),
        samples=lambda x: (x.reshape((2, 1, 3)).expand((2, 4, 3)),),
    )  # fmt: skip
    PERMUTE = OpDef(
        "permute", "movement", 1, infer.permute,
        "Reorder axes: output axis k is input axis arg[k].",
        arg=(Field("axes", "ints"),), numpy=lambda u, x: x.transpose(u.arg), cost=0,
        samples=lambda x: (x.permute((1, 0)), x.reshape((1, 2, 3)).permute((1, 2, 0))),
    )  # fmt: skip
    SHRINK = OpDef(
        "shrink", "movement", 1, infer.shrink, "Keep a (begin, end) window per axis.",
        arg=(Field("window", "pairs"),), numpy=meanings.shrink, cost=0,
        samples=lambda x: (x.shrink(((0, 2), (1, 3))), x.shrink(((1, 1), (0, 3)))),
    )  # fmt: skip
    FLIP = OpDef(
        "flip", "movement", 1, infer.flip, "Reverse the named axes.",
        arg=(Field("axes", "ints"),), numpy=lambda u, x: np.flip(x, u.arg), cost=0,
        samples=lambda x: (x.flip((1,)), x.flip((0, 1))),
    )  # fmt: skip

    # Reductions and selection.
    REDUCE = OpDef(
        "reduce", "reduce", 1, infer.reduce,
        "Combine the last n axes with add, mul or max.",
        arg=(Field("op", "op"), Field("n", "int")), numpy=meanings.reduce,
        samples=_reductions,
    )  # fmt: skip
    STACK = OpDef(
        "stack", "select", None, infer.stack, "Join sources along a new first axis.",
        numpy=lambda u, *xs: np.stack(xs),
        samples=lambda x: (x.stack((x, x.flip((0,)))),),
    )  # fmt: skip
    INDEX = OpDef(
        "index", "select", None, infer.index,
        "Element (or slice) at the given leading indices; 0 where out of range. "
        "In loops a last, bool source may say whether to read at all, else it is 0.",
        numpy=meanings.index, cost=2,
        samples=lambda x: [x.index(*i) for i in ((1,), (1, 2), (_positions(x),))],
    )  # fmt: skip
    SCATTER_ADD = OpDef(
        "scatter_add", "reduce", None, infer.scatter_add,
        "Zeros to which the slices of the first source are added at the given leading "
        "indices, in their order; out of range adds nothing.",
        arg=(Field("lengths", "ints"),), numpy=meanings.scatter_add,
        samples=_scattered, lower=lambda u: lowered.scatter_add(u, Ops.IOTA, Ops.ADD),
    )  # fmt: skip
    CONV = OpDef(
        "conv", "reduce", 2, convolution.infer,
        "Sums of x[u] * w[t] where a * u == b * t + c * j + e along each axis: (A, G, "
        "C, *u) and (G, B, C, *t) give (A, G, B, *j), or (G, B, A, *j) if second.",
        arg=(
            *(Field(name, "ints") for name in ("lengths", "a", "b", "c", "e")),
            Field("second", "int", positional=False, default=0),
        ),
        numpy=convolution.meaning, samples=_convolutions,
        lower=lambda u: convolution.lowered(u, Ops.IOTA, Ops.ADD),
    )  # fmt: skip
    STAGE = OpDef(
        "stage", "select", None, infer.stage,
        "The first source: 'detach' stops gradients, 'contiguous' asks for a buffer, "
        "'after' waits for the second, 'checkpoint' and 'custom_n' have rules.",
        arg=(Field("what", "name"),), numpy=lambda u, x, *rest: x, cost=0,
        samples=lambda x: (x.detach(), _contiguous(x), x.after(x.const_like(1))),
    )  # fmt: skip

    # Loop programs.
    RANGE = OpDef(
        "range", "loop", 0, infer.loop_range, "A loop variable: 0 up to its extent.",
        arg=(
            Field("number", "int"),
            Field("extent", "int"),
            Field("dtype", "dtype", positional=False),
            Field("kind", "name", positional=False, default="serial"),
        ), differentiable=False, cost=0,
        samples=lambda x: (_loop(x), _loop(x, "vector")),
    )  # fmt: skip
    STORE = OpDef(
        "store", "loop", 3, infer.store, "Write a value to a buffer at an index.",
        differentiable=False, samples=lambda x: (_statement(x),),
    )  # fmt: skip
    END = OpDef(
        "end", "loop", None, infer.effect,
        "Run the statements after the first source for each value of that range; or, "
        "where it is a bool, if that is true.",
        differentiable=False, samples=lambda x: (_end(x),),
    )  # fmt: skip
    SINK = OpDef(
        "sink", "loop", None, infer.sink, "A sequence of statements, or of roots.",
        arg=(Field("name", "name"),), differentiable=False,
        samples=lambda x: (_sink(x),),
    )  # fmt: skip
    CALL = OpDef(
        "call", "loop", None, infer.effect,
        "Run a kernel (the first source) on the buffers that follow.",
        differentiable=False, samples=lambda x: (_call(x),),
    )  # fmt: skip
    AFTER = OpDef(
        "after", "loop", 2, infer.after,
        "The first source, read once the second has happened.", differentiable=False,
        samples=lambda x: (_after(x),),
    )  # fmt: skip


BUILTIN_OPS: tuple[OpDef, ...] = tuple(
    row for row in vars(Ops).values() if isinstance(row, OpDef)
)

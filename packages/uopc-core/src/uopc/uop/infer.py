"""Shape and dtype inference: one function per family of ops.

Each has the signature of ``OpDef.infer``. The errors name the op, the shapes
and dtypes it met, what it expected and what to do.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from uopc.dtype import DType, boolean, i32, void
from uopc.uop.arguments import RANGE_KINDS, BufferArg, ParamArg, RangeArg, ReduceArg

if TYPE_CHECKING:
    from uopc.uop.node import UOp
    from uopc.uop.opdef import Infer, OpDef, Shape

Inferred = tuple[Any, tuple[int, ...], DType]
Sources = tuple["UOp", ...]

MAX_RANK = 32


def fail(
    op: OpDef, src: Sources, why: str, kind: type[Exception] = ValueError
) -> NoReturn:
    """Raise an error that shows the op and what it was given."""
    got = ", ".join(f"{s.dtype.name}{list(s.shape)}" for s in src)
    raise kind(f"{op.name}({got}): {why}")


def as_ints(op: OpDef, src: Sources, values: Any) -> Shape:
    """A tuple of Python ints, or a TypeError."""
    if type(values) is tuple:
        for v in values:
            if type(v) is not int:
                break
        else:
            return values
    try:
        # int() after index(): True is an index, and must print as 1.
        return tuple(int(operator.index(v)) for v in values)
    except TypeError:
        fail(op, src, f"expected a tuple of integers, got {values!r}", TypeError)


def _parts(op: OpDef, src: Sources, arg: Any) -> tuple[Any, ...]:
    """The fields of an argument of several, its integers made Python's."""
    if not isinstance(arg, tuple) or len(arg) != len(op.arg):
        names = ", ".join(f.name for f in op.arg)
        fail(op, src, f"expected the argument ({names}), got {arg!r}", TypeError)
    for i in _int_places(op):
        if type(arg[i]) is not int:
            break
    else:
        return arg
    return tuple(
        as_ints(op, src, (value,))[0] if field.type == "int" else value
        for field, value in zip(op.arg, arg, strict=True)
    )


@functools.cache
def _int_places(op: OpDef) -> tuple[int, ...]:
    """Which fields of the argument are integers."""
    return tuple(i for i, field in enumerate(op.arg) if field.type == "int")


def _element(op: OpDef, src: Sources, dtype: Any) -> None:
    if not isinstance(dtype, DType) or dtype is void:
        fail(op, src, f"expected an element type, got {dtype!r}", TypeError)


def _no_arg(op: OpDef, src: Sources, arg: Any) -> None:
    if arg is not None:
        fail(op, src, f"takes no argument, got {arg!r}", TypeError)


def elementwise(kinds: Sequence[str], result: DType | None = None) -> Infer:
    """Sources of one shape and one dtype, whose kind is among ``kinds``."""

    def infer(op: OpDef, src: Sources, arg: Any) -> Inferred:
        first = src[0]
        shape, dtype = first.shape, first.dtype
        for s in src:
            if s.dtype is not dtype or s.shape != shape:
                _same_shape(op, src, first, s)
                why = f"dtype mismatch {dtype} vs {s.dtype}; cast one of them"
                fail(op, src, why, TypeError)
        if dtype.kind not in kinds:
            fail(
                op,
                src,
                f"expected a dtype of kind {' or '.join(kinds)}; cast the operands",
                TypeError,
            )
        if arg is not None:
            _no_arg(op, src, arg)
        return None, shape, result or dtype

    return infer


def _same_shape(op: OpDef, src: Sources, a: UOp, b: UOp) -> None:
    if a.shape != b.shape:
        fail(
            op,
            src,
            f"shape mismatch {a.shape} vs {b.shape}; elementwise ops demand equal "
            "shapes, so reshape and expand the smaller one",
        )


def where(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """A bool condition and two values of one dtype."""
    _no_arg(op, src, arg)
    cond, a, b = src
    _same_shape(op, src, cond, a)
    _same_shape(op, src, a, b)
    if cond.dtype is not boolean:
        fail(op, src, f"the condition must be bool, not {cond.dtype}", TypeError)
    if a.dtype is not b.dtype:
        fail(op, src, f"dtype mismatch {a.dtype} vs {b.dtype}; cast one", TypeError)
    return None, a.shape, a.dtype


def cast(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """Any dtype to the one in the argument."""
    _element(op, src, arg)
    return arg, src[0].shape, arg


def const(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """A scalar."""
    dtype, bits = getattr(arg, "dtype", None), getattr(arg, "bits", None)
    valid = isinstance(dtype, DType) and type(bits) is int and not bits >> dtype.bits
    if not valid or dtype is void:
        fail(op, src, f"expected a Literal, got {arg!r}; use UOp.const", TypeError)
    return arg, (), arg.dtype


def buffer(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """A flat buffer: size, dtype, slot, version and space."""
    size, dtype, slot, version, space = arg = BufferArg(*_parts(op, src, arg))
    _element(op, src, dtype)
    if size < 0 or slot < 0 or version < 0 or space not in ("global", "local"):
        fail(op, src, f"bad size, slot, version or space in {arg!r}")
    return arg, (size,), dtype


def param(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """A placeholder: slot, dtype and shape."""
    slot, dtype, shape = _parts(op, src, arg)
    _element(op, src, dtype)
    shape = _ranked(op, src, as_ints(op, src, shape))
    if slot < 0 or any(n < 0 for n in shape):
        fail(op, src, f"bad slot or shape in {arg!r}")
    return ParamArg(slot, dtype, shape), shape, dtype


def iota(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """A length."""
    (n,) = as_ints(op, src, (arg,))
    if not 0 <= n < i32.max:
        fail(op, src, f"the length must lie in 0 to {i32.max}, got {n}")
    return n, (n,), i32


def reshape(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """As many elements as before."""
    shape, x = as_ints(op, src, arg), src[0]
    if math.prod(shape) != math.prod(x.shape) or (shape and min(shape) < 0):
        fail(
            op,
            src,
            f"cannot reshape {x.shape} ({math.prod(x.shape)} elements) to {shape} "
            f"({math.prod(shape)} elements)",
        )
    return _ranked(op, src, shape), shape, x.dtype


def _ranked(op: OpDef, src: Sources, shape: Shape) -> Shape:
    if len(shape) > MAX_RANK:
        fail(op, src, f"rank {len(shape)} is above the limit of {MAX_RANK}")
    return shape


def expand(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """Equal rank; only axes of length 1 grow."""
    shape, x = as_ints(op, src, arg), src[0]
    if len(shape) == len(x.shape):
        for n, m in zip(x.shape, shape, strict=True):
            if n != m and (n != 1 or m < 0):
                break
        else:
            return shape, shape, x.dtype
    fail(
        op,
        src,
        f"cannot expand {x.shape} to {shape}: the rank must be equal and only "
        "axes of length 1 grow; reshape first to add axes",
    )


def permute(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """A permutation of the axes."""
    perm, x = as_ints(op, src, arg), src[0]
    if sorted(perm) != list(range(len(x.shape))):
        fail(op, src, f"{perm} is not a permutation of the {len(x.shape)} axes")
    return perm, tuple([x.shape[p] for p in perm]), x.dtype


def shrink(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """One (begin, end) window per axis."""
    x, shape = src[0], []
    pairs = [as_ints(op, src, pair) for pair in arg]
    if len(pairs) != len(x.shape):
        fail(op, src, f"expected one (begin, end) pair per axis, got {arg}")
    for pair, n in zip(pairs, x.shape, strict=True):
        if len(pair) != 2:
            fail(op, src, f"expected one (begin, end) pair per axis, got {arg}")
        b, e = pair
        if not 0 <= b <= e <= n:
            fail(op, src, f"window ({b}, {e}) is outside an axis of length {n}")
        shape.append(e - b)
    return tuple(pairs), tuple(shape), x.dtype


def flip(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """Ascending axis numbers."""
    axes, x = as_ints(op, src, arg), src[0]
    if list(axes) != sorted(set(axes)) or not set(axes) <= {*range(len(x.shape))}:
        fail(op, src, f"expected ascending axes below {len(x.shape)}, got {axes}")
    return axes, x.shape, x.dtype


def stack(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """Any number of sources of one shape and dtype."""
    _no_arg(op, src, arg)
    if not src:
        fail(op, src, "needs at least one source")
    for s in src[1:]:
        _same_shape(op, src[:4], src[0], s)
        if s.dtype is not src[0].dtype:
            fail(op, src[:4], f"dtype mismatch {src[0].dtype} vs {s.dtype}", TypeError)
    shape = _ranked(op, src[:4], (len(src), *src[0].shape))
    return None, shape, src[0].dtype


def index(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """Integer indices of one shape for the leading axes; in loops a bool gate last."""
    _no_arg(op, src, arg)
    x, idx, gated = src[0], src[1:], False
    if len(src) == 3 and x.op.name == "buffer" and src[2].dtype is boolean:
        _same_shape(op, src, src[1], src[2])
        idx, gated = src[1:2], True
    if not 1 <= len(idx) <= len(x.shape):
        fail(op, src, f"expected 1 to {len(x.shape)} indices, got {len(idx)}")
    _places(op, src, idx, x.shape, gated)
    shape = _ranked(op, src, idx[0].shape + x.shape[len(idx) :])
    return None, shape, x.dtype


def _places(
    op: OpDef, src: Sources, idx: Sources, lengths: Shape, gated: bool = False
) -> None:
    """Integers of one shape; constants among them in range, unless there is a gate."""
    for axis, i in enumerate(idx):
        if not i.dtype.is_int:
            fail(op, src, f"an index must be an integer, not {i.dtype}", TypeError)
        _same_shape(op, src, idx[0], i)
        if i.op.name == "const" and not (gated or 0 <= i.value < lengths[axis]):
            fail(
                op,
                src,
                f"index {i.value} is outside axis {axis} of length {lengths[axis]}",
                IndexError,
            )


def scatter_add(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """What to add, integer indices of one shape, and the lengths that they index."""
    lengths = as_ints(op, src, arg)
    if len(src) < 2 or len(src) != 1 + len(lengths):
        why = f"expected one source to add, and an index for each of {lengths}"
        fail(op, src, why)
    if lengths and min(lengths) < 0:
        fail(op, src, f"a length is negative in {lengths}")
    g, idx = src[0], src[1:]
    _places(op, src, idx, lengths)
    at = idx[0].shape
    if g.shape[: len(at)] != at:
        fail(op, src, f"the first axes of {g.shape} must be those of an index, {at}")
    if g.dtype is boolean:
        fail(op, src, "sums of bool need a cast to an integer", TypeError)
    shape = _ranked(op, src, lengths + g.shape[len(at) :])
    return lengths, shape, g.dtype


def reduce(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """ADD, MUL or MAX over the last n axes."""
    rop, n = _parts(op, src, arg)
    x = src[0]
    if getattr(rop, "name", None) not in ("add", "mul", "max"):
        fail(op, src, f"reduces with add, mul or max, not {rop!r}")
    if not 1 <= n <= len(x.shape):
        fail(op, src, f"cannot reduce the last {n} axes of {x.shape}")
    kept, gone = x.shape[: len(x.shape) - n], x.shape[len(x.shape) - n :]
    if rop.name == "max" and 0 in gone and 0 not in kept:
        fail(op, src, f"max over no elements (axes of length {gone}) has no value")
    if rop.name != "max" and x.dtype is boolean:
        fail(op, src, "sums and products of bool need a cast to an integer", TypeError)
    return ReduceArg(rop, n), kept, x.dtype


# The names of a STAGE, and how many sources each takes, at least and at most.
STAGES: dict[str, tuple[int, int | None]] = {
    "detach": (1, 1),
    "contiguous": (1, 1),
    "after": (2, 2),
    "checkpoint": (1, None),
}


def stage(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """The value of the first source, under one of the names below."""
    custom = isinstance(arg, str) and re.fullmatch(r"custom_\d+", arg)
    if arg not in STAGES and not custom:
        names = ", ".join(map(repr, STAGES))
        fail(op, src, f"expected one of {names} or 'custom_<number>', got {arg!r}")
    least, most = STAGES.get(arg, (1, None))
    if len(src) < least or (most is not None and len(src) > most):
        expected = least if least == most else f"at least {least}"
        fail(op, src, f"{arg!r} expects {expected} sources, got {len(src)}")
    return arg, src[0].shape, src[0].dtype


def loop_range(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """A scalar of the given integer dtype; a loop is serial unless it says more."""
    if isinstance(arg, tuple) and len(arg) == 3:
        arg = (*arg, "serial")
    _, extent, dtype, kind = arg = RangeArg(*_parts(op, src, arg))
    _element(op, src, dtype)
    if kind not in RANGE_KINDS:
        fail(op, src, f"expected a kind among {', '.join(RANGE_KINDS)}, got {kind!r}")
    if not dtype.is_int or not 0 <= extent <= dtype.max:
        why = "expected an integer type and an extent that it holds"
        fail(op, src, f"{why}, got {arg!r}")
    return arg, (), dtype


def effect(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """A statement about at least one source; has no value."""
    _no_arg(op, src[:4], arg)
    if not src:
        fail(op, src, "needs at least one source")
    return None, (), void


def sink(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """A name that the text form and C can write; has no value."""
    if not isinstance(arg, str) or not (arg.isascii() and arg.isidentifier()):
        why = f"expected a name of letters, digits and underscores, got {arg!r}"
        fail(op, src[:4], why)
    return arg, (), void


def store(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """A buffer, a scalar index and a scalar value."""
    _no_arg(op, src, arg)
    target, idx, value = src
    if target.op.name != "buffer" or not idx.dtype.is_int or idx.shape or value.shape:
        fail(op, src, "expected a buffer, a scalar integer index and a scalar value")
    if target.dtype is not value.dtype:
        fail(op, src, f"stores {value.dtype} into {target.dtype}", TypeError)
    return None, (), void


def after(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """The value of the first source."""
    _no_arg(op, src, arg)
    return None, src[0].shape, src[0].dtype

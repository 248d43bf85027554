"""What an error says: the op, what it got, what it expected."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from uopc.dtype import boolean, f32, f64, i32, u8, u32, void
from uopc.uop import BUILTIN_OPS, Ops, UOp
from uopc.uop.infer import MAX_RANK


def buf(n: int = 6, dtype=f32, slot: int = 0) -> UOp:
    return UOp.buffer(n, dtype, slot)


def table(dtype=f32) -> UOp:
    return buf(6, dtype).reshape((2, 3))


SCALAR = UOp.const(1.0, f32)
Case = tuple[str, Callable[[], UOp], type[Exception], list[str]]

# Name, what to build, the error's type, and words that must all be in it.
CASES: list[Case] = [
    ("shapes", lambda: buf(3) + buf(4), ValueError,
     ["add(f32[3], f32[4])", "shape mismatch (3,) vs (4,)", "equal shapes"]),
    ("scalar operand", lambda: buf(3) * SCALAR, ValueError,
     ["mul(f32[3], f32[])", "shape mismatch (3,) vs ()", "reshape and expand"]),
    ("dtypes", lambda: buf(3) + buf(3, i32), TypeError,
     ["add(f32[3], i32[3])", "dtype mismatch f32 vs i32", "cast"]),
    ("kind", lambda: buf(3, i32).sqrt(), TypeError,
     ["sqrt(i32[3])", "kind float", "cast"]),
    ("bool sum", lambda: buf(3, boolean) + buf(3, boolean), TypeError,
     ["add(bool[3], bool[3])", "int or uint or float"]),
    ("float bits", lambda: buf(3) & buf(3), TypeError, ["and(f32[3], f32[3])"]),
    ("signed shift", lambda: buf(3, i32) << buf(3, i32), TypeError,
     ["shl(i32[3], i32[3])", "kind uint"]),
    ("int division", lambda: buf(3, i32) / buf(3, i32), TypeError, ["div(i32[3]"]),
    ("where shape", lambda: buf(3, boolean).where(buf(3), buf(4)), ValueError,
     ["where(bool[3], f32[3], f32[4])", "shape mismatch (3,) vs (4,)"]),
    ("where condition", lambda: buf(3).where(buf(3), buf(3)), TypeError,
     ["where(f32[3]", "condition must be bool, not f32"]),
    ("where dtypes", lambda: buf(3, boolean).where(buf(3), buf(3, f64)), TypeError,
     ["dtype mismatch f32 vs f64"]),
    ("cast to void", lambda: UOp(Ops.CAST, (buf(),), void), TypeError,
     ["cast(f32[6])", "element type", "void"]),
    ("cast to nothing", lambda: UOp(Ops.CAST, (buf(),), None), TypeError,
     ["cast(f32[6])", "element type", "None"]),
    ("reshape", lambda: buf().reshape((4, 2)), ValueError,
     ["reshape(f32[6])", "(6,) (6 elements)", "(4, 2) (8 elements)"]),
    ("reshape negative", lambda: buf().reshape((-2, -3)), ValueError,
     ["reshape(f32[6])", "(-2, -3)"]),
    ("reshape to floats", lambda: buf().reshape((2.0, 3.0)), TypeError,
     ["reshape(f32[6])", "tuple of integers", "(2.0, 3.0)"]),
    ("reshape to a number", lambda: UOp(Ops.RESHAPE, (buf(),), 6), TypeError,
     ["reshape(f32[6])", "tuple of integers"]),
    ("expand", lambda: buf().expand((12,)), ValueError,
     ["expand(f32[6])", "(6,) to (12,)", "length 1"]),
    ("expand rank", lambda: buf(1).expand((3, 1)), ValueError,
     ["rank must be equal", "reshape first"]),
    ("expand negative", lambda: buf(1).expand((-1,)), ValueError, ["expand(f32[1])"]),
    ("permute", lambda: table().permute((0, 0)), ValueError,
     ["permute(f32[2, 3])", "(0, 0) is not a permutation of the 2 axes"]),
    ("permute count", lambda: table().permute((0,)), ValueError, ["(0,)", "2 axes"]),
    ("shrink outside", lambda: buf().shrink([(2, 7)]), ValueError,
     ["shrink(f32[6])", "window (2, 7)", "length 6"]),
    ("shrink reversed", lambda: buf().shrink([(4, 2)]), ValueError, ["window (4, 2)"]),
    ("shrink count", lambda: table().shrink([(0, 1)]), ValueError,
     ["one (begin, end) pair per axis"]),
    ("shrink flat", lambda: UOp(Ops.SHRINK, (buf(),), (0, 1)), TypeError,
     ["shrink(f32[6])", "integers"]),
    ("flip", lambda: UOp(Ops.FLIP, (buf(),), (1,)), ValueError,
     ["flip(f32[6])", "ascending axes below 1", "(1,)"]),
    ("flip order", lambda: UOp(Ops.FLIP, (table(),), (1, 0)), ValueError, ["(1, 0)"]),
    ("reduce too many", lambda: buf().reduce(Ops.ADD, 2), ValueError,
     ["reduce(f32[6])", "last 2 axes of (6,)"]),
    ("reduce none", lambda: buf().reduce(Ops.ADD, 0), ValueError, ["last 0 axes"]),
    ("reduce with", lambda: buf().reduce(Ops.CMPLT, 1), ValueError,
     ["add, mul or max, not Ops.CMPLT"]),
    ("reduce by name", lambda: UOp(Ops.REDUCE, (buf(),), ("add", 1)), ValueError,
     ["add, mul or max, not 'add'"]),
    ("reduce without", lambda: UOp(Ops.REDUCE, (buf(),), None), TypeError,
     ["reduce(f32[6])", "(op, n)", "None"]),
    ("sum of bool", lambda: buf(3, boolean).reduce(Ops.ADD, 1), TypeError,
     ["reduce(bool[3])", "cast to an integer"]),
    ("max of nothing", lambda: buf(0).reduce(Ops.MAX, 1), ValueError,
     ["reduce(f32[0])", "max over no elements"]),
    ("stack shapes", lambda: UOp.stack([buf(3), buf(4)]), ValueError,
     ["stack(f32[3], f32[4])", "shape mismatch (3,) vs (4,)"]),
    ("stack dtypes", lambda: UOp.stack([buf(3), buf(3, f64)]), TypeError,
     ["dtype mismatch f32 vs f64"]),
    ("stack of nothing", lambda: UOp.stack([]), ValueError, ["stack()", "one source"]),
    ("index outside", lambda: table().index(2), IndexError,
     ["index(f32[2, 3], i32[])", "index 2", "axis 0 of length 2"]),
    ("index second", lambda: table().index(0, 3), IndexError, ["axis 1 of length 3"]),
    ("index negative", lambda: table().index(-1), IndexError, ["index -1"]),
    ("index by float", lambda: table().index(buf(2)), TypeError,
     ["index must be an integer, not f32"]),
    ("index too many", lambda: table().index(0, 0, 0), ValueError,
     ["1 to 2 indices, got 3"]),
    ("index by two", lambda: table().index(buf(2, i32), buf(3, i32)), ValueError,
     ["shape mismatch (2,) vs (3,)"]),
    ("stage", lambda: UOp(Ops.STAGE, (buf(),), "other"), ValueError,
     ["stage(f32[6])", "'detach', 'contiguous'", "'other'"]),
    ("store", lambda: UOp(Ops.STORE, (buf(), buf(6, i32), SCALAR)), ValueError,
     ["store(", "scalar integer index"]),
    ("store dtype", lambda: UOp(Ops.STORE, (buf(), UOp.const(0, i32),
                                           UOp.const(1, i32))), TypeError,
     ["store(", "i32 into f32"]),
    ("buffer", lambda: UOp.buffer(-1, f32, 0), ValueError, ["buffer()", "-1"]),
    ("buffer size", lambda: UOp.buffer(2.5, f32, 0), TypeError, ["buffer()", "2.5"]),
    ("buffer dtype", lambda: UOp.buffer(3, "f32", 0), TypeError,
     ["buffer()", "element type"]),
    ("buffer space", lambda: UOp.buffer(3, f32, 0, space="moon"), ValueError, ["moon"]),
    ("param shape", lambda: UOp.param(0, f32, (-2,)), ValueError, ["param()", "-2"]),
    ("iota", lambda: UOp(Ops.IOTA, (), -1), ValueError, ["iota()", "got -1"]),
    ("iota size", lambda: UOp(Ops.IOTA, (), 2**31), ValueError, ["iota()", "length"]),
    ("range dtype", lambda: UOp(Ops.RANGE, (), (0, 4, f32)), ValueError,
     ["range()", "integer type"]),
    ("range extent", lambda: UOp(Ops.RANGE, (), (0, -4, i32)), ValueError, ["-4"]),
    ("const", lambda: UOp(Ops.CONST, (), 1.0), TypeError, ["const()", "UOp.const"]),
    ("needless argument", lambda: UOp(Ops.ADD, (buf(), buf()), 3), TypeError,
     ["add(f32[6], f32[6])", "no argument", "3"]),
    ("list of sources", lambda: UOp(Ops.ADD, [buf(), buf()]), TypeError,
     ["add: expected a tuple of sources", "not lists"]),
    ("list as argument", lambda: UOp(Ops.RESHAPE, (buf(),), [2, 3]), TypeError,
     ["reshape: expected", "[2, 3]"]),
    ("sources", lambda: UOp(Ops.ADD, (buf(),)), ValueError,
     ["add: expected 2 sources, got 1"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "kind", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_an_error_names_the_op_and_what_it_got(build, kind, words) -> None:
    with pytest.raises(kind) as error:
        build()
    assert error.type is kind
    for word in words:
        assert word in str(error.value)


MANY = [op for op in BUILTIN_OPS if op.kind == "elementwise" and op.arity > 1]


@pytest.mark.parametrize("op", MANY, ids=str)
def test_every_elementwise_op_refuses_a_bare_scalar(op) -> None:
    src = [buf(3, d) for d in (boolean, u32, u32)[-op.arity :]]
    if op in (Ops.DIV, Ops.FMA):
        src = [buf(3)] * op.arity
    with pytest.raises(ValueError, match=r"shape mismatch \(3,\) vs \(\)") as error:
        UOp(op, (*src[:-1], UOp.const(1, src[-1].dtype)))
    got = ", ".join(f"{s.dtype}[3]" for s in src[:-1])
    assert f"{op.name}({got}, {src[-1].dtype}[])" in str(error.value)


@pytest.mark.parametrize("op", BUILTIN_OPS, ids=str)
def test_every_op_counts_its_sources(op) -> None:
    if op.arity is None:
        assert op.kind in ("select", "loop") or op is Ops.SCATTER_ADD
        return
    with pytest.raises(ValueError, match=re.escape(f"{op.name}: expected {op.arity}")):
        UOp(op, (buf(),) * (op.arity + 1))


def test_a_failed_node_leaves_nothing_behind() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot reshape"):
            buf().reshape((7,))


LIMIT_CASES = {
    "reshape": lambda n: buf(1).reshape((1,) * n),
    "param": lambda n: UOp.param(0, f32, (1,) * n),
    "stack": lambda n: UOp.stack([buf(1).reshape((1,) * (n - 1))]),
    "index": lambda n: buf(1).reshape((1,) * (n // 2)).index(
        buf(1, u8).reshape((1,) * (n - n // 2 + 1))),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMIT_CASES)
def test_the_rank_is_limited(name: str) -> None:
    build = LIMIT_CASES[name]
    assert len(build(MAX_RANK).shape) == MAX_RANK
    with pytest.raises(ValueError, match=f"rank {MAX_RANK + 1} is above the limit"):
        build(MAX_RANK + 1)


ZERO_SIZE = {
    "reshape": (lambda: buf(0).reshape((3, 0)), (3, 0)),
    "expand": (lambda: buf(1).expand((0,)), (0,)),
    "expand more": (lambda: buf(0).reshape((0, 1)).expand((0, 4)), (0, 4)),
    "permute": (lambda: buf(0).reshape((3, 0)).permute((1, 0)), (0, 3)),
    "shrink": (lambda: buf(4).shrink([(2, 2)]), (0,)),
    "flip": (lambda: UOp(Ops.FLIP, (buf(0),), (0,)), (0,)),
    "sum": (lambda: buf(0).reduce(Ops.ADD, 1), ()),
    "max beside nothing": (lambda: buf(0).reshape((0, 3)).reduce(Ops.MAX, 1), (0,)),
    "stack": (lambda: UOp.stack([buf(0), buf(0)]), (2, 0)),
    "index": (lambda: table().index(buf(0, i32)), (0, 3)),
    "gather nothing": (lambda: buf(0).index(buf(2, i32)), (2,)),
    "iota": (lambda: UOp(Ops.IOTA, (), 0), (0,)),
    "cast": (lambda: buf(0).cast(f64), (0,)),
    "constant": (lambda: buf(0) + 1.0, (0,)),
}


@pytest.mark.parametrize("name", ZERO_SIZE)
def test_axes_of_length_zero_are_shapes_too(name: str) -> None:
    build, shape = ZERO_SIZE[name]
    assert build().shape == shape


def test_a_repr_says_what_a_node_is() -> None:
    u = buf().reshape((2, 3))
    assert repr(u) == "<Ops.RESHAPE f32[2, 3] of 1 sources, arg=(2, 3)>"

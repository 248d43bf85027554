"""Helpers of the C: each name defined once in a file, and each used.

gcc refuses the second definition of a name, and clang warns of what is not used.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from loop_programs import buf, end, loop, read, sink, source, store

from uopc.backend_c.backend import CBackend
from uopc.dtype import DTYPES, DType, bf16, boolean, f16, f32
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp

DEFINED = re.compile(r"^static inline .*?\b(\w+)\([^()]*\) \{$", re.M)
OPS = [op for op in BUILTIN_OPS if op.kind == "elementwise" and CBackend().supports(op)]


def values(op: OpDef, dtype: DType, x: UOp, y: UOp, mask: UOp) -> Iterator[UOp]:
    """An op on what differs from lane to lane, and by constants."""
    if op is Ops.CAST:
        # Half types come from f32 and go there.
        half = (f16, bf16)
        others = (f32,) if dtype in half else tuple(DTYPES.values())
        for other in others:
            if other is not dtype and (other not in half or dtype is f32):
                yield x.cast(other)
        return
    if dtype in (f16, bf16) and op is not Ops.WHERE:
        return
    first = mask if op is Ops.WHERE else x
    constants = (0, 1, 3, dtype.bits) if dtype.is_int else (0, 1, 3)
    for last in (y, *(UOp.const(c, dtype) for c in constants)):
        sources = (first, x, x, last) if op is Ops.WHERE else (first, x, last)
        sources = (*sources[: op.arity - 1], last) if op.arity > 1 else (x,)
        try:
            made = UOp(op, sources)
        except TypeError:  # the op does not take the type
            return
        yield made


def programs(dtype: DType, lanes: int) -> list[UOp]:
    """Every op on vectors of a type, each in a function of its own."""
    made: list[UOp] = []
    for op in OPS:
        lane = loop(0, lanes, "vector")
        x, y = read(buf(0, lanes, dtype), lane), read(buf(1, lanes, dtype), lane)
        mask = read(buf(2, lanes, boolean), lane)
        for value in values(op, dtype, x, y, mask):
            out = store(buf(3, lanes, value.dtype), lane, value)
            made.append(sink(f"p{len(made)}", end(lane, out)))
    assert made
    return made


@pytest.mark.parametrize("lanes", [4, 7])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_each_is_defined_once_and_used(dtype: DType, lanes: int) -> None:
    every = programs(dtype, lanes)
    defined = Counter(DEFINED.findall(source(every)))
    assert defined
    assert {name: n for name, n in defined.items() if n > 1} == {}
    for program in every:
        text = source([program])
        words = Counter(re.findall(r"\w+", text))
        unused = [name for name in DEFINED.findall(text) if words[name] < 2]
        assert not unused, text

"""What the tests of core share: comparison to the bit, and a machine for loops."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import DType, bf16
from uopc.uop import Ops, UOp, toposort

# For the module that some of them share.
sys.path.insert(0, str(Path(__file__).parent))

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def reference_backend() -> Iterator[None]:
    """Everything here runs on the interpreter, whatever else is installed."""
    with overriding(UOPC_BACKEND="interp"):
        yield


def _same_bits(got: Any, expected: Any) -> None:
    """Equal dtype, shape and bits; any NaN equals any NaN."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if got.dtype.kind == "f":
        nan = np.isnan(expected)
        assert np.array_equal(np.isnan(got), nan)
        word = f"u{got.dtype.itemsize}"
        got, expected = (
            np.ascontiguousarray(np.where(nan, 0, x).astype(x.dtype)).view(word)
            for x in (got, expected)
        )
    np.testing.assert_array_equal(got, expected)


@pytest.fixture(scope="session")
def same_bits() -> Callable[[Any, Any], None]:
    return _same_bits


class LoopMachine:
    """Runs a loop program one element at a time and mistrusts every address.

    Written apart from the package's own runner, and strict where C is not: a
    read takes place even in the branch of a WHERE that is not chosen, unless it has
    a gate.
    """

    def __init__(self, inputs: Mapping[int, Array]) -> None:
        self.inputs = inputs
        self.outputs: dict[int, Array] = {}
        self.writes: dict[int, list[int]] = {}
        self.read_back: set[int] = set()
        self.local: dict[int, Array] = {}
        self.loop: dict[UOp, int] = {}
        self.orders: dict[UOp, list[UOp]] = {}

    def run(self, sink: UOp) -> dict[int, Array]:
        """The buffers that ``sink`` writes.

        Every element exactly once, unless it reads there what it wrote before.
        """
        assert sink.op is Ops.SINK
        stores = (u.src[0].arg for u in toposort([sink]) if u.op is Ops.STORE)
        written = {slot for _, _, slot, _, space in stores if space == "global"}
        # An output may take the slot of an input that is not read any more.
        self.inputs = {k: a for k, a in self.inputs.items() if k not in written}
        for statement in sink.src:
            self.statement(statement)
        for slot, places in self.writes.items():
            found = set(places) if slot in self.read_back else places
            assert sorted(found) == list(range(self.outputs[slot].size)), slot
        return self.outputs

    def statement(self, s: UOp) -> None:
        if s.op is Ops.END:
            loop, *body = s.src
            number, extent, _, _ = loop.arg
            assert all(r.arg[0] != number for r in self.loop), "a loop inside itself"
            for i in range(extent):
                self.loop[loop] = i
                for inner in body:
                    self.statement(inner)
            self.loop.pop(loop, None)
            return
        assert s.op is Ops.STORE, s
        target, index, value = s.src
        order = self.orders.setdefault(s, toposort([index, value]))
        values: dict[UOp, Any] = {}
        for u in order:
            values[u] = self.value(u, values)
        self.store(target, int(values[index]), values[value])

    def store(self, target: UOp, at: int, value: Any) -> None:
        size, dtype, slot, _, space = target.arg
        assert 0 <= at < size, f"write at {at} of {size}"
        if space == "local":
            self.local.setdefault(slot, np.zeros(size, dtype.numpy))[at] = value
            return
        self.outputs.setdefault(slot, np.zeros(size, dtype.numpy))[at] = value
        self.writes.setdefault(slot, []).append(at)

    def value(self, u: UOp, values: dict[UOp, Any]) -> Any:
        if u.op is Ops.RANGE:
            return u.dtype.numpy.type(self.loop[u])
        if u.op is Ops.BUFFER:
            return None
        if u.op is Ops.INDEX:
            memory, at = u.src[0], int(values[u.src[1]])
            if len(u.src) == 3 and not values[u.src[2]]:
                return memory.dtype.numpy.type(0)
            size, _, slot, _, space = memory.arg
            assert 0 <= at < size, f"read at {at} of {size}"
            if space == "local":
                return self.local[slot][at]
            if slot in self.outputs:
                assert at in self.writes[slot], f"read at {at}, before it is written"
                self.read_back.add(slot)
                return self.outputs[slot][at]
            return self.inputs[slot][at]
        assert u.op.kind in ("leaf", "elementwise"), u
        assert u.shape == (), u
        return u.op.compute(u, *(values[s] for s in u.src))[()]


@pytest.fixture(scope="session")
def run_program() -> Callable[[UOp, Mapping[int, Array]], dict[int, Array]]:
    """``run_program(sink, inputs by slot)``: what the loop program writes."""

    def run(sink: UOp, inputs: Mapping[int, Array]) -> dict[int, Array]:
        with np.errstate(all="ignore"):
            return LoopMachine(inputs).run(sink)

    return run


@pytest.fixture(scope="session")
def evaluate_over() -> Callable[[UOp, Mapping[UOp, Array]], Array]:
    """``evaluate_over(u, values)``: a scalar expression over many values at once."""

    def run(root: UOp, given: Mapping[UOp, Array]) -> Array:
        values: dict[UOp, Array] = dict(given)
        with np.errstate(all="ignore"):
            for u in toposort([root], lambda n: () if n in given else n.src):
                if u not in values:
                    values[u] = u.op.compute(u, *(values[s] for s in u.src))
        return values[root]

    return run


FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-40, -1e-40, 1e30, -1e30,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip


def _special(dtype: DType) -> Array:
    """The values at which an op's meaning is easy to get wrong."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_float:
        info = np.finfo(dtype.numpy)
        ends = [float(info.max), float(info.smallest_subnormal)]
        if dtype is bf16:
            ends = [(2 - 2**-7) * 2.0**127, 2.0**-133]
        with np.errstate(over="ignore"):
            return dtype.round(np.array([*FLOATS, *ends]).astype(dtype.numpy))
    low, high = dtype.min, dtype.max
    near = {low, low + 1, -7, -3, -2, -1, 0, 1, 2, 3, 5, dtype.bits, high - 1, high}
    near |= {dtype.bits - 1, high // 2, dtype.bits + 1}
    return np.array(sorted(n for n in near if low <= n <= high), dtype.numpy)


@pytest.fixture(scope="session")
def special() -> Callable[[DType], Array]:
    """``special(dtype)``: extremes, zeros of both signs, NaN, infinities."""
    return _special

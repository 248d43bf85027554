"""The arguments of several fields, by name. Each equals the plain tuple."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from uopc.dtype import DType

if TYPE_CHECKING:
    from uopc.uop.opdef import OpDef


# Buffers of live data have slots from here on: parsed text never aliases them.
FIRST_LIVE_SLOT = 1 << 20


class BufferArg(NamedTuple):
    """What a BUFFER is: ``space`` is "global", or "local" to a kernel."""

    size: int
    dtype: DType
    slot: int
    version: int
    space: str


class ParamArg(NamedTuple):
    """What a PARAM stands for."""

    slot: int
    dtype: DType
    shape: tuple[int, ...]


# How a loop is run. What it computes does not depend on that.
RANGE_KINDS = ("serial", "parallel", "vector", "stream", "tile")


class RangeArg(NamedTuple):
    """A loop: its number, how often it runs, the type of its variable, and how it runs.

    Of ``kind`` "parallel", rounds may run at the same time; "vector" ones run in
    lockstep, as lanes; those of "stream" too, and what they store bypasses the cache;
    a "tile" is a loop nest that becomes a function of its own, for all that are alike.
    """

    number: int
    extent: int
    dtype: DType
    kind: str = "serial"


class ReduceArg(NamedTuple):
    """A reduction by ``op`` over the last ``n`` axes."""

    op: OpDef
    n: int


class ConvArg(NamedTuple):
    """How a CONV's positions meet: ``a * u == b * t + c * j + e`` along each axis.

    ``lengths`` are the result's along its spatial axes; ``second`` is 1 where the
    second source's axis comes before the first one's in the result.
    """

    lengths: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[int, ...]
    e: tuple[int, ...]
    second: int

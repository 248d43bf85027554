"""CONV: sums of products over windows, in which any of three can be the result.

An input, a kernel and an output meet, along each spatial axis, where their positions u,
t and j satisfy one linear equation. A convolution sums over all but j; its gradients
are the same sum of products with another of the three as the result. So they are CONVs
again, and so are theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from uopc.dtype import boolean, i32, i64
from uopc.uop.arguments import ConvArg
from uopc.uop.infer import Inferred, Sources, as_ints, fail

if TYPE_CHECKING:
    from uopc.uop.node import UOp
    from uopc.uop.opdef import OpDef

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
MAX_AXES = 9  # each has three of the loops, and four more are for all


class Axis(NamedTuple):
    """What is added up along one spatial axis: ``a * u == b * t + c * j + e``.

    u, t and j are positions in the first source, the second and the result.
    """

    inputs: int
    taps: int
    outputs: int
    a: int
    b: int
    c: int
    e: int


def axes_of(u: UOp) -> list[Axis]:
    """The spatial axes of a CONV."""
    x, w = u.src
    arg: ConvArg = u.arg
    lengths = zip(x.shape[3:], w.shape[3:], arg.lengths, strict=True)
    numbers = zip(arg.a, arg.b, arg.c, arg.e, strict=True)
    return [Axis(*n, *k) for n, k in zip(lengths, numbers, strict=True)]


# -- inference ------------------------------------------------------------------------


def infer(op: OpDef, src: Sources, arg: Any) -> Inferred:
    """(A, G, C, *inputs) and (G, B, C, *taps), of one type of numbers."""
    if not isinstance(arg, tuple) or len(arg) != 6:
        names = ", ".join(f.name for f in op.arg)
        fail(op, src, f"expected the argument ({names}), got {arg!r}", TypeError)
    lengths, a, b, c, e = (as_ints(op, src, part) for part in arg[:5])
    (second,) = as_ints(op, src, (arg[5],))
    x, w = src
    if x.dtype is not w.dtype or x.dtype is boolean:
        why = "expected numbers of one type; cast one of the sources"
        fail(op, src, why, TypeError)
    n = len(lengths)
    if (
        not 1 <= n <= MAX_AXES
        or {len(p) for p in (a, b, c, e)} != {n}
        or len(x.shape) != n + 3
    ):
        why = f"expected sources of {n + 3} axes and {n} numbers of each kind"
        fail(op, src, f"{why}, for 1 to {MAX_AXES} spatial axes")
    groups, channels = x.shape[1:3]
    if len(w.shape) != n + 3 or (groups, channels) != (w.shape[0], w.shape[2]):
        fail(op, src, "expected (A, G, C, ...) and (G, B, C, ...), with one G and C")
    if 0 in (*a, *b, *c) or min(lengths, default=0) < 0 or second not in (0, 1):
        fail(op, src, "expected factors other than 0, lengths from 0, and 0 or 1 last")
    if any(abs(k) >= 2**31 for k in (*a, *b, *c, *e)):
        fail(op, src, "expected numbers of 32 bits")
    lead = (groups, w.shape[1], x.shape[0]) if second else (*x.shape[:2], w.shape[1])
    return ConvArg(lengths, a, b, c, e, second), lead + lengths, x.dtype


# -- meaning --------------------------------------------------------------------------


def meaning(u: UOp, x: Array, w: Array) -> Array:
    """Each axis of the input as windows, (outputs, taps), and then one sum of products.

    What is read out of range is 0.
    """
    for k, axis in enumerate(axes_of(u)):
        j, t = np.ogrid[: axis.outputs, : axis.taps]
        scaled = axis.b * t + axis.c * j + axis.e
        at = scaled // axis.a
        inside = (scaled % axis.a == 0) & (at >= 0) & (at < axis.inputs)
        place = 3 + 2 * k
        inside = inside.reshape(*inside.shape, *[1] * (x.ndim - place - 1))
        if axis.inputs:
            x = np.take(x, np.where(inside.reshape(at.shape), at, 0), place)
        else:
            x = np.zeros((*x.shape[:place], *at.shape, *x.shape[place + 1 :]), x.dtype)
        x = np.where(inside, x, x.dtype.type(0))
    n = len(u.arg.lengths)
    taps = [1, *range(3, 3 + 2 * n, 2)], [1, *range(2, 2 + n)]
    each = [np.tensordot(x[:, g], w[g], taps) for g in range(len(w))]
    none = np.zeros((0, x.shape[0], *u.arg.lengths, w.shape[1]), x.dtype)
    whole = np.moveaxis(np.stack(each) if each else none, -1, 2)  # (G, A, B, *outputs)
    lead = (0, 2, 1) if u.arg.second else (1, 0, 2)
    return np.asarray(whole.transpose(*lead, *range(3, 3 + n)), x.dtype)


# -- in other ops ---------------------------------------------------------------------


class _Walk(NamedTuple):
    """How the terms of one axis are enumerated, without a division in any index.

    A loop over one source's positions gives those of the other. Where only every m-th
    position meets another, those are the loop, and start at a place that depends on
    the result's position modulo ``phases``, which is therefore split in two.
    """

    rounds: int  # of the loop
    blocks: int  # of ``phases`` positions of the result each
    phases: int
    looped: Sequence[int]  # position: stride * round + start[phase]
    stride: int
    solved: Sequence[int]  # position: by_round * round + by_block * block + ...
    by_round: int
    by_block: int


def _walk(looped: int, outputs: int, a: int, b: int, c: int, e: int) -> _Walk:
    """For ``a * solved == b * looped + c * output + e``, of these lengths."""
    if a < 0:
        a, b, c, e = -a, -b, -c, -e
    shared = math.gcd(a, b)
    stride, period = a // shared, a // math.gcd(a, c)
    phases = min(period, max(outputs, 1))  # of fewer, each position is one
    rounds, blocks = -(-looped // stride), -(-outputs // phases)
    by_round, by_block = b // shared, c * phases // a
    starts, meets = [], []
    for phase in range(phases):
        rest = c * phase + e
        start, meet = looped, 0  # nothing meets: out of range
        if rest % shared == 0:
            start = -(rest // shared) * pow(by_round, -1, stride) % stride
            meet = (b * start + rest) // a
        starts.append(start)
        meets.append(meet)
    return _Walk(rounds, blocks, phases, starts, stride, meets, by_round, by_block)


class _Read(NamedTuple):
    """Where one source is read along one axis, over (blocks, phases, rounds)."""

    length: int
    by_block: int
    by_round: int
    starts: Sequence[int]  # by phase
    grid: Shape

    @property
    def whole(self) -> bool:
        """Whether the rounds are its positions, as they are."""
        blocks, phases, rounds = self.grid
        still = (blocks == 1 or not self.by_block) and phases == 1
        return still and (self.by_round, self.starts[0], rounds) == (1, 0, self.length)


def _reads(axis: Axis) -> tuple[_Read, _Read, Shape]:
    """How both sources are read along an axis, and how often: as seldom as can be."""
    inputs, taps, outputs, a, b, c, e = axis
    by_taps = _walk(taps, outputs, a, b, c, e)
    by_inputs = _walk(inputs, outputs, b, a, -c, -e)
    turned = (by_inputs.rounds, by_inputs.phases) < (by_taps.rounds, by_taps.phases)
    w = by_inputs if turned else by_taps
    grid = (w.blocks, w.phases, w.rounds)
    x_length, w_length = (taps, inputs) if turned else (inputs, taps)
    looped = _Read(w_length, 0, w.stride, w.looped, (1, *grid[1:]))
    solved = _Read(x_length, w.by_block, w.by_round, w.solved, grid)
    return (looped, solved, grid) if turned else (solved, looped, grid)


def lowered(u: UOp, iota: OpDef, add: OpDef) -> UOp:
    """The sum of products of the second source and windows of the first one.

    Indices are sums of multiples of loop variables, at most with a choice by phase;
    the axes of the result come first, in their order, so that nothing is transposed.
    """
    x, w = u.src
    of_x, of_w, grids = zip(*map(_reads, axes_of(u)), strict=True)
    n = len(grids)
    places, rounds = range(3, 3 + 2 * n), range(3 + 2 * n, 3 + 3 * n)
    a, (g, b), second = x.shape[0], w.shape[:2], u.arg.second
    right = _window(x, of_x, iota).permute([*_LEAD[second], *places, 2, *rounds])
    left = _window(w, of_w, iota).permute([0, 1, *places, 2, *rounds])
    blocks = [m for grid in grids for m in grid[:2]]
    every = (*u.shape[:3], *blocks, x.shape[2], *(grid[2] for grid in grids))
    left_lead, right_lead = ((g, b, 1), (g, 1, a)) if second else ((1, g, b), (a, g, 1))
    kept = [k for k, m in enumerate(every) if m != 1 or k >= 3 + 2 * n]
    shape = [every[k] for k in kept]

    def spread(lead: Shape, s: UOp) -> UOp:
        own = (*lead, *s.shape[2:])
        return s.reshape([own[k] for k in kept]).expand(shape)

    total = (spread(left_lead, left) * spread(right_lead, right)).reduce(add, n + 1)
    if math.prod(every[3 + 2 * n :]) == 1:
        total += 0.0  # A sum starts at 0: of -0 alone, too, it is 0.
    total = total.reshape((*u.shape[:3], *(grid[0] * grid[1] for grid in grids)))
    return total if total.shape == u.shape else total.shrink([(0, m) for m in u.shape])


_LEAD = ((0, 1), (1, 0))  # of the first source, by whether the second comes first


def _window(s: UOp, reads: Sequence[_Read], iota: OpDef) -> UOp:
    """A source over its first three axes, blocks and phases of each axis, all rounds.

    What is read out of range is 0.
    """
    n = len(reads)
    if all(r.whole for r in reads):
        return s.reshape((*s.shape[:3], *(1,) * (2 * n), *s.shape[3:]))
    idx = [_positions(s, k, reads, iota) for k in range(n)]
    read = s.permute([*range(3, 3 + n), 0, 1, 2]).index(*idx)
    return read.permute([3 * n, 3 * n + 1, 3 * n + 2, *range(3 * n)])


def _positions(like: UOp, k: int, reads: Sequence[_Read], iota: OpDef) -> UOp:
    """The positions along axis ``k``, an index over blocks, phases and rounds."""
    make, n, r = type(like), len(reads), reads[k]
    shape = [m for read in reads for m in read.grid[:2]] + [q.grid[2] for q in reads]
    blocks, phases, rounds = r.grid
    reach = abs(r.by_block) * blocks + abs(r.by_round) * rounds
    dtype = i32 if reach + max(map(abs, r.starts)) < 2**31 else i64
    start, by_phase = r.starts[0], 0
    if phases > 1:
        by_phase = r.starts[1] - start
    regular = all(s == start + by_phase * i for i, s in enumerate(r.starts))
    parts = [(r.by_block, 2 * k, blocks), (r.by_round, 2 * n + k, rounds)]
    terms: list[UOp] = []
    if regular:
        parts.append((by_phase, 2 * k + 1, phases))
    else:
        table = make.stack([make.const(s, dtype) for s in r.starts])
        terms.append(_along(table, 2 * k + 1, shape))
        start = 0
    for factor, place, length in parts:
        if factor and length > 1:
            steps = make(iota, (), length).cast(dtype)
            terms.append(_along(steps if factor == 1 else steps * factor, place, shape))
    total = None
    for term in terms:
        total = term if total is None else total + term
    if total is None:
        return make.const(start, dtype).broadcast_scalar(tuple(shape))
    return total + start if start else total


def _along(u: UOp, place: int, shape: Sequence[int]) -> UOp:
    """A vector along one axis of ``shape``, and repeated along the others."""
    ones = [m if k == place else 1 for k, m in enumerate(shape)]
    return u.reshape(ones).expand(shape)


def samples(x: UOp, op: OpDef) -> list[UOp]:
    """Of rows with steps, with gaps and padding, transposed, and of two axes."""
    rows, taps = x.reshape((1, 1, 2, 3)), x.flip((1,)).reshape((1, 1, 2, 3))
    square, ones = x.reshape((1, 1, 1, 2, 3)), (1, 1)
    pairs = (rows, taps), (rows, taps), (square, square)
    meet = (
        ((3,), (1,), (2,), (1,), (-2,), 0),
        ((5,), (2,), (-1,), (1,), (1,), 1),
        ((2, 2), ones, ones, (1, 2), (0, -1), 0),
    )
    return [type(x)(op, *both) for both in zip(pairs, meet, strict=True)]

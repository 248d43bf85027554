"""Training steps of small networks as graphs, over buffers that hold no data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from uopc.autodiff import gradient
from uopc.dtype import f32, i32
from uopc.tensor import Tensor
from uopc.uop import UOp

Block = Callable[[Tensor], Tensor]
Mark = Callable[[Block], Block]

_slots = itertools.count()


def plain(f: Block) -> Block:
    """A block as it is; ``checkpoint`` is the other mark there is."""
    return f


def data(*shape: int, dtype: object = f32) -> Tensor:
    """A tensor of its own."""
    node = UOp.buffer(math.prod(shape), dtype, next(_slots))  # type: ignore[arg-type]
    return Tensor(node.reshape(shape))


def mlp(depth: int, width: int, rows: int, mark: Mark = plain) -> list[Tensor]:
    """The loss of a deep network of two products per block, and its parameters."""
    x, y = data(rows, width), data(rows, width)
    params: list[Tensor] = []
    for _ in range(depth):
        w, b, u = data(width, 4 * width), data(4 * width), data(4 * width, width)
        params += [w, b, u]
        x = mark(lambda x, w=w, b=b, u=u: (x @ w + b).tanh() @ u + x)(x)  # type: ignore[misc]
    return [(x - y).square().mean(), *params]


def transformer(depth: int, width: int, rows: int, mark: Mark = plain) -> list[Tensor]:
    """Attention with four heads and a network per block; cross entropy at the end."""
    heads, batch, vocab = 4, 4, 200
    table, idx, goal = data(vocab, width), *(data(batch, rows, dtype=i32) for _ in "xy")
    params = [table]
    x = table.apply(lambda t, i: t.index(i), idx)

    def norm(x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    def block(x: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> Tensor:
        h = norm(x)
        split = (batch, rows, heads, width // heads)
        a, b, c = ((h @ w).reshape(split).permute((0, 2, 1, 3)) for w in (q, k, v))
        scores = (a @ b.transpose() * 0.3).softmax(-1)
        return x + (scores @ c).permute((0, 2, 1, 3)).reshape(x.shape) @ o

    for _ in range(depth):
        ws = [data(width, width) for _ in range(4)]
        w, u = data(width, 4 * width), data(4 * width, width)
        params += [*ws, w, u]

        def whole(x: Tensor, ws: Sequence[Tensor] = ws, w=w, u=u) -> Tensor:  # type: ignore[no-untyped-def]
            x = block(x, *ws)
            return x + (norm(x) @ w).gelu() @ u

        x = mark(whole)(x)
    logits = (norm(x) @ table.transpose()).reshape((batch * rows, vocab))
    return [logits.cross_entropy(goal.reshape((batch * rows,))), *params]


def cnn(depth: int, width: int, rows: int, mark: Mark = plain) -> list[Tensor]:
    """Convolutions of images as a gather of patches and a product, and pooling."""
    side, channels = rows, 3
    x = data(8, side * side, channels)
    params: list[Tensor] = []
    for _ in range(depth):
        at = np.arange(side * side).reshape(side, side)
        rolled = [np.roll(at, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)]
        patches = Tensor(np.stack(rolled, -1).astype(np.int32).reshape(-1))
        w = data(9 * channels, width)
        params.append(w)

        def block(x: Tensor, w: Tensor = w, patches: Tensor = patches) -> Tensor:
            n, pixels, c = x.shape
            rows = x.permute((1, 0, 2)).apply(lambda t, i: t.index(i), patches)
            rows = rows.reshape((pixels, 9, n, c)).permute((2, 0, 1, 3))
            return (rows.reshape((n, pixels, 9 * c)) @ w).relu()

        x = mark(block)(x)
        channels = width
        if side % 2 == 0 and side > 2:
            side //= 2
            grid = x.reshape((8, side, 2, side, 2, channels))
            x = grid.max((2, 4)).reshape((8, side * side, channels))
    head = data(side * side * channels, 10)
    logits = x.reshape((8, -1)) @ head
    return [logits.cross_entropy(data(8, dtype=i32)), *params, head]


def sgd(loss: Tensor, *params: Tensor) -> list[UOp]:
    """Loss and updated parameters."""
    grads = gradient(loss.uop, [p.uop for p in params])
    return [loss.uop, *(p.uop - g * 0.1 for p, g in zip(params, grads, strict=True))]


def gradients(loss: Tensor, *params: Tensor) -> list[UOp]:
    """Loss and gradients."""
    return [loss.uop, *gradient(loss.uop, [p.uop for p in params])]


def adam(loss: Tensor, *params: Tensor) -> list[UOp]:
    """Loss, moments and updated parameters; gradients are on the way only."""
    roots = [loss.uop]
    for p, g in zip(params, map(Tensor, gradients(loss, *params)[1:]), strict=True):
        m, v = (data(*p.shape) * c + d for c, d in ((0.9, g * 0.1), (0.99, g * g)))
        roots += [m.uop, v.uop, (p - m / (v.sqrt() + 1e-8)).uop]
    return roots


def clipped(loss: Tensor, *params: Tensor) -> list[UOp]:
    """Loss and parameters updated by gradients that are together of length 1."""
    grads = [Tensor(g) for g in gradients(loss, *params)[1:]]
    length = sum((g.square().sum() for g in grads[1:]), grads[0].square().sum()).sqrt()
    steps = (p - g / length for p, g in zip(params, grads, strict=True))
    return [loss.uop, *(p.uop for p in steps)]

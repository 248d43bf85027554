"""Random assignments to elements, and programs of them, against NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.tensor import Tensor, realize_all

Array = np.ndarray[Any, Any]
TYPES = [np.float32, np.int32, np.float64, np.uint8, np.bool_, np.float16, np.int64]


class Random:
    """Random arrays, keys of every kind that mean something to NumPy, and values."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = tuple(self.rng.integers(1, 6, self.rng.integers(0, 5)).tolist())
        if self.shape and self.often(0.05):
            self.shape = (0, *self.shape[1:])
        self.masked = False

    def often(self, chance: float) -> bool:
        return bool(self.rng.random() < chance)

    def array(self, shape: tuple[int, ...], dtype: Any) -> Array:
        x = self.rng.integers(0, 100, shape)
        return np.asarray(x % 2 if dtype is np.bool_ else x).astype(dtype)

    def end(self, n: int) -> int | None:
        return None if self.often(0.3) else int(self.rng.integers(-n - 2, n + 3))

    def part(self, n: int, block: tuple[int, ...]) -> Any:
        """A key of one axis."""
        kind = self.rng.random()
        if kind < 0.2 and n:
            return int(self.rng.integers(-n, n))
        if kind < 0.6 or not n:
            step = [None, 1, 2, 3, -1, -2, 5][self.rng.integers(7)]
            return slice(self.end(n), self.end(n), step)
        if kind < 0.7 and not self.masked and block is MASKS:
            self.masked = True
            return self.rng.random(n) < 0.5
        if block is MASKS:
            return slice(None, None, -1)
        some = block[self.rng.integers(len(block) + 1) :]
        dtype = [np.int8, np.int32, np.int64][self.rng.integers(3)]
        return self.rng.integers(-n, n, some if 0 not in block else block, dtype)

    def key(self) -> tuple[Any, ...]:
        block = BLOCKS[self.rng.integers(len(BLOCKS))]
        rank = len(self.shape)
        used = int(self.rng.integers(0, rank + 1))
        front = int(self.rng.integers(0, used + 1)) if self.often(0.5) else used
        axes = [*range(front), *range(rank - used + front, rank)]
        parts = []
        for i, axis in enumerate(axes):
            parts += [Ellipsis] if i == front else []
            parts += [None] if self.often(0.1) else []
            parts.append(self.part(self.shape[axis], block))
        return (*parts, None) if self.often(0.1) else tuple(parts)

    def tensors(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """The key with tensors and lists for some of its arrays."""
        ways: list[Callable[[Any], Any]] = [
            Tensor,
            Tensor,
            np.asarray,
            np.ndarray.tolist,
        ]
        return tuple(
            ways[self.rng.integers(3 + bool(k.size and k.ndim))](k)
            if isinstance(k, np.ndarray) else k
            for k in key
        )  # fmt: skip

    def value(self, key: tuple[Any, ...], x: Array) -> Array:
        dtype = [x.dtype.type, x.dtype.type, np.float32, np.int32][self.rng.integers(4)]
        if self.masked:
            return self.array((), dtype)
        shape = tuple(1 if self.often(0.25) else n for n in x[key].shape)
        skip = self.rng.integers(0, len(shape) + 1) if self.often(0.3) else 0
        return self.array(shape[skip:], dtype)


MASKS = (-1,)
BLOCKS = [(), (3,), (2, 1), (1,), (2, 3), (20,), (0,), MASKS, MASKS]


def assignment(seed: int) -> tuple[Tensor, Tensor, Array, Array]:
    """A tensor that was assigned to, a view of it from before, and both in NumPy."""
    rand = Random(seed)
    x = rand.array(rand.shape, TYPES[rand.rng.integers(len(TYPES))])
    key = rand.key()
    value = rand.value(key, x)
    t = Tensor(x)
    if rand.often(0.5):
        t = t.flip().flip()
    if rand.often(0.2):
        t.realize()
    view = t[..., None]
    number = value.ndim == 0 and rand.often(0.5)
    t[rand.tensors(key)] = value.item() if number else Tensor(value)
    want = x.copy()
    want[key] = value
    return t, view, want, x[..., None]


@pytest.mark.parametrize(("backend", "first", "count"), [
    *(("interp", 20 * k, 20) for k in range(5)), ("c", 5000, 20), ("c", 5020, 20),
    ("c", 5040, 20),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:the same graph has been compiled")
def test_random_assignments(backend: str, first: int, count: int) -> None:
    with overriding(UOPC_BACKEND=backend, UOPC_OPT=0):
        made = [assignment(seed) for seed in range(first, first + count)]
        realize_all([t for t, *_ in made] + [view for _, view, *_ in made])
        for k, (t, view, want, before) in enumerate(made):
            assert t.numpy().dtype == want.dtype
            np.testing.assert_array_equal(t.numpy(), want, err_msg=f"seed {first + k}")
            np.testing.assert_array_equal(view.numpy(), before)


def program(seed: int, steps: int) -> None:
    """Tensors that are assigned to, read, viewed and shared, beside NumPy's copies."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 9, (3, 4)).astype(np.float32)
    pairs = [(Tensor(start), start), (Tensor(start) * 2.0, start * 2)]
    slices = [0, -1, slice(None), slice(1, None), slice(None, None, -2), [0, 1, 0],
              np.array([-1, 0, 2])]  # fmt: skip
    for _ in range(steps):
        t, x = pairs[rng.integers(len(pairs))]
        key = tuple(slices[rng.integers(len(slices))] for _ in range(x.ndim))[:2]
        kind = rng.integers(8)
        if kind < 3:
            u, y = pairs[rng.integers(len(pairs))]
            value = y.sum() % 7
            t[key] = u.sum() % 7.0
            x[key] = value
        elif kind == 3:
            t[key] += 1.0
            x[key] += 1
        elif kind == 4:
            made = [(t[...], x), (t.detach(), x), (t.reshape(-1), x.reshape(-1)),
                    (t.flip(), np.flip(x)), (Tensor(t.uop), x),
                    (t.assign(t * 1.0) + 1.0, x + 1)]  # fmt: skip
            u, y = made[rng.integers(len(made))]
            pairs.append((u, y.copy()))
        elif kind == 5:
            assert t.numpy().tolist() == x.tolist()
        else:
            chosen = [u for u, _ in pairs if rng.random() < 0.5]
            realize_all(chosen)
        pairs = pairs[-6:]
    realize_all([t for t, _ in pairs])
    for t, x in pairs:
        assert t.numpy().tolist() == x.tolist()


@pytest.mark.parametrize(
    ("backend", "first", "count"), [("interp", 0, 15), ("c", 100, 3), ("c", 104, 3)]
)
@pytest.mark.filterwarnings("ignore:the same graph has been compiled")
def test_random_programs(backend: str, first: int, count: int) -> None:
    with overriding(UOPC_BACKEND=backend, UOPC_OPT=0):
        for seed in range(first, first + count):
            program(seed, steps=14)

"""Random programs of assignments: every tensor must keep the value of its time.

An assignment gives a tensor a new value for what is built afterwards. What was built
before sees the old one, computed or not, although the runtime writes over memory that
nobody seems to read any more. So a program builds lazy tensors, views and aliases,
assigns, computes some and forgets some, in random order, and in the end every value
is compared with what NumPy says. Values are integers below 5: all dtypes are exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uopc.dtype import DType, f32
from uopc.runtime import buffer_data
from uopc.runtime.values import held
from uopc.tensor import Tensor, realize_all

Array = np.ndarray[Any, Any]

N = 3

# By name: what makes a value of two others, of tensors and of arrays alike.
MAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: (a + b) % 5,
    "more": lambda a, b: (a + 1) % 5,
    "product": lambda a, b: (a * b) % 5,
    "mixed": lambda a, b: (a * 3 + b.sum(0) + b) % 5,
    "matmul": lambda a, b: (a @ b) % 5,
    "square": lambda a, b: (a @ a) % 5,
    "turned": lambda a, b: a.T,
    "turned sum": lambda a, b: (a.T + b) % 5,
    "own turn": lambda a, b: (a + a.T) % 5,
    "reversed": lambda a, b: a[::-1],
    "reversed sum": lambda a, b: (a[::-1] + b[:, ::-1]) % 5,
    "rows": lambda a, b: a[[1, 2, 0]],
    "shifted": lambda a, b: (a[0] + b) % 5,
    "reshaped": lambda a, b: ((a.reshape(N * N) + 2) % 5).reshape(N, N),
    "total": lambda a, b: (a - a + b.sum()) % 5,
    "steps": lambda a, b: ((a @ b) % 5 + a) % 5,
}
ALIASES: dict[str, Callable[[Tensor], Tensor]] = {
    "detach": lambda t: t.detach(),
    "reshape": lambda t: t.reshape(N * N).reshape(N, N),
    "node": lambda t: Tensor(t.uop),
}


def memory_of(t: Tensor) -> int:
    """Where the value of a computed tensor is; nobody holds the array after that."""
    node = held(t.uop)
    assert node is not None
    return buffer_data(node).ctypes.data


@dataclass(eq=False)
class _Held:
    """A tensor, the value that it must have, and its name in the log."""

    tensor: Tensor
    value: Array
    name: str


@dataclass
class Assignments:
    """One random program.

    Args:
        seed: which one.
        dtype: of all tensors.
        steps: how many statements.
        shapes: how many different expressions it may use; fewer give fewer plans.

    Attributes:
        log: its statements.
    """

    seed: int
    dtype: DType = f32
    steps: int = 30
    shapes: int = len(MAKERS)
    log: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Run it; AssertionError, with the log, if a value is not what it must be."""
        rng = self._rng = random.Random(self.seed)
        self._makers = rng.sample(sorted(MAKERS), min(self.shapes, len(MAKERS)))
        self._pool: list[_Held] = []
        self._most = rng.randint(3, 12)
        self._views: list[tuple[Array, Array, str]] = []
        for _ in range(rng.randint(2, 4)):
            value = np.array([rng.randrange(5) for _ in range(N * N)]).reshape(N, N)
            wanted = self.dtype.is_float and rng.random() < 0.4
            t = Tensor(value.astype(np.float64), self.dtype, requires_grad=wanted)
            self._add(t, value, "data")
        actions: list[Callable[[], None]] = [
            *[self._assign] * 6, *[self._make] * 4, *[self._realize] * 4,
            *[self._alias] * 2, *[self._forget] * 2, self._exchange, self._look,
            self._read,
        ]  # fmt: skip
        for _ in range(self.steps):
            rng.choice(actions)()
        rng.shuffle(self._pool)
        for entry in self._pool:
            self._compare(entry)
        for memory, value, name in self._views:
            self._require(np.array_equal(memory, value), f"memory of {name} changed")

    def _add(self, t: Tensor, value: Array, how: str) -> _Held:
        held = _Held(t, value, f"t{len(self.log)}")
        self.log.append(f"{held.name} = {how}")
        self._pool.append(held)
        return held

    def _pick(self) -> _Held:
        return self._rng.choice(self._pool)

    def _expression(self) -> tuple[Tensor, Array, str]:
        a, b, name = self._pick(), self._pick(), self._rng.choice(self._makers)
        make = MAKERS[name]
        value = np.broadcast_to(make(a.value, b.value), (N, N))
        new = make(a.tensor, b.tensor)
        return new.detach(), value, f"{name}({a.name}, {b.name})"

    def _make(self) -> None:
        if len(self._pool) < self._most:
            self._add(*self._expression())

    def _alias(self) -> None:
        of, how = self._pick(), self._rng.choice(sorted(ALIASES))
        if len(self._pool) < self._most:
            self._add(ALIASES[how](of.tensor), of.value, f"{how}({of.name})")

    def _assign(self) -> None:
        target = self._pick()
        if not target.tensor.is_leaf:
            return
        new, value, what = self._expression()
        target.tensor.assign(new)
        target.value = value
        self.log.append(f"{target.name}.assign({what})")

    def _exchange(self) -> None:
        """Values go round among some tensors, without arithmetic."""
        leaves = [h for h in self._pool if h.tensor.is_leaf]
        ring = self._rng.sample(leaves, min(len(leaves), self._rng.randint(2, 3)))
        olds = [(h.tensor.detach(), h.value) for h in ring]
        for h, (t, value) in zip(ring, [*olds[1:], olds[0]], strict=True):
            h.tensor.assign(t)
            h.value = value
        self.log.append(f"exchange {[h.name for h in ring]}")

    def _realize(self) -> None:
        most = self._rng.choice([1, 3, len(self._pool)])
        count = self._rng.randint(1, min(most, len(self._pool)))
        some = self._rng.sample(self._pool, count)
        self.log.append(f"realize {[h.name for h in some]}")
        realize_all([h.tensor for h in some])

    def _forget(self) -> None:
        if len(self._pool) > 2:
            gone = self._pool.pop(self._rng.randrange(len(self._pool)))
            self.log.append(f"del {gone.name}")

    def _look(self) -> None:
        """Hold the memory of a tensor itself, as who is about to copy it does."""
        held = self._pick()
        self.log.append(f"look at {held.name}")
        memory = held.tensor._memory()
        self._views.append((memory, memory.copy(), held.name))

    def _read(self) -> None:
        self._compare(self._pick())

    def _compare(self, held: _Held) -> None:
        self.log.append(f"read {held.name}")
        got = held.tensor.numpy()
        self._require(
            np.array_equal(got.astype(np.float64), held.value),
            f"{held.name} is\n{got}\nand must be\n{held.value}",
        )

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            text = "\n".join(self.log)
            raise AssertionError(f"seed {self.seed}, {self.dtype}: {what}\n{text}")

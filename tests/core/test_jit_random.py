"""Random functions on random state, called with and without `jit`, to the bit."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.runtime import jit
from uopc.tensor import Tensor

N = 4
Values = list[Tensor]


def fresh(rng: random.Random) -> Tensor:
    values = [rng.randrange(-3, 4) for _ in range(N)]
    return Tensor(np.array(values, np.float32))


def operation(rng: random.Random) -> Callable[[Values], Tensor]:
    """A function of some of the values at hand."""
    i, j, kind = rng.randrange(8), rng.randrange(8), rng.randrange(9)

    def f(v: Values) -> Tensor:
        a, b = v[i % len(v)], v[j % len(v)]
        match kind:
            case 0:
                return a + b
            case 1:
                return a.maximum(b) * 0.5
            case 2:
                return (a < b).where(a, b)
            case 3:
                return a - a.sum() * 0.25
            case 4:
                return a[::-1] + b
            case 5:
                return a.reshape(2, 2).T.reshape(4)
            case 6:
                return a.detach()
            case 7:
                return a * (Tensor.rand(N) < 0.5)
            case _:
                return b

    return f


class Program:
    """Steps of a function, the same each time, on state of its own."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.state = [fresh(rng) for _ in range(rng.randrange(1, 4))]
        if rng.random() < 0.3:
            self.state.append(self.state[0].detach())
        self.steps: list[tuple[str, int, Any]] = [
            (
                rng.choice(["make", "make", "assign", "assign", "realize", "iadd"]),
                rng.randrange(8),
                operation(rng),
            )
            for _ in range(rng.randrange(2, 9))
        ]
        self.results = [rng.randrange(8) for _ in range(rng.randrange(3))]

    def __call__(self, *args: Tensor) -> tuple[Tensor, ...]:
        made = list(args)
        for what, i, f in self.steps:
            at_hand = [*made, *self.state]
            t = self.state[i % len(self.state)]
            if what == "make":
                made.append(f(at_hand))
            elif what == "assign":
                t.assign(f(at_hand))
            elif what == "iadd":
                t.assign(t + f(at_hand))
            else:
                at_hand[i % len(at_hand)].realize()
        at_hand = [*made, *self.state]
        return tuple(at_hand[i % len(at_hand)] for i in self.results)


def play(seed: int, wrap: Callable[[Program], Any]) -> list[bytes]:
    """Call a program several times, and do things in between; all that is seen."""
    rng = random.Random(-seed - 1)
    Tensor.manual_seed(seed)
    program = Program(seed)
    f, seen, kept = wrap(program), list[bytes](), list[Tensor]()
    arity = rng.randrange(3)
    arguments = [fresh(rng) for _ in range(3)]
    for _ in range(7):
        chosen = [rng.choice(arguments) for _ in range(arity)]
        if rng.random() < 0.3:
            arguments[rng.randrange(3)] = fresh(rng)
        results = f(*chosen)
        t = rng.choice(program.state)
        match rng.randrange(6):
            case 0:
                kept.append(t * 2.0)
            case 1:
                kept.append(t.detach())
            case 2:
                t.assign(fresh(rng))
            case 3:
                t.assign(t + 1.0)
            case 4:
                kept += results
        seen += [x.numpy().tobytes() for x in (*results, *program.state)]
        if rng.random() < 0.3 and kept:
            kept.pop(0)
        seen += [x.numpy().tobytes() for x in kept if rng.random() < 0.5]
    return [*seen, *(x.numpy().tobytes() for x in kept)]


@pytest.mark.parametrize("block", range(4))
def test_random_programs(block: int) -> None:
    replayed = 0
    for seed in range(block * 15, block * 15 + 15):
        functions: list[Any] = []

        def wrapped(program: Program, made: list[Any] = functions) -> Any:
            made.append(jit(program))
            return made[0]

        with warnings.catch_warnings():
            # Not every one of these can be repeated; then it runs as it is.
            warnings.simplefilter("ignore", RuntimeWarning)
            assert play(seed, wrapped) == play(seed, lambda p: p), f"seed {seed}"
        replayed += functions[0].traces > 0
    assert replayed >= 8

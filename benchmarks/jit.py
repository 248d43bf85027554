"""What a call of a jitted function costs beyond its native code.

Run from the root of the project, on a machine that does little else::

    python benchmarks/jit.py             # everything, about a minute
    python benchmarks/jit.py training    # only these of training, functional, many

Microseconds of processor time, the least of some rounds: of a whole call, of its
native programs alone, and the difference, beside the design's bound of 20 us and 1 us
for each buffer that is bound. ``eager`` is a call without jit. Nothing here fails when
a bound is missed.
"""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sections import run
from uopc.autodiff import value_and_grad
from uopc.nn import SGD, AdamW, Linear, parameters
from uopc.runtime import jit
from uopc.runtime.jitting.function import Jitted
from uopc.tensor import Tensor


def least(call: Callable[[], Any], calls: int = 200, rounds: int = 15) -> float:
    """Microseconds of processor time for one call."""
    times = []
    for _ in range(rounds):
        begun = time.thread_time()
        for _ in range(calls):
            call()
        times.append((time.thread_time() - begun) / calls)
    return 1e6 * min(times)


def measure(name: str, jitted: Jitted[..., Any], *args: Any) -> None:
    """Print a row: the call, its native part, what is between them, the bound."""
    plain = jitted.__wrapped__  # type: ignore[attr-defined]
    for _ in range(4):
        jitted(*args)
    jitted_call = least(lambda: jitted(*args))
    (replay,) = jitted._replays
    # The programs alone, on the memory of the last call.
    native = least(lambda: list(map(operator.call, replay._natives, replay._tables)))
    buffers = len(replay._it.states) + len(replay._it.made) + len(replay._arguments)
    eager = least(lambda: plain(*args), calls=20, rounds=5)
    print(
        f"{name:<34}{buffers:>8}{eager:>10.0f}{jitted_call:>9.1f}{native:>9.1f}"
        f"{jitted_call - native:>10.1f}{20 + buffers:>7}"
    )


def data(width: int, n: int = 32) -> tuple[Tensor, Tensor]:
    """A batch of rows and their labels."""
    rng = np.random.default_rng(0)
    x = Tensor(rng.standard_normal((n, width)).astype(np.float32)).realize()
    return x, Tensor(rng.integers(0, width, n).astype(np.int32)).realize()


def header() -> None:
    """Print the names of the columns."""
    print(
        f"{'us':<34}{'buffers':>8}{'eager':>10}{'call':>9}{'native':>9}"
        f"{'beyond':>10}{'bound':>7}"
    )


def network_step(layers: int, width: int, optimizer: Callable[..., Any]) -> Any:
    """A training step of a network of equal layers with dropout."""
    network = [Linear(width, width) for _ in range(layers)]
    opt = optimizer(parameters(network))

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        for layer in network:
            x = layer(x).relu()
            x = x * (Tensor.rand(*x.shape) < 0.9)
        loss = x.cross_entropy(y)
        opt.zero_grad()
        loss.backward(opt.params)
        opt.step(loss)
        return loss

    return step


def training() -> None:
    """Networks of several depths, whose parameters are state."""
    header()
    for name, optimizer in (("SGD", SGD), ("AdamW", AdamW)):
        for layers in (1, 4, 16):
            step = network_step(layers, 8, optimizer)
            measure(f"{layers} layers, {name}", step, *data(8))


def functional() -> None:
    """Parameters that come in as arguments and go out as results."""
    header()
    for layers in (1, 4, 16):

        def loss(params: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
            for w in params:
                x = (x @ w).tanh()
            return x.cross_entropy(y)

        @jit
        def step(params: list[Tensor], x: Tensor, y: Tensor) -> Any:
            value, grads = value_and_grad(loss)(params, x, y)
            return value, [p - g * 0.1 for p, g in zip(params, grads, strict=True)]

        params = [Tensor(np.eye(8, dtype=np.float32)) for _ in range(layers)]
        measure(f"{layers} layers, as arguments", step, params, *data(8))


def many() -> None:
    """Functions of one small tensor, of two hundred, and with fifty results."""
    header()
    x = data(8)[0]

    @jit
    def add(x: Tensor) -> Tensor:
        return x + 1.0

    @jit
    def total(xs: list[Tensor]) -> Tensor:
        return sum(xs[1:], xs[0])

    measure("x + 1", add, x)
    xs = [Tensor(np.full(4, i, np.float32)).realize() for i in range(200)]
    measure("the sum of 200 arguments", total, xs)

    @jit
    def multiples(x: Tensor) -> list[Tensor]:
        return [x * (1.0 + i) for i in range(50)]

    measure("50 results", multiples, x)
    # Arguments that the function has not seen before, as a data loader gives them.
    lists = itertools.cycle([[Tensor(t.numpy()) for t in xs] for _ in range(5)])
    call = least(lambda: total(next(lists)))
    print(f"{'the same, new ones each time':<34}{201:>8}{'':>10}{call:>9.1f}")


if __name__ == "__main__":
    run({"training": training, "functional": functional, "many": many})

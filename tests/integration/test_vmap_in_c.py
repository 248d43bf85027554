"""In C a batch gives what a loop over it gives, bit for bit: sums keep their order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uopc.autodiff import grad, jvp, vmap
from uopc.config import overriding
from uopc.tensor import Tensor

RNG = np.random.default_rng(5)
X = RNG.standard_normal((5, 33)).astype(np.float32)
W = RNG.standard_normal((33, 17)).astype(np.float32)
AT = RNG.integers(-40, 40, (5, 12)).astype(np.int32)


def mixed(x: Tensor, at: Tensor) -> Tensor:
    hidden = (x @ Tensor(W)).tanh().softmax(0)
    read = x.take(at)
    return (hidden * hidden).sum() + (read > 0).where(read.abs().sqrt(), read).sum()


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "value": mixed,
    "gradient": grad(mixed),
    "tangent": lambda x, at: jvp(lambda x: mixed(x, at), (x,), (x,))[1],
    "second": lambda x, at: grad(lambda x: (grad(mixed)(x, at) ** 2).sum())(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_batch_is_a_loop_to_the_bit(name: str) -> None:
    f = FUNCTIONS[name]
    with overriding(UOPC_BACKEND="c"):
        whole = vmap(f)(Tensor(X), Tensor(AT)).numpy()
        each = [f(Tensor(x), Tensor(at)) for x, at in zip(X, AT, strict=True)]
        assert whole.tobytes() == np.stack([t.numpy() for t in each]).tobytes()

"""Training steps under `jit`: the same losses, parameters and gradients, to the bit."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import checkpoint, grad, value_and_grad, vmap
from uopc.config import get, overriding
from uopc.nn import SGD, AdamW, Embedding, Linear, parameters
from uopc.runtime import buffer_data, jit, stats
from uopc.runtime.values import held
from uopc.tensor import Tensor

Step = Callable[..., Any]


@pytest.fixture(params=["interp", "c"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with overriding(UOPC_BACKEND=request.param), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield request.param


def data(i: int, n: int = 12) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(i)
    x = rng.standard_normal((n, 6)).astype(np.float32)
    return Tensor(x), Tensor((x.sum(1) > 0).astype(np.int32))


class Network:
    """Two layers with dropout, and what trains them."""

    def __init__(self, optimizer: Callable[..., Any]) -> None:
        Tensor.manual_seed(3)
        self.first, self.second = Linear(6, 8), Linear(8, 2)
        self.is_training = True
        self.opt = optimizer(parameters([self.first, self.second]))

    def __call__(self, x: Tensor) -> Tensor:
        h = self.first(x).relu()
        if self.is_training:
            h = h * (Tensor.rand(*h.shape) < 0.8)
        return self.second(h)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self(x).cross_entropy(y)
        self.opt.zero_grad()
        loss.backward(self.opt.params)
        self.opt.step(loss)
        return loss

    def state(self) -> list[bytes]:
        params = self.opt.params
        found = [*params, *(p.grad for p in params if p.grad is not None)]
        found += [t for n, v in sorted(vars(self.opt).items()) for t in tensors(v)]
        return [t.numpy().tobytes() for t in found]


def tensors(x: Any) -> list[Tensor]:
    if isinstance(x, (list, tuple)):
        return [t for y in x for t in tensors(y)]
    return [x] if isinstance(x, Tensor) else []


OPTIMIZERS = {
    "sgd": lambda params: SGD(params, lr=0.1),
    "momentum": lambda params: SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda params: AdamW(params, lr=0.01),
}


def run(network: Network, step: Step, sizes: list[int]) -> list[Any]:
    seen = []
    for i, n in enumerate(sizes):
        if i == 4:
            network.opt.lr = 0.05
        seen.append((step(*data(i, n)).item(), network.state()))
    return seen


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_is_the_same(optimizer: str) -> None:
    sizes = [12, 12, 12, 12, 12, 5, 5, 12, 5]
    plain = Network(OPTIMIZERS[optimizer])
    expected = run(plain, plain.step, sizes)
    network = Network(OPTIMIZERS[optimizer])
    step = jit(network.step)
    assert run(network, step, sizes) == expected
    assert step.traces == 2


def test_parameters_stay_in_place_and_nothing_is_allocated() -> None:
    network = Network(OPTIMIZERS["adamw"])
    step = jit(network.step)
    for i in range(4):
        step(*data(i))
    at = addresses(network.opt.params)
    x, y = (t.realize() for t in data(9))
    before = stats()
    for _ in range(5):
        step(x, y)
    done = stats() - before
    assert (done.native_calls, done.plans_made, done.plans_found) == (5, 0, 0)
    assert done.bytes_allocated == 0
    assert addresses(network.opt.params) == at


def addresses(params: list[Tensor]) -> list[int]:
    """Where the values are. Who holds the arrays themselves would make them move."""
    nodes = [held(p.uop) for p in params]
    return [buffer_data(n).ctypes.data for n in nodes if n is not None]


def test_evaluation_beside_training() -> None:
    """Two jits on one set of parameters; each sees what the other did."""
    network, twin = (Network(OPTIMIZERS["adamw"]) for _ in range(2))
    step, forward = jit(network.step), jit(network.__call__)
    for i in range(5):
        x, y = data(i)
        Tensor.manual_seed(i)
        loss = step(x, y).item()
        Tensor.manual_seed(i)
        assert loss == twin.step(x, y).item()
        for n in (network, twin):
            n.is_training = False
        assert np.array_equal(forward(x).numpy(), twin(x).numpy())
        for n in (network, twin):
            n.is_training = True
    assert (step.traces, forward.traces) == (1, 1)


def test_gradients_add_up_over_calls_and_are_cleared_outside() -> None:
    w = Tensor(np.ones(6, np.float32), requires_grad=True)

    @jit
    def add(x: Tensor) -> Tensor:
        loss = ((x * w) ** 2.0).sum()
        loss.backward([w])
        return loss

    total = np.zeros(6, np.float32)
    for i in range(9):
        if i % 4 == 0:
            w.grad, total = None, np.zeros(6, np.float32)
        x = data(i)[0]
        assert add(x).item() == ((x * w) ** 2.0).sum().item()
        fresh = Tensor(np.ones(6, np.float32), requires_grad=True)
        ((x * fresh) ** 2.0).sum().backward([fresh])
        total = total + fresh.grad.numpy()  # type: ignore[union-attr]
        assert np.array_equal(w.grad.numpy(), total)  # type: ignore[union-attr]
    assert add.traces == 2  # with a gradient there, and without


def test_gradients_that_someone_keeps() -> None:
    network = Network(OPTIMIZERS["sgd"])
    step = jit(network.step)
    p = network.opt.params[0]
    kept, lazy, expected = [], [], []
    for i in range(7):
        step(*data(i))
        assert p.grad is not None
        kept.append(p.grad)
        lazy.append(p.grad * 1.0)
        expected.append(p.grad.numpy())
    for a, b, e in zip(kept, lazy, expected, strict=True):
        assert np.array_equal(a.numpy(), e)
        assert np.array_equal(b.numpy(), e)


def test_functional_training() -> None:
    def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        h = (x @ params["a"]).tanh()
        return (h @ params["b"]).cross_entropy(y)

    def step(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Any:
        value, grads = value_and_grad(loss)(params, x, y)
        return value, {k: p - grads[k] * 0.1 for k, p in params.items()}

    def start() -> dict[str, Tensor]:
        rng = np.random.default_rng(0)
        shapes = {"a": (6, 8), "b": (8, 2)}
        return {
            k: Tensor(rng.standard_normal(s).astype(np.float32))
            for k, s in shapes.items()
        }

    jitted = jit(step)
    plain, fast = start(), start()
    for i in range(7):
        x, y = data(i)
        a, plain = step(plain, x, y)
        b, fast = jitted(fast, x, y)
        assert a.item() == b.item()
        assert all(np.array_equal(plain[k].numpy(), fast[k].numpy()) for k in plain)
    assert jitted.traces == 1


def test_transforms_of_a_jitted_function_and_in_one() -> None:
    def f(x: Tensor) -> Tensor:
        return (x.sin() * x).sum()

    g, x = jit(f), data(0)[0].realize()
    for _ in range(4):
        assert np.array_equal(g(x).numpy(), f(x).numpy())
        assert np.array_equal(grad(g)(x).numpy(), grad(f)(x).numpy())
        assert np.array_equal(vmap(g)(x).numpy(), vmap(f)(x).numpy())
    h = jit(grad(f))
    for i in range(4):
        x = data(i)[0]
        assert np.array_equal(h(x).numpy(), grad(f)(x).numpy())
    assert h.traces == 1


def test_checkpoint_and_embedding() -> None:
    def make() -> tuple[Step, list[Tensor]]:
        Tensor.manual_seed(1)
        table, head = Embedding(10, 6), Linear(6, 2)
        opt = SGD(parameters([table, head]), lr=0.5)
        body = checkpoint(lambda h: head(h).tanh() * 2.0)

        def step(idx: Tensor, y: Tensor) -> Tensor:
            loss = body(table(idx)).cross_entropy(y)
            opt.zero_grad()
            loss.backward(opt.params)
            opt.step(loss)
            return loss

        return step, opt.params

    (plain, p), (inner, q) = make(), make()
    fast = jit(inner)
    for i in range(6):
        idx = Tensor(np.random.default_rng(i).integers(0, 10, 12).astype(np.int32))
        y = data(i)[1]
        assert plain(idx, y).item() == fast(idx, y).item()
        for a, b in zip(p, q, strict=True):
            assert np.array_equal(a.numpy(), b.numpy())
    assert fast.traces == 1


def test_backward_through_a_result_says_what_to_do() -> None:
    network = Network(OPTIMIZERS["sgd"])
    network.is_training = False
    forward = jit(network.__call__)
    for i in range(4):
        x, y = data(i)
        with pytest.raises(
            RuntimeError, match=r"a result of a jit.*inside the function"
        ):
            forward(x).cross_entropy(y).backward(network.opt.params)
        head = Tensor(np.ones((2, 2), np.float32), requires_grad=True)
        (forward(x).detach() @ head).sum().backward([head])
        assert head.grad is not None


def test_an_argument_with_a_graph_runs_without_replays() -> None:
    w = Tensor(np.ones((6, 6), np.float32), requires_grad=True)

    @jit
    def step(h: Tensor) -> Tensor:
        loss = (h * h).sum()
        loss.backward([w])
        return loss

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(4):
            w.grad = None
            x = data(i)[0]
            step(x @ w)
            (expected,) = (grad(lambda w, x=x: ((x @ w) ** 2.0).sum())(w),)
            assert w.grad is not None
            np.testing.assert_allclose(w.grad.numpy(), expected.numpy(), rtol=1e-5)
    assert len(caught) == 1
    assert "stands for a graph built outside of it; detach() it" in str(
        caught[0].message
    )


def test_old_graphs_and_old_losses() -> None:
    """What was built on the parameters before a step has their old values."""
    network = Network(OPTIMIZERS["momentum"])
    network.is_training = False
    step = jit(network.step)
    x, y = data(50)
    kept, expected = [], []
    for i in range(6):
        kept.append(network(x))
        fresh = network(x)
        expected.append(fresh.numpy())
        step(*data(i))
    for k, e in zip(kept, expected, strict=True):
        assert np.array_equal(k.numpy(), e)
    loss = network(x).cross_entropy(y)
    loss.item()
    step(*data(7))
    with pytest.raises(RuntimeError, match="has been given a new value since"):
        loss.backward(network.opt.params)


def test_eight_threads_each_with_its_own_network() -> None:
    def train(out: list[Any], i: int) -> None:
        w = Tensor(np.full(6, 1.0 + i, np.float32), requires_grad=True)
        opt = SGD([w], lr=0.01)

        @jit
        def step(x: Tensor) -> Tensor:
            loss = ((x * w) ** 2.0).mean()
            opt.zero_grad()
            loss.backward([w])
            opt.step(loss)
            return loss

        with overriding(UOPC_BACKEND=backend_name):
            losses = [step(data(j)[0]).item() for j in range(12)]
        out[i] = (losses, w.numpy().tobytes(), step.traces)

    backend_name = get("UOPC_BACKEND")
    serial: list[Any] = [None] * 8
    for i in range(8):
        train(serial, i)
    at_once: list[Any] = [None] * 8
    threads = [threading.Thread(target=train, args=(at_once, i)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert at_once == serial


def test_one_jit_in_many_threads() -> None:
    f = jit(lambda x: (x * 2.0 + 1.0, x.sum()))
    xs = [data(i)[0].realize() for i in range(8)]
    f(xs[0]), f(xs[0])
    failures: list[int] = []

    backend_name = get("UOPC_BACKEND")

    def work(i: int) -> None:
        with overriding(UOPC_BACKEND=backend_name):
            for _ in range(50):
                y, total = f(xs[i])
                if not np.array_equal(y.numpy(), xs[i].numpy() * 2 + 1):
                    failures.append(i)
                if total.item() != expected[i]:
                    failures.append(i)

    expected = [x.sum().item() for x in xs]
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []


def test_readers_in_other_threads_see_whole_values() -> None:
    backend_name = get("UOPC_BACKEND")
    w = Tensor(np.zeros(1 << 16, np.float32)).realize()
    one = Tensor(np.ones((), np.float32)).realize()

    @jit
    def add(x: Tensor) -> None:
        w.assign(w + x)

    for _ in range(4):
        add(one)
    seen: list[tuple[float, float]] = []
    over = threading.Event()

    def read() -> None:
        with overriding(UOPC_BACKEND=backend_name):
            while not over.is_set():
                for values in (w.numpy(), (w * 1.0).numpy()):
                    seen.append((values.min(), values.max()))

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(60):
        add(one)
        time.sleep(1e-3)  # the lock is not fair
    over.set()
    thread.join()
    assert w.numpy().min() == w.numpy().max() == 64
    assert seen
    assert all(low == high for low, high in seen)


def test_forks_while_other_threads_are_in_a_jitted_function() -> None:
    backend_name = get("UOPC_BACKEND")
    f = jit(lambda x: (x @ x.T).sum())
    xs = [data(i, 40)[0].realize() for i in range(3)]
    expected = [[f(x).item() for x in xs] for _ in range(3)][-1]
    over = threading.Event()

    def work() -> None:
        with overriding(UOPC_BACKEND=backend_name):
            while not over.is_set():
                f(xs[0])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(4):
            child = os.fork()
            if not child:
                signal.alarm(30)  # a child that hangs is killed
                right = [f(x).item() for x in xs] == expected
                os._exit(0 if right else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        over.set()
        thread.join()

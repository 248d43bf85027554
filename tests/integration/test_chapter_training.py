"""Training as the chapter on differentiation has it, on every backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from uopc import kernelize
from uopc.autodiff import gradient
from uopc.backend_c import CBackend
from uopc.config import overriding
from uopc.kernelize import Plan
from uopc.nn import SGD, AdamW, Embedding, Linear, parameters
from uopc.nn.optim import Optimizer
from uopc.tensor import Tensor

F32 = np.float32
BACKENDS = ["interp", "c at 0", "c at 1", "c at 2"]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def tensor(values: object) -> Tensor:
    return Tensor(np.array(values, F32), requires_grad=True)


def setting(name: str, cache: Path) -> dict[str, object]:
    backend, _, level = name.partition(" at ")
    return {
        "UOPC_BACKEND": backend,
        "UOPC_OPT": level or "1",
        "UOPC_CACHE_DIR": cache,
    }


@pytest.fixture(params=["interp", "c at 1"])
def backend(request: pytest.FixtureRequest, kernel_cache: Path) -> Iterator[str]:
    with overriding(**setting(request.param, kernel_cache)):
        yield request.param


@pytest.fixture
def compiled(
    monkeypatch: pytest.MonkeyPatch, kernel_cache: Path
) -> Iterator[list[int]]:
    """The C backend, and one entry per plan that it compiles."""
    made: list[int] = []
    compile_plan = CBackend.compile

    def counting(self: CBackend, plan: Plan) -> object:
        made.append(len(plan.kernels))
        return compile_plan(self, plan)

    monkeypatch.setattr(CBackend, "compile", counting)
    with overriding(**setting("c at 1", kernel_cache)):
        yield made


# -- what one sees of a realized value ----------------------------------------


def test_item_before_backward_and_detach(backend: str) -> None:
    w = tensor([1.0, 2.0])
    loss = (w * w).sum()
    assert loss.item() == 5
    loss.backward([w])
    assert w.grad is not None and w.grad.tolist() == [2, 4]
    w.grad = None
    (w.detach() * w).sum().backward([w])
    assert w.grad is not None and w.grad.tolist() == [1, 2]


def test_an_intermediate_realized_before_backward_keeps_its_gradient(
    backend: str,
) -> None:
    x, layer = Tensor(normal(4, 3)), Linear(3, 2)
    expected = []
    for read in (False, True):
        hidden = layer(x).tanh()
        if read:
            hidden.realize()
        loss = hidden.square().sum()
        if read:
            loss.item()
        layer.weight.grad = None
        loss.backward([layer.weight])
        assert layer.weight.grad is not None
        expected.append(layer.weight.grad.numpy())
    np.testing.assert_allclose(expected[0], expected[1], rtol=1e-6)
    assert np.abs(expected[0]).min() > 0


def test_a_deleted_read_does_not_shift_the_arguments(backend: str) -> None:
    t = Tensor(np.array([1, 2, 3], np.int32))
    other = Tensor(np.array([4, 5, 6], np.int32))
    assert (t * 0).tolist() == [0, 0, 0]
    assert (t * 0 + other).tolist() == [4, 5, 6]
    assert (other + t * 0 + t).tolist() == [5, 7, 9]
    assert t.tolist() == [1, 2, 3] and other.tolist() == [4, 5, 6]


def test_a_python_float_promotes_integers(backend: str) -> None:
    t = Tensor(np.array([1, 2, 3], np.int32))
    assert (t * 0.5).tolist() == [0.5, 1.0, 1.5]
    assert t.mean().item() == 2.0
    assert (t * 2).tolist() == [2, 4, 6] and (t * 2).dtype is t.dtype


# -- optimizers ---------------------------------------------------------------


@pytest.mark.parametrize("with_loss", [True, False])
def test_sgd_with_momentum(backend: str, with_loss: bool) -> None:
    w = tensor([1.0, -2.0])
    opt = SGD([w], lr=0.1, momentum=0.9)
    for _ in range(2):
        loss = w.square().sum()
        opt.zero_grad()
        loss.backward(opt.params)
        opt.step(loss) if with_loss else opt.step()
    # v1 = 2 w0 and w1 = 0.8 w0; v2 = 0.9 v1 + 2 w1 = 3.4 w0 and w2 = 0.46 w0.
    np.testing.assert_allclose(w.numpy(), [0.46, -0.92], rtol=1e-6)


def train(make: Callable[[list[Tensor]], Optimizer], steps: int) -> list[float]:
    Tensor.manual_seed(1)
    x = normal(64, 8)
    labels = Tensor((x.sum(1) > 0).astype(np.int32))
    layers = [Linear(8, 16), Linear(16, 2)]
    opt = make(parameters(layers))
    losses = []
    for _ in range(steps):
        loss = layers[1](layers[0](Tensor(x)).relu()).cross_entropy(labels)
        opt.zero_grad()
        loss.backward(opt.params)
        opt.step(loss)
        losses.append(loss.item())
    return losses


MAKERS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
    "AdamW": lambda params: AdamW(params, lr=1e-2),
    "SGD": lambda params: SGD(params, lr=0.5, momentum=0.9),
}


@pytest.mark.parametrize("name", MAKERS)
def test_training_reduces_the_loss(backend: str, name: str) -> None:
    losses = train(MAKERS[name], 40)
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize("name", MAKERS)
def test_training_is_the_same_on_every_backend(kernel_cache: Path, name: str) -> None:
    runs = []
    for one in BACKENDS:
        with overriding(**setting(one, kernel_cache)):
            runs.append(train(MAKERS[name], 8))
    for losses in runs[1:]:
        np.testing.assert_allclose(losses, runs[0], rtol=1e-4)


def test_gradients_accumulate_until_zero_grad(backend: str) -> None:
    w = tensor([1.0, 2.0])
    opt = SGD([w], lr=0.0)
    seen = []
    for forget in (True, False, False, True):
        if forget:
            opt.zero_grad()
        loss = (w * 3).sum()
        loss.backward(opt.params)
        opt.step(loss)
        assert w.grad is not None
        seen.append(w.grad.tolist())
    assert seen == [[3, 3], [6, 6], [9, 9], [3, 3]]


def test_forgetting_zero_grad_makes_the_second_step_twice_as_long(backend: str) -> None:
    ends = []
    for forget in (True, False):
        w = tensor([0.0])
        opt = SGD([w], lr=1.0)
        for _ in range(2):
            if forget:
                opt.zero_grad()
            (w * 1.0).sum().backward(opt.params)
            opt.step()
        ends.append(w.item())
    assert ends == [-2, -3]


# -- plans --------------------------------------------------------------------


def test_adamw_steps_reuse_one_plan(compiled: list[int]) -> None:
    Tensor.manual_seed(0)
    layer = Linear(4, 2)
    opt = AdamW([layer.weight, layer.bias], lr=1e-2)
    x = Tensor(normal(8, 4))

    def step() -> None:
        loss = layer(x).square().mean()
        opt.zero_grad()
        loss.backward(opt.params)
        opt.step(loss)

    step()
    step()
    plans, programs = len(kernelize._plans), len(compiled)
    for _ in range(3):
        step()
    assert len(kernelize._plans) == plans
    assert len(compiled) == programs >= 1


@pytest.mark.parametrize("name", MAKERS)
def test_a_learning_rate_that_changes_compiles_nothing(
    compiled: list[int], name: str
) -> None:
    w = tensor(normal(5))
    opt = MAKERS[name]([w])
    seen, moved = [], []
    for rate in (0.1, 0.01, 0.001, 0.0):
        before = w.numpy()
        opt.lr = rate
        opt.zero_grad()
        loss = w.square().sum()
        loss.backward(opt.params)
        opt.step(loss)
        seen.append((len(kernelize._plans), len(compiled)))
        moved.append(np.abs(w.numpy() - before).max())
    assert seen[1:] == [seen[0]] * 3
    assert moved[3] == 0 < moved[2] < moved[1] < moved[0]


def test_new_data_of_the_same_shape_compiles_nothing(compiled: list[int]) -> None:
    layer = Linear(4, 2)
    opt = SGD(parameters(layer), lr=0.1)
    counts = []
    for seed in range(4):
        loss = layer(Tensor(normal(8, 4, seed=seed))).square().mean()
        opt.zero_grad()
        loss.backward(opt.params)
        opt.step(loss)
        counts.append((len(kernelize._plans), len(compiled)))
    assert counts[1:] == [counts[0]] * 3


def test_loss_and_updates_run_as_one_program(compiled: list[int]) -> None:
    w = tensor(normal(6, 3))
    opt = SGD([w], lr=0.1)
    loss = (w * w).exp().sum()
    loss.backward(opt.params)
    opt.step(loss)
    assert len(compiled) == 1
    loss.item()
    w.numpy()
    assert len(compiled) == 1


# -- backends agree -----------------------------------------------------------

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "elementwise": lambda t: (t * 2 + t.square()).sigmoid() * t.tanh() - t.gelu(),
    "reductions": lambda t: t.max(-1) * t.var(0).sum() + t.min(1) + t.mean(),
    "movement": lambda t: t.pad(((1, 2), (0, 1)))[1:4, ::-1].flip(0).T @ t[:, ::2],
    "softmax": lambda t: t.softmax(-1) * t.log_softmax(0),
    "selection": lambda t: t.stack_with(t * t, t.sin())[1] + (t > 0).where(t, t * 0.1),
    "matmul": lambda t: (t @ t.T).relu() @ t,
    "cat": lambda t: Tensor.cat([t, t.abs(), -t], 1).exp2().log2() / 3,
    "product": lambda t: t.prod(1) * (t.square() + 1).sqrt().sum(1).reciprocal(),
}


def first_and_second(function: Callable[[Tensor], Tensor]) -> list[np.ndarray]:
    """The value, the gradient, and the gradient of the gradient's sum."""
    t = Tensor(normal(3, 4, seed=5), requires_grad=True)
    y = function(t).sum()
    (g,) = gradient(y.uop, [t.uop])
    (h,) = gradient(g, [t.uop])
    results = [y, Tensor(g), Tensor(h)]
    Tensor.realize_all(results)
    return [r.numpy() for r in results]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_agree_on_every_backend(kernel_cache: Path, name: str) -> None:
    runs = []
    for one in BACKENDS:
        with overriding(**setting(one, kernel_cache)):
            runs.append(first_and_second(FUNCTIONS[name]))
    for run in runs[1:]:
        for got, wanted in zip(run, runs[0], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def test_an_embedding_learns_only_the_rows_it_looked_up(backend: str) -> None:
    Tensor.manual_seed(3)
    table = Embedding(5, 2)
    before = table.weight.numpy()
    opt = SGD(parameters(table), lr=1.0)
    loss = table(Tensor(np.array([1, 3, 1], np.int32))).sum()
    loss.backward(opt.params)
    opt.step(loss)
    moved = before - table.weight.numpy()
    wanted = [[0, 0], [2, 2], [0, 0], [1, 1], [0, 0]]
    np.testing.assert_allclose(moved, wanted, atol=1e-6)

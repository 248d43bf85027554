"""Training steps that have no second copy of what they update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import DType, bf16, f16, f32
from uopc.nn import SGD, AdamW, Optimizer
from uopc.runtime import stats
from uopc.runtime.values import held
from uopc.tensor import Tensor
from uopc.testing.assignments import memory_of

WIDTH = 64


@pytest.fixture(params=["c", "interp"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[None]:
    with overriding(UOPC_BACKEND=request.param):
        yield


OPTIMIZERS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
    "sgd": lambda params: SGD(params, lr=0.01),
    "momentum": lambda params: SGD(params, lr=0.01, momentum=0.9, weight_decay=0.1),
    "adamw": lambda params: AdamW(params, lr=0.01),
}


class Training:
    """A network of two layers."""

    def __init__(self, optimizer: str, dtype: DType = f32) -> None:
        rng = np.random.default_rng(0)
        shapes = [(WIDTH, WIDTH), (WIDTH,), (WIDTH, WIDTH), (WIDTH,), (4, WIDTH)]
        *params, self.x = (
            Tensor(rng.standard_normal(s).astype(np.float32) / WIDTH**0.5, dtype)
            for s in shapes
        )
        self.opt = OPTIMIZERS[optimizer](params)

    def loss(self) -> Tensor:
        w, b, v, c = self.opt.params
        return (((self.x @ w + b).relu() @ v + c) * 4).square().mean()

    def step(self) -> Tensor:
        loss = self.loss()
        self.opt.zero_grad()
        loss.backward(self.opt.params)
        self.opt.step(loss)
        return loss

    def state(self) -> list[Tensor]:
        kept = [*self.opt.params]
        for name in ("_velocity", "_mean", "_square"):
            kept += getattr(self.opt, name, [])
        return kept


@pytest.mark.parametrize("dtype", [f32, f16, bf16], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_writes_parameters_and_moments_in_place(
    optimizer: str, dtype: DType
) -> None:
    training = Training(optimizer, dtype)
    losses = [training.step().item() for _ in range(2)]
    places = [memory_of(t) for t in training.state()]
    before = stats()
    losses.append(training.step().item())
    done = stats() - before
    assert [memory_of(t) for t in training.state()] == places
    # Where somebody keeps the old values there are copies, by the same plan.
    kept = [t.detach() for t in training.state()]
    before = stats()
    training.step()
    copying = stats() - before
    size = sum(t.numel() * t.dtype.itemsize for t in kept)
    assert copying.bytes_allocated - done.bytes_allocated == size
    assert copying.plans_made == 0
    assert losses[2] < losses[1] < losses[0]


def test_training_in_place_gives_what_training_with_copies_does() -> None:
    """Tensors that keep old values alive change no number."""
    results = []
    for watched in (False, True):
        training = Training("adamw")
        kept: list[tuple[Tensor, Tensor]] = []
        for _ in range(4):
            if watched:
                kept.append((training.opt.params[0].detach(), training.loss()))
            training.step()
        results.append([t.numpy() for t in training.state()])
        olds = [old.numpy() for old, _ in kept]
        assert all((a != b).any() for a, b in pairwise(olds))
        losses = [loss.item() for _, loss in kept]
        assert losses == sorted(losses, reverse=True)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_graph_of_an_old_loss_keeps_nothing() -> None:
    training = Training("sgd")
    training.step()
    places = [memory_of(t) for t in training.state()]
    losses = [training.step() for _ in range(3)]
    assert [memory_of(t) for t in training.state()] == places
    assert losses[0].item() > losses[2].item()
    with pytest.raises(RuntimeError, match="has been given a new value since"):
        losses[0].backward(training.opt.params)


def test_a_loss_that_is_not_computed_yet_keeps_its_value() -> None:
    training = Training("sgd")
    loss = training.loss()
    expected = training.loss().numpy()
    for _ in range(3):
        training.step()
    np.testing.assert_array_equal(loss.numpy(), expected)
    assert training.loss().item() < expected


def test_an_average_of_the_weights_beside_them() -> None:
    """It is a tensor of its own that reads the weights of its step."""
    training = Training("sgd")
    (w, *_) = training.opt.params
    mean = w.detach() * 1
    mean.realize()
    expected = mean.numpy()
    for i in range(4):
        training.step()
        mean.assign(mean * 0.5 + w.detach() * 0.5)
        place = memory_of(mean) if held(mean.uop) is not None else None
        mean.realize()
        assert place is None or memory_of(mean) == place
        expected = expected * np.float32(0.5) + w.numpy() * np.float32(0.5)
        np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-6, err_msg=str(i))


def test_updates_by_hand_are_in_place_when_they_are_computed() -> None:
    w = Tensor(np.ones(100, np.float32), requires_grad=True)
    loss = (w * w).sum()
    loss.backward([w])
    w.assign(w - w.grad * 0.25)  # type: ignore[operator]
    w.grad = None
    w.realize()
    del loss
    place = memory_of(w)
    for i in range(1, 4):
        loss = (w * w).sum()
        loss.backward([w])
        w.assign(w - w.grad * 0.25)  # type: ignore[operator]
        w.grad = None
        assert loss.item() == 100 * 0.25**i
        assert memory_of(w) == place


def test_tied_weights_are_written_once() -> None:
    w = Tensor(np.eye(8, dtype=np.float32) * 2)
    opt = SGD([w], lr=0.5)
    x = Tensor(np.ones((1, 8), np.float32))
    expected = w.numpy()
    place = None
    for _ in range(3):
        loss = ((x @ w) @ w.T).sum()
        opt.zero_grad()
        loss.backward([w])
        opt.step(loss)
        gradient = 2 * np.ones((8, 1)) @ (np.ones((1, 8)) @ expected)
        expected = expected - np.float32(0.5) * gradient.astype(np.float32)
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-5)
        assert place is None or memory_of(w) == place
        place = memory_of(w)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_a_loop_still_holds_is_computed_with_the_step(optimizer: str) -> None:
    """Logits that are read after the step are those of before, and cost no copies."""
    training = Training(optimizer)
    w, b, v, c = training.opt.params
    places: list[list[int]] = []
    made: list[int] = []
    for _ in range(5):
        hidden = (training.x @ w + b).relu()
        logits = hidden @ v + c
        expected = (((training.x * 1) @ w + b).relu() @ v + c).numpy()
        loss = (logits * 4).square().mean()
        training.opt.zero_grad()
        loss.backward(training.opt.params)
        before = stats()
        training.opt.step(loss)
        made.append((stats() - before).plans_made)
        places.append([memory_of(t) for t in training.state()])
        before = stats()
        got = logits.numpy()
        assert (stats() - before).native_calls == 0
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert places[2] == places[3] == places[4]
    assert made[2:] == [0, 0, 0]

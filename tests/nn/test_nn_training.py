"""Small trainings: the loss falls, plans are reused, old values are let go."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc import kernelize
from uopc.nn import SGD, AdamW, Embedding, Linear, Optimizer, parameters
from uopc.runtime import buffers
from uopc.tensor import Tensor


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


IMAGES = numbers(64, 8)
LABELS = (IMAGES.sum(1) > 0).astype(np.int32)


class Network:
    def __init__(self) -> None:
        self.layers = [Linear(8, 16), Linear(16, 2)]

    def __call__(self, x: Tensor) -> Tensor:
        return self.layers[1](self.layers[0](x).relu())


def train_step(model: Any, opt: Optimizer, x: np.ndarray, y: np.ndarray) -> Tensor:
    loss = model(Tensor(x)).cross_entropy(Tensor(y))
    opt.zero_grad()
    loss.backward(opt.params)
    opt.step(loss)
    return loss


@pytest.mark.parametrize(
    "make",
    [
        lambda ps: AdamW(ps, lr=1e-2),
        lambda ps: SGD(ps, lr=0.5),
        lambda ps: SGD(ps, lr=0.1, momentum=0.9),
    ],
    ids=["adamw", "sgd", "momentum"],
)
def test_a_classifier_learns(make: Callable[[list[Tensor]], Optimizer]) -> None:
    model = Network()
    opt = make(parameters(model))
    losses = [train_step(model, opt, IMAGES, LABELS).item() for _ in range(40)]
    assert losses[0] == pytest.approx(np.log(2), rel=0.3)
    assert losses[-1] < 0.3 * losses[0]
    guesses = model(Tensor(IMAGES)).numpy().argmax(1)
    assert (guesses == LABELS).mean() > 0.95


def test_an_embedding_learns_the_next_word() -> None:
    text = np.array([0, 1, 2, 3, 4] * 4, np.int32)
    model = [Embedding(5, 8), Linear(8, 5)]
    opt = AdamW(parameters(model), lr=0.05)
    for _ in range(60):
        train_step(lambda x: model[1](model[0](x)), opt, text[:-1], text[1:])
    guesses = model[1](model[0](Tensor(np.arange(5, dtype=np.int32)))).numpy()
    assert guesses.argmax(1).tolist() == [1, 2, 3, 4, 0]


def test_a_training_is_reproducible_to_the_bit() -> None:
    results = []
    for _ in range(2):
        Tensor.manual_seed(7)
        model = Network()
        opt = AdamW(parameters(model), lr=1e-2)
        for _ in range(5):
            loss = train_step(model, opt, IMAGES, LABELS)
        results.append([loss.numpy(), *(p.numpy() for p in opt.params)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_new_batches_of_one_shape_add_no_plan(runs: list[int]) -> None:
    model = Network()
    opt = AdamW(parameters(model), lr=1e-2)
    for step in range(2):
        train_step(model, opt, IMAGES[step:32], LABELS[step:32])
        train_step(model, opt, IMAGES[:16], LABELS[:16])
    plans, _ = len(kernelize._plans), runs.clear()
    for start in (0, 16, 32, 48):
        part = slice(start, start + 16)
        train_step(model, opt, IMAGES[part], LABELS[part])
    assert len(kernelize._plans) == plans
    assert len(runs) == 4


def test_a_loss_that_is_read_first_costs_one_more_program(runs: list[int]) -> None:
    model = Network()
    opt = AdamW(parameters(model), lr=1e-2)
    loss = model(Tensor(IMAGES)).cross_entropy(Tensor(LABELS))
    runs.clear()
    loss.item()
    loss.backward(opt.params)
    opt.step()
    assert len(runs) == 2


def held_bytes() -> int:
    gc.collect()
    return sum(array.nbytes for array in buffers._data.values())


def kept_training(
    keep: Callable[[Tensor, Tensor, list[Tensor]], list[Tensor]], steps: int
) -> tuple[list[Tensor], list[weakref.ref[np.ndarray]], Linear]:
    """Train, keeping some tensors of every step and watching the old weights."""
    model = Linear(300, 10)
    opt = AdamW(parameters(model), lr=1e-3)
    x, y = Tensor(numbers(4, 300)), Tensor(np.arange(4, dtype=np.int32))
    kept: list[Tensor] = []
    old: list[weakref.ref[np.ndarray]] = []
    for _ in range(steps):
        logits = model(x)
        loss = logits.cross_entropy(y)
        opt.zero_grad()
        loss.backward(opt.params)
        old.append(weakref.ref(buffers.buffer_data(model.weight.uop.src[0])))
        opt.step(loss)
        kept += keep(loss, logits, opt.params)
    return kept, old, model


KEPT: dict[str, Callable[[Tensor, Tensor, list[Tensor]], list[Tensor]]] = {
    "losses": lambda loss, logits, params: [loss],
    "and gradients": lambda loss, logits, params: [loss, *(p.grad for p in params)],
    "read logits": lambda loss, logits, params: [logits.realize()],
}


@pytest.mark.parametrize("what", ["and gradients", "read logits"])
def test_old_parameters_are_let_go_whatever_is_kept(what: str) -> None:
    kept, old, model = kept_training(KEPT[what], steps=200)
    gc.collect()
    # The newest one, and what the last logits still read: often one memory for all.
    assert len({id(a) for ref in old if (a := ref()) is not None}) <= 2
    assert len(kept) >= 200
    assert model.weight.numpy().shape == (10, 300)


def test_kept_losses_hold_their_numbers_only() -> None:
    held_bytes()
    few, *_ = kept_training(KEPT["losses"], steps=20)
    before = held_bytes()
    many, *_ = kept_training(KEPT["losses"], steps=200)
    # One weight has 12,000 bytes: those of ten steps would show.
    assert held_bytes() - before < 2 * 12_000 * 4 + 200 * 64
    values = [loss.item() for loss in many]
    assert values == sorted(values, reverse=True)
    assert few[0].item() != values[0]


def test_what_was_built_before_an_update_still_sees_the_old_value() -> None:
    w = Tensor(np.array([1.0, 2.0], np.float32), requires_grad=True)
    opt = SGD([w], lr=1.0)
    doubled = [w * 2]
    for _ in range(3):
        w.sum().backward(opt.params)
        opt.step()
        opt.zero_grad()
        doubled.append(w * 2)
    got = [d.numpy().tolist() for d in doubled]
    assert got == [[2.0, 4.0], [0.0, 2.0], [-2.0, 0.0], [-4.0, -2.0]]


def updated_loss(update: str, read: str) -> tuple[Tensor, Tensor, Tensor]:
    """A loss of two parameters, the first of which has a new value since."""
    w = Tensor(np.array([1.0, 2.0], np.float32), requires_grad=True)
    v = Tensor(np.array([3.0, 4.0], np.float32), requires_grad=True)
    loss = (w * v).sum()
    if read == "read before":
        loss.item()
    if update == "step":
        opt = SGD([w], lr=0.5)
        loss.backward([w])
        opt.step(loss if read == "in the step" else None)
        w.grad = None
    else:
        w.assign(Tensor(np.array([5.0, 6.0], np.float32)))
        if update == "assign twice":
            w.assign(w.detach() * 2)
        if update == "assign and realize":
            w.assign((w * 1).detach()).realize()
    if read == "read after":
        assert loss.item() == 11.0
    return loss, w, v


UPDATES = ["step", "assign", "assign twice", "assign and realize"]
READS = ["not read", "read before", "read after", "in the step"]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("update", UPDATES)
def test_backward_through_an_updated_parameter_names_it(update: str, read: str) -> None:
    loss, w, v = updated_loss(update, read)
    message = r"backward: parameter 1, f32\[2\], has been given a new value since"
    with pytest.raises(RuntimeError, match=message):
        loss.backward([v, w])
    assert v.grad is None  # nothing was done by halves
    with pytest.raises(RuntimeError, match="has been given a new value since"):
        loss.backward()


def test_a_new_loss_after_an_update_is_fine() -> None:
    _, w, v = updated_loss("step", "not read")
    (w * v).sum().backward([w, v])
    np.testing.assert_array_equal(w.grad.numpy(), [3.0, 4.0])
    np.testing.assert_array_equal(v.grad.numpy(), w.numpy())


def test_the_others_of_an_old_loss_still_have_gradients_while_it_can_be_read() -> None:
    loss, _w, v = updated_loss("assign", "not read")
    loss.backward([v])
    np.testing.assert_array_equal(v.grad.numpy(), [1.0, 2.0])


def test_values_given_up_are_named_when_a_gradient_needs_them() -> None:
    loss, _w, v = updated_loss("step", "in the step")
    loss.backward([v])
    with pytest.raises(RuntimeError, match="assigned a new value since"):
        v.grad.numpy()


def test_a_detached_old_value_is_a_constant() -> None:
    w = Tensor(np.array([1.0, 2.0], np.float32), requires_grad=True)
    target = w.detach() * 1
    w.assign(Tensor(np.array([5.0, 6.0], np.float32)))
    loss = (target * 3).sum()
    loss.backward([w])
    np.testing.assert_array_equal(w.grad.numpy(), [0.0, 0.0])


LAZY = {
    "read between": lambda w: w.numpy(),
    "realized between": lambda w: w.realize(),
    "optimizer between": lambda w: SGD([w], lr=0.1),
    "not read": lambda w: None,
}


@pytest.mark.parametrize("all_leaves", [False, True], ids=["listed", "all leaves"])
@pytest.mark.parametrize("between", LAZY)
def test_realizing_a_parameter_after_the_loss_was_built_loses_no_gradient(
    between: str, all_leaves: bool
) -> None:
    w = Tensor.randn(3, requires_grad=True)
    loss = (w * w).sum()
    LAZY[between](w)
    total = loss + (w * 3).sum()  # reads the value under its new name too
    total.backward() if all_leaves else total.backward([w])
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 2 * w.numpy() + 3, rtol=1e-6)


def test_reading_a_value_in_between_keeps_it_a_target() -> None:
    x = Tensor(np.array([1.0, 2.0], np.float32))
    h = x * x
    loss = (h * h).sum()
    h.numpy()
    loss.backward([h])
    np.testing.assert_array_equal(h.grad.numpy(), [2.0, 8.0])

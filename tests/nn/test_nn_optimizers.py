"""Optimizers against NumPy float64, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from formulas import adagrad, adam, adamw, lion, rmsprop, sgd

from uopc import kernelize
from uopc.nn import (
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Linear,
    Lion,
    Optimizer,
    RMSprop,
    parameters,
)
from uopc.tensor import Tensor

STEPS = 50
RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((12, 4)), RNG.standard_normal((12, 2))
W0, B0 = RNG.standard_normal((4, 2)), RNG.standard_normal(2)
# How near to float64 each type stays over all steps.
TOLERANCE = {np.float64: 1e-11, np.float32: 1e-4}

Arrays = list[np.ndarray]


def gradients(w: np.ndarray, b: np.ndarray) -> Arrays:
    """Of mean((X w + b - Y)**2), by hand."""
    error = X @ w + b - Y
    return [2 * X.T @ error / error.size, 2 * error.sum(0) / error.size]


def loss_of(w: Tensor, b: Tensor) -> Tensor:
    kind = w.dtype.numpy
    return (Tensor(X.astype(kind)) @ w + b - Tensor(Y.astype(kind))).square().mean()


CASES = [
    (SGD, sgd, {"lr": 0.1}),
    (SGD, sgd, {}),
    (SGD, sgd, {"lr": 0.1, "momentum": 0.9}),
    (SGD, sgd, {"lr": 0.1, "weight_decay": 0.2}),
    (SGD, sgd, {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.1}),
    (AdamW, adamw, {}),
    (AdamW, adamw, {"lr": 0.1}),
    (AdamW, adamw, {"lr": 0.1, "weight_decay": 0.0}),
    (AdamW, adamw, {"lr": 0.03, "weight_decay": 0.5}),
    (AdamW, adamw, {"lr": 0.05, "betas": (0.5, 0.7)}),
    (AdamW, adamw, {"lr": 0.05, "betas": (0.0, 0.9), "eps": 0.1}),
    (SGD, sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (Adam, adam, {}),
    (Adam, adam, {"lr": 0.05, "betas": (0.5, 0.7), "weight_decay": 0.3}),
    (RMSprop, rmsprop, {}),
    (RMSprop, rmsprop, {"momentum": 0.5, "weight_decay": 0.2, "alpha": 0.9}),
    (RMSprop, rmsprop, {"centered": True, "eps": 0.1}),
    (RMSprop, rmsprop, {"centered": True, "momentum": 0.5, "eps": 0.1}),
    (Adagrad, adagrad, {}),
    (Adagrad, adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1}),
    (Adagrad, adagrad, {"lr": 0.1, "initial": 0.5, "eps": 0.1}),
    (Lion, lion, {"lr": 0.01}),
    (Lion, lion, {"lr": 0.01, "betas": (0.5, 0.8), "weight_decay": 0.3}),
]


def start(dtype: type) -> list[Tensor]:
    return [Tensor(v.astype(dtype), requires_grad=True) for v in (W0, B0)]


def train_step(opt: Optimizer, with_loss: bool = True) -> Tensor:
    loss = loss_of(*opt.params)
    opt.zero_grad()
    loss.backward(opt.params)
    opt.step(loss) if with_loss else opt.step()
    return loss


def case_id(value: Any) -> str | None:
    if isinstance(value, dict):
        return str(value)
    return value.__name__ if isinstance(value, type) else ""


@pytest.mark.parametrize(
    ("make", "reference", "options", "dtype"),
    [
        *((*case, np.float64) for case in CASES),
        # The formulas are the same; what differs is the rounding.
        *((*case, np.float32) for case in CASES[2:10:3]),
    ],
    ids=case_id,
)
def test_every_step_agrees_with_numpy(
    make: Any, reference: Any, options: dict[str, Any], dtype: type
) -> None:
    opt = make(start(dtype), **options)
    mine = [W0.copy(), B0.copy()]
    steps = [reference(p, **options) for p in mine]
    tolerance = TOLERANCE[dtype]
    for t in range(1, STEPS + 1):
        grads = gradients(*mine)
        wanted_loss = np.mean((X @ mine[0] + mine[1] - Y) ** 2)
        for step, g in zip(steps, grads, strict=True):
            step(g, t)
        loss = train_step(opt, with_loss=t % 2 == 0)  # both ways are the same step
        assert loss.item() == pytest.approx(wanted_loss, rel=20 * tolerance)
        for p, wanted in zip(opt.params, mine, strict=True):
            assert p.dtype.numpy == dtype
            np.testing.assert_allclose(
                p.numpy(), wanted, rtol=tolerance, atol=tolerance
            )
    assert np.abs(mine[0] - W0).max() > 0.01  # it has gone somewhere


def test_the_first_step_of_adamw_has_the_size_of_lr() -> None:
    # The bias corrections undo the zeros that the averages start from.
    w = Tensor(np.array([1.0, 2.0, -3.0], np.float32), requires_grad=True)
    opt = AdamW([w], lr=0.1, weight_decay=0.0)
    (w * Tensor(np.array([5.0, -0.01, 1e-4], np.float32))).sum().backward([w])
    opt.step()
    np.testing.assert_allclose(w.numpy(), [0.9, 2.1, -3.1], rtol=1e-4)


def test_sgd_momentum_by_hand() -> None:
    # v1 = 2w, w1 = 0.8w; v2 = 0.9 v1 + 2 w1 = 3.4w, w2 = 0.8w - 0.34w = 0.46w.
    w = Tensor(np.array([1.0, -2.0], np.float32), requires_grad=True)
    opt = SGD([w], lr=0.1, momentum=0.9)
    for _ in range(2):
        loss = w.square().sum()
        opt.zero_grad()
        loss.backward(opt.params)
        opt.step()
    np.testing.assert_allclose(w.numpy(), [0.46, -0.92], rtol=1e-6)


SCHEDULES: dict[str, Callable[[int], float]] = {
    "cosine": lambda t: 0.05 * (1 + math.cos(math.pi * t / STEPS)),
    "warm-up": lambda t: 0.1 * min(1.0, t / 10),
    "zero in between": lambda t: 0.0 if t % 3 == 0 else 0.1,
    "integers": lambda t: t % 2,
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("make", "reference", "options"),
    [(SGD, sgd, {"momentum": 0.9}), (SGD, sgd, {}), (AdamW, adamw, {})],
    ids=["momentum", "sgd", "adamw"],
)
def test_a_schedule_is_followed_and_adds_no_plan(
    make: Any, reference: Any, options: dict[str, Any], schedule: str
) -> None:
    opt = make(start(np.float64), **options)
    mine = [W0.copy(), B0.copy()]
    steps = [reference(p, **options) for p in mine]
    plans = 0
    for t in range(1, 21):
        opt.lr = SCHEDULES[schedule](t)
        assert opt.lr == SCHEDULES[schedule](t)
        for step, g in zip(steps, gradients(*mine), strict=True):
            step(g, t, SCHEDULES[schedule](t))
        train_step(opt)
        if t == 2:
            plans = len(kernelize._plans)
    assert len(kernelize._plans) == plans
    for p, wanted in zip(opt.params, mine, strict=True):
        np.testing.assert_allclose(p.numpy(), wanted, rtol=1e-10, atol=1e-10)


ALL = [SGD, Adam, AdamW, RMSprop, Adagrad, Lion]


@pytest.mark.parametrize("make", ALL)
def test_a_second_optimizer_of_the_same_shapes_adds_no_plan(make: Any) -> None:
    train_step(make(start(np.float32), lr=0.1))
    plans = len(kernelize._plans)
    train_step(make(start(np.float32), lr=0.2))
    assert len(kernelize._plans) == plans


@pytest.mark.parametrize("make", ALL)
def test_a_step_with_its_loss_is_one_program(make: Any, runs: list[int]) -> None:
    opt = make(start(np.float32), lr=0.1)
    train_step(opt)
    for _ in range(3):
        runs.clear()
        loss = train_step(opt)
        assert len(runs) == 1
        (
            loss.item(),
            [p.numpy() for p in opt.params],
            [p.grad.numpy() for p in opt.params],
        )
        assert len(runs) == 1  # all of it was computed by that one program


def test_gradients_add_up_until_zero_grad() -> None:
    w = Tensor(np.array([3.0], np.float32), requires_grad=True)
    opt = SGD([w], lr=0.5)
    for _ in range(2):
        w.square().sum().backward(opt.params)
    np.testing.assert_array_equal(w.grad.numpy(), [12.0])
    opt.step()
    np.testing.assert_array_equal(w.numpy(), [-3.0])
    opt.zero_grad()
    assert w.grad is None


def test_a_parameter_without_a_gradient_stays() -> None:
    used, unused = start(np.float32)
    opt = AdamW([used, unused], lr=0.1)
    used.sum().backward([used])
    opt.step()
    np.testing.assert_array_equal(unused.numpy(), B0.astype(np.float32))
    assert np.abs(used.numpy() - W0).min() > 0.05


def test_parameters_of_several_types() -> None:
    single = Tensor(W0.astype(np.float32), requires_grad=True)
    double = Tensor(B0.copy(), requires_grad=True)
    opt = AdamW([single, double], lr=0.1)
    (single.square().sum() + double.square().sum()).backward(opt.params)
    opt.step()
    wanted = [W0.copy(), B0.copy()]
    for p in wanted:
        adamw(p, lr=0.1)(2 * p, 1)
    np.testing.assert_allclose(single.numpy(), wanted[0], rtol=1e-5)
    np.testing.assert_allclose(double.numpy(), wanted[1], rtol=1e-13)


def test_an_empty_parameter_trains() -> None:
    empty = Tensor(np.zeros((0, 3), np.float32), requires_grad=True)
    w = Tensor(np.array([1.0], np.float32), requires_grad=True)
    opt = SGD([empty, w], lr=0.5)
    (empty.sum() + w.sum()).backward(opt.params)
    opt.step()
    assert empty.numpy().shape == (0, 3)
    assert w.item() == 0.5


def test_params_is_the_list_and_asks_for_gradients() -> None:
    layer, plain = Linear(2, 2), Tensor(np.ones(2, np.float32))
    opt = SGD((p for p in [*parameters(layer), plain]), lr=0.1)
    assert [id(p) for p in opt.params] == [id(layer.weight), id(layer.bias), id(plain)]
    assert plain.requires_grad


def test_a_lazy_parameter_is_realized() -> None:
    w = Tensor.randn(3, requires_grad=True)
    SGD([w], lr=0.1)
    assert "lazy" not in repr(w)


ZEROS: dict[str, Callable[[], Tensor]] = {
    "lazy": lambda: Tensor.zeros(2),
    "realized": lambda: Tensor.zeros(2).realize(),
    "wanted": lambda: Tensor.zeros(2, requires_grad=True),
    "number": lambda: Tensor(0.0),
    "detached": lambda: Tensor.ones(2).detach(),
    "data": lambda: Tensor(np.zeros(2, np.float32)),
}


@pytest.mark.parametrize("kind", ZEROS)
def test_parameters_of_equal_values_are_not_confused(kind: str) -> None:
    # Equal constants are one node: neither another parameter nor the 0 of a relu
    # may add to the gradient of one.
    first, second = ZEROS[kind](), ZEROS[kind]()
    opt = SGD([first, second], lr=1.0)
    start = first.numpy().copy()
    x = Tensor(np.array([-5.0, 5.0], np.float32))
    loss = ((x + first).relu() + second * 3).sum()
    loss.backward(opt.params)
    wanted = np.array([0.0, 1.0]) if first.shape else 1.0
    np.testing.assert_array_equal(first.grad.numpy(), wanted)
    np.testing.assert_array_equal(second.grad.numpy(), 3.0 if first.shape else 6.0)
    opt.step(loss)
    np.testing.assert_array_equal(first.numpy(), start - wanted)


@pytest.mark.parametrize("kind", ZEROS)
def test_a_parameter_set_to_a_constant_is_not_confused(kind: str) -> None:
    value = ZEROS[kind]()
    p = Tensor(np.ones(value.shape, np.float32), requires_grad=True)
    p.assign(value)
    x = Tensor(np.full(value.shape, -5.0, np.float32))
    (x + p).relu().sum().backward([p])
    np.testing.assert_array_equal(p.grad.numpy(), np.zeros(value.shape))


def integers() -> Tensor:
    return Tensor(np.array([1, 2], np.int32))


def computed() -> Tensor:
    return Tensor(np.ones(2, np.float32), requires_grad=True) * 2


SAME = Tensor(np.ones((2, 3), np.float32), requires_grad=True)
MISTAKES = [
    (lambda: [], ValueError, "at least one parameter"),
    (lambda: [SAME, integers()], TypeError, r"parameter 1 .* dtype i32"),
    (lambda: [computed()], ValueError, "parameter 0 is the result of other tensors"),
    (lambda: [SAME, Tensor(np.ones(1)), SAME], ValueError, "parameter 2 .* twice"),
    (lambda: SAME, TypeError, "a list of tensors"),
    (lambda: [Linear(2, 2)], TypeError, r"parameter 0 is a Linear.*parameters\("),
]


@pytest.mark.parametrize("make", [SGD, AdamW])
@pytest.mark.parametrize(("params", "kind", "message"), MISTAKES)
def test_mistakes_are_explained(
    make: Any, params: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        make(params(), lr=0.1)


def test_a_step_without_gradients_says_what_to_call() -> None:
    opt = SGD(start(np.float32), lr=0.1)
    with pytest.raises(RuntimeError, match=r"call loss\.backward\(opt\.params\)"):
        opt.step()


def test_a_failed_step_changes_nothing() -> None:
    opt = AdamW(start(np.float64), lr=0.1)
    with pytest.raises(RuntimeError):
        opt.step()
    train_step(opt)
    wanted = W0.copy()
    adamw(wanted, lr=0.1)(gradients(W0, B0)[0], 1)
    np.testing.assert_allclose(opt.params[0].numpy(), wanted, rtol=1e-11)


def test_another_optimizer_can_be_written_on_the_base_class() -> None:
    class Signs(Optimizer):
        def _update(
            self, i: int, p: Tensor, grad: Tensor
        ) -> tuple[Tensor, list[Tensor]]:
            sign = (grad > 0).where(1.0, -1.0)
            return p - self._lr.cast(p.dtype) * sign, []

    opt = Signs(start(np.float32), lr=0.25)
    train_step(opt)
    for p, before, g in zip(opt.params, (W0, B0), gradients(W0, B0), strict=True):
        np.testing.assert_allclose(p.numpy(), before - 0.25 * np.sign(g), rtol=1e-5)


def test_nesterov_needs_a_momentum() -> None:
    with pytest.raises(ValueError, match="momentum above 0"):
        SGD([SAME], nesterov=True)

"""The C and the kernels that the chapter on differentiation shows, and its figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from uopc.autodiff import gradient
from uopc.backend_c import CBackend, kernel_source
from uopc.config import overriding
from uopc.dtype import i32
from uopc.kernelize import Plan, make_plan
from uopc.tensor import Tensor
from uopc.testing import buf
from uopc.uop import Ops, UOp

F32 = np.float32
FIGURES = 1e-6


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def tensor(values: object, grad: bool = True) -> Tensor:
    return Tensor(np.array(values, F32), requires_grad=grad)


@pytest.fixture(params=["interp", "c at 0", "c at 1"])
def backend(request: pytest.FixtureRequest, kernel_cache: Path) -> Iterator[str]:
    """The reference backend, and the C backend without and with scheduling."""
    name, _, level = request.param.partition(" at ")
    with overriding(
        UOPC_BACKEND=name, UOPC_OPT=level or "1", UOPC_CACHE_DIR=kernel_cache
    ):
        yield name


@pytest.fixture
def plain(kernel_cache: Path) -> Iterator[None]:
    """C as it reads best: no scheduling."""
    with overriding(UOPC_BACKEND="c", UOPC_OPT=0, UOPC_CACHE_DIR=kernel_cache):
        yield


# -- the listings -------------------------------------------------------------


def _grad_x() -> UOp:
    x, y = buf(0, 3), buf(1, 3)
    return gradient((x * y + x).reduce(Ops.ADD, 1), [x])[0]


def _grad_shrink() -> UOp:
    v = buf(0, 5)
    return gradient(v.shrink(((1, 3),)).reduce(Ops.ADD, 1), [v])[0]


def _second_derivative() -> UOp:
    x = buf(0, 4)
    (g,) = gradient((x * x * x).reduce(Ops.ADD, 1), [x])
    return gradient(g.reduce(Ops.ADD, 1), [x])[0]


LISTINGS = {
    "grad_x": (
        _grad_x,
        """\
void grad_x(float* restrict data1, float* restrict data2) {
  for (int ridx0 = 0; ridx0 < 3; ridx0++) {
    float val1 = data1[ridx0];
    data2[ridx0] = (val1+1.0f);
  }
}
""",
    ),
    "second_derivative": (
        _second_derivative,
        """\
void second_derivative(float* restrict data0, float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    float val1 = data0[ridx0];
    float alu2 = (val1*2.0f);
    data1[ridx0] = (((alu2+alu2)+val1)+val1);
  }
}
""",
    ),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_to_the_character(plain: None, name: str) -> None:
    build, text = LISTINGS[name]
    assert kernel_source(build(), name) == text


def test_the_gradient_of_a_slice_is_one_bounds_checked_select(plain: None) -> None:
    text = kernel_source(_grad_shrink(), "grad_shrink")
    first, loop, *body = text.splitlines()
    assert first == "void grad_shrink(float* restrict data0) {"
    assert loop == "  for (int ridx0 = 0; ridx0 < 5; ridx0++) {"
    assert body[-1] == "}" and body[-2] == "  }"
    assert body[-3].startswith("    data0[ridx0] = (") and "?" in body[-3]
    assert not re.search(r"\bfor\b|\bif\b|val\d", "\n".join(body))


X0, X5, X7 = buf(0, 4), buf(5, 4), buf(7, 4)
K2, K3 = buf(2, 4, i32), buf(3, 4, i32)
# What is lowered on its own: its arguments, and the value it stores.
FORMS: dict[str, tuple[UOp, list[int], str]] = {
    "by slot, not by first use": (X7 + X0, [0, 7, 8], "(val1+val2)"),
    "gaps stay": (X5 * X5, [5, 6], "(val1*val1)"),
    "what is not read is left out": (K3 * 0 + K2, [2, 3], "val1"),
    "nothing is read": (K3 * 0, [0], "0"),
    "a constant on the left": (1.0 + X0, [0, 1], "(val1+1.0f)"),
    "a constant on the right": (X0 + 1.0, [0, 1], "(val1+1.0f)"),
    "a factor on the left": (2.0 * X0, [0, 1], "(val1*2.0f)"),
    "shortest literals": (X0 * 0.1, [0, 1], "(val1*0.1f)"),
    "one over 320": (X0 * (1 / 320), [0, 1], "(val1*0.003125f)"),
    "once used, not named": (X0 * X5 + X0, [0, 5, 6], "((val1*val2)+val1)"),
    "no reassociation": (X0 + X0 + X5 + X5, [0, 5, 6], "(((val1+val1)+val2)+val2)"),
}


@pytest.mark.parametrize("name", FORMS)
def test_arguments_and_expressions(plain: None, name: str) -> None:
    u, slots, value = FORMS[name]
    text = kernel_source(u, "k")
    head = text.splitlines()[0]
    assert [int(n) for n in re.findall(r"restrict data(\d+)", head)] == slots
    assert head.count("*") == len(slots) == head.count("restrict")
    assert f"    data{slots[-1]}[ridx0] = {value};\n" in text


# -- the training step --------------------------------------------------------


@pytest.fixture
def step(plain: None) -> Plan:
    """The plan of a loss and its gradient: relu(X @ W).square().mean()."""
    x, w = tensor(normal(32, 64), grad=False), tensor(normal(64, 10))
    loss = (x @ w).relu().square().mean()
    grads = gradient(loss.uop, [w.uop])
    plan, buffers = make_plan([loss.uop, *grads], None, CBackend().supports, "c")
    assert len(buffers) == 2
    return plan


def test_the_kernels_of_a_training_step(step: Plan) -> None:
    assert [k.name for k in step.kernels] == ["r_32_10", "r", "r_10_64", "e_64_10"]


def test_loss_and_gradient_share_one_forward_matmul(step: Plan) -> None:
    forward, loss, weights, copy = step.kernels
    assert forward.out in loss.args and forward.out in weights.args
    assert copy.args == (weights.out,)
    assert step.outputs == (loss.out, copy.out)


def test_relu_and_square_backward_sit_in_the_weight_gradient_loop(step: Plan) -> None:
    fragment = """\
        float val2 = data0[((ridx2*10)+ridx0)];
        _Bool alu3 = (0.0f<val2);
        float alu4 = ((alu3?val2:0.0f)*0.003125f);
        float val5 = data1[((ridx2*64)+ridx1)];
        acc0 = (val1+((alu3?(alu4+alu4):0.0f)*val5));
"""
    assert fragment in kernel_source(step.kernels[2])


def test_the_transposing_copy_computes_nothing(step: Plan) -> None:
    assert (
        kernel_source(step.kernels[3])
        == """\
void e_64_10(float* restrict data0, float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 64; ridx0++) {
    for (int ridx1 = 0; ridx1 < 10; ridx1++) {
      float val1 = data0[((ridx1*64)+ridx0)];
      data1[((ridx0*10)+ridx1)] = val1;
    }
  }
}
"""
    )


def test_the_forward_kernel_reads_its_operands_in_place(step: Plan) -> None:
    text = kernel_source(step.kernels[0])
    assert "data0[((ridx0*64)+ridx2)]" in text and "data1[((ridx2*10)+ridx1)]" in text
    assert "float acc0 = 0.0f;" in text


def test_every_name_in_a_kernel_is_given_once_and_counted_from_one(step: Plan) -> None:
    for k in step.kernels:
        text = kernel_source(k)
        numbers = re.findall(r"(?:float|int|_Bool) (?:val|alu)(\d+) =", text)
        assert [int(n) for n in numbers] == list(range(1, len(numbers) + 1))
        loops = re.findall(r"int ridx(\d+) = 0", text)
        assert [int(n) for n in loops] == list(range(len(loops)))


def test_kernel_counts() -> None:
    a = tensor(normal(64, 64))
    plan, _ = make_plan([((a * 2 + 1).relu() * 3).uop])
    assert [k.name for k in plan.kernels] == ["e_64_64"]
    plan, _ = make_plan([a.softmax(-1).uop])
    assert [k.name for k in plan.kernels] == ["r_64", "r_64", "e_64_64"]


# -- figures on every backend -------------------------------------------------


def grads(loss: Tensor, *params: Tensor) -> list[np.ndarray]:
    loss.backward(list(params))
    return [p.grad.numpy() for p in params if p.grad is not None]


def _two_buffers() -> list[np.ndarray]:
    x, y = tensor([1, 2, 3]), tensor([10, 20, 30])
    return grads((x * y + x).sum(), x, y)


def _of(values: object, f: Callable[[Tensor], Tensor]) -> list[np.ndarray]:
    x = tensor(values)
    return grads(f(x), x)


def _cube_twice() -> list[np.ndarray]:
    x = tensor([1, 2, 3, 4])
    (x * x * x).sum().backward([x])
    g, x.grad = x.grad, None
    assert g is not None
    return [*grads(g.sum(), x), g.numpy()]


LABELS = Tensor(np.array([0, 1], np.int32))
WEIGHTS = tensor([1, 2, 3], grad=False)
SHOWN: dict[str, tuple[Callable[[], list[np.ndarray]], list[object]]] = {
    "sum(x * y + x)": (_two_buffers, [[11, 21, 31], [1, 2, 3]]),
    "slice": (lambda: _of([1, 2, 3, 4, 5], lambda v: v[1:3].sum()), [[0, 1, 1, 0, 0]]),
    "abs": (lambda: _of([-2, 0, 3], lambda x: x.abs().sum()), [[-1, 0, 1]]),
    "relu": (lambda: _of([-2, 0, 3], lambda x: x.relu().sum()), [[0, 0, 1]]),
    "maximum": (
        lambda: _of([-2, 0, 3], lambda x: x.maximum(0).sum()),
        [[0, 0.5, 1]],
    ),
    "max": (lambda: _of([1, 3, 3], Tensor.max), [[0, 0.5, 0.5]]),
    "min": (lambda: _of([2, 1, 1], Tensor.min), [[0, 0.5, 0.5]]),
    "detach": (lambda: _of([1, 2], lambda w: (w * w.detach()).sum()), [[1, 2]]),
    "second derivative": (_cube_twice, [[6, 12, 18, 24], [3, 12, 27, 48]]),
    "cross entropy": (
        lambda: _of(
            [[2.0, 1.0, 0.1], [0.5, 2.5, 0.3]], lambda t: t.cross_entropy(LABELS)
        ),
        [
            [
                [-0.17049944, 0.12121649, 0.04928295],
                [0.05430186, -0.09876046, 0.0444586],
            ]
        ],
    ),
    "stack and index": (
        lambda: _of(
            normal(2, 3), lambda t: (t.stack_with(t * t)[1].sum(0) * WEIGHTS).sum()
        ),
        [[[0.25146043, -0.52841944, 3.842536], [0.20980023, -2.1426775, 2.1695704]]],
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_figure(backend: str, name: str) -> None:
    compute, expected = SHOWN[name]
    found = compute()
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, np.array(want), rtol=0, atol=FIGURES)

"""UOPC_NANS names the op that made the first value that is not finite, and its line."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from uopc.autodiff import gradient
from uopc.config import overriding
from uopc.nn import SGD
from uopc.runtime import nans, origins
from uopc.tensor import Tensor

INF, NAN = float("inf"), float("nan")


@pytest.fixture(params=["c", "interp"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[None]:
    with overriding(UOPC_BACKEND=request.param):
        yield


@pytest.fixture
def watching() -> Iterator[None]:
    with overriding(UOPC_NANS=1):
        yield


def here(offset: int = 0) -> str:
    """This line of the test that asks, as a report writes it."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + offset},"


def report(t: Tensor) -> str:
    with pytest.raises(FloatingPointError) as caught:
        t.numpy()
    return str(caught.value)


@pytest.mark.usefixtures("watching")
def test_forward_it_names_the_op_and_the_line() -> None:
    x = Tensor([0.0, 1.0])
    line, y = here(), x.log()
    z = y * 0.0  # NaN, but made of the infinity
    text = report(z + 1.0)
    assert "is -inf in the result of log, f32[2], called at" in text
    assert line in text


@pytest.mark.usefixtures("watching")
def test_infinities_are_named_with_their_signs() -> None:
    # A report quotes the line, so what it says is not on the same one.
    three, one = Tensor([0.0, 1.0, -1.0]) / 0.0, Tensor([2.0, 0.0]).reciprocal()
    assert "is nan and inf and -inf in the" in report(three)
    assert "is inf in the" in report(one)
    assert_array_equal((Tensor([INF]) * -1.0).numpy(), -INF)  # passed on, not made


@pytest.mark.usefixtures("watching")
def test_backward_it_names_the_line_of_the_operation() -> None:
    x = Tensor([0.0, 4.0], requires_grad=True)
    line, root = here(), (x * 2.0).sqrt()
    (root * 0.0).sum().backward([x])
    assert x.grad is not None
    text = report(x.grad)
    assert ", in the gradient of sqrt, called at" in text
    assert line in text


@pytest.mark.usefixtures("watching")
def test_the_gradient_of_a_gradient_is_named() -> None:
    x = Tensor([0.0, 4.0])
    line, y = here(), x.sqrt() * x.sqrt() * x.sqrt()
    (first,) = gradient(y.sum().uop, [x.uop])
    (second,) = gradient(Tensor(first).sum().uop, [x.uop])
    text = report(Tensor(second))
    assert "gradient of " in text
    assert line in text


@pytest.mark.usefixtures("watching")
def test_a_product_of_matrices_that_overflows_is_named() -> None:
    x = Tensor([[3e38, 3e38], [1.0, 1.0]])
    line, y = here(), x @ x
    text = report(y.relu())
    assert "inf in the result of reduce" in text
    assert line in text


@pytest.mark.usefixtures("watching")
def test_the_first_of_several_is_named() -> None:
    x = Tensor([-1.0, 0.0])
    line, first = here(), x.sqrt()
    text = report(first + x.log())
    assert "nan in the result of sqrt" in text
    assert line in text


@pytest.mark.usefixtures("watching")
def test_what_was_given_is_not_reported() -> None:
    x = Tensor([1.0, NAN, INF])
    assert_array_equal((x * 2.0).numpy(), [2.0, NAN, INF])
    masked = (Tensor([0.0, 1.0]) > 0.5).where(Tensor([1.0, 2.0]), -INF)
    assert_array_equal(masked.numpy(), [-INF, 2.0])
    assert "nan in the result of add" in report(x[2:] - x[2:])  # made of what was given


@pytest.mark.usefixtures("watching")
def test_what_is_not_chosen_is_not_to_blame() -> None:
    x = Tensor([0.0, -1.0], requires_grad=True)
    y = (x > -0.5).where(x + 1.0, x.sqrt())[:1]
    assert y.numpy() == [1.0]
    other = 1.0 / (x * 0.0)  # infinite, and first, but chosen nowhere
    line, root = here(), (x * 2.0).sqrt()
    assert line in report((x > 0.5).where(other, root))


@pytest.mark.usefixtures("watching")
def test_values_computed_before_are_where_the_search_starts() -> None:
    x = Tensor([0.5, 1.0]).realize() * 2.0
    x.realize()
    line, y = here(), (x - 1.0).log()
    assert line in report(y + x)


@pytest.mark.usefixtures("watching")
def test_a_failed_step_leaves_everything_as_it_was() -> None:
    w = Tensor([1.0, 0.0], requires_grad=True)
    optimizer = SGD([w], lr=0.5)
    loss = w.log().sum()
    loss.backward([w])
    with pytest.raises(FloatingPointError):
        optimizer.step(loss)
    fresh = Tensor([1.0, 2.0])
    assert_array_equal((fresh * 2.0).numpy(), [2.0, 4.0])


def test_off_nothing_is_reported_or_recorded() -> None:
    gc.collect()
    before = len(origins._origins)
    y = Tensor([0.0]).log() * 3.25
    assert_array_equal(y.numpy(), [-INF])
    assert len(origins._origins) == before
    old = Tensor([0.0]).log() * 3.75
    with overriding(UOPC_NANS=1):
        assert "its line is not known: it was made before" in report(old + 1.0)


def test_lines_are_forgotten_with_their_nodes() -> None:
    gc.collect()
    before = len(origins._origins)
    with overriding(UOPC_NANS=1):
        y = Tensor([1.0]).log() * 3.5
        assert len(origins._origins) > before
        del y
    gc.collect()
    assert len(origins._origins) == before


def test_a_fault_of_the_backend_is_told_apart() -> None:
    x = Tensor(np.ones(3, np.float32))
    root = (x + 1.0).uop
    data = {u: np.ones(3, np.float32) for u in root.toposort() if not u.src and u.shape}
    bad = [np.full(3, NAN, np.float32)]
    with pytest.raises(FloatingPointError, match="but is on the reference backend"):
        nans.require_finite([root], {}, data, bad)

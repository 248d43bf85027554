"""The exercises of the chapter on differentiation, with their answers executed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import numpy as np
import pytest

from uopc.autodiff import gradient
from uopc.autodiff.rules import RULES
from uopc.composite import broadcast_to, reduce_axes, softmax, zeros_like
from uopc.dtype import f64
from uopc.plugins import registry
from uopc.tensor import Tensor
from uopc.testing import buf
from uopc.uop import OpDef, Ops, UOp

X = UOp.param(0, f64, (3,))
W = UOp.param(1, f64, (3,))


# 1. Derive by hand: d sum(exp2(x) * x) / dx = exp2(x) * (x * ln 2 + 1).


def test_1_derived_by_hand(checker: SimpleNamespace) -> None:
    (g,) = gradient((X.exp2() * X).reduce(Ops.ADD, 1), [X])
    by_hand = [1.0, 2 * (1 + math.log(2)), 4 * (1 + 2 * math.log(2))]
    found = checker.value(g, {X: np.array([0.0, 1.0, 2.0])})
    np.testing.assert_allclose(found, by_hand, rtol=1e-14)


# 2. Predict the graph: every op is linear, so the buffer is not read; the seed is
# spread over (3, 2), turned and flattened.


def test_2_the_predicted_ops() -> None:
    x = buf(0, 6)
    (g,) = gradient(x.reshape((2, 3)).permute((1, 0)).reduce(Ops.ADD, 2), [x])
    assert [(u.op, u.shape) for u in g.toposort()] == [
        (Ops.CONST, ()),
        (Ops.RESHAPE, (1, 1)),
        (Ops.EXPAND, (3, 2)),
        (Ops.PERMUTE, (2, 3)),
        (Ops.RESHAPE, (6,)),
    ]


# 3. Forward mode: each rule maps the tangents of the sources to that of the node.


def _jvp_mul(u: UOp, a: UOp, b: UOp) -> UOp:
    return a * u.src[1] + u.src[0] * b


FORWARD: Mapping[OpDef, Callable[..., UOp]] = {
    Ops.ADD: lambda u, a, b: a + b,
    Ops.MUL: _jvp_mul,
    Ops.EXP2: lambda u, a: a * u * math.log(2),
    Ops.RESHAPE: lambda u, a: a.reshape(u.shape),
    Ops.EXPAND: lambda u, a: a.expand(u.shape),
    Ops.REDUCE: lambda u, a: a.reduce(*u.arg),  # of sums
}


def jvp(root: UOp, target: UOp, tangent: UOp) -> UOp:
    """The derivative of ``root`` as ``target`` moves along ``tangent``."""
    tangents = {target: tangent}
    for u in root.toposort():
        if u not in tangents:
            moved = [tangents[s] for s in u.src]
            still = u.op not in FORWARD or all(m is zeros_like(m) for m in moved)
            tangents[u] = zeros_like(u) if still else FORWARD[u.op](u, *moved)
    return tangents[root]


FUNCTIONS: dict[str, Callable[[UOp], UOp]] = {
    "sum of products": lambda x: (x * W + x).reduce(Ops.ADD, 1),
    "exponentials": lambda x: (x.exp2() * x).exp2().reduce(Ops.ADD, 1),
    "broadcast": lambda x: (
        (x.reshape((3, 1)).expand((3, 3)) * x.reshape((1, 3)).expand((3, 3))).exp2()
    ).reduce(Ops.ADD, 2),
    "constant": lambda x: W.reduce(Ops.ADD, 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_3_forward_mode_agrees_with_reverse_mode(
    checker: SimpleNamespace, name: str
) -> None:
    f = FUNCTIONS[name](X)
    tangent = UOp.param(2, f64, (3,))
    (g,) = gradient(f, [X])
    rng = np.random.default_rng(3)
    data = {p: rng.standard_normal(3) for p in (X, W, tangent)}
    forward = checker.value(jvp(f, X, tangent), data)
    reverse = checker.value((g * tangent).reduce(Ops.ADD, 1), data)
    assert forward == pytest.approx(reverse, rel=1e-12)
    slope = checker.along(f, data, {X: data[tangent]})
    assert forward == pytest.approx(slope, rel=1e-8, abs=1e-9)


# 4. Find the bug: PERMUTE whose rule forgets the inverse. A transposition is its own
# inverse, and a wrong shape is noticed at once; the smallest test that sees the values
# needs three axes of equal length, moved round.


def _permute_without_inverse(u: UOp, g: UOp) -> tuple[UOp]:
    return (g.permute(u.arg),)


def _turn(shape: tuple[int, ...], axes: tuple[int, ...]) -> Callable[[UOp], UOp]:
    return lambda x: x.reshape(shape).permute(axes)


TURNS = {
    "two axes": ((2, 2), (1, 0), True),
    "a swap of three": ((2, 2, 2), (0, 2, 1), True),
    "round, one step": ((2, 2, 2), (1, 2, 0), False),
    "round, two steps": ((2, 2, 2), (2, 0, 1), False),
    "unequal lengths": ((2, 3, 1), (1, 2, 0), False),
}


@pytest.mark.parametrize("name", TURNS)
def test_4_which_permutations_see_a_missing_inverse(
    checker: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shape, axes, passes = TURNS[name]
    arrays = [np.arange(1.0, 1 + math.prod(shape))]
    checker.check(_turn(shape, axes), arrays)
    monkeypatch.setitem(registry().vjps, Ops.PERMUTE, _permute_without_inverse)
    if passes:
        checker.check(_turn(shape, axes), arrays)
    else:
        with pytest.raises((AssertionError, ValueError)):
            checker.check(_turn(shape, axes), arrays)


WITH_TRANSPOSES: dict[str, Callable[[Tensor], Tensor]] = {
    "matmul": lambda t: (t @ t.T).sin().sum(),
    "sum over the first axis": lambda t: (t.max(-1) * t.sum(0).max()).sum(),
    "stack and index": lambda t: t.stack_with(t * t)[1].sum(0).sum(),
}


@pytest.mark.parametrize("name", WITH_TRANSPOSES)
def test_4_functions_that_only_transpose_do_not_see_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    found = []
    for rule in (RULES[Ops.PERMUTE], _permute_without_inverse):
        monkeypatch.setitem(registry().vjps, Ops.PERMUTE, rule)
        t = Tensor(x, requires_grad=True)
        WITH_TRANSPOSES[name](t).backward([t])
        assert t.grad is not None
        found.append(t.grad.tolist())
    assert found[0] == found[1]


# 5. The softmax gradient: s * (g - sum(g * s)), and what gradient() builds.


def _plain_softmax(x: UOp, hold_maximum: bool) -> UOp:
    top = reduce_axes(x, Ops.MAX, [0], keepdim=True)
    if hold_maximum:
        top = top.detach()
    e = UOp(Ops.EXP, (x + -top.expand(x.shape),))
    return e / reduce_axes(e, Ops.ADD, [0], keepdim=True).expand(x.shape)


def _by_hand(s: UOp, g: UOp) -> UOp:
    inner = (g * s).reduce(Ops.ADD, 1)
    return s * (g - broadcast_to(inner, s.shape))


def _has_max_rule(g: UOp) -> bool:
    """Whether the count of the maximal elements, which only that rule makes, is in."""
    return any(
        u.op is Ops.REDUCE and u.arg[0] is Ops.ADD and u.src[0].op is Ops.CAST
        for u in g.toposort()
    )


def test_5_the_softmax_gradient_by_hand_and_by_rule(checker: SimpleNamespace) -> None:
    held, flowing = (_plain_softmax(X, hold) for hold in (True, False))
    assert softmax(X, 0) is held  # the library's holds the maximum
    graphs = {
        "by hand": _by_hand(held, W),
        "held": gradient((held * W).reduce(Ops.ADD, 1), [X])[0],
        "flowing": gradient((flowing * W).reduce(Ops.ADD, 1), [X])[0],
    }
    data = {X: np.array([2.0, 1.0, 0.1]), W: np.array([1.0, -2.0, 3.0])}
    s = np.exp(data[X]) / np.exp(data[X]).sum()
    jacobian = np.diag(s) - np.outer(s, s)
    for g in graphs.values():
        np.testing.assert_allclose(
            checker.value(g, data), jacobian @ data[W], atol=1e-15
        )
    size = {name: len(g.toposort()) for name, g in graphs.items()}
    assert size["by hand"] < size["held"] < size["flowing"]
    assert [_has_max_rule(g) for g in graphs.values()] == [False, False, True]


def test_5_a_shift_of_all_inputs_has_no_gradient(checker: SimpleNamespace) -> None:
    # Why the part through the maximum is zero: softmax(x - c) does not depend on c.
    c = UOp.param(2, f64)
    e = UOp(Ops.EXP, (X + -broadcast_to(c, (3,)),))
    shifted = e / broadcast_to(e.reduce(Ops.ADD, 1), (3,))
    (g,) = gradient((shifted * W).reduce(Ops.ADD, 1), [c])
    data = {X: np.array([2.0, 1.0, 0.1]), W: np.array([1.0, -2.0, 3.0])}
    for shift in (0.0, 2.0):
        assert abs(checker.value(g, {**data, c: np.asarray(shift)})) < 1e-15


# 6. Ties in min, which is -max(-x): the two signs cancel, and a tie is split.


@pytest.mark.parametrize(
    ("x", "expected"),
    [([2, 1, 1], [0, 0.5, 0.5]), ([1, 1, 1], [1 / 3] * 3), ([3, 2, 1], [0, 0, 1])],
)
def test_6_the_gradient_of_min(x: list[float], expected: list[float]) -> None:
    t = Tensor(np.array(x, np.float32), requires_grad=True)
    t.min().backward([t])
    assert t.grad is not None
    np.testing.assert_allclose(t.grad.numpy(), expected, rtol=1e-6)


# 7. Gradient checking in float32: a large step errs by the third derivative, like
# step ** 2, a small one by cancellation, like 1 / step; the best lies between.


def test_7_the_error_of_float32_differences_is_u_shaped() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    exact = 1 - np.tanh(x.astype(np.float64)) ** 2

    def tanh_sum(values: np.ndarray) -> float:
        return float(Tensor(values.astype(np.float32)).tanh().sum().item())

    def error(step: float) -> float:
        worst = 0.0
        for i in np.ndindex(x.shape):
            up, down = x.astype(np.float64), x.astype(np.float64)
            up[i] += step
            down[i] -= step
            slope = (tanh_sum(up) - tanh_sum(down)) / (2 * step)
            worst = max(worst, abs(slope - exact[i]))
        return worst

    steps = [10.0**-k for k in range(7)]
    errors = [error(step) for step in steps]
    best = int(np.argmin(errors))
    assert steps[best] in (1e-1, 1e-2, 1e-3)
    assert errors[0] > 20 * errors[best] and errors[-1] > 20 * errors[best]
    assert errors[4] < errors[5] < errors[6]

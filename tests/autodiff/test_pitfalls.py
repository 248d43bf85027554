"""The mistakes that implementations and users make, one by one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from uopc import kernelize
from uopc.autodiff import gradient
from uopc.autodiff.rules import RULES
from uopc.dtype import f32, f64
from uopc.plugins import registry
from uopc.tensor import Tensor, realize_all
from uopc.testing import buf
from uopc.uop import OpDef, Ops, UOp

X = UOp.param(0, f64, (3,))
XS = np.array([0.5, -1.0, 2.0])


def tensor(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32), requires_grad=True)


# 1. Fan-out must accumulate.


@pytest.mark.parametrize(
    "function",
    [lambda x: x * x, lambda x: x + x.exp2(), lambda x: UOp.stack([x, x.sin()])],
    ids=["product", "sum", "stack"],
)
@pytest.mark.parametrize("keep", [0, -1], ids=["first", "last"])
def test_1_keeping_one_contribution_instead_of_adding_is_noticed(
    checker: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[[UOp], UOp],
    keep: int,
) -> None:
    checker.check(function, [XS])
    module = sys.modules["uopc.autodiff.cotangent"]
    monkeypatch.setattr(module, "_sum", lambda parts: parts[keep])
    with pytest.raises(AssertionError, match="gradient by argument 0 is off"):
        checker.check(function, [XS])


# 2. The visiting order.


def eager(root: UOp, target: UOp, g: UOp) -> UOp | None:
    """Wrong on purpose: passes a gradient on as soon as it has one, once."""
    done: set[UOp] = set()
    result: list[UOp] = []

    def visit(u: UOp, g: UOp) -> None:
        if u is target:
            result.append(g)
        if u in done or not u.src:
            return
        done.add(u)
        for s, gs in zip(u.src, RULES[u.op](u, g), strict=True):
            if gs is not None:
                visit(s, gs)

    visit(root, g)
    return sum(result[1:], result[0])


def test_2_a_shared_node_passes_on_what_all_its_consumers_gave(
    checker: SimpleNamespace,
) -> None:
    h = X * X
    f = h + h * h  # h is reached by its shortest way first
    (g,) = gradient(f, [X])
    right = 2 * XS + 4 * XS**3
    np.testing.assert_allclose(checker.value(g, {X: XS}), right)
    wrong = eager(f, X, f.const_like(1.0))
    assert not np.allclose(checker.value(wrong, {X: XS}), right)


# 3. Constants must have the node's shape.


def test_3_a_bare_constant_beside_an_array_is_refused() -> None:
    x = buf(0, 3)
    with pytest.raises(ValueError, match=r"shape mismatch \(3,\) vs \(\)"):
        UOp(Ops.MUL, (x, UOp.const(0.5, f32)))


def elementwise_of(op: OpDef, x: UOp) -> UOp:
    sources = (x > 0.0, x, x * 2.0) if op is Ops.WHERE else (x,) * (op.arity or 0)
    return UOp(op, sources, x.dtype if op is Ops.CAST else None)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize(
    "op", [op for op in RULES if op.kind == "elementwise"], ids=lambda op: op.name
)
def test_3_rules_work_on_arrays_of_every_rank(
    op: OpDef, shape: tuple[int, ...]
) -> None:
    x = UOp.param(0, f32, shape)
    (g,) = gradient(elementwise_of(op, x), [x])
    assert (g.shape, g.dtype) == (shape, f32)


# 4. Kinks are conventions.


def test_4_relu_and_maximum_with_zero_differ_at_zero() -> None:
    found = []
    for function in (Tensor.relu, lambda t: t.maximum(0)):
        x = tensor(-1, 0, 1)
        function(x).sum().backward([x])
        assert x.grad is not None
        found.append(x.grad.tolist())
        assert function(x).tolist() == [0, 0, 1]
    assert found == [[0, 0, 1], [0, 0.5, 1]]


# 5. A table is read by index, or by a one-hot matrix: it is the same gather.


def test_5_an_embedding_by_index_and_by_one_hot_matmul_are_the_same(
    checker: SimpleNamespace,
) -> None:
    weights = Tensor(np.arange(8, dtype=np.float32).reshape(4, 2), requires_grad=True)
    tokens = Tensor(np.array([2, 0, 2], np.int32))
    rows = tokens.one_hot(4) @ weights
    assert rows.uop is weights.uop.index(tokens.uop)
    assert rows.tolist() == [[4, 5], [0, 1], [4, 5]]
    rows.sum().backward([weights])
    assert weights.grad is not None
    assert weights.grad.tolist() == [[1, 1], [0, 0], [2, 2], [0, 0]]


# 6. Python floats in the gradient graph.


def train(w: Tensor, rates: list[float], as_tensor: bool) -> list[int]:
    """Some steps; the number of plans there are after each."""
    rate = Tensor(np.asarray(0.0, np.float32))
    plans = []
    for value in rates:
        if as_tensor:
            rate.assign(Tensor(np.asarray(value, np.float32)))
        loss = (w * w).sum()
        w.grad = None
        loss.backward([w])
        assert w.grad is not None
        step = w.grad.detach() * (rate if as_tensor else value)
        w.assign(w.detach() - step)
        realize_all([loss, w])
        plans.append(len(kernelize._plans))
    return plans


RATES = [0.11, 0.12, 0.13, 0.14, 0.15]


def test_6_a_python_float_that_changes_makes_a_plan_per_step() -> None:
    with pytest.warns(RuntimeWarning, match=r"it is 0\.15 and was 0\.14, in mul"):
        plans = train(tensor(1, 2, 3), RATES, as_tensor=False)
    assert np.diff(plans).tolist() == [1, 1, 1, 1]


def test_6_a_number_in_a_0d_buffer_does_not() -> None:
    w = tensor(1, 2, 3)
    plans = train(w, RATES, as_tensor=True)
    assert np.diff(plans).tolist() == [0, 0, 0, 0]
    wanted = np.prod(1 - 2 * np.array(RATES)) * np.array([1, 2, 3])
    np.testing.assert_allclose(w.numpy(), wanted, rtol=1e-6)


# 7. Gradients accumulate across backward calls.


def test_7_without_forgetting_the_second_step_is_twice_as_long() -> None:
    steps = {}
    for forget in (True, False):
        w = tensor(1)
        for _ in range(2):
            loss = (w * 3).sum()
            if forget:
                w.grad = None
            loss.backward([w])
            assert w.grad is not None
            before = w.item()
            w.assign(w.detach() - w.grad.detach()).realize()
        steps[forget] = before - w.item()
    assert steps == {True: 3, False: 6}


def test_7_each_call_adds_one_addition_to_a_lazy_gradient() -> None:
    w = tensor(1, 2)
    sizes = []
    for _ in range(4):
        (w.exp2().sum()).backward([w])
        assert w.grad is not None
        sizes.append(len(w.grad.uop.toposort()))
    assert np.diff(sizes).tolist() == [1, 1, 1]


# 8. Realizing the loss must not destroy its graph.


def test_8_printing_the_loss_before_backward_changes_nothing() -> None:
    w = tensor(1, 2)
    loss = (w * w).sum()
    assert f"{loss.item():.1f}" == "5.0"
    loss.backward([w])
    assert w.grad is not None and w.grad.tolist() == [2, 4]


def test_the_registry_is_as_before() -> None:
    # Tests here replace rules and parts; none may leak into others.
    assert all(registry().vjps[op] is rule for op, rule in RULES.items())

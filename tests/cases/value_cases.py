"""Cases about values, as functions named after their ids."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapter import constant, grads
from registry import case, equal

from uopc.autodiff import NoGradientRule, gradient
from uopc.dtype import DTYPES, boolean, f32, f64, i8, i32, i64, u8
from uopc.tensor import Tensor
from uopc.uop import OpDef, UOp, infer

INF, NAN = float("inf"), float("nan")


# -- types ----


@case
def cast_f32_f16_overflow(_: Path) -> None:
    data = [65519.0, 65519.99, 65520.0, 65536.0, -70000.0, 1e-8, 2.98e-8]
    x = Tensor(data, dtype=f32)
    right = [65504.0, 65504.0, INF, INF, -INF, 0.0, 0.0]
    equal(x.cast(DTYPES["f16"]), np.array(right, np.float16))
    equal(x.cast(DTYPES["f16"]).cast(f32), np.array(right, np.float32))


@case
def int_overflow_not_ub(_: Path) -> None:
    x = Tensor([2**31 - 1], dtype=i32)
    low = Tensor([-(2**31)], dtype=i32)
    equal((x + 1) > x, [False])
    equal(-low, [-(2**31)])
    equal(low.abs(), [-(2**31)])


@case
def uint8_wraparound(_: Path) -> None:
    def results(fold: bool) -> list[Tensor]:
        def value(v: int, dtype: Any) -> Tensor:
            if fold:
                return Tensor(UOp.const(v, dtype).broadcast_scalar((1,)))
            return Tensor([v], dtype=dtype)

        a, b, c = value(250, u8), value(3, u8), value(5, u8)
        big, end = value(100, i8), value(2**31 - 1, i32)
        return [a + a, (a + a) // 2, b - c, big + big, end + 1]

    for fold in (False, True):
        values = [r.item() for r in results(fold)]
        assert values == [244, 122, 254, -56, -(2**31)]
    three, five = Tensor([3], dtype=u8), Tensor([5], dtype=u8)
    equal((three - five) < three, [False])
    equal((three - five) >> 1, [127])


@case
def int_div_by_zero(_: Path) -> None:
    zero, minus = Tensor([0], dtype=i32), Tensor([-1], dtype=i32)
    five, low = Tensor([5], dtype=i32), Tensor([-(2**31)], dtype=i32)
    equal(five // zero, [0])
    equal(five % zero, [0])
    equal(low // minus, [-(2**31)])


@case
def int_div_exact(_: Path) -> None:
    a, b = Tensor([110], dtype=i64), Tensor([55], dtype=i64)
    equal(a // b, [2])
    equal(a % b, [0])
    equal(Tensor([2**53 + 1], dtype=i64) // Tensor([1], dtype=i64), [2**53 + 1])


@case
def pow_integer_dtype(_: Path) -> None:
    power = Tensor([3, -2, 10], dtype=i64) ** 5
    assert power.dtype is i64
    equal(power, [243, -32, 100000])


@case
def mean_f16_overflow(_: Path) -> None:
    mean = Tensor.full((100,), 60000.0, dtype=DTYPES["f16"]).mean()
    assert mean.item() == 60000.0


@case
def sum_f32_ones_2p24(_: Path) -> None:
    ones = Tensor(np.ones(2**24 + 2**20, np.float32))
    assert ones.sum().item() == 2**24 + 2**20


@case
def ties_half_count_overflow(_: Path) -> None:
    x = Tensor(np.ones(70000, np.float16))
    (g,) = grads(x.max(), [x])
    equal(g, np.full(70000, np.float16(1 / 70000)))


# -- folding and identity ----


@case
def add_zero_keeps_negzero(_: Path) -> None:
    x = constant(["-0.0"])
    for result, right in ((x + 0.0, 0.0), (x + -0.0, -0.0), (x * 1.0, -0.0)):
        equal(result, [right])
    equal(x - 0.0, [-0.0])


@case
def nan_compare_where(_: Path) -> None:
    x = constant(["nan", 1.0])
    equal(x.eq(x), [False, True])
    equal(x.ne(x), [True, False])
    equal(~(x < 2.0), [True, False])
    equal(x >= 2.0, [False, False])
    equal((x < 2.0).where(Tensor([0, 0]), Tensor([1, 1])), [1, 0])


@case
def negzero_const_identity(_: Path) -> None:
    for zeros in ((0.0, -0.0), (-0.0, 0.0)):
        for zero in zeros:
            one = Tensor(UOp.const(1.0, f64))
            equal(one / Tensor(UOp.const(zero, f64)), np.copysign(INF, zero))
    nan = UOp.const(NAN, f64)
    assert nan is UOp.const(NAN, f64)
    kinds = [(1, i32), (1.0, f32), (True, boolean), (0.0, f32), (-0.0, f32)]
    assert len({UOp.const(v, d) for v, d in kinds}) == 5


@case
def equal_buffers_not_aliased(_: Path) -> None:
    a, b = (Tensor(np.zeros(1)) for _ in range(2))
    assert a.uop is not b.uop
    a.assign(constant([2.0]))
    equal(a, [2.0])
    equal(b, [0.0])


@case
def lazy_reader_before_assign(_: Path) -> None:
    for first in (0, 1):
        x = constant([1.0, 2.0])
        r = x + 10.0
        x.assign(Tensor.cat([constant([9.0]), x[1:]]))
        Tensor.realize_all([(r, x)[first]])
        equal(r, [11.0, 12.0])
        equal(x, [9.0, 2.0])


@case
def swap_two_buffers(_: Path) -> None:
    a, b = constant([1.0, 1.0]), constant([2.0, 2.0])
    c = a + 1.0
    a.assign(b + 1.0)
    b.assign(c)
    Tensor.realize_all([a, b])
    equal(a, [3.0, 3.0])
    equal(b, [2.0, 2.0])


# -- gradients ----


@case
def backward_twice_same(_: Path) -> None:
    x = Tensor(3.0, dtype=f64, requires_grad=True)
    y = x * x * x
    y.backward([x])
    equal(x.grad, 27.0)
    x.grad = None
    y.backward([x])
    equal(x.grad, 27.0)
    y.backward([x])
    equal(x.grad, 54.0)


@case
def integer_input_grad(_: Path) -> None:
    x = Tensor([110], dtype=i32)
    with pytest.raises(TypeError, match="i32"):
        gradient((x / 2).sum().uop, [x.uop])
    with pytest.raises(TypeError, match="i32"):
        Tensor([110], dtype=i32, requires_grad=True)


@case
def missing_rule_is_loud(_: Path) -> None:
    op = OpDef(
        "lonely", "elementwise", 1, infer.elementwise(("float",)),
        "A function without a rule.", numpy=lambda u, x: x,
    )  # fmt: skip
    x = constant([1.0])
    with pytest.raises(NoGradientRule, match="lonely"):
        gradient(UOp(op, (x.uop,)), [x.uop])


@case
def inplace_after_saved(_: Path) -> None:
    x = constant([1.0, 2.0, 3.0])
    mask = Tensor([False, True, False])
    y = mask.where(2.0, x.sigmoid())
    (g,) = grads(y, [x])
    right = [0.19661193324148185, 0.0, 0.045176659730912]
    np.testing.assert_allclose(g.numpy(), right, rtol=1e-6, atol=1e-9)


@case
def sigmoid_extreme_f32(_: Path) -> None:
    x = Tensor([-548.3, -201.7, -100.0, 100.0, 548.3], dtype=f32)
    y = x.sigmoid()
    (g,) = grads(y, [x])
    assert (np.abs(g.numpy()) < 1e-30).all()
    np.testing.assert_allclose(y.numpy(), [0, 0, 0, 1, 1], atol=1e-43)


@case
def cross_entropy_all_ignored(_: Path) -> None:
    """A label that is no class adds nothing to the mean."""
    logits = constant([[1.0, 2.0, 3.0]])
    loss = logits.cross_entropy(Tensor([-1], dtype=i32))
    (g,) = grads(loss, [logits])
    equal(np.abs(g.numpy()), [[0.0, 0.0, 0.0]])
    equal(np.abs(loss.numpy()), 0.0)


@case
def deep_chain(_: Path) -> None:
    start = x = Tensor(1.0, dtype=f64)
    for _step in range(20000):
        x = x * 1.0001 + 1e-6
    (g,) = grads(x, [start])
    np.testing.assert_allclose(x.item(), 7.452200452310849, rtol=1e-9)
    np.testing.assert_allclose(g.item(), 7.388317279514809, rtol=1e-9)


# -- shapes, gathers, choices ----


@case
def gather_index_out_of_range(_: Path) -> None:
    """Out of range reads 0; one that is known when the graph is built raises."""
    x = constant([1.0, 2.0, 3.0])
    equal(x.take(Tensor([3, -4, -1], dtype=i32)), [0.0, 0.0, 3.0])
    for i in (3, -4):
        with pytest.raises(IndexError):
            x[i]
    equal(x[-1], 3.0)


@case
def empty_reductions(_: Path) -> None:
    none, rows = Tensor(np.zeros(0)), Tensor(np.zeros((2, 0)))
    equal(none.sum(), 0.0)
    equal(none.prod(), 1.0)
    assert rows.max(axis=0).shape == (0,)
    assert rows.max(axis=0).numpy().shape == (0,)
    with pytest.raises(ValueError):
        rows.max(axis=1)
    assert np.isnan(none.mean().item())
    equal(rows @ Tensor(np.zeros((0, 3))), np.zeros((2, 3)))


@case
def zero_d_reduce_axis(_: Path) -> None:
    x = Tensor(3.0, dtype=f64)
    equal(x.sum(), 3.0)
    equal(x.sum(axis=()), 3.0)
    for axis in (0, 1):
        with pytest.raises(IndexError):
            x.sum(axis=axis)


@case
def argmax_ties_first(_: Path) -> None:
    x = constant([[1.0, 5.0], [2.0, 10.0], [3.0, 3.0]])
    equal(x.argmax(axis=1), [1, 1, 0])
    equal(constant([85.0, 16.0, 0.04, 85.0, 16.0, 85.0]).argmax(), 0)
    equal(constant([2.0, 1.0, 1.0]).argmin(), 1)

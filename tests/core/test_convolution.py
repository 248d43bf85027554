"""Convolutions against loops in NumPy: values, the loops they become, mistakes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from uopc.composite import conv, gelu, relu
from uopc.dtype import bf16, boolean, f16, f32, f64, i32
from uopc.interp import evaluate
from uopc.interp.loops import run_loops
from uopc.kernelize import make_plan
from uopc.rangeify import rangeify
from uopc.tensor import Tensor
from uopc.uir import to_uir
from uopc.uop import OpDef, Ops, UOp, toposort

Array = np.ndarray
Pairs = list[tuple[int, int]]


def by_loops(
    x: Array,
    w: Array,
    stride: list[int],
    padding: Pairs,
    dilation: list[int],
    groups: int,
) -> Array:
    """The definition, one element of the result after the other."""
    x = np.pad(x, [(0, 0), (0, 0), *padding])
    out, per_group, *kernel = w.shape
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    lengths = [
        (m - span) // s + 1
        for m, span, s in zip(x.shape[2:], spans, stride, strict=True)
    ]
    result = np.zeros((len(x), out, *lengths), x.dtype)
    for o, *at in itertools.product(range(out), *map(range, lengths)):
        first = o // (out // groups) * per_group
        window = x[
            (
                slice(None),
                slice(first, first + per_group),
                *(
                    slice(j * s, j * s + span, d)
                    for j, s, span, d in zip(at, stride, spans, dilation, strict=True)
                ),
            )
        ]
        result[(slice(None), o, *at)] = (window * w[o]).reshape(len(x), -1).sum(1)
    return result


def drawn(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape)


def without_conv(op: OpDef) -> bool:
    return op is not Ops.CONV


def leaf(slot: int, shape: tuple[int, ...]) -> UOp:
    return UOp.buffer(int(np.prod(shape)), f64, slot).reshape(shape)


def loops_of(u: UOp) -> list[UOp]:
    """The loop programs of a plan in which the op is written in others."""
    plan, _ = make_plan([u], supports=without_conv)
    return [rangeify([k.ast], k.name) for k in plan.kernels]


# -- values -----------------------------------------------------------------------

STRIDES = [[1, 1], [2, 3]]
PADDINGS: list[Pairs] = [[(0, 0), (0, 0)], [(1, 2), (3, 0)]]
DILATIONS = [[1, 1], [2, 1], [1, 3]]
KERNELS = [(1, 1), (3, 2), (2, 3)]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_values_are_those_of_the_definition(
    kernel: tuple[int, int], groups: int
) -> None:
    """By the row's meaning, by what it is written as, and by the loops of that."""
    x, w = drawn(2, 4, 5, 7), drawn(8, 4 // groups, *kernel)
    for stride, padding, dilation in itertools.product(STRIDES, PADDINGS, DILATIONS):
        a, b = leaf(0, x.shape), leaf(1, w.shape)
        u = conv(a, b, stride, padding, dilation, groups)
        want = by_loops(x, w, stride, padding, dilation, groups)
        data = {a.src[0]: x.reshape(-1), b.src[0]: w.reshape(-1)}
        (node,) = (n for n in toposort([u]) if n.op is Ops.CONV)
        assert Ops.CONV.lower is not None
        lowered = Ops.CONV.lower(node).reshape(u.shape)
        for got in evaluate([u, lowered], data):
            np.testing.assert_allclose(got, want, atol=1e-12)


def test_a_kernel_computes_it_without_other_buffers() -> None:
    x, w = drawn(2, 4, 5, 6), drawn(6, 2, 3, 2)
    a, b = leaf(0, x.shape), leaf(1, w.shape)
    (program,) = loops_of(conv(a, b, [2, 1], [(1, 2), (0, 1)], [1, 2], 2))
    want = by_loops(x, w, [2, 1], [(1, 2), (0, 1)], [1, 2], 2)
    # The weight is the left operand, so it is read first.
    stored = run_loops(program, {0: w.reshape(-1), 1: x.reshape(-1)})
    assert stored.keys() == {2}
    np.testing.assert_allclose(stored[2].reshape(want.shape), want, atol=1e-12)


@pytest.mark.parametrize("n", [1, 3])
def test_any_number_of_axes(n: int) -> None:
    x, w = drawn(2, 2, *(5, 4, 3)[:n]), drawn(3, 2, *(2, 1, 3)[:n])
    stride, padding, dilation = (
        [2, 1, 1][:n],
        [(0, 1), (2, 0), (1, 1)][:n],
        [2, 1, 1][:n],
    )
    got = getattr(Tensor(x), f"conv{n}d")(
        Tensor(w), stride=stride, padding=padding, dilation=dilation
    )
    want = by_loops(x, w, stride, padding, dilation, 1)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-12)


def test_one_element_and_one_tap_meet_once() -> None:
    x, w = Tensor([[[3.0]]]), Tensor([[[5.0]]])
    assert x.conv1d(w, padding=[(0, 2)]).tolist() == [[[15.0, 0.0, 0.0]]]
    assert x.conv1d(w, padding=[(2, 0)], stride=2).tolist() == [[[0.0, 15.0]]]


def test_a_sum_of_one_product_starts_at_zero_like_any_other() -> None:
    """Out of range, 0 times a negative weight is -0, and 0 + -0 is 0."""
    x, w = leaf(0, (1, 1, 1)), leaf(1, (1, 1, 1))
    u = conv(x, w, (1,), ((0, 2),), (1,), 1)
    (node,) = (n for n in toposort([u]) if n.op is Ops.CONV)
    assert Ops.CONV.lower is not None
    data = {x.src[0]: np.ones(1), w.src[0]: -np.ones(1)}
    for got in evaluate([node, Ops.CONV.lower(node)], data):
        assert got.reshape(-1).tolist() == [-1, 0, 0]
        assert np.signbit(got).reshape(-1).tolist() == [True, False, False]


def test_every_solution_of_the_equation_is_one_term() -> None:
    """The row by its definition, with factors that share divisors or are negative."""
    x, w = drawn(2, 1, 2, 5), drawn(1, 3, 2, 4)
    for a, b, c in itertools.product((1, -1, 2, -4, 6), (1, -2, 3, 4), (1, 2, -3, 6)):
        for e in (-3, 0, 2):
            want = np.zeros((2, 1, 3, 7))
            for u, t, j in itertools.product(range(5), range(4), range(7)):
                if a * u == b * t + c * j + e:
                    want[..., j] += np.einsum("agc,gbc->agb", x[..., u], w[..., t])
            p, q = UOp.param(0, f64, x.shape), UOp.param(1, f64, w.shape)
            node = UOp(Ops.CONV, (p, q), ((7,), (a,), (b,), (c,), (e,), 0))
            turned = UOp(Ops.CONV, (p, q), ((7,), (a,), (b,), (c,), (e,), 1))
            assert Ops.CONV.lower is not None
            roots = [node, Ops.CONV.lower(node), turned, Ops.CONV.lower(turned)]
            first, second, third, fourth = evaluate(roots, {p: x, q: w})
            np.testing.assert_allclose(first, want, atol=1e-12)
            np.testing.assert_allclose(second, want, atol=1e-12)
            for got in (third, fourth):
                np.testing.assert_allclose(got, want.transpose(1, 2, 0, 3), atol=1e-12)


@pytest.mark.parametrize("dtype", [f32, f16, bf16, i32, boolean], ids=str)
def test_types(dtype: object) -> None:
    x = np.arange(24).reshape(1, 2, 3, 4) % 5
    w, b = np.arange(16).reshape(2, 2, 2, 2) % 3, np.array([1, 0])
    got = Tensor(x).cast(dtype).conv2d(Tensor(w).cast(dtype), Tensor(b).cast(dtype))
    if dtype is boolean:
        x, w, b = x != 0, w != 0, b != 0
    want = by_loops(x + 0, w + 0, [1, 1], [(0, 0)] * 2, [1, 1], 1)
    want = want + b.reshape(1, 2, 1, 1)
    assert got.dtype is (i32 if dtype is boolean else dtype)
    np.testing.assert_array_equal(got.cast(f64).numpy(), want)


def test_half_types_are_added_up_in_f32() -> None:
    x = Tensor(np.full((1, 4096), 1.0, np.float16))
    got = x.conv1d(Tensor(np.full((1, 1, 4096), 1.0, np.float16)))
    assert got.dtype is f16 and got.item() == 4096.0


def test_names_of_paddings_and_no_batch() -> None:
    x, w, b = drawn(2, 5, 6), drawn(3, 2, 2, 3), drawn(3)
    got = Tensor(x).conv2d(Tensor(w), Tensor(b), padding="same", dilation=(1, 2))
    want = by_loops(x[None], w, [1, 1], [(0, 1), (2, 2)], [1, 2], 1)[0]
    np.testing.assert_allclose(got.numpy(), want + b.reshape(3, 1, 1), atol=1e-12)
    got = Tensor(x).conv2d(Tensor(w), padding="valid", stride=2)
    want = by_loops(x[None], w, [2, 2], [(0, 0)] * 2, [1, 1], 1)[0]
    np.testing.assert_allclose(got.numpy(), want, atol=1e-12)


def test_no_elements() -> None:
    def shape(x: tuple[int, ...], w: tuple[int, ...]) -> tuple[int, ...]:
        found = Tensor.zeros(*x).conv2d(Tensor.ones(*w), padding=1).numpy()
        assert not found.any()
        return found.shape

    assert shape((0, 2, 3, 3), (4, 2, 2, 2)) == (0, 4, 4, 4)
    assert shape((1, 0, 3, 3), (4, 0, 2, 2)) == (1, 4, 4, 4)
    assert shape((1, 2, 0, 3), (4, 2, 2, 2)) == (1, 4, 1, 4)
    assert shape((1, 2, 3, 3), (0, 2, 2, 2)) == (1, 0, 4, 4)


# -- the loops --------------------------------------------------------------------


def divisions(program: UOp) -> list[UOp]:
    """Divisions, and choices that depend on a position."""
    ops = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.WHERE)
    return [n for n in toposort([program]) if n.op in ops]


def test_indices_are_sums_of_loop_variables_behind_comparisons() -> None:
    for stride, padding, dilation in itertools.product((1, 2, 3), (0, 1, 5), (1, 2, 3)):
        u = conv(
            leaf(0, (2, 3, 9, 11)), leaf(1, (4, 3, 3, 2)),
            [stride, 1], [(padding, 0), (1, padding)], [1, dilation],
        )  # fmt: skip
        (program,) = loops_of(u)
        assert not divisions(program)
        reads = [n for n in toposort([program]) if n.op is Ops.INDEX]
        assert max(len(n.src) for n in reads) == 3  # a gate: nothing else is read


def test_a_kernel_that_never_leaves_the_input_has_no_gate() -> None:
    u = conv(
        leaf(0, (2, 3, 9, 11)), leaf(1, (4, 3, 3, 2)), [2, 1], [(0, 0)] * 2, [1, 2]
    )
    (program,) = loops_of(u)
    assert "cmplt" not in to_uir(program)


def test_what_feeds_it_is_computed_where_it_is_read_if_that_is_cheap() -> None:
    def kernels(x: UOp) -> list[str]:
        u = conv(x, leaf(1, (4, 3, 3, 3)), [1, 1], [(1, 1)] * 2, [1, 1])
        return [k.name for k in make_plan([relu(u)], supports=without_conv)[0].kernels]

    x = leaf(0, (2, 3, 8, 8))
    assert kernels(x) == ["r_2_4_8_8"]
    assert kernels(relu(x + 1.0)) == ["r_2_4_8_8"]
    assert kernels(gelu(x)) == ["e_2_3_8_8", "r_2_4_8_8"]


# -- mistakes ---------------------------------------------------------------------

X = Tensor.zeros(2, 4, 5, 6)
MISTAKES = {
    "the input has 4 channels, where the weight and groups=1 are for 3 * 1":
        lambda: X.conv2d(Tensor.zeros(2, 3, 2, 2)),
    "the input has 4 channels, where the weight and groups=2 are for 4 * 2":
        lambda: X.conv2d(Tensor.zeros(2, 4, 2, 2), groups=2),
    "3 channels of the result are not 2 equal groups":
        lambda: X.conv2d(Tensor.zeros(3, 2, 2, 2), groups=2),
    "expected (N, C, H, W) or (C, H, W), and a weight of 4 axes":
        lambda: X.conv2d(Tensor.zeros(2, 4, 2)),
    "expected (N, C, L) or (C, L), and a weight of 3 axes":
        lambda: X.conv1d(Tensor.zeros(2, 4, 2)),
    "a window of (6, 1) does not fit into the padded input, (5, 8); pad more":
        lambda: X.conv2d(Tensor.zeros(2, 4, 6, 1), padding=(0, 1)),
    "a window of (2, 7) does not fit":
        lambda: X.conv2d(Tensor.zeros(2, 4, 2, 3), dilation=(1, 3)),
    "stride is 0; expected a number from 1, or 2 of them":
        lambda: X.conv2d(Tensor.zeros(2, 4, 1, 1), stride=0),
    "dilation is (1, 2, 3); expected":
        lambda: X.conv2d(Tensor.zeros(2, 4, 1, 1), dilation=(1, 2, 3)),
    "padding is 'full'; expected 'valid', 'same', a number from 0":
        lambda: X.conv2d(Tensor.zeros(2, 4, 1, 1), padding="full"),
    "padding is (-1, 0); expected":
        lambda: X.conv2d(Tensor.zeros(2, 4, 1, 1), padding=(-1, 0)),
    "padding='same' needs a stride of 1":
        lambda: X.conv2d(Tensor.zeros(2, 4, 1, 1), padding="same", stride=2),
    "bias has shape (4,); expected (2,)":
        lambda: X.conv2d(Tensor.zeros(2, 4, 1, 1), Tensor.zeros(4)),
    "groups is 0; expected a number from 1":
        lambda: X.conv2d(Tensor.zeros(2, 4, 1, 1), groups=0),
    "the kernel has no elements":
        lambda: X.conv2d(Tensor.zeros(2, 4, 0, 1)),
}  # fmt: skip


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_named_at_the_call(message: str) -> None:
    with pytest.raises(ValueError) as error:
        MISTAKES[message]()
    assert message in str(error.value)
    assert str(error.value).startswith("conv") and "f32[2, 4, 5, 6]" in str(error.value)


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match="conv2d: expected a Tensor, got ndarray"):
        X.conv2d(np.zeros((2, 4, 1, 1)))  # type: ignore[arg-type]


def test_a_node_that_does_not_fit_is_refused() -> None:
    x, w = UOp.param(0, f32, (1, 1, 2, 5)), UOp.param(1, f32, (1, 3, 2, 2))
    one = (1,)
    for arg, why in (
        (((4,), one, one, one, (0,)), "expected the argument"),
        (((4,), one, one, (0,), (0,), 0), "factors other than 0"),
        (((-4,), one, one, one, (0,), 0), "lengths from 0"),
        (((4,), one, one, one, (0,), 2), "0 or 1 last"),
        (((4, 4), one, one, one, (0,), 0), "axes"),
    ):
        with pytest.raises((TypeError, ValueError), match=why):
            UOp(Ops.CONV, (x, w), arg)
    with pytest.raises(ValueError, match="one G and C"):
        UOp(Ops.CONV, (x, w.permute((0, 2, 1, 3))), ((4,), one, one, one, (0,), 0))
    with pytest.raises(TypeError, match="numbers of one type"):
        UOp(Ops.CONV, (x, w.cast(f64)), ((4,), one, one, one, (0,), 0))

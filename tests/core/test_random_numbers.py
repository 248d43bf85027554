"""Threefry against its published vectors; streams that repeat and never overlap."""

from __future__ import annotations

import math
import multiprocessing

import numpy as np
import pytest

from uopc import kernelize
from uopc.composite import blocks, normal, random_bits, threefry, uniform
from uopc.dtype import f32, f64, u32, u64
from uopc.interp import evaluate
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, toposort

# Key, counter, result of Threefry-2x32-20: the known answers of Random123.
KNOWN = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "expected"), KNOWN)
def test_known_answers(key, counter, expected) -> None:
    nodes = [UOp.param(i, u32) for i in range(4)]
    words = threefry((nodes[0], nodes[1]), (nodes[2], nodes[3]))
    values = [np.asarray(v, np.uint32) for v in (*key, *counter)]
    got = evaluate(words, dict(zip(nodes, values, strict=True)))
    assert tuple(int(w) for w in got) == expected


def plain_threefry(key: int, counter: int) -> tuple[int, int]:
    """The same in Python integers, from the paper."""
    mask, rotations = 0xFFFFFFFF, (13, 15, 26, 6, 17, 29, 16, 24)
    ks = [key & mask, key >> 32]
    ks.append(0x1BD11BDA ^ ks[0] ^ ks[1])
    x0, x1 = (counter + ks[0]) & mask, ((counter >> 32) + ks[1]) & mask
    for i in range(20):
        r = rotations[i % 8]
        x0 = (x0 + x1) & mask
        x1 = (x1 << r | x1 >> (32 - r)) & mask ^ x0
        if i % 4 == 3:
            s = i // 4 + 1
            x0 = (x0 + ks[s % 3]) & mask
            x1 = (x1 + ks[(s + 1) % 3] + s) & mask
    return x0, x1


@pytest.mark.parametrize("counter", [0, 5, 2**32 - 2, 2**40 + 7, 2**64 - 3])
@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_words_come_from_consecutive_counters(counter: int, n: int) -> None:
    key = 0x0123456789ABCDEF
    nodes = [UOp.param(i, u64) for i in range(2)]
    values = [np.asarray(v, np.uint64) for v in (key, counter)]
    (got,) = evaluate([random_bits(*nodes, n)], dict(zip(nodes, values, strict=True)))
    pairs = [plain_threefry(key, (counter + i) % 2**64) for i in range(blocks(n))]
    expected = [a for a, _ in pairs] + [b for _, b in pairs]
    assert got.dtype == np.uint32
    assert got.tolist() == expected[:n]
    assert blocks(n) == math.ceil(n / 2)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_words_to_floats(dtype) -> None:
    words = np.array([0, 255, 256, 2**31, 2**32 - 1], np.uint32)
    u = UOp.param(0, u32, (5,))
    (got,) = evaluate([uniform(u, dtype)], {u: words})
    assert got.dtype == dtype.numpy
    assert got.tolist() == [0, 0, 2**-24, 0.5, 1 - 2**-24]


def test_the_extreme_words_give_finite_normals() -> None:
    words = np.array([0, 2**32 - 1, 0, 2**32 - 1] * 2, np.uint32)
    u = UOp.param(0, u32, (8,))
    for dtype in (f32, f64):
        (got,) = evaluate([normal(u, dtype)], {u: words})
        assert np.isfinite(got).all()
        assert got[0] == 0  # the smallest word is probability 1 - 0
        assert np.abs(got).max() < 6


def draw(seed: int) -> list[list[float]]:
    Tensor.manual_seed(seed)
    parts = [Tensor.rand(3), Tensor.randn(2, 2), Tensor.rand(1), Tensor.randn(5)]
    return [t.numpy().ravel().tolist() for t in parts]


def test_the_same_seed_gives_the_same_stream() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert draw(0) != draw(2**32)
    assert draw(-1) == draw(2**64 - 1)


def test_a_stream_does_not_depend_on_when_it_is_read() -> None:
    Tensor.manual_seed(3)
    eager = [Tensor.rand(4).numpy() for _ in range(4)]
    Tensor.manual_seed(3)
    lazy = [Tensor.rand(4) for _ in range(4)]
    backwards = [t.numpy() for t in reversed(lazy)][::-1]
    Tensor.manual_seed(3)
    together = [Tensor.rand(4) for _ in range(4)]
    Tensor.realize_all(together)
    for a, b, c in zip(eager, backwards, together, strict=True):
        assert a.tolist() == b.tolist() == c.numpy().tolist()


def test_a_value_that_was_drawn_stays() -> None:
    Tensor.manual_seed(1)
    t = Tensor.rand(5)
    derived = t * 2
    first = t.numpy()
    Tensor.rand(5).numpy()
    Tensor.manual_seed(99)
    assert t.numpy().tolist() == first.tolist()
    assert derived.numpy().tolist() == (first * 2).tolist()


def test_streams_differ_from_call_to_call_and_never_overlap() -> None:
    Tensor.manual_seed(5)
    draws = [Tensor.rand(n).numpy() for n in (1000, 1, 999, 2, 1000)]
    values = np.concatenate(draws)
    # 3002 draws out of 2**24: a handful of repeats by chance, not hundreds.
    assert len(np.unique(values)) > len(values) - 10
    a, b = draws[0], draws[4]
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.15


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0), (3, 5), ((4, 2),)], ids=repr)
def test_shapes_and_dtypes(shape) -> None:
    for make in (Tensor.rand, Tensor.randn):
        for dtype in (f32, f64):
            t = make(*shape, dtype=dtype)
            assert t.dtype is dtype
            assert t.shape == (shape[0] if shape and type(shape[0]) is tuple else shape)
            assert t.numpy().shape == t.shape


def test_moments_of_the_uniform() -> None:
    Tensor.manual_seed(0)
    x = Tensor.rand(200_000).numpy().astype(float)
    assert 0 <= x.min() < 1e-4
    assert 1 - 1e-4 < x.max() < 1
    assert abs(x.mean() - 0.5) < 4 / math.sqrt(12 * x.size)
    assert abs(x.var() - 1 / 12) < 1e-3
    counts, _ = np.histogram(x, 64, (0, 1))
    chi = ((counts - x.size / 64) ** 2).sum() / (x.size / 64)
    assert 25 < chi < 115  # 63 degrees of freedom: six sigma
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.01
    half = x.size // 2  # the two words of a block
    assert abs(np.corrcoef(x[:half], x[half:])[0, 1]) < 0.015


def test_moments_of_the_normal() -> None:
    Tensor.manual_seed(0)
    x = Tensor.randn(200_000).numpy().astype(float)
    assert abs(x.mean()) < 4 / math.sqrt(x.size)
    assert abs(x.var() - 1) < 0.02
    assert abs((x**3).mean()) < 0.05
    assert abs((x**4).mean() - 3) < 0.1
    assert 3.8 < np.abs(x).max() < 6
    inside = (np.abs(x) < 1).mean()
    assert abs(inside - math.erf(1 / math.sqrt(2))) < 0.01


def test_drawing_again_and_again_makes_one_plan() -> None:
    Tensor.manual_seed(0)
    for _ in range(2):
        (Tensor.rand(6) * 2 - 1).realize()
    count = len(kernelize._plans)
    for _ in range(4):
        (Tensor.rand(6) * 2 - 1).realize()
    Tensor.manual_seed(1)
    (Tensor.rand(6) * 2 - 1).realize()
    assert len(kernelize._plans) == count


def test_the_counter_is_a_buffer_in_the_graph() -> None:
    nodes = toposort([Tensor.rand(4).uop])
    scalars = [u for u in nodes if u.op is Ops.BUFFER and u.dtype is u64]
    assert len(scalars) == 2  # the key and the counter
    assert {u.arg[0] for u in scalars} == {1}


def test_many_draws_before_the_first_read() -> None:
    Tensor.manual_seed(2)
    parts = [Tensor.rand(2) for _ in range(50)]
    total = parts[0]
    for p in parts[1:]:
        total = total + p
    got = total.numpy()
    Tensor.manual_seed(2)
    again = sum(Tensor.rand(2).numpy().astype(float) for _ in range(50))
    np.testing.assert_allclose(got, again, rtol=1e-5)
    assert 15 < got.mean() < 35


def drawn(_: int) -> list[float]:
    numbers: list[float] = Tensor.rand(3).tolist()
    return numbers


def in_a_fork(seed: int | None) -> list[float]:
    """What a new forked worker draws, which may seed itself first."""
    begin = (lambda: None) if seed is None else (lambda: Tensor.manual_seed(seed))
    with multiprocessing.get_context("fork").Pool(1, initializer=begin) as pool:
        return pool.map(drawn, [0])[0]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_forked_workers_draw_the_same_unless_they_seed_themselves() -> None:
    Tensor.manual_seed(5)
    drawn(0)
    assert in_a_fork(None) == in_a_fork(None)
    assert in_a_fork(1) != in_a_fork(2)
    assert in_a_fork(1) == in_a_fork(1)

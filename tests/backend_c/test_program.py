"""Whole plans in C: one file, one entry point, and what running it gives."""

import re
import threading
from typing import Any

import numpy as np
import pytest

from uopc.backend_c import print_plan
from uopc.backend_c.backend import spellings
from uopc.config import overriding
from uopc.dtype import DType, f32, f64, i32, u8
from uopc.kernelize import Plan, make_plan
from uopc.runtime import backend_named, buffer_data, new_buffer, realize
from uopc.uop import Ops, UOp

Array = np.ndarray[Any, Any]


def leaf(array: Any) -> UOp:
    array = np.asarray(array)
    return new_buffer(array.reshape(-1).copy()).reshape(array.shape)


def drawn(*shape: int, seed: int = 0, dtype: DType = f32) -> Array:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        # Of many magnitudes, so that another order of adding shows.
        x = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
        return x.astype(dtype.numpy)
    return rng.integers(0, 100, shape).astype(dtype.numpy)


def run(*roots: UOp, opt: int = 1) -> list[Array]:
    with overriding(UOPC_OPT=opt):
        flat = realize(roots, None, backend_named("c"))
    return [x.reshape(r.shape) for x, r in zip(flat, roots, strict=True)]


def planned(*roots: UOp) -> tuple[Plan, str]:
    plan, _ = make_plan(roots, None, backend_named("c").supports, "c")
    return plan, print_plan(plan, spellings())


def functions(source: str) -> list[str]:
    return re.findall(r"^void (\w+)\(", source, re.MULTILINE)


# The text


def test_equal_kernels_are_emitted_once():
    data = [drawn(6 if i == 4 else 5, seed=i) for i in range(7)]
    a, b, c, d, z, e, f = map(leaf, data)
    # Of one shape and of arrays of their own, so that each has its own loops.
    roots = (a * 2.0 + b, c * 2.0 + d, z * 2.0 + z, e * 3.0 + f)
    plan, source = planned(*roots)
    assert len(plan.kernels) == 4
    assert functions(source) == ["e_5", "e_6", "e_5_n2", "uopc_run"]
    entry = source[source.index("void uopc_run") :].splitlines()
    assert entry == [
        "void uopc_run(void** table) {",
        "  e_5(table[0], table[1], table[7]);",
        "  e_5(table[2], table[3], table[8]);",
        "  e_6(table[4], table[9]);",
        "  e_5_n2(table[5], table[6], table[10]);",
        "}",
    ]
    v, w, x, y, z, p, q = data
    wanted = [v * 2 + w, x * 2 + y, z * 2 + z, p * np.float32(3) + q]
    for got, want in zip(run(*roots), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_helpers_are_emitted_once_per_type():
    x, y = leaf(drawn(4)), leaf(drawn(4, dtype=i32))
    source = planned(x % 2.0, x // 2.0 % 3.0, y % y, y % y % y, y.maximum(3))[1]
    names = re.findall(r"^static inline \w+ (\w+)\(", source, re.MULTILINE)
    assert sorted(names) == [
        "uopc_floordiv_f32",
        "uopc_floormod_f32",
        "uopc_floormod_i32",
        "uopc_max_i32",
    ]


def test_a_read_that_vanishes_does_not_shift_the_others():
    data = [drawn(4, seed=s, dtype=i32) for s in range(6)]
    x, y, z, u, v, w = map(leaf, data)
    roots = (x * 0 + y * z, w * 0 + u * v)
    source = planned(*roots)[1]
    assert "(table[1], table[2], table[6]);" in source
    assert "(table[4], table[5], table[7]);" in source
    first, second = run(*roots)
    np.testing.assert_array_equal(first, data[1] * data[2])
    np.testing.assert_array_equal(second, data[3] * data[4])


def test_a_plan_with_two_thousand_inputs():
    data = [drawn(3, seed=s, dtype=f64) for s in range(2000)]
    total = leaf(data[0])
    for x in data[1:]:
        total = total + leaf(x)
    plan, source = planned(total)
    assert sum(b.role == "input" for b in plan.buffers) == 2000
    signatures = re.findall(r"^void (?!uopc_run)\w+\((.*)\) \{", source, re.MULTILINE)
    assert len(plan.kernels) > 3
    # Nothing that a function takes or does is longer than the cut.
    assert all(s.count("data") <= 502 for s in signatures)
    want = data[0]
    for x in data[1:]:
        want = want + x
    np.testing.assert_array_equal(run(total)[0], want)


@pytest.mark.parametrize("length", [500, 501, 1700])
def test_long_kernels_are_cut(length: int):
    data = drawn(4, dtype=f64)
    x = leaf(data)
    u, want = x, data
    for k in range(length):
        u = u * 0.5 if k % 2 else u + x
        want = want * 0.5 if k % 2 else want + data
    plan, source = planned(u)
    # The constant 0.5, though read on both sides of each cut, is no buffer.
    assert len(plan.kernels) == {500: 1, 501: 2, 1700: 4}[length]
    for kernel in re.split(r"^void ", source, flags=re.MULTILINE)[1:]:
        assert kernel.count("*0.5") + kernel.count("+val") <= 500
    np.testing.assert_array_equal(run(u)[0], want)


def test_a_cut_stores_what_is_small():
    """Not the wide view of a value that lies on both sides of the cut."""
    data = drawn(1, dtype=f64)
    scalar = (leaf(data) * 3.0).sin()
    wide = scalar.reshape((1, 1)).expand((30, 40))
    x = leaf(drawn(30, 40, dtype=f64))
    u, want = x, drawn(30, 40, dtype=f64)
    for _ in range(700):
        u, want = u + wide, want + np.sin(data * 3.0)
    plan, _ = planned(u)
    sizes = sorted(b.size for b in plan.buffers if b.role == "temporary")
    assert sizes == [1, 1200]
    np.testing.assert_allclose(run(u)[0], want, rtol=1e-12)


# Outputs


def test_outputs_without_elements():
    x, none = leaf(drawn(3, 4)), leaf(np.zeros((0, 4), np.float32))
    roots = (
        none + 1.0,
        none.reduce(Ops.ADD, 1),
        none.permute((1, 0)).reduce(Ops.ADD, 1),
        none.permute((1, 0)).reduce(Ops.MUL, 1) * 3.0,
        x.shrink(((1, 1), (0, 4))),
        x * 2.0,
    )
    got = run(*roots)
    assert [a.shape for a in got] == [(0, 4), (0,), (4,), (4,), (0, 4), (3, 4)]
    assert got[2].tolist() == [0.0] * 4
    assert got[3].tolist() == [3.0] * 4
    np.testing.assert_array_equal(got[5], drawn(3, 4) * 2)
    assert run(none + 1.0)[0].shape == (0, 4)


def test_an_output_that_is_an_input():
    data = drawn(6)
    x = new_buffer(data.copy())
    got = run(x.reshape((2, 3)), x + 1.0, x, x.reshape((3, 2)).permute((1, 0)))
    # A mere reshape is the buffer's own memory; a permutation is a copy.
    assert np.shares_memory(got[0], buffer_data(x))
    assert got[2] is buffer_data(x) or np.shares_memory(got[2], buffer_data(x))
    assert not np.shares_memory(got[3], buffer_data(x))
    np.testing.assert_array_equal(got[0], data.reshape(2, 3))
    np.testing.assert_array_equal(got[1], data + 1)
    np.testing.assert_array_equal(got[3], data.reshape(3, 2).T)
    np.testing.assert_array_equal(buffer_data(x), data)


def test_the_same_root_twice_and_as_part_of_another():
    x = leaf(drawn(5))
    u = x * x
    a, b, c = run(u, u, u + x)
    data = drawn(5)
    np.testing.assert_array_equal(a, data * data)
    np.testing.assert_array_equal(b, a)
    np.testing.assert_array_equal(c, a + data)


def test_every_type_of_output():
    x = leaf(drawn(5, dtype=i32))
    data = drawn(5, dtype=i32)
    for dtype in (u8, f32, f64):
        got = run(x.cast(dtype))[0]
        assert got.dtype == dtype.numpy
        np.testing.assert_array_equal(got, data.astype(dtype.numpy))


# Order of sums


def summed(x: Array, axes: int) -> Array:
    """Sums over the last axes, term by term from 0, as plain loops would."""
    flat = x.reshape(*x.shape[: x.ndim - axes], -1)
    start = np.zeros((*flat.shape[:-1], 1), x.dtype)
    terms = np.concatenate([start, flat], axis=-1)
    return np.add.accumulate(terms, axis=-1, dtype=x.dtype)[..., -1]


VIEWS = {
    "row": (lambda u: u, 1),
    "all": (lambda u: u, 3),
    "column": (lambda u: u.permute((2, 0, 1)), 1),
    "two columns": (lambda u: u.permute((2, 0, 1)), 2),
    "reversed": (lambda u: UOp(Ops.FLIP, (u,), (0, 1, 2)), 3),
    "reversed rows": (lambda u: UOp(Ops.FLIP, (u,), (2,)), 2),
    "pairs, reversed": (
        lambda u: UOp(Ops.FLIP, (u,), (0, 1, 2)).reshape((8, 3, 32, 2)),
        3,
    ),
    "swapped pairs": (
        lambda u: UOp(Ops.FLIP, (u.reshape((8, 3, 32, 2)),), (3,)),
        4,
    ),
    "reversed lanes": (
        lambda u: UOp(Ops.FLIP, (u,), (2,)).permute((2, 0, 1)),
        2,
    ),
    "few reversed lanes": (
        lambda u: UOp(Ops.FLIP, (u.reshape((24, 16, 4)),), (2,)).permute((2, 0, 1)),
        2,
    ),
    "pairs of reversed lanes": (
        lambda u: UOp(Ops.FLIP, (u.reshape((2, 12, 8, 8)),), (3,)).permute(
            (0, 3, 2, 1)
        ),
        2,
    ),
    "fours, reversed": (
        lambda u: UOp(Ops.FLIP, (u.reshape((8, 3, 16, 4)),), (3,)),
        3,
    ),
}


@pytest.mark.parametrize("dtype", [f32, f64], ids=["f32", "f64"])
def test_float_sums_keep_their_order_without_a_schedule(dtype: DType):
    """To the bit: no compiler adds up in another order."""
    data = drawn(8, 3, 64, dtype=dtype)
    x = leaf(data)
    views = [make(x) for make, _ in VIEWS.values()]
    roots = [
        u.reduce(Ops.ADD, n) for u, (_, n) in zip(views, VIEWS.values(), strict=True)
    ]
    copies = run(*(u + 0.0 for u in views), opt=0)
    got = run(*roots, opt=0)
    for name, copy, total in zip(VIEWS, copies, got, strict=True):
        want = summed(copy, VIEWS[name][1])
        np.testing.assert_array_equal(total, want, err_msg=name)


def matmul(m: int, n: int, k: int, dtype: DType) -> UOp:
    a, b = leaf(drawn(m, k, dtype=dtype)), leaf(drawn(k, n, seed=1, dtype=dtype))
    left = a.reshape((m, 1, k)).expand((m, n, k))
    right = b.permute((1, 0)).reshape((1, n, k)).expand((m, n, k))
    return (left * right).reduce(Ops.ADD, 1)


def test_levels_agree():
    """To the bit, but for floats that are added up: those are in another order."""
    x = leaf(drawn(6, 8, 10))
    columns = x.permute((2, 1, 0))
    top = x.reduce(Ops.MAX, 1).reshape((6, 8, 1)).expand((6, 8, 10))
    sizes = [(7, 3), (5, 64), (4, 97), (1, 128)]
    exact = [x * 3.0 + -top, columns.reduce(Ops.MAX, 2)]
    exact += [matmul(m, n, 20, i32) for m, n in sizes]
    e = UOp(Ops.EXP, (x + -top,))
    rounded = [e, e / e.reduce(Ops.ADD, 1).reshape((6, 8, 1)).expand((6, 8, 10))]
    rounded += [columns.reduce(op, 2) for op in (Ops.ADD, Ops.MUL)]
    rounded += [matmul(m, n, 20, d) for m, n in sizes for d in (f32, f64)]
    roots = exact + rounded
    first, second = run(*roots, opt=0), run(*roots, opt=1)
    for k, (a, b) in enumerate(zip(first, second, strict=True)):
        if k < len(exact):
            np.testing.assert_array_equal(a, b)
        else:
            # Of what is added up, some cancels: relative to the largest sum.
            eps = np.finfo(a.dtype).eps
            np.testing.assert_allclose(b, a, rtol=4 * eps, atol=8 * eps * abs(a).max())
    # The other level is another program.
    with overriding(UOPC_OPT=0):
        plain = planned(*roots)[1]
    with overriding(UOPC_OPT=1):
        assert planned(*roots)[1] != plain


# Threads


def test_threads_run_one_plan_at_once():
    """Each with inputs of its own; the temporaries must not be shared."""
    count, repeats = 8, 40
    gate = threading.Barrier(count)
    wrong: list[str] = []

    def work(seed: int) -> None:
        data = drawn(40, 50, seed=seed, dtype=f64)
        x = leaf(data)
        mean = x.reduce(Ops.ADD, 1) * 0.02
        u = (x + -mean.reshape((40, 1)).expand((40, 50))).permute((1, 0))
        twice = UOp(Ops.STAGE, (u * u,), "contiguous").reduce(Ops.ADD, 1)
        gate.wait()  # the first run compiles, in all threads at once
        (first,) = run(twice)
        centred = data - (data.sum(1) * 0.02)[:, None]
        if not np.allclose(first, (centred * centred).sum(0)):
            wrong.append(f"thread {seed} computed a wrong value")
        for _ in range(repeats):
            if not np.array_equal(run(twice)[0], first):
                wrong.append(f"thread {seed} computed another value")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong

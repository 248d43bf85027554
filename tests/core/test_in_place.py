"""Updates that are written over the value that they replace, and those that must not.

On the reference backend; tests/backend_c/test_in_place_c.py has the same of programs
in C, where a hazard that is not seen gives wrong numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import DType, bf16, f16, f32, f64, i32, u8
from uopc.runtime import stats
from uopc.tensor import Tensor, realize_all
from uopc.testing.assignments import Assignments, memory_of

Array = np.ndarray[Any, Any]


def data(*shape: int, dtype: DType = f32, seed: int = 0) -> Tensor:
    values = np.random.default_rng(seed).integers(0, 9, shape)
    return Tensor(values.astype(np.float64), dtype=dtype)


def spent(work: Callable[[], object]) -> int:
    """The bytes that runs of ``work`` allocate."""
    before = stats()
    work()
    return (stats() - before).bytes_allocated


# -- which are in place -------------------------------------------------------

IN_PLACE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "itself": lambda p, q: p + 1,
    "with another": lambda p, q: p * 2 - q,
    "twice": lambda p, q: p * p + p,
    "another's turn": lambda p, q: p + q.T,
    "another's sum": lambda p, q: p + q.sum(0),
    "another's product": lambda p, q: p - q @ q,
    "reshaped": lambda p, q: (p.reshape(256) + 1).reshape(8, 32).reshape(16, 16),
    "its own sum before": lambda p, q: q + p.sum(1),
    "chosen": lambda p, q: (q > 3).where(p, 0),
    "not read": lambda p, q: q * 2,
    "nothing read": lambda p, q: Tensor.ones(16, 16) * 2,
    "read by a kernel before": lambda p, q: p.sum(1, keepdim=True).realize() + q,
}
APART: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "turned": lambda p, q: p.T + 0,
    "turned and itself": lambda p, q: p + p.T,
    "reversed": lambda p, q: p.flip(0) + p,
    "backwards": lambda p, q: p[::-1] * 1,
    "shifted": lambda p, q: p[[1, 2, 3, 0]] + q,
    "one row for all": lambda p, q: p[0] + p,
    "product": lambda p, q: p @ p,
    "permuted": lambda p, q: p.reshape(2, 2, 4).permute(1, 0, 2).reshape(4, 4) + q,
}


@pytest.mark.parametrize("dtype", [f32, f64, f16, bf16, i32, u8], ids=str)
@pytest.mark.parametrize("name", IN_PLACE)
def test_an_update_that_keeps_places_has_no_copy(name: str, dtype: DType) -> None:
    p, q = data(16, 16, dtype=dtype), data(16, 16, dtype=dtype, seed=1)
    expected = IN_PLACE[name](p, q).cast(dtype).numpy()
    new = IN_PLACE[name](p, q).cast(dtype)
    place = memory_of(p)
    p.assign(new)
    del new
    assert spent(p.realize) <= 128  # of a sum on the way
    assert memory_of(p) == place
    np.testing.assert_array_equal(p.numpy(), expected)


@pytest.mark.parametrize("name", APART)
def test_an_update_that_reads_other_places_has_its_own(name: str) -> None:
    p, q = data(4, 4), data(4, 4, seed=1)
    expected = APART[name](p, q).numpy()
    place = memory_of(p)
    p.assign(APART[name](p, q))
    p.realize()
    assert memory_of(p) != place
    np.testing.assert_array_equal(p.numpy(), expected)


def test_outputs_beside_an_update_see_the_value_of_their_time() -> None:
    p, q = data(4, 4), data(4, 4, seed=1)
    old, other = p.numpy(), q.numpy()
    place = memory_of(p)
    before = [p @ q, p.T + 0, p.sum(), p.flip(0) * 2]
    p.assign(p + q)
    after = [p.T * 1, p @ q, p.sum()]
    assert spent(lambda: realize_all([p, *before, *after])) == 4 * (5 * 16 + 2)
    assert memory_of(p) == place
    new = old + other
    expected = [old @ other, old.T, old.sum(), old[::-1] * 2]
    expected += [new.T, new @ other, new.sum()]
    for t, value in zip([*before, *after], expected, strict=True):
        np.testing.assert_array_equal(t.numpy(), value)
    np.testing.assert_array_equal(p.numpy(), new)


def test_what_needs_both_values_makes_a_circle_and_a_copy() -> None:
    p = data(4, 4)
    old, place = p.numpy(), memory_of(p)
    was = p.detach()
    p.assign(p.T + 1)
    both = p.sum(0) + was.sum(1)
    del was
    realize_all([p, both])
    assert memory_of(p) != place
    np.testing.assert_array_equal(both.numpy(), (old.T + 1).sum(0) + old.sum(1))


def test_of_two_that_read_each_other_one_is_in_place() -> None:
    p, q = data(4, 4), data(4, 4, seed=1)
    a, b = p.numpy(), q.numpy()
    places = memory_of(p), memory_of(q)
    first, second = p + q, p - q
    p.assign(first)
    q.assign(second)
    del first, second
    assert spent(lambda: realize_all([p, q])) == 64
    same = [memory_of(t) == place for t, place in zip((p, q), places, strict=True)]
    assert sorted(same) == [False, True]
    np.testing.assert_array_equal(p.numpy(), a + b)
    np.testing.assert_array_equal(q.numpy(), a - b)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("arithmetic", [False, True])
def test_values_go_round(count: int, arithmetic: bool) -> None:
    ring = [data(4, 4, seed=i) for i in range(count)]
    values = [t.numpy() for t in ring]
    for _ in range(3):
        olds = [t + 1 if arithmetic else t.detach() for t in ring]
        for t, old in zip(ring, [*olds[1:], olds[0]], strict=True):
            t.assign(old)
        del olds, old
        realize_all(ring)
        values = [v + arithmetic for v in (*values[1:], values[0])]
        for t, value in zip(ring, values, strict=True):
            np.testing.assert_array_equal(t.numpy(), value)


def test_one_takes_the_value_of_another_and_gives_it_its_own() -> None:
    a, b = data(3), data(3, seed=1)
    x = b.numpy()
    a.assign(b)
    b.assign(a)
    a.assign(a + 1)
    np.testing.assert_array_equal(b.numpy(), x)
    np.testing.assert_array_equal(a.numpy(), x + 1)
    b.assign(b * 2)
    np.testing.assert_array_equal(b.numpy(), x * 2)
    np.testing.assert_array_equal(a.numpy(), x + 1)


def test_tensors_given_the_same_value_part_again() -> None:
    """Equal nodes are computed once: the tensors have one memory until they differ."""
    for make in (lambda x: x + 1, lambda x: Tensor.ones(3) * 3):
        x, a, b = data(3), data(3, seed=1), data(3, seed=2)
        expected = make(x).numpy()
        a.assign(make(x))
        b.assign(make(x))
        realize_all([a, b])
        a.assign(a * 2)
        a.realize()
        b.assign(b - 1)
        b.realize()
        np.testing.assert_array_equal(a.numpy(), expected * 2)
        np.testing.assert_array_equal(b.numpy(), expected - 1)


# -- who reads the old value --------------------------------------------------

READERS: dict[str, Callable[[Tensor], Tensor]] = {
    "lazy": lambda p: p * 3,
    "detached": lambda p: p.detach(),
    "view": lambda p: p.T,
    "same node": lambda p: Tensor(p.uop),
    "far": lambda p: ((p @ p).sum(0) * 2).exp(),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("again", [1, 3])
def test_a_reader_keeps_its_value_while_updates_go_on(name: str, again: int) -> None:
    p = data(4, 4) / 16
    p.realize()
    expected = READERS[name](p).numpy()
    start, place = p.numpy(), memory_of(p)
    reader = READERS[name](p)
    for i in range(again):
        p.assign(p + 1)
        assert spent(p.realize) == (64 if i == 0 else 0)
        assert (memory_of(p) == place) is False
    np.testing.assert_array_equal(reader.numpy(), expected)
    np.testing.assert_array_equal(p.numpy(), start + again)
    place = memory_of(p)
    del reader
    p.assign(p + 1)
    p.realize()
    assert memory_of(p) == place


def test_memory_in_use_is_not_written_over() -> None:
    """Who is about to copy a value in another thread holds its array."""
    p = data(4, 4)
    memory = p._memory()
    view = p._memory()[2:5]
    value = memory.copy()
    p.assign(p + 1)
    p.realize()
    np.testing.assert_array_equal(memory, value)
    del memory
    place = memory_of(p)
    p.assign(p + 1)
    p.realize()
    assert memory_of(p) == place
    np.testing.assert_array_equal(view, value[2:5])
    q = data(4, 4)
    view, value = q._memory()[2:5], q._memory().copy()
    q.assign(q + 1)
    q.realize()
    np.testing.assert_array_equal(view, value[2:5])


def test_one_plan_whether_somebody_reads_the_old_value_or_not() -> None:
    p = data(4, 4)
    kept: list[Tensor] = []
    before = stats()
    for i in range(6):
        if i % 2:
            kept.append(p.detach())
        p.assign(p * 2)
        p.realize()
    assert (stats() - before).plans_made <= 1
    assert [k.numpy()[0, 0] / kept[0].numpy()[0, 0] for k in kept] == [1, 4, 16]


# -- random programs ----------------------------------------------------------

TYPES = (f32, f16, bf16, i32, f64, u8)


@pytest.mark.parametrize("block", range(8))
def test_random_programs_of_assignments(block: int) -> None:
    with overriding(UOPC_CHECK=1):
        for seed in range(block * 25, block * 25 + 25):
            Assignments(seed, TYPES[seed % 6], steps=14, shapes=4).run()

"""Graphs whose kernels could grow beyond measure do not."""

from __future__ import annotations

import numpy as np
import pytest

from uopc.dtype import i32
from uopc.kernelize import make_plan
from uopc.kernelize.split import cuts
from uopc.rangeify import rangeify
from uopc.runtime import new_buffer, realize
from uopc.tensor import Tensor
from uopc.testing import buf
from uopc.uop import Ops, substitute, toposort


@pytest.mark.parametrize("n", [250, 1000])
def test_a_wide_stack_takes_few_kernels(n: int) -> None:
    t = Tensor(np.arange(n, dtype=np.float32))
    wide = Tensor.stack([t[i] * 2 for i in range(n)])
    plan, _ = make_plan([wide.uop])
    assert len(plan.kernels) <= n // 40
    assert wide.tolist() == (np.arange(n) * 2).tolist()


def test_a_wide_cat_takes_few_kernels() -> None:
    t = Tensor(np.arange(300, dtype=np.float32))
    wide = Tensor.cat([t[i : i + 1] * 2 for i in range(300)])
    plan, _ = make_plan([wide.uop])
    assert len(plan.kernels) <= 10
    assert wide.tolist() == (np.arange(300) * 2).tolist()


def test_a_table_that_is_its_own_index_is_stored_on_the_way() -> None:
    order = np.random.default_rng(0).permutation(7).astype(np.int32)
    i = Tensor(order)
    node, expected = i.uop, order
    for _ in range(20):
        node, expected = node.index(node), expected[expected]
    plan, _ = make_plan([node])
    sizes = [len(toposort([rangeify([k.ast], k.name)])) for k in plan.kernels]
    assert max(sizes) < 500
    assert Tensor(node).tolist() == expected.tolist()


def test_conditions_on_data_do_not_copy_their_branches() -> None:
    x, y = buf(0, 4, i32), buf(1, 4, i32)
    a, b = x, y
    for k in range(30):
        a, b = (a < k).where(b + 1, a), (b < k).where(a, b + 2)
    sink = rangeify([a + b], "shared")
    assert len(toposort([sink])) < 500


def test_a_cut_goes_where_the_least_data_crosses() -> None:
    small = buf(0, 8).reshape((8, 1))
    for _ in range(300):
        small = small.sin()
    big = small.expand((8, 1000))
    for _ in range(300):
        big = big * 0.5
    plan, _ = make_plan([big.reduce(Ops.ADD, 1)])
    assert all(b.size <= 8 for b in plan.buffers)


def test_a_huge_view_of_little_data_is_not_written_down() -> None:
    u = buf(0, 8).reshape((2, 4, 1)).expand((2, 4, 2**26)).reshape((2**14, 2**15))
    for _ in range(14):
        u = u.permute((1, 0)).reshape((2**14, 2**15))
    assert not cuts(u.reduce(Ops.ADD, 2), ())


def test_views_that_turn_and_regroup_are_cut_before_indices_grow() -> None:
    x = np.arange(6, dtype=np.float32)
    u, want = buf(0, 6).reshape((2, 3)), x.reshape(2, 3)
    for _ in range(100):
        u, want = u.permute((1, 0)).reshape((2, 3)), want.T.reshape(2, 3)
    plan, _ = make_plan([u])
    assert 5 < len(plan.kernels) < 12
    for k in plan.kernels:
        turned = [n for n in toposort([k.ast]) if n.op is Ops.PERMUTE]
        assert len(turned) <= 14
    live = new_buffer(x).reshape((2, 3))
    (got,) = realize(substitute([u], {buf(0, 6).reshape((2, 3)): live}))
    assert got.tolist() == want.reshape(-1).tolist()

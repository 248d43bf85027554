"""A node used many times, graphs of great depth, and what a gradient costs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import gradient
from uopc.dtype import f64
from uopc.plugins import registry
from uopc.uir import to_uir
from uopc.uop import Ops, UOp

X = UOp.param(0, f64, (3,))
S = UOp.param(0, f64, ())


def depth(root: UOp) -> int:
    """The number of nodes on the longest way down."""
    level: dict[UOp, int] = {}
    for u in root.toposort():
        level[u] = 1 + max((level[s] for s in u.src), default=0)
    return level[root]


def additions(u: UOp, terms: list[UOp]) -> int:
    """The depth of the additions on top of ``u``; collects what they add."""
    if u.op is not Ops.ADD:
        terms.append(u)
        return 0
    left, right = (additions(s, terms) for s in u.src)
    return 1 + max(left, right)


def used(n: int) -> tuple[UOp, UOp]:
    """``n`` uses of X in a stack, and the gradient: contribution i is seed[i]."""
    seed = UOp.param(1, f64, (n, 3))
    (g,) = gradient(UOp.stack([X] * n), [X], seed)
    return seed, g


# -- contributions add up -----------------------------------------------------

USES: dict[str, tuple[UOp, Callable[[np.ndarray], np.ndarray]]] = {
    "x * x": (X * X, lambda x: 2 * x),
    "x + x": (X + X, lambda x: 0 * x + 2),
    "x * x + x": (X * X + X, lambda x: 2 * x + 1),
    "x / x": (X / X, lambda x: 0 * x),
    "a diamond": ((X * 2.0) * (X + 1.0), lambda x: 4 * x + 2),
    "used before and after": (X * (X * X), lambda x: 3 * x**2),
    "a late use of an early node": (
        (X * X).exp2() + X,
        lambda x: np.log(2) * 2 * x * 2 ** (x * x) + 1,
    ),
    "shared deep and shallow": ((X * X) * ((X * X) * X), lambda x: 5 * x**4),
}


@pytest.mark.parametrize("name", USES)
def test_contributions_of_all_uses_add_up(checker: SimpleNamespace, name: str) -> None:
    f, derivative = USES[name]
    x = np.array([0.5, 1.5, -1.0])
    (g,) = gradient(f, [X])
    np.testing.assert_allclose(checker.value(g, {X: x}), derivative(x), atol=1e-12)


def test_a_node_passes_on_its_complete_gradient_once(
    checker: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # h has three consumers at three depths; its own rule runs once, after all.
    seen = count_rules(monkeypatch)
    h = X.exp2()
    f = (h * 2.0).sin() + h + (h * h).sin().sin()
    (g,) = gradient(f, [X])
    assert seen.count(h) == 1
    x = np.array([0.1, 0.2, 0.3])
    slopes = [checker.along(checker.total(f), {X: x}, {X: unit}) for unit in np.eye(3)]
    np.testing.assert_allclose(checker.value(g, {X: x}), slopes, atol=1e-10)


# -- the order of the sum -----------------------------------------------------


def test_a_few_contributions_add_left_to_right() -> None:
    _, g = used(3)
    text = to_uir(g).splitlines()
    assert text == [
        "%0 = param 1 : dtype=f64 shape=(3, 3)",
        "%1 = index %0, 0",
        "%2 = index %0, 1",
        "%3 = add %1, %2",
        "%4 = index %0, 2",
        "%5 = add %3, %4",
    ]


@pytest.mark.parametrize(
    ("n", "levels"),
    [(2, 1), (15, 14), (16, 15), (17, 5), (32, 5), (33, 6), (100, 7), (1000, 10)],
)
def test_up_to_16_contributions_are_a_chain_and_more_a_balanced_tree(
    n: int, levels: int
) -> None:
    seed, g = used(n)
    terms: list[UOp] = []
    assert additions(g, terms) == levels
    assert terms == [seed.index(i) for i in range(n)]


def test_ten_thousand_consumers(checker: SimpleNamespace) -> None:
    n = 10_000
    uses = [S * float(i) for i in range(n)]
    (g,) = gradient(UOp.stack(uses).reduce(Ops.ADD, 1), [S])
    assert depth(g) < 25
    assert checker.value(g, {S: np.asarray(1.0)}) == n * (n - 1) / 2


def test_a_sum_of_many_parts_loses_few_digits(checker: SimpleNamespace) -> None:
    # 0.1 added 1024 times from left to right is off by 1e-12.
    seed, g = used(1024)
    found = checker.value(g, {seed: np.full(seed.shape, 0.1)})
    assert np.abs(found - 102.4).max() < 1e-13


# -- depth and cost -----------------------------------------------------------


def test_a_chain_of_a_hundred_thousand_nodes(checker: SimpleNamespace) -> None:
    u, minus, plus = S, S.const_like(-1.0), S.const_like(1.0)
    for _ in range(50_000):
        u = u * minus + plus
    assert len(u.toposort()) > 100_000
    (g,) = gradient(u, [S])
    assert depth(g) > 50_000
    assert checker.value(g, {S: np.asarray(3.0)}) == 1


def count_rules(monkeypatch: pytest.MonkeyPatch) -> list[UOp]:
    """The nodes that rules are applied to from now on."""
    seen: list[UOp] = []

    def counting(rule: Callable[[UOp, UOp], Any]) -> Callable[[UOp, UOp], Any]:
        def counted(u: UOp, g: UOp) -> Any:
            seen.append(u)
            return rule(u, g)

        return counted

    vjps = registry().vjps
    for op, rule in list(vjps.items()):
        monkeypatch.setitem(vjps, op, counting(rule))
    return seen


def test_every_node_on_a_path_has_its_rule_applied_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = count_rules(monkeypatch)
    u = S
    for _ in range(60):
        u = u * u  # 2 ** 60 paths
    gradient(u, [S])
    assert len(seen) == 60 and len(set(seen)) == 60


@pytest.mark.parametrize(
    "grow",
    [
        lambda u: u * u,
        lambda u: u.sin() + u,
        lambda u: u.exp2() * u + u,
        lambda u: UOp.stack([u, u]).index(1),
        lambda u: u.reshape((1,)).expand((4,)).reduce(Ops.ADD, 1),
        lambda u: UOp.stack([u, u * u]).reduce(Ops.MAX, 1),
    ],
    ids=["square", "sine", "exponential", "stack", "expand", "max"],
)
def test_the_gradient_grows_in_proportion_to_the_graph(
    grow: Callable[[UOp], UOp],
) -> None:
    def size(n: int) -> int:
        u = S
        for _ in range(n):
            u = grow(u)
        (g,) = gradient(u, [S])
        return len(g.toposort())

    small, double, large = size(10), size(20), size(40)
    assert large - double == 2 * (double - small)


def test_rules_run_only_between_the_root_and_the_targets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = count_rules(monkeypatch)
    images, w = UOp.param(1, f64, (3,)), UOp.param(2, f64, (3,))
    prepared = images.exp2().sqrt().sin()  # the data: no gradient is asked for
    below = X.log2()
    gradient((prepared * w * below).reduce(Ops.ADD, 1), [w])
    assert [u.op for u in seen] == [Ops.REDUCE, Ops.MUL, Ops.MUL]


def test_the_work_below_a_target_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_rules(monkeypatch)
    h = X.exp2().sin()
    gradient((h * h).sqrt(), [h])
    assert [u.op for u in seen] == [Ops.SQRT, Ops.MUL]


def test_each_product_gives_two(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = UOp.param(1, f64, (3,)), UOp.param(2, f64, (3,))
    seed = UOp.param(3, f64, (3,))
    made = gradient(a * b, [a, b], seed)
    assert [u.op for u in made] == [Ops.MUL, Ops.MUL]

"""Sets of live elements in their canonical form: the same sets, and less to compute."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import networks
import numpy as np
import pytest
from networks import data

from uopc.autodiff import grad, gradient
from uopc.autodiff.carrying import (
    anywhere,
    copied,
    expanded,
    parsed,
    permuted,
    pulled_back,
    reshaped,
)
from uopc.autodiff.liveness import ALTERNATIVES, FACTORS, Live, meet, union
from uopc.autodiff.reverse import OWN
from uopc.dtype import boolean, f64, i32
from uopc.interp import evaluate
from uopc.kernelize import make_plan
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, toposort

Rng = np.random.Generator
T = TypeVar("T")


def known(found: T | None) -> T:
    assert found is not None
    return found


# -- any chain of steps gives the set that it gives the plain way -------------------


def mask(rng: Rng, shape: tuple[int, ...], slot: int) -> UOp:
    """A bool node that is constant along some axes, in one of several ways."""
    ones = tuple(1 if rng.random() < 0.5 else n for n in shape)
    if rng.random() < 0.1:
        return UOp.const(bool(rng.random() < 0.5), boolean).broadcast_scalar(shape)
    u = UOp.param(slot, boolean, ones)
    if rng.random() < 0.3:
        return u.expand(shape).logical_not()
    return u.expand(shape)


def step_from(rng: Rng, shape: tuple[int, ...]) -> UOp:
    """Some op of floats that makes this shape, to pull sets back through."""

    def x(shape: tuple[int, ...] | list[int]) -> UOp:
        return UOp.param(500, f64, tuple(shape))

    kind = rng.integers(10)
    axes = range(len(shape))
    if kind == 0:
        n = math.prod(shape)
        shapes = [(n,), (n, 1), (1, n), *((k, n // k) for k in (2, 3, 4) if n % k == 0)]
        shapes.append((2, 1, n // 4, 2) if n % 4 == 0 else (n, 1, 1))
        return x(shapes[rng.integers(len(shapes))]).reshape(shape)
    if kind in (1, 2):
        return x([1 if rng.random() < 0.4 else n for n in shape]).expand(shape)
    if kind == 3:
        order = [int(a) for a in rng.permutation(len(shape))]
        return x([shape[order.index(k)] for k in axes]).permute(order)
    if kind == 4:
        ends = [tuple(int(w) for w in rng.integers(0, 2, 2)) for _ in shape]
        source = [b + n + a for n, (b, a) in zip(shape, ends, strict=True)]
        window = [(b, b + n) for n, (b, _) in zip(shape, ends, strict=True)]
        return x(source).shrink(window)
    if kind == 5:
        return x(shape).flip([a for a in axes if rng.random() < 0.5])
    if kind == 6 and shape:
        return UOp.stack([x(shape[1:])] * shape[0])
    if kind == 7:
        return x((3, *shape)).index(1)
    if kind == 8 and shape:
        return x((3, *shape[1:])).index(UOp.param(501, i32, shape[:1]))
    if kind == 9 and len(shape) > 1 and shape[0]:
        rows = UOp.param(502, i32, (4,)), UOp.param(503, i32, (4,))
        return UOp(Ops.SCATTER_ADD, (x((4, *shape[2:])), *rows), shape[:2])
    return x(shape).reshape((*shape, 1))


@pytest.mark.parametrize("seed", range(60))
def test_a_set_is_the_one_that_is_built_the_plain_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape: tuple[int, ...] = (2, 3, 4)
    plain = [mask(rng, shape, k) for k in range(4)]
    sets = [parsed(u) for u in plain]
    pairs = []
    for n in range(14):
        way = rng.random()
        if way < 0.5:
            i, j = (int(k) for k in rng.integers(0, 4, 2))
            other = mask(rng, shape, 10 + n)
            both = rng.random() < 0.5
            u = plain[j] if rng.random() < 0.6 else other
            s = sets[j] if u is plain[j] else parsed(other)
            plain[i] = plain[i] & u if both else plain[i] | u
            sets[i] = meet(sets[i], s) if both else union([sets[i], s])
        elif way < 0.9:
            u = step_from(rng, shape)
            if math.prod(u.src[0].shape) > 500:
                continue
            rule = OWN[u.op]
            sets = [known(pulled_back(u, 0, s)) for s in sets]
            plain = [known(rule(u, p)[0]) for p in plain]
        elif 0 not in shape and len(shape) > 1:
            plain = [p.reduce(Ops.MAX, 1) for p in plain]
            sets = [known(copied(p, s)) for p, s in zip(plain, sets, strict=True)]
        shape = plain[0].shape
        pairs += list(zip(plain, sets, strict=True))
    check(rng, pairs)


def check(rng: Rng, pairs: list[tuple[UOp, Live]]) -> None:
    """Each set is its node, for several arrays; and so is what that is parsed as."""
    roots = [u for u, _ in pairs]
    roots += [s.node() for _, s in pairs]
    roots += [parsed(u).node() for u, _ in pairs]
    leaves = [u for u in toposort(roots) if u.op is Ops.PARAM]
    for share in (0.2, 0.5, 0.9):
        given = {
            p: rng.random(p.shape) < share
            if p.dtype is boolean
            else rng.integers(-1, 5, p.shape).astype(np.int32)
            for p in leaves
        }
        found = evaluate(roots, given)
        n = len(pairs)
        for k in range(n):
            for same in (found[n + k], found[2 * n + k]):
                np.testing.assert_array_equal(found[k], same)
    assert all(len(s.terms) <= ALTERNATIVES for _, s in pairs)
    assert all(len(t) <= FACTORS for _, s in pairs for t in s.terms)


def test_forward_steps_as_well() -> None:
    rng = np.random.default_rng(1)
    u = UOp.param(0, boolean, (2, 1, 4)).expand((2, 3, 4)) & UOp.param(
        1, boolean, (1, 3, 4)
    ).expand((2, 3, 4))
    steps: list[Callable[[UOp], UOp]] = [
        lambda u: u.reshape((6, 4)),
        lambda u: u.permute((1, 0)),
        lambda u: u.shrink([(1, 3), (0, 5)]),
        lambda u: u.flip((0,)),
        lambda u: u.index(UOp.param(2, i32, (7,))),
        lambda u: u.reshape((7, 1, 5)),
        lambda u: u.expand((7, 2, 5)),
        lambda u: u.index(3),
        lambda u: u.reduce(Ops.MAX, 1),
    ]
    s, pairs = parsed(u), []
    for step in steps:
        v = step(u)
        s = known(copied(v, s))
        pairs.append((v, s))
        u = v
    check(rng, pairs)


# -- what is the same is the same node ----------------------------------------------

A = UOp.param(0, boolean, (12, 64))
M = UOp.param(1, boolean, (64, 64))
X = UOp.param(2, boolean, (12, 64, 32))


def rows(u: UOp, n: int) -> Live:
    return expanded(reshaped(parsed(u), (*u.shape, 1)), (*u.shape, n))


def test_what_went_there_and_back_is_the_same_node() -> None:
    wide = rows(A, 32)
    there = permuted(reshaped(wide, (12, 64, 4, 8)), (0, 2, 1, 3))
    there = reshaped(there, (48, 64, 8))
    back = permuted(reshaped(there, (12, 4, 64, 8)), (0, 2, 1, 3))
    back = reshaped(back, (12, 64, 32))
    assert back == wide
    assert reshaped(anywhere(back, [2]), (12, 64)).node() is A
    assert parsed(wide.node()) == wide


def test_any_of_what_is_constant_reduces_nothing() -> None:
    s = anywhere(meet(rows(A, 32), parsed(X)), [2])
    (reduction,) = (u for u in toposort([s.node()]) if u.op is Ops.REDUCE)
    assert reduction.src == (X,)
    wider = expanded(reshaped(parsed(X), (12, 64, 32, 1)), (12, 64, 32, 512))
    assert anywhere(wider, [3]).node() is X.reshape((12, 64, 32, 1))


def test_what_is_covered_goes() -> None:
    a, x = rows(A, 32), parsed(X)
    y = parsed(UOp.param(3, boolean, X.shape))
    assert union([meet(x, a), a]) == a
    assert union([a, meet(meet(y, a), x)]) == a
    assert union([meet(a, union([x, y])), y, a]) == union([y, a])
    assert union([anywhere(meet(a, union([x, y])), [2]), anywhere(a, [2])]) == anywhere(
        a, [2]
    )
    # What asks for any place is implied by each, and by any with more demands.
    spread = parsed(A.reshape((12, 64, 1)).expand((12, 64, 64)))
    seen = meet(spread, parsed(M.reshape((1, 64, 64)).expand((12, 64, 64))))

    def anyone(s: Live) -> Live:
        return expanded(reshaped(anywhere(s, [1]), (12, 64)), (12, 64))

    assert union([parsed(A), anyone(spread), anyone(seen)]) == anyone(spread)
    assert union([anyone(seen), parsed(A)]) != anyone(spread)
    assert anyone(seen) not in (parsed(A), anyone(spread))


def test_windows_are_not_computed_where_they_are_known() -> None:
    a = rows(A, 32)
    u = UOp.param(9, f64, (12, 64, 96)).shrink([(0, 12), (0, 64), (32, 64)])
    around = known(pulled_back(u, 0, a))
    assert union([anywhere(around, [2]), rows(A, 1)]) == rows(A, 1)
    other = u.src[0].shrink([(0, 12), (0, 64), (64, 96)])
    beside = known(pulled_back(other, 0, a))
    assert anywhere(meet(around, beside), [2]).terms == ()


# -- in plans ------------------------------------------------------------------------


def residual(depth: int, causal: bool, act: Callable[[Tensor], Tensor]) -> list[UOp]:
    """Loss and gradients of blocks of attention and a network, on a residual stream."""
    batch, n, width = 3, 8, 16
    x, goal = data(batch, n, width), data(batch, n, dtype=i32)
    params = [x]
    earlier = Tensor(np.tril(np.ones((n, n), bool)))

    def product(x: Tensor, *shape: int) -> Tensor:
        params.append(data(*shape))
        return x @ params[-1]

    def norm(x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    for _ in range(depth):
        qkv = product(norm(x), width, 3 * width)
        q, k, v = (
            qkv[:, :, i * width : (i + 1) * width]
            .reshape((batch, n, 2, width // 2))
            .permute((0, 2, 1, 3))
            for i in range(3)
        )
        scores = q @ k.transpose()
        if causal:
            scores = earlier.where(scores, -math.inf)
        mixed = (scores.softmax(-1) @ v).permute((0, 2, 1, 3)).reshape(x.shape)
        x = x + product(mixed, width, width)
        x = x + product(act(product(norm(x), width, 4 * width)), 4 * width, width)
    loss = product(norm(x), width, 11).cross_entropy(goal)
    return [loss.uop, *gradient(loss.uop, [p.uop for p in params])]


def bool_kernels(roots: list[UOp]) -> list[UOp]:
    plan, _ = make_plan(roots)
    return [k.ast for k in plan.kernels if k.ast.dtype is boolean]


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_the_kernels_of_guards_do_not_grow_with_the_depth(causal: bool) -> None:
    few, many = (bool_kernels(residual(d, causal, Tensor.tanh)) for d in (2, 5))
    assert len(few) == len(many)
    assert max(math.prod(u.shape) for u in many) <= 8 * 8  # the causal mask at most


@pytest.mark.parametrize("act", [Tensor.relu, Tensor.gelu])
def test_a_selecting_network_adds_where_any_of_a_row_is_live(
    act: Callable[[Tensor], Tensor],
) -> None:
    """A row of which all is dead may be masked before an infinite slope."""
    few, many = (bool_kernels(residual(d, True, act)) for d in (2, 5))
    assert len(many) - len(few) == 3
    assert max(math.prod(u.shape) for u in many) <= 8 * 8


def test_the_transformer_of_the_plans() -> None:
    counts = []
    for depth in (2, 4):
        kernels = bool_kernels(networks.gradients(*networks.transformer(depth, 32, 16)))
        assert max(math.prod(u.shape) for u in kernels) <= 4 * 16
        counts.append(len(kernels))
    assert counts[1] - counts[0] == 2  # of its gelu


# -- and zeros stay zeros --------------------------------------------------------------


def test_a_dead_hidden_row_before_an_infinite_slope() -> None:
    """x + relu(s x w) v, twice, where s is infinite and the whole row of relu 0."""
    w, v = (Tensor(np.ones(shape)) for shape in ((2, 4), (4, 2)))
    at = Tensor(np.array([[1.0, 2.0], [-1.0, -2.0], [3.0, 1.0], [-1.0, 4.0]]))
    labels = Tensor(np.int32([1, 0, -100, 1]))

    def loss(x: Tensor, scale: Tensor) -> Tensor:
        for _ in range(2):
            x = x + ((x * scale) @ w).relu() @ v * 0.01
        return x.cross_entropy(labels)

    def of(second: float, third: float) -> np.ndarray:
        scale = Tensor(np.array([[1.0], [second], [third], [0.5]]))
        return grad(lambda x: loss(x, scale))(at).numpy()

    found, finite = of(math.inf, math.inf), of(2.0, 2.0)
    np.testing.assert_allclose(found[[0, 1, 3]], finite[[0, 1, 3]], rtol=1e-12)
    assert (found[2] == 0).all()
    assert np.isfinite(found).all()

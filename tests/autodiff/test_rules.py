"""Every gradient rule against differences, to first and second order.

Table-driven from the registry: elementwise ops are sampled by their row's domain,
other ops by the table below, and a rule without a sample fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from uopc.autodiff import gradient
from uopc.autodiff.rules import RULES
from uopc.dtype import boolean, f64, i32
from uopc.plugins import registry
from uopc.uop import OpDef, Ops, UOp

COND = UOp.param(4000, boolean, (2, 3))
CHOICES = {COND: np.array([[True, False, True], [False, False, True]])}

DOMAINS = {
    "real": lambda rng, shape: rng.standard_normal(shape),
    "positive": lambda rng, shape: rng.uniform(0.5, 2, shape),
    "nonzero": lambda rng, shape: (
        rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape)
    ),
    "unit": lambda rng, shape: rng.uniform(-0.9, 0.9, shape),
    "integer": lambda rng, shape: rng.uniform(0.5, 4, shape),
}


class Sample(NamedTuple):
    op: OpDef
    label: str
    build: Callable[..., UOp]
    shapes: tuple[tuple[int, ...], ...]
    fixed: Mapping[UOp, np.ndarray] = MappingProxyType({})


def one(op: OpDef, arg: object, *shapes: tuple[int, ...]) -> Sample:
    def build(*xs: UOp) -> UOp:
        return UOp(op, xs, arg)

    return Sample(op, f"{arg}{list(shapes)}", build, shapes)


def picked(shape: tuple[int, ...], *at: int) -> Sample:
    return Sample(Ops.INDEX, f"{at}{shape}", lambda x: x.index(*at), (shape,))


# Repeated places, one below and one above the range.
PLACES, OTHERS = UOp.param(4001, i32, (2, 3)), UOp.param(4002, i32, (2, 3))
AT = {
    PLACES: np.array([[1, 0, 1], [-1, 2, 1]], np.int32),
    OTHERS: np.array([[0, 1, 0], [1, 1, 2]], np.int32),
}


def gathered(shape: tuple[int, ...], *at: UOp) -> Sample:
    label = f"by data {shape}, {len(at)}"
    return Sample(Ops.INDEX, label, lambda x: x.index(*at), (shape,), AT)


def scattered(shape: tuple[int, ...], lengths: tuple[int, ...], *at: UOp) -> Sample:
    def build(g: UOp) -> UOp:
        return UOp(Ops.SCATTER_ADD, (g, *at), lengths)

    label = f"{lengths} of {shape}, {len(at)}"
    return Sample(Ops.SCATTER_ADD, label, build, (shape,), AT)


TABLE = [
    one(Ops.CAST, f64, (2, 3)),
    Sample(
        Ops.WHERE, "", lambda a, b: COND.where(a, b), ((2, 3), (2, 3)), fixed=CHOICES
    ),
    Sample(Ops.WHERE, "same", lambda a: COND.where(a, a), ((2, 3),), fixed=CHOICES),
    one(Ops.RESHAPE, (3, 2), (2, 3)),
    one(Ops.RESHAPE, (6, 2, 2), (2, 3, 4)),
    one(Ops.RESHAPE, (1, 1), ()),
    one(Ops.EXPAND, (4, 3), (1, 3)),
    one(Ops.EXPAND, (2, 4, 3, 5), (2, 1, 3, 1)),
    one(Ops.EXPAND, (5,), (1,)),
    one(Ops.EXPAND, (2, 3), (2, 3)),
    one(Ops.PERMUTE, (1, 0), (2, 3)),
    one(Ops.PERMUTE, (1, 2, 0), (2, 3, 4)),
    one(Ops.PERMUTE, (1, 2, 0), (2, 2, 2)),
    one(Ops.PERMUTE, (3, 0, 2, 1), (2, 2, 3, 2)),
    one(Ops.SHRINK, ((1, 3),), (5,)),
    one(Ops.SHRINK, ((0, 4),), (5,)),
    one(Ops.SHRINK, ((1, 3), (0, 4)), (4, 5)),
    one(Ops.SHRINK, ((3, 4), (2, 5)), (4, 5)),
    one(Ops.FLIP, (0,), (3, 2)),
    one(Ops.FLIP, (0, 2), (2, 3, 2)),
    *(
        one(Ops.REDUCE, (op, n), shape)
        for op in (Ops.ADD, Ops.MAX, Ops.MUL)
        for n, shape in ((1, (4,)), (1, (2, 3)), (2, (2, 2, 3)), (3, (2, 1, 3)))
    ),
    one(Ops.STACK, None, (2, 2)),
    one(Ops.STACK, None, (2,), (2,), (2,)),
    one(Ops.STACK, None, (), ()),
    Sample(Ops.STACK, "twice", lambda a, b: UOp.stack([a, b, a]), ((2,), (2,))),
    picked((4,), 0),
    picked((4, 3), 3),
    picked((3, 2, 2), 1),
    picked((3, 2, 2), 2, 0),
    picked((3, 2, 2), 1, 1, 0),
    gathered((3,), PLACES),
    gathered((3, 2), PLACES),
    gathered((3, 2, 2), PLACES, OTHERS),
    scattered((2, 3), (3,), PLACES),
    scattered((2, 3, 2), (4,), PLACES),
    scattered((2, 3, 2), (3, 2), PLACES, OTHERS),
    one(Ops.CONV, ((3,), (1,), (1,), (1,), (-1,), 0), (2, 1, 2, 3), (1, 3, 2, 3)),
    one(Ops.CONV, ((2,), (1,), (2,), (3,), (-1,), 1), (2, 2, 1, 5), (2, 1, 1, 2)),
    one(Ops.CONV, ((5,), (2,), (-1,), (1,), (1,), 0), (1, 1, 2, 3), (1, 2, 2, 3)),
    one(
        Ops.CONV,
        ((3, 2), (3, 1), (2, 1), (1, -2), (1, 2), 1),
        (1, 1, 1, 3, 3),
        (1, 1, 1, 2, 3),
    ),
    one(Ops.STAGE, "contiguous", (2, 3)),
]
BY_HAND = {sample.op for sample in TABLE}


def derived(op: OpDef) -> list[Sample]:
    """Samples of an elementwise op: matrices, scalars, and all sources one node."""
    assert op.kind == "elementwise" and op.arity, f"{op} needs a sample in TABLE"
    n = op.arity
    same = Sample(op, "same", lambda x: UOp(op, (x,) * n), ((2, 3),))
    return [
        one(op, None, *[(2, 3)] * n),
        one(op, None, *[()] * n),
        *([same] if n > 1 else []),
    ]


def samples_of(op: OpDef) -> list[Sample]:
    return [s for s in TABLE if s.op is op] if op in BY_HAND else derived(op)


SAMPLES = [sample for op in RULES for sample in samples_of(op)]


def arrays_of(sample: Sample) -> list[np.ndarray]:
    rng = np.random.default_rng(len(sample.label) + len(sample.op.name))
    draw = DOMAINS[sample.op.domain]
    return [np.asarray(draw(rng, shape)) for shape in sample.shapes]


def name_of(sample: Sample) -> str:
    return f"{sample.op.name} {sample.label}"


def run(checker: SimpleNamespace, sample: Sample, wrt: list[int] | None = None) -> None:
    checker.check(sample.build, arrays_of(sample), wrt, sample.fixed)


def test_every_rule_has_a_sample() -> None:
    assert set(RULES) <= set(registry().vjps.keys())
    for op in registry().vjps:
        assert samples_of(op), op
    assert not BY_HAND - set(RULES), "a sample without a rule"


def test_every_op_has_a_rule_or_a_lower_or_is_listed_as_not_differentiable() -> None:
    forgotten = [
        op.name
        for op in registry().ops.values()
        if op not in registry().vjps
        and op.lower is None
        and op.differentiable
        and op.kind != "leaf"
    ]
    assert forgotten == []


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_all_sources_together(checker: SimpleNamespace, sample: Sample) -> None:
    run(checker, sample)


@pytest.mark.parametrize(
    ("sample", "i"),
    [(s, i) for s in SAMPLES if len(s.shapes) > 1 for i in range(len(s.shapes))],
    ids=lambda v: name_of(v) if isinstance(v, Sample) else str(v),
)
def test_each_source_alone(checker: SimpleNamespace, sample: Sample, i: int) -> None:
    run(checker, sample, [i])


# -- the checks catch wrong rules ---------------------------------------------

Parts = tuple[UOp | None, ...]


def each(change: Callable[[UOp], UOp | None]) -> Callable[[Parts], list[Parts]]:
    """Mutants of a rule: ``change`` applied to one contribution at a time."""

    def mutants(parts: Parts) -> list[Parts]:
        return [
            (*parts[:i], change(p), *parts[i + 1 :])
            for i, p in enumerate(parts)
            if p is not None
        ]

    return mutants


def swapped(parts: Parts) -> list[Parts]:
    """Mutants with two contributions exchanged."""
    given = [i for i, p in enumerate(parts) if p is not None]
    result = []
    for i, j in pairwise(given):
        mutant = list(parts)
        mutant[i], mutant[j] = mutant[j], mutant[i]
        result.append(tuple(mutant))
    return result


MUTATIONS = {
    "forgets a source": each(lambda p: None),
    "has a wrong sign": each(lambda p: -p),
    "has a wrong factor": each(lambda p: p * 1.001),
    "gives no second derivative": each(lambda p: p.detach()),
    "swaps its sources": swapped,
}
SYMMETRIC = {Ops.ADD}
SEVERAL = {Ops.ADD, Ops.MUL, Ops.DIV, Ops.POW, Ops.FLOORMOD, Ops.MAX, Ops.WHERE,
           Ops.STACK}  # fmt: skip


def broken_rules(op: OpDef, mutation: str) -> list[Callable[[UOp, UOp], Parts]]:
    """One rule per mutant of the rule of ``op``."""
    rule, mutants = RULES[op], MUTATIONS[mutation]

    def nth(k: int) -> Callable[[UOp, UOp], Parts]:
        def broken(u: UOp, g: UOp) -> Parts:
            parts = rule(u, g)
            made = mutants(parts)
            return made[min(k, len(made) - 1)] if made else parts

        return broken

    probe = max(samples_of(op), key=lambda sample: len(sample.shapes))
    leaves = [UOp.param(i, f64, shape) for i, shape in enumerate(probe.shapes)]
    u = probe.build(*leaves)
    return [nth(k) for k in range(len(mutants(rule(u, u.const_like(1.0)))))]


def survives(checker: SimpleNamespace, op: OpDef) -> bool:
    """Whether no sample notices: neither a value nor, by ValueError, a shape."""
    for sample in samples_of(op):
        try:
            run(checker, sample)
        except (AssertionError, ValueError):
            return False
    return True


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("op", RULES, ids=lambda op: op.name)
def test_a_broken_rule_is_noticed(
    checker: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, op: OpDef, mutation: str
) -> None:
    rules = broken_rules(op, mutation)
    assert rules or (mutation == "swaps its sources" and op not in SEVERAL)
    for rule in rules:
        monkeypatch.setitem(registry().vjps, op, rule)
        assert survives(checker, op) == (op in SYMMETRIC and "swaps" in mutation)


def _wrong_shrink(u: UOp, g: UOp) -> Parts:
    (right,) = RULES[Ops.SHRINK](u, g)
    return (UOp(Ops.FLIP, (right,), (0,)),)


def _index_at_zero(u: UOp, g: UOp) -> Parts:
    first = u.src[0].index(*(0 for _ in u.src[1:]))
    return RULES[Ops.INDEX](first, g)


def _index_without_repeats(u: UOp, g: UOp) -> Parts:
    x, *idx = u.src
    if idx[0].op is Ops.CONST:
        return RULES[Ops.INDEX](u, g)
    lengths = x.shape[: len(idx)]
    once = UOp(Ops.SCATTER_ADD, (g.const_like(1.0), *idx), lengths)
    whole = UOp(Ops.SCATTER_ADD, (g, *idx), lengths)
    return (whole / once.maximum(1.0), *(None for _ in idx))


def _scatter_moved(u: UOp, g: UOp) -> Parts:
    return (g.index(*(i + 1 for i in u.src[1:])), *(None for _ in u.src[1:]))


def _conv_with_a_flipped_kernel(u: UOp, g: UOp) -> Parts:
    right = RULES[Ops.CONV](u, g)
    assert right[0] is not None
    back = right[0]
    return UOp(Ops.CONV, (back.src[0], back.src[1].flip((3,))), back.arg), right[1]


WRONG = {
    "a convolution with its kernel flipped": (
        Ops.CONV,
        _conv_with_a_flipped_kernel,
    ),
    "permute without the inverse": (Ops.PERMUTE, lambda u, g: (g.permute(u.arg),)),
    "flip not flipped back": (Ops.FLIP, lambda u, g: (g,)),
    "shrink at the wrong end": (Ops.SHRINK, _wrong_shrink),
    "index always at 0": (Ops.INDEX, _index_at_zero),
    "a gather that forgets repeats": (Ops.INDEX, _index_without_repeats),
    "a scatter whose places are moved": (Ops.SCATTER_ADD, _scatter_moved),
    "stack back to front": (Ops.STACK, lambda u, g: RULES[Ops.STACK](u, g)[::-1]),
    "max to one side": (Ops.MAX, lambda u, g: (g, g * 0.0)),
    "cosine without its sign": (Ops.COS, lambda u, g: (g * u.src[0].sin(),)),
    "sine to itself": (Ops.SIN, lambda u, g: (g * u,)),
    "log2 without ln 2": (Ops.LOG2, lambda u, g: (g * u.src[0].recip(),)),
    "sqrt without one half": (Ops.SQRT, lambda u, g: (g * u.recip(),)),
    "recip without its sign": (Ops.RECIP, lambda u, g: (g * u * u,)),
    "quotient of the wrong pair": (
        Ops.DIV,
        lambda u, g: (g / u.src[0], -(g * u / u.src[0])),
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_likely_mistake_is_noticed(
    checker: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    op, rule = WRONG[mistake]
    assert survives(checker, op)
    monkeypatch.setitem(registry().vjps, op, rule)
    assert not survives(checker, op)


def test_rules_do_not_depend_on_one_another_by_name() -> None:
    # The registry and the table hold the same objects: no second copy to forget.
    for op, rule in RULES.items():
        assert registry().vjps[op] is rule


def test_a_gradient_can_be_differentiated_again_and_again(
    checker: SimpleNamespace,
) -> None:
    x = UOp.param(0, f64, ())
    u, values = x * x * x * x, []
    for _ in range(5):
        (u,) = gradient(u, [x])
        values.append(float(checker.value(u, {x: np.asarray(2.0)})))
    assert values == [32, 48, 48, 24, 0]

"""Every rewrite rule is proved: by z3 on wide integers, by trying all on 8 bits.

Both hold for all values of the variables; the constants in a rule's pattern are
sampled (all of them where there is one of 8 bits). Floats are compared on the values
at which float arithmetic has corners and on random ones.
"""

import functools
from collections.abc import Callable

import prover
import pytest

from uopc.dtype import DTYPES, DType, boolean
from uopc.simplify import INTS, RULES, Op, Rule, Var
from uopc.testing import check_rule
from uopc.testing.instances import Typed, instances, typings
from uopc.uop import OpDef, infer

Types = tuple[DType, ...]
Proved = set[str]  # the choices of types, as text, for which a rule is proved


@functools.cache
def by_z3(rule: Rule, dtypes: Types) -> Proved:
    """Both sides as terms: equal for all values of the variables, or a counterexample.

    Types with an instance that z3 has no answer for are left out.
    """
    tried, unknown = set(), set()
    for case in instances(rule, dtypes, wanted=24):
        tried.add(case.types)
        if not prover.prove(case):
            unknown.add(case.types)
    return tried - unknown


@functools.cache
def by_trying(rule: Rule, dtypes: Types) -> Proved:
    """Both sides in NumPy: all values of 8 bits, corners and samples of floats."""
    return set(check_rule(rule, dtypes=dtypes, wanted=64, limit=65_536))


def wide(dtype: DType) -> bool:
    return dtype.is_int and dtype.bits > 8


def narrow(dtype: DType) -> bool:
    return dtype is boolean or (dtype.is_int and dtype.bits == 8)


def floating(dtype: DType) -> bool:
    return dtype.is_float


# How a rule is proved for the choices of types that have one such type at least.
Method = tuple[Callable[[Rule, Types], Proved], Callable[[DType], bool]]
METHODS: dict[str, Method] = {
    "by z3": (by_z3, wide),
    "over 8 bits": (by_trying, narrow),
    "on floats": (by_trying, floating),
}
# How many rules each method must prove at least; that many it does now.
ENOUGH = {"by z3": 47, "over 8 bits": 54, "on floats": 15}
# Choices of types that a rule leaves alone although its ``types`` admit them.
LEFT_ALONE: dict[str, Callable[[Typed], bool]] = {
    # Only an integer has a next one.
    "not-less": lambda typed: not typed.variables["x"].dtype.is_int,
    "not-greater": lambda typed: not typed.variables["x"].dtype.is_int,
}
# Rules that a method has no answer for, and why: (method, rule's name) -> reason.
OUT_OF_REACH: dict[tuple[str, str], str] = {}


def claims(rule: Rule, method: str) -> Proved:
    """The choices of types for which a rule must be proved by a method."""
    of_method = METHODS[method][1]
    left_alone = LEFT_ALONE.get(rule.name, lambda typed: False)
    return {
        str(typed)
        for typed in typings(rule, types(method))
        if any(of_method(u.dtype) for u in typed.variables.values())
        and not left_alone(typed)
    }


def types(method: str) -> Types:
    """The types a method makes instances of: its own, and bool for conditions."""
    of_method = METHODS[method][1]
    return tuple(d for d in DTYPES.values() if of_method(d) or d is boolean)


def unproved(rule: Rule, method: str) -> Proved:
    """The claims that are left."""
    wanted = claims(rule, method)
    return wanted - METHODS[method][0](rule, types(method)) if wanted else set()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_proved(rule: Rule, method: str):
    left = unproved(rule, method)
    if (method, rule.name) in OUT_OF_REACH:
        assert left, "proved by now: take it off the list"
    else:
        assert not left, "nothing is known about these types"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_valid_for_some_type(rule: Rule):
    assert any(claims(rule, method) for method in METHODS)


def test_enough_rules_are_proved(summary: list[str]):
    reached = {
        method: [r for r in RULES if claims(r, method) and not unproved(r, method)]
        for method in METHODS
    }
    some = {rule for rules in reached.values() for rule in rules}
    counts = {method: len(rules) for method, rules in reached.items()}
    each = ", ".join(f"{n} {method}" for method, n in counts.items())
    summary.append(f"{len(some)} of {len(RULES)} rewrite rules are proved: {each}")
    for method, enough in ENOUGH.items():
        assert counts[method] >= enough
    assert len(some) == len(RULES)


def test_the_lists_name_rules():
    names = {rule.name for rule in RULES}
    assert set(LEFT_ALONE) <= names
    assert {name for _, name in OUT_OF_REACH} <= names


x = Var("x")
TWICE = OpDef(
    "twice", "elementwise", 1, infer.elementwise(("int", "uint")), "2 * x.",
    numpy=lambda u, x: x + x,
)  # fmt: skip


def test_a_rule_that_nothing_is_known_about_is_noticed():
    """z3 has no term for this op, and this rule never applies."""
    foreign = Rule("twice", Op(TWICE, x), lambda x: x + x)
    assert len(unproved(foreign, "by z3")) == 6
    assert not unproved(foreign, "over 8 bits")
    idle = Rule("idle", x + x, lambda x: None, INTS)
    assert len(unproved(idle, "by z3")) == 6
    with pytest.raises(AssertionError, match="never applied"):
        unproved(idle, "over 8 bits")

"""Check a rewrite rule by running what it replaces and what it puts there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from uopc.dtype import DTYPES, DType
from uopc.simplify import Rule
from uopc.simplify.text import infix
from uopc.testing.instances import WIDTH, Instance, instances
from uopc.testing.points import evaluate_at, points, unequal
from uopc.uop import Ops, toposort


def check_rule(
    rule: Rule,
    *,
    dtypes: Sequence[DType] = tuple(DTYPES.values()),
    wanted: int = 16,
    limit: int = 4096,
    seed: int = 0,
) -> Counter[str]:
    """Compare both sides of a rewrite rule, to the bit, on many instances of it.

    Instances are made of all types that the pattern and ``rule.types`` admit, with all
    orders of commutative operands. 8-bit variables take all their values, and one
    8-bit number all of its own; wider ones and floats take extremes, special values
    and random ones. It proves nothing about types of more than 8 bits, but what is
    wrong with a rule mostly shows.

    Args:
        rule: the rule, with patterns over scalars.
        dtypes: the types to make instances of.
        wanted: how many instances to check, per choice of types.
        limit: at how many points to compare each at most.
        seed: of the random choices.

    Returns:
        How many instances the rule applied to, for each choice of types.

    Raises AssertionError with a counterexample, or if the rule never applied.
    """
    applied: Counter[str] = Counter()
    for case in instances(rule, dtypes, wanted, seed):
        applied[case.types] += 1
        problem = counterexample(case, limit)
        if problem:
            raise AssertionError(problem)
    if not applied:
        raise AssertionError(
            f"rule {rule.name!r} never applied to what fits its pattern"
        )
    return applied


def counterexample(case: Instance, limit: int = 65_536) -> str:
    """Where both sides of an instance differ, as text; empty if they do not."""
    roots = (case.before, case.after)
    leaves = [u for u in toposort(roots) if u.op in (Ops.PARAM, Ops.RANGE)]
    values = points(leaves, case.known, limit)
    before, after = evaluate_at(roots, values)
    bad = unequal(before, after)
    if not bad.any():
        return ""
    at = int(bad.reshape(-1).argmax())
    where = {infix(u): v[at].item() for u, v in values.items()}
    got = [x.reshape(-1)[at].item() for x in (before, after)]
    return refutation(case, where, got)


def refutation(case: Instance, where: dict[str, object], got: Sequence[object]) -> str:
    """The message about an instance whose sides differ at one point."""
    told = [f"{a} <= {infix(u)} <= {b}" for u, (a, b) in case.known.items()]
    given = ", ".join(f"{name} = {value}" for name, value in where.items())
    return (
        f"rule {case.rule!r} changes a result ({case.types})\n"
        f"  before: {infix(case.before, WIDTH)} = {got[0]}\n"
        f"  after:  {infix(case.after, WIDTH)} = {got[1]}\n"
        f"  with {given or 'no variables'}; known: {', '.join(told) or 'nothing'}"
    )

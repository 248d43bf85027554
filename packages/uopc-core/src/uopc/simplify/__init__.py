"""Rewrite rules over scalar expressions, with integer interval analysis."""

from uopc.simplify.bounds import Bounds
from uopc.simplify.memory import remembering
from uopc.simplify.pattern import (
    ANY,
    BOOLS,
    DISCRETE,
    INTS,
    Exactly,
    Num,
    Op,
    Pat,
    Rule,
    Var,
)
from uopc.simplify.rewrite import Simplifier, fold
from uopc.simplify.rules import RULES

__all__ = [
    "ANY",
    "BOOLS",
    "DISCRETE",
    "INTS",
    "RULES",
    "Bounds",
    "Exactly",
    "Num",
    "Op",
    "Pat",
    "Rule",
    "Simplifier",
    "Var",
    "fold",
    "remembering",
]

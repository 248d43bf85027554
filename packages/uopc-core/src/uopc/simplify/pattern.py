"""Patterns over expressions, and rules made of them.

A rule is data: a name, a pattern, a replacement. Patterns are written with
ordinary operators over variables::

    x, c = Var("x"), Num("c")
    Rule("mul-zero", x * 0, lambda x: x.const_like(0), INTS)
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from uopc.dtype import DType
from uopc.uop import OpDef, Ops, UOp, lazy

if TYPE_CHECKING:
    from uopc.simplify.bounds import Bounds

Env = dict[str, UOp]
Operand = Union["Pat", int, float]


class Pat:
    """A pattern. Operators on patterns give patterns of ops."""

    def __add__(self, other: Operand) -> Op:
        return Op(Ops.ADD, self, other)

    def __mul__(self, other: Operand) -> Op:
        return Op(Ops.MUL, self, other)

    def __floordiv__(self, other: Operand) -> Op:
        return Op(Ops.FLOORDIV, self, other)

    def __mod__(self, other: Operand) -> Op:
        return Op(Ops.FLOORMOD, self, other)

    def __lt__(self, other: Operand) -> Op:
        return Op(Ops.CMPLT, self, other)

    def bind(self, u: UOp, env: Env) -> bool:
        """Whether this pattern fits ``u``; adds what its variables stand for."""
        raise NotImplementedError


@dataclass(frozen=True)
class Var(Pat):
    """Any expression; the same name twice must be the same node."""

    name: str

    def bind(self, u: UOp, env: Env) -> bool:
        """See Pat."""
        return env.setdefault(self.name, u) is u


@dataclass(frozen=True)
class Num(Pat):
    """Any constant."""

    name: str

    def bind(self, u: UOp, env: Env) -> bool:
        """See Pat."""
        return u.op is Ops.CONST and env.setdefault(self.name, u) is u


@dataclass(frozen=True)
class Exactly(Pat):
    """The constant of this value; 0.0 does not match -0.0."""

    number: int | float

    def bind(self, u: UOp, env: Env) -> bool:
        """See Pat."""
        if u.op is not Ops.CONST:
            return False
        value = u.value
        # True is no 1: a bool matches bools only.
        kind = {"bool": bool, "float": float}.get(u.dtype.kind, int)
        same_sign = math.copysign(1, value) == math.copysign(1, self.number)
        return value == self.number and same_sign and type(self.number) is kind


class Op(Pat):
    """An op over patterns; a commutative op matches in either order."""

    def __init__(self, op: OpDef, *src: Operand) -> None:
        self.op = op
        self.src = tuple(s if isinstance(s, Pat) else Exactly(s) for s in src)

    def bind(self, u: UOp, env: Env) -> bool:
        """See Pat; in the order of the sources that is written."""
        if u.op is not self.op or len(u.src) != len(self.src):
            return False
        for pattern, s in zip(self.src, u.src, strict=True):
            if not pattern.bind(s, env):
                return False
        return True

    def fits(self, ops: Sequence[OpDef]) -> bool:
        """Whether this might match a node whose sources are of these ops."""
        return len(ops) == len(self.src) and all(
            isinstance(pattern, Var)
            or op is (pattern.op if isinstance(pattern, Op) else Ops.CONST)
            for pattern, op in zip(self.src, ops, strict=True)
        )

    def orders(self) -> list[Op]:
        """This pattern with the sources of commutative ops in every order.

        A constant is always the last source of an expression.
        """
        choices = [s.orders() if isinstance(s, Op) else [s] for s in self.src]
        found = [self]
        for src in itertools.product(*choices):
            swapped = itertools.permutations(src) if self.op.commutative else [src]
            for order in swapped:
                if order != self.src and not isinstance(order[0], (Num, Exactly)):
                    found.append(Op(self.op, *order))
        return found


def _any(dtype: DType) -> bool:
    return True


def _ints(dtype: DType) -> bool:
    return dtype.is_int


def _bools(dtype: DType) -> bool:
    return dtype.kind == "bool"


def _discrete(dtype: DType) -> bool:
    return not dtype.is_float


ANY = _any
INTS = _ints
BOOLS = _bools
DISCRETE = _discrete  # integers and bools: whatever has an interval


@dataclass(frozen=True, eq=False)
class Rule:
    """A named rewrite.

    Attributes:
        name: what the debug output and the proofs call it.
        pattern: what it applies to; its top must be an Op.
        build: the replacement from the bound variables (by name), or None if
            a side condition fails. A parameter called ``bounds`` receives the
            interval analysis.
        types: on which dtypes of the matched node's first source it is valid.
    """

    name: str
    pattern: Op
    build: Callable[..., UOp | None]
    types: Callable[[DType], bool] = ANY

    def apply(self, u: UOp, bounds: Bounds) -> UOp | None:
        """The replacement for ``u``, or None."""
        if not self.types(u.src[0].dtype):
            return None
        return self.rewrite(u, self.orders, bounds)

    def rewrite(self, u: UOp, orders: Sequence[Op], bounds: Bounds) -> UOp | None:
        """The replacement for ``u`` if one of these orders of the pattern fits it."""
        for pattern in orders:
            env: Env = {}
            if not pattern.bind(u, env):
                continue
            extra: dict[str, Any] = {"bounds": bounds} if self._takes_bounds else {}
            new = self.build(**env, **extra)
            if new is not None and new is not u:
                if new.dtype is not u.dtype or new.shape != u.shape:
                    raise ValueError(
                        f"rewrite rule {self.name!r} turned "
                        f"{u.dtype}{list(u.shape)} into {new.dtype}{list(new.shape)}"
                    )
                return new
        return None

    @lazy
    def orders(self) -> list[Op]:
        """The pattern in every order of its sources."""
        # A sum of any two nodes is looked at once.
        anything = all(isinstance(s, Var) for s in self.pattern.src)
        return [self.pattern] if anything else self.pattern.orders()

    @lazy
    def _takes_bounds(self) -> bool:
        return "bounds" in inspect.signature(self.build).parameters


class RuleTable:
    """Rules, found by the op and type of a node and by the ops of its sources."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._tops = {r.pattern.op for r in self.rules}
        self._found: dict[tuple[Any, ...], list[tuple[Rule, list[Op]]]] = {}

    def candidates(self, u: UOp) -> list[tuple[Rule, list[Op]]]:
        """The rules that may apply to ``u``, with those orders that may match."""
        if u.op not in self._tops:
            return []
        dtype, ops = u.src[0].dtype, [s.op for s in u.src]
        key = (u.op, dtype, *ops)
        found = self._found.get(key)
        if found is None:
            rules = [r for r in self.rules if r.pattern.op is u.op and r.types(dtype)]
            each = [(r, [o for o in r.orders if o.fits(ops)]) for r in rules]
            found = self._found[key] = [(r, orders) for r, orders in each if orders]
        return found

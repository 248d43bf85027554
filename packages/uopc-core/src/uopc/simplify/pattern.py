"""Patterns over expressions, and rules made of them.

A rule is data: a name, a pattern, a replacement. Patterns are written with
ordinary operators over variables::

    x, c = Var("x"), Num("c")
    Rule("mul-zero", x * 0, lambda x: x.const_like(0), INTS)
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from uopc.dtype import DType
from uopc.uop import OpDef, Ops, UOp

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

    def match(self, u: UOp, env: Env) -> Iterator[Env]:
        """Every way this pattern fits ``u``, as variable bindings."""
        raise NotImplementedError


@dataclass(frozen=True)
class Var(Pat):
    """Any expression; the same name twice must be the same node."""

    name: str

    def match(self, u: UOp, env: Env) -> Iterator[Env]:
        """See Pat."""
        if env.get(self.name, u) is u:
            yield {**env, self.name: u}


@dataclass(frozen=True)
class Num(Pat):
    """Any constant."""

    name: str

    def match(self, u: UOp, env: Env) -> Iterator[Env]:
        """See Pat."""
        if u.op is Ops.CONST and env.get(self.name, u) is u:
            yield {**env, self.name: u}


@dataclass(frozen=True)
class Exactly(Pat):
    """The constant of this value; 0.0 does not match -0.0."""

    number: int | float

    def match(self, u: UOp, env: Env) -> Iterator[Env]:
        """See Pat."""
        if u.op is Ops.CONST:
            value = u.value
            # True is no 1: a bool matches bools only.
            kind = {"bool": bool, "float": float}.get(u.dtype.kind, int)
            same_kind = type(self.number) is kind
            same_sign = math.copysign(1, value) == math.copysign(1, self.number)
            if value == self.number and same_sign and same_kind:
                yield env


class Op(Pat):
    """An op over patterns; a commutative op matches in either order."""

    def __init__(self, op: OpDef, *src: Operand) -> None:
        self.op = op
        self.src = tuple(s if isinstance(s, Pat) else Exactly(s) for s in src)

    def match(self, u: UOp, env: Env) -> Iterator[Env]:
        """See Pat."""
        if u.op is not self.op:
            return
        orders = itertools.permutations(u.src) if self.op.commutative else (u.src,)
        for src in orders:
            yield from self._match_all(src, 0, env)

    def _match_all(self, src: tuple[UOp, ...], i: int, env: Env) -> Iterator[Env]:
        if i == len(src):
            yield env
            return
        for bound in self.src[i].match(src[i], env):
            yield from self._match_all(src, i + 1, bound)


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


@functools.cache
def _takes_bounds(build: Callable[..., Any]) -> bool:
    return "bounds" in inspect.signature(build).parameters


@dataclass(frozen=True)
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
        wants_bounds = _takes_bounds(self.build)
        extra: dict[str, Any] = {"bounds": bounds} if wants_bounds else {}
        for env in self.pattern.match(u, {}):
            new = self.build(**env, **extra)
            if new is not None and new is not u:
                if new.dtype is not u.dtype or new.shape != u.shape:
                    raise ValueError(
                        f"rewrite rule {self.name!r} turned "
                        f"{u.dtype}{list(u.shape)} into {new.dtype}{list(new.shape)}"
                    )
                return new
        return None

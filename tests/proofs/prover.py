"""Scalar expressions as z3 terms, and the question whether two of them can differ.

There are two theories of the same meaning. ``Bits`` has bit-vectors of the type's
width; it knows every integer op. ``Numbers`` has mathematical integers and wraps them
by modulo 2**bits; it knows no bit ops, but divides by constants of any width at once,
where bit-vectors take minutes. What either proves is proved.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import z3

from uopc.dtype import DType, boolean
from uopc.simplify.text import infix
from uopc.testing.instances import Instance
from uopc.testing.points import evaluate_at
from uopc.testing.rules import refutation
from uopc.uop import OpDef, Ops, UOp, toposort

Interval = tuple[int, int]
Term = Any

# Of one question. Most take milliseconds in one theory and for ever in the other.
SECONDS = (1, 10)


class UnknownOpError(Exception):
    """A theory has no meaning for an op on these types."""


class Theory:
    """What both theories share: everything about bools, and comparisons."""

    def __init__(self, known: Mapping[UOp, Interval]) -> None:
        self.known = known
        self.terms: dict[UOp, Term] = {}
        self.limits: list[Term] = []  # what is given about the leaves

    def __call__(self, root: UOp) -> Term:
        for u in toposort([root]):
            if u not in self.terms and u.op is not Ops.BUFFER:
                self.terms[u] = self.term(u)
        return self.terms[root]

    def term(self, u: UOp) -> Term:
        if u.dtype.is_float:
            raise UnknownOpError(f"{u.op} of {u.dtype}")
        if u.op is Ops.CONST:
            return self.const(int(u.value), u.dtype)
        if u.op in (Ops.PARAM, Ops.RANGE):
            leaf = self.leaf(f"{u.op.name}{u.arg[0]}", u.dtype)
            low, high = self.known.get(u, (u.dtype.min, u.dtype.max))
            if u.op is Ops.RANGE:
                low, high = 0, max(0, u.arg[1] - 1)
            self.limits.append(self.between(leaf, (low, high), u.dtype))
            return leaf
        if u.op is Ops.INDEX:
            return self.read(u)
        src = [self.terms[s] for s in u.src]
        dtype = u.src[0].dtype
        match u.op:
            case Ops.WHERE:
                return z3.If(*src)
            case Ops.CMPNE:
                return src[0] != src[1]
            case Ops.CMPLT:
                return self.less(*src, dtype)
            case Ops.MAX if dtype is not boolean:
                return z3.If(self.less(*src, dtype), src[1], src[0])
            case Ops.AND if dtype is boolean:
                return z3.And(*src)
            case Ops.OR | Ops.MAX if dtype is boolean:
                return z3.Or(*src)
            case Ops.XOR if dtype is boolean:
                return z3.Xor(*src)
            case Ops.CAST:
                return self.cast(src[0], dtype, u.dtype)
        if len(src) != 2:
            raise UnknownOpError(f"{u.op} of {dtype}")
        return self.arithmetic(u.op, dtype, *src)

    def between(self, x: Term, ends: Interval, dtype: DType) -> Term:
        low, high = (self.const(n, dtype) for n in ends)
        below, above = self.less(x, low, dtype), self.less(high, x, dtype)
        return z3.Not(z3.Or(below, above))

    def read(self, u: UOp) -> Term:
        """What a buffer holds is any function of the index; outside of it is 0."""
        memory, index, *gates = u.src
        place, value = (self.leaf("any", s.dtype).sort() for s in (index, u))
        i, zero = self.terms[index], self.const(0, u.dtype)
        read = z3.Function(f"buffer{memory.arg[2]}", place, value)(i)
        self.limits.append(self.between(read, (u.dtype.min, u.dtype.max), u.dtype))
        inside = self.between(i, (0, memory.shape[0] - 1), index.dtype)
        return z3.If(z3.And(inside, *(self.terms[g] for g in gates)), read, zero)

    def cast(self, x: Term, old: DType, new: DType) -> Term:
        if old is new:
            return x
        if old is boolean:
            return z3.If(x, self.const(1, new), self.const(0, new))
        return x != self.const(0, old) if new is boolean else self.resize(x, old, new)

    def less(self, a: Term, b: Term, dtype: DType) -> Term:
        if dtype is boolean:
            return z3.And(z3.Not(a), b)
        return self.less_number(a, b, dtype)


class Bits(Theory):
    """Bit-vectors."""

    def leaf(self, name: str, dtype: DType) -> Term:
        return z3.Bool(name) if dtype is boolean else z3.BitVec(name, dtype.bits)

    def const(self, value: int, dtype: DType) -> Term:
        if dtype is boolean:
            return z3.BoolVal(bool(value))
        return z3.BitVecVal(value, dtype.bits)

    def less_number(self, a: Term, b: Term, dtype: DType) -> Term:
        return a < b if dtype.kind == "int" else z3.ULT(a, b)

    def resize(self, x: Term, old: DType, new: DType) -> Term:
        extra = new.bits - old.bits
        if extra <= 0:
            return z3.Extract(new.bits - 1, 0, x)
        return (z3.SignExt if old.kind == "int" else z3.ZeroExt)(extra, x)

    def arithmetic(self, op: OpDef, dtype: DType, a: Term, b: Term) -> Term:
        zero, signed = self.const(0, dtype), dtype.kind == "int"
        # z3 rounds toward zero: where the signs differ floor is one less.
        rest = z3.SRem(a, b)
        off = z3.And(rest != 0, (rest ^ b) < 0)
        match op:
            case Ops.ADD:
                return a + b
            case Ops.MUL:
                return a * b
            case Ops.FLOORDIV:
                quotient = z3.If(off, a / b - 1, a / b) if signed else z3.UDiv(a, b)
                return z3.If(b == 0, zero, quotient)
            case Ops.FLOORMOD:
                remainder = z3.If(off, rest + b, rest) if signed else z3.URem(a, b)
                return z3.If(b == 0, zero, remainder)
            case Ops.AND:
                return a & b
            case Ops.OR:
                return a | b
            case Ops.XOR:
                return a ^ b
            case Ops.SHL:
                return a << b
            case Ops.SHR:
                return z3.LShR(a, b)
        raise UnknownOpError(f"{op} of {dtype}")


class Numbers(Theory):
    """Mathematical integers in the range of their type."""

    def leaf(self, name: str, dtype: DType) -> Term:
        return z3.Bool(name) if dtype is boolean else z3.Int(name)

    def const(self, value: int, dtype: DType) -> Term:
        return z3.BoolVal(bool(value)) if dtype is boolean else z3.IntVal(value)

    def less_number(self, a: Term, b: Term, dtype: DType) -> Term:
        return a < b

    def resize(self, x: Term, old: DType, new: DType) -> Term:
        return self.wrapped(x, new)

    def wrapped(self, x: Term, dtype: DType) -> Term:
        return (x - dtype.min) % (1 << dtype.bits) + dtype.min

    def arithmetic(self, op: OpDef, dtype: DType, a: Term, b: Term) -> Term:
        match op:
            case Ops.ADD:
                return self.wrapped(a + b, dtype)
            case Ops.MUL:
                return self.wrapped(a * b, dtype)
            # z3's remainder is never negative: right for positive divisors.
            case Ops.FLOORDIV:
                quotient = self.by_sign(b, a / b, (-a) / (-b))
                return self.wrapped(quotient, dtype)
            case Ops.FLOORMOD:
                return self.by_sign(b, a % b, -((-a) % (-b)))
        raise UnknownOpError(f"{op} of {dtype}")

    def by_sign(self, b: Term, positive: Term, negative: Term) -> Term:
        if z3.is_int_value(z3.simplify(b)):  # linear only without the cases
            n = z3.simplify(b).as_long()
            return positive if n > 0 else negative if n < 0 else z3.IntVal(0)
        return z3.If(b > 0, positive, z3.If(b < 0, negative, z3.IntVal(0)))


def holds(
    claim: Callable[[Theory], Term],
    known: Mapping[UOp, Interval],
    seconds: Sequence[float] = SECONDS,
) -> str | dict[UOp, int]:
    """How a claim about terms was proved, or the leaves' values that refute it.

    ``claim(theory)`` makes the term. Returns "" if no theory gives an answer.
    """
    for limit, kind in itertools.product(seconds, (Numbers, Bits)):
        theory = kind(known)
        try:
            term = claim(theory)
        except UnknownOpError:
            continue
        solver = z3.Solver()
        solver.set("timeout", int(1000 * limit))
        solver.add(*theory.limits, z3.Not(term))
        answer = solver.check()
        if answer == z3.unsat:
            return kind.__name__.lower()
        if answer == z3.sat:
            return _values(solver.model(), theory)
    return ""


def prove(case: Instance) -> str:
    """How both sides of an instance were proved equal; "" if nothing is known.

    Raises AssertionError with a counterexample, which NumPy confirms.
    """
    roots = (case.before, case.after)
    answer = holds(lambda term: term(roots[0]) == term(roots[1]), case.known)
    if isinstance(answer, str):
        return answer
    got = [x.item() for x in evaluate_at(roots, as_arrays(answer))]
    if got[0] == got[1]:
        raise RuntimeError(f"z3 and NumPy disagree on {infix(case.before)}")
    where = {infix(u): n for u, n in answer.items()}
    raise AssertionError(refutation(case, where, got))


def as_arrays(values: Mapping[UOp, int]) -> dict[UOp, np.ndarray]:
    """One value per leaf, as NumPy wants them."""
    return {u: np.asarray(n, u.dtype.numpy) for u, n in values.items()}


def within(
    u: UOp, interval: Interval, known: Mapping[UOp, Interval]
) -> str | dict[UOp, int]:
    """``holds`` of the claim that an expression lies in an interval."""
    return holds(lambda term: term.between(term(u), interval, u.dtype), known)


def _values(model: Any, theory: Theory) -> dict[UOp, int]:
    found = {}
    for u, term in theory.terms.items():
        if u.op in (Ops.PARAM, Ops.RANGE):
            value = model.eval(term, model_completion=True)
            if u.dtype is boolean:
                found[u] = int(z3.is_true(value))
            elif isinstance(theory, Bits) and u.dtype.kind == "int":
                found[u] = value.as_signed_long()
            else:
                found[u] = value.as_long()
    return found

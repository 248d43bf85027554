"""Instances of rewrite rules: expressions that a rule's pattern fits, of every type.

A pattern is first given types in all the ways that the ops in it allow. Then its
variables become operands and its numbers constants: all of an 8-bit type where there
is one number, else extremes, small ones, and such as stand in a simple relation to
each other, because side conditions ask for that.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from uopc.dtype import DType, boolean, i8, i32
from uopc.simplify import Bounds, Exactly, Num, Op, Pat, Rule, Var
from uopc.simplify.text import infix
from uopc.testing.points import float_values
from uopc.uop import Ops, UOp, substitute

Interval = tuple[int, int]
Scalar = bool | int | float

WIDTH = 1000  # of an expression in a message
SIZE = 5  # of a buffer that is read
SMALL = (-4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 12)


class Instance(NamedTuple):
    """What a rule turned into what.

    ``known`` holds the intervals of the integer and bool leaves that the rule was
    told, ``types`` those of the pattern's variables, as text.
    """

    rule: str
    types: str
    before: UOp
    after: UOp
    known: dict[UOp, Interval]


class Typed(NamedTuple):
    """A pattern with types: a node over one PARAM per variable and number.

    ``orders`` are the same with the sources of commutative ops swapped in all ways,
    the pattern's own order first.
    """

    orders: list[UOp]
    variables: dict[str, UOp]
    numbers: dict[str, UOp]

    def __str__(self) -> str:
        both = {**self.variables, **self.numbers}
        return ", ".join(f"{name}: {u.dtype}" for name, u in both.items())


def typings(rule: Rule, dtypes: Sequence[DType]) -> Iterator[Typed]:
    """Every way to give the pattern types for which the rule is said to be valid."""
    kinds: dict[str, type[Pat]] = {}
    for root, found in _typed(rule.pattern, {}, dtypes, kinds):
        if rule.types(root.src[0].dtype):
            numbers = {n: u for n, u in found.items() if kinds[n] is Num}
            variables = {n: u for n, u in found.items() if kinds[n] is Var}
            yield Typed(_orders(root), variables, numbers)


def _typed(
    pattern: Pat,
    found: dict[str, UOp],
    dtypes: Sequence[DType],
    kinds: dict[str, type[Pat]],
) -> Iterator[tuple[UOp, dict[str, UOp]]]:
    if isinstance(pattern, (Var, Num)):
        kinds[pattern.name] = type(pattern)
        if pattern.name in found:
            yield found[pattern.name], found
            return
        for dtype in dtypes:
            u = UOp.param(len(found), dtype)
            yield u, {**found, pattern.name: u}
    elif isinstance(pattern, Exactly):
        for dtype in dtypes:
            try:
                u = UOp.const(pattern.number, dtype)
            except (TypeError, ValueError, OverflowError):
                continue  # not a number of this type
            if pattern.bind(u, {}):
                yield u, found
    elif isinstance(pattern, Op):
        if pattern.op is Ops.INDEX and isinstance(memory := pattern.src[0], Var):
            for dtype in dtypes:
                u = UOp.buffer(SIZE, dtype, len(found))
                kinds[memory.name] = Var
                more = {**found, memory.name: u}
                yield from _typed_op(pattern, (u,), more, dtypes, kinds)
        else:
            yield from _typed_op(pattern, (), found, dtypes, kinds)
    else:
        raise TypeError(f"no instances of the pattern {pattern!r} can be made")


def _typed_op(
    pattern: Op,
    src: tuple[UOp, ...],
    found: dict[str, UOp],
    dtypes: Sequence[DType],
    kinds: dict[str, type[Pat]],
) -> Iterator[tuple[UOp, dict[str, UOp]]]:
    if len(src) < len(pattern.src):
        for u, more in _typed(pattern.src[len(src)], found, dtypes, kinds):
            yield from _typed_op(pattern, (*src, u), more, dtypes, kinds)
        return
    for arg in dtypes if pattern.op is Ops.CAST else (None,):
        try:
            yield UOp(pattern.op, src, arg), found
        except TypeError:
            continue  # the op does not take these types


def _orders(u: UOp) -> list[UOp]:
    found = []
    for src in itertools.product(*map(_orders, u.src)):
        swapped = itertools.permutations(src) if u.op.commutative else (src,)
        found += [UOp(u.op, s, u.arg) for s in swapped]
    return list(dict.fromkeys(found))


def instances(
    rule: Rule, dtypes: Sequence[DType], wanted: int, seed: int = 0
) -> Iterator[Instance]:
    """Up to ``wanted`` different instances per typing to which the rule applies.

    Of one number of an 8-bit type all values are tried, whatever ``wanted``. Of the
    other orders of commutative sources only those are given that the rule treats
    differently from the pattern's own.
    """
    typed_patterns = list(typings(rule, dtypes))
    # Types that vary independently share the work.
    wanted = max(2, wanted * len(dtypes) // max(len(typed_patterns), len(dtypes)))
    for typed in typed_patterns:
        rng = random.Random(seed)
        seen: set[tuple[Any, ...]] = set()
        every = _every_number(typed)
        left = wanted
        for k in range(len(every) + 8 * wanted):
            values = [every[k]] if k < len(every) else None
            whole = k < max(len(every), 4)  # variables of the whole type first
            roots, known = _choose(typed, rng, values, whole)
            key = (roots[0], *known.items())
            if key in seen:
                continue
            seen.add(key)
            results = [_applied(rule, root, known) for root in roots]
            for i, (before, after) in enumerate(zip(roots, results, strict=True)):
                if after is not None and after not in results[:i]:
                    yield Instance(rule.name, str(typed), before, after, known)
            left -= k >= len(every) and any(r is not None for r in results)
            if not left:
                break


def _applied(rule: Rule, u: UOp, known: dict[UOp, Interval]) -> UOp | None:
    try:
        return rule.apply(u, Bounds(tuple(known.items())))
    except Exception as error:
        error.add_note(f"rule {rule.name!r} was applied to {infix(u, WIDTH)}")
        raise


def _every_number(typed: Typed) -> list[Scalar]:
    if len(typed.numbers) != 1:
        return []
    (number,) = typed.numbers.values()
    if not number.dtype.is_int or number.dtype.bits > 8:
        return []
    return list(range(number.dtype.min, number.dtype.max + 1))


def _choose(
    typed: Typed, rng: random.Random, values: list[Scalar] | None, whole: bool
) -> tuple[list[UOp], dict[UOp, Interval]]:
    """The pattern over operands and constants, in its own order and another one."""
    if values is None:
        values = constants(rng, [u.dtype for u in typed.numbers.values()])
    numbers = zip(typed.numbers.values(), values, strict=True)
    places = {u: UOp.const(value, u.dtype) for u, value in numbers}
    operands = Operands(rng, values)
    for u in typed.variables.values():
        if u.op is Ops.BUFFER:
            continue
        places[u] = operands.leaf(u.dtype) if whole else operands.pick_one(u.dtype)
    orders = [typed.orders[0]]
    if len(typed.orders) > 1:
        orders.append(rng.choice(typed.orders[1:]))
    return substitute(orders, places), operands.known


def constants(
    rng: random.Random, dtypes: Sequence[DType], earlier: Sequence[Scalar] = ()
) -> list[Scalar]:
    """One constant per type, often in a simple relation to an earlier one."""
    found = list(earlier)
    for dtype in dtypes:
        if dtype.is_float:
            found.append(float(rng.choice(float_values(dtype))))
            continue
        if dtype is boolean:
            found.append(rng.random() < 0.5)
            continue
        n = _integer(rng, dtype)
        whole = [int(x) for x in found if not isinstance(x, float)]
        if whole and rng.random() < 0.6:
            n = _related(rng, rng.choice(whole), rng.choice(whole), n)
        found.append(n if dtype.min <= n <= dtype.max else _integer(rng, dtype))
    return found[len(earlier) :]


def _integer(rng: random.Random, dtype: DType) -> int:
    sort = rng.randrange(8)
    if sort < 4:
        n = int(rng.choice(SMALL))
    elif sort == 4:
        n = int(rng.choice((dtype.min, dtype.min + 1, dtype.max - 1, dtype.max)))
    elif sort == 5:
        n = 1 << rng.randrange(dtype.bits)
    else:
        n = rng.randint(dtype.min, dtype.max) >> rng.randrange(dtype.bits)
    return n if dtype.min <= n <= dtype.max else abs(n) & dtype.max


def _related(rng: random.Random, p: int, q: int, n: int) -> int:
    choices = (p, p * q, p * n, p + q, p - q, -p, p + 1, p - 1, p // (n or 1), p & n)
    return int(rng.choice(choices))


class Operands:
    """Makes what a variable may stand for, and remembers the leaves' intervals."""

    def __init__(self, rng: random.Random, numbers: Sequence[Scalar] = ()) -> None:
        self.rng = rng
        self.numbers = numbers
        self.known: dict[UOp, Interval] = {}
        self.count = 0
        self.made: list[UOp] = []

    def leaf(self, dtype: DType) -> UOp:
        """A PARAM of the whole type."""
        u = UOp.param(self.count, dtype)
        self.count += 1
        if not dtype.is_float:
            self.known[u] = (dtype.min, dtype.max)
        return u

    def narrow(self, dtype: DType) -> UOp:
        """A loop variable, or a PARAM whose values are said to be in an interval."""
        rng = self.rng
        if not dtype.is_int or rng.random() < 0.3:
            u = self.leaf(dtype)
            if dtype is boolean and rng.random() < 0.5:
                self.known[u] = rng.choice([(0, 0), (1, 1)])
            return u
        if rng.random() < 0.4:
            # Loops run from 0, mostly for a short time.
            top = rng.randint(0, rng.choice((3, 8, 12, dtype.max - 1)))
            self.count += 1
            return UOp(Ops.RANGE, (), (self.count - 1, top + 1, dtype))
        ends = sorted(_integer(rng, dtype) for _ in range(2))
        u = self.leaf(dtype)
        self.known[u] = (ends[0], ends[1])
        return u

    def pick_one(self, dtype: DType) -> UOp:
        """A leaf, a sum of a few, or, rarely, what an earlier variable stands for."""
        rng = self.rng
        if rng.random() < 0.1:
            return self.read(dtype)
        same = [u for u in self.made if u.dtype is dtype]
        if same and rng.random() < 0.1:
            return same[0]
        u = self.narrow(dtype)
        if dtype is boolean and rng.random() < 0.3:
            u = self.narrow(i8) < constants(rng, [i8])[0]
        elif dtype.is_int and rng.random() < 0.5:
            u = self.compound(u)
        self.made.append(u)
        return u

    def read(self, dtype: DType) -> UOp:
        """An element of a buffer, read always or under a condition."""
        loop = UOp(Ops.RANGE, (), (self.count, SIZE, i32))
        memory = UOp.buffer(SIZE, dtype, self.count + 1)
        self.count += 2
        gates = (
            (loop < self.rng.randrange(SIZE + 1),) if self.rng.random() < 0.7 else ()
        )
        return UOp(Ops.INDEX, (memory, loop, *gates))

    def compound(self, p: UOp) -> UOp:
        """An integer expression as they occur in indices."""
        numbers = constants(self.rng, [p.dtype] * 3, self.numbers)
        k, m, c = (UOp.const(n, p.dtype) for n in numbers)
        q = self.narrow(p.dtype) if len(self.made) < 2 else p
        row = p * k + q * m
        choices = (
            p + c, p * k, p * k + c, p * k + q, row, row + c, p // k, p % k,
            row // c, row % c, p // k * m, p % k + q * m, p // k * k + p % k,
            row // c * k + row % c, p.maximum(q), (p < c).where(p, q),
        )  # fmt: skip
        u: UOp = self.rng.choice(choices)
        return u

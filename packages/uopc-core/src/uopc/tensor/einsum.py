"""Tensor's sums of products by named axes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Self

from uopc import composite
from uopc.composite import broadcast_shape, broadcast_to
from uopc.dtype import boolean, i32, promote
from uopc.tensor.base import explained
from uopc.tensor.setitem import SetItem
from uopc.uop import UOp


class Einsum(SetItem):
    """Sums of products of tensors whose axes are named by letters."""

    __slots__ = ()

    def diagonal(self, a: int = 0, b: int = 1) -> Self:
        """The elements whose positions on two axes are equal, as a last axis.

        It is as long as the shorter one. Raises ValueError if both are the same axis.
        """
        a, b = self._axes((a, b))
        order = [i for i in range(self.ndim) if i not in (a, b)]
        return self._new(composite.diagonal(self.uop.permute([*order, a, b])))

    @classmethod
    def einsum(cls, equation: str, *operands: Self) -> Self:
        """The sum of products that an equation describes, as in NumPy.

        ``Tensor.einsum("ab,bc->ac", x, y)`` is ``x @ y``. A letter that the result
        lacks is summed over; one that an operand has twice is its diagonal. Without
        ``->`` the result has the letters that occur once, in alphabetical order.
        ``...`` stands for any further axes, which broadcast.

        Types are promoted; bool counts as i32; half types are computed in f32 and the
        result is rounded once. Several operands are multiplied from left to right.

        Raises ValueError for an equation that is malformed or does not fit, and for
        axes of one letter whose lengths differ: a length of 1 does not broadcast here,
        other than in NumPy.
        """
        if not operands:
            raise ValueError(f"einsum({equation!r}): needs at least one operand")
        try:
            dtype = functools.reduce(promote, (t.dtype for t in operands))
            dtype = i32 if dtype is boolean else dtype
            terms, result = _parsed(equation, [t.ndim for t in operands])
            nodes = [t.uop.cast(dtype.wide) for t in operands]
            nodes = _broadcast(terms, nodes)
            _require_lengths(terms, nodes)
        except (TypeError, ValueError) as error:
            raise explained(error, f"einsum {equation!r}", *operands) from None
        out = composite.einsum(terms, result, nodes).cast(dtype)
        joined: Self = operands[0]._new(out, *operands)
        return joined


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The names of each operand's axes and of the result's.

    Axes behind ``...`` are called by their distance from the end: "0", "1", ...
    """
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    texts = given.split(",")
    if len(texts) != len(ranks):
        raise ValueError(f"{len(texts)} terms for {len(ranks)} operands")
    terms = [_names(text, rank) for text, rank in zip(texts, ranks, strict=True)]
    known = {name for term in terms for name in term}
    hidden = sorted((n for n in known if n.isdigit()), key=int, reverse=True)
    if not arrow:
        every = [name for term in terms for name in term]
        once = sorted(n for n in known if every.count(n) == 1 and not n.isdigit())
        return terms, [*hidden, *once]
    head, dots, tail = wanted.partition("...")
    result = [*_letters(head), *(hidden if dots else ()), *_letters(tail)]
    for name in result:
        if name not in known:
            raise ValueError(f"the result has {name!r}, which no operand has")
        if result.count(name) > 1:
            raise ValueError(f"the result has {name!r} twice")
    return terms, result


def _names(text: str, rank: int) -> list[str]:
    head, dots, tail = text.partition("...")
    first, last = _letters(head), _letters(tail)
    more = rank - len(first) - len(last)
    if more < 0 or (more and not dots):
        raise ValueError(f"{text!r} does not name {rank} axes")
    return [*first, *(str(k) for k in reversed(range(more))), *last]


def _letters(text: str) -> list[str]:
    for c in text:
        if not (c.isascii() and c.isalpha()):
            raise ValueError(f"expected letters, ',', '...' and '->', found {c!r}")
    return list(text)


def _broadcast(terms: Sequence[Sequence[str]], nodes: Sequence[UOp]) -> list[UOp]:
    """The operands, with their axes behind ``...`` of the common lengths."""
    parts = [
        [n for name, n in zip(term, u.shape, strict=True) if name.isdigit()]
        for term, u in zip(terms, nodes, strict=True)
    ]
    common = broadcast_shape(*map(tuple, parts))

    def length(name: str, n: int) -> int:
        return common[-1 - int(name)] if name.isdigit() else n

    return [
        broadcast_to(u, list(map(length, term, u.shape)))
        for term, u in zip(terms, nodes, strict=True)
    ]


def _require_lengths(terms: Sequence[Sequence[str]], nodes: Sequence[UOp]) -> None:
    length: dict[Any, int] = {}
    for term, u in zip(terms, nodes, strict=True):
        for name, n in zip(term, u.shape, strict=True):
            if length.setdefault(name, n) != n:
                raise ValueError(f"axes {name!r} have lengths {length[name]} and {n}")

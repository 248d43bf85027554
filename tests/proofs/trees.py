"""Random integer expressions, index arithmetic above all."""

import random

from uopc.dtype import DTYPES, DType, boolean
from uopc.testing.instances import Interval
from uopc.uop import Ops, UOp

INTEGERS = [d for d in DTYPES.values() if d.is_int]
WIDE = [d for d in INTEGERS if d.bits >= 32]
NARROW = [d for d in INTEGERS if d.bits == 8]


class Trees:
    """Expressions over up to three leaves: loops, short and long, and unknowns.

    ``leaves`` have values; ``atoms`` are what expressions are made of: leaves, and
    windows at either end of the type or around 0.
    """

    def __init__(self, seed: int, dtype: DType) -> None:
        self.rng = random.Random(seed)
        self.dtype = dtype
        self.leaves: list[UOp] = []
        self.atoms = [self.atom() for _ in range(self.rng.choice((1, 2, 2, 3)))]
        sizes = [u.arg[1] for u in self.leaves if u.op is Ops.RANGE]
        # Divisors that a reshape would have: extents and their products.
        self.sizes = {*sizes, *(a * b for a in sizes for b in sizes)}
        self.sizes = {n for n in self.sizes if 0 < n <= dtype.max} or {1, 3}

    @property
    def known(self) -> dict[UOp, Interval]:
        """What is known of the unknowns: nothing."""
        return {u: (u.dtype.min, u.dtype.max) for u in self.leaves if u.op is Ops.PARAM}

    def atom(self) -> UOp:
        rng, dtype, k = self.rng, self.dtype, len(self.leaves)
        if rng.random() < 0.2:
            self.leaves.append(UOp.param(k, dtype))
            return self.leaves[-1]
        size = rng.choice((2, 3, 4, 5, 6, 8, 9, 12))
        if rng.random() < 0.2:  # so long that products of it wrap
            size = dtype.max // rng.choice((1, 2, 3, 7))
        loop = UOp(Ops.RANGE, (), (k, size, dtype))
        self.leaves.append(loop)
        if rng.random() < 0.7:
            return loop
        low = rng.choice((dtype.min, -(size // 2), dtype.max - size + 1, 1))
        return loop + max(low, dtype.min)

    def number(self, *more: int) -> UOp:
        dtype, rng = self.dtype, self.rng
        sort = rng.random()
        n = rng.choice((-7, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 8, 12, 24, 100))
        if sort < 0.5:
            n = rng.choice(sorted(self.sizes))
        elif sort < 0.6:
            n = rng.choice((dtype.min, dtype.min + 1, dtype.max - 1, dtype.max))
        elif sort < 0.7:
            n = rng.randint(dtype.min, dtype.max) >> rng.randrange(dtype.bits)
        return UOp.const(n if dtype.min <= n <= dtype.max else abs(n), dtype)

    def tree(self, depth: int) -> UOp:
        """An integer."""
        rng = self.rng
        if depth <= 0:
            return rng.choice(self.atoms) if rng.random() < 0.85 else self.number()
        a, k = self.tree(depth - 1), self.number()
        match rng.choice("++rrrr***////%%%%ddffc?mb!"):
            case "+":
                return a + (self.tree(depth - 1) if rng.random() < 0.6 else k)
            case "r":
                return a * k + self.tree(depth - 1)
            case "*":
                return a * k
            case "/":
                return a // k
            case "%":
                return a % k
            case "d":  # the digits of a number, put together again
                m = k if rng.random() < 0.6 else self.number()
                return a // k * m + a % k
            case "f":
                return -a + k
            case "c":
                return a.cast(rng.choice(INTEGERS)).cast(self.dtype)
            case "?":
                return self.truth(depth - 1).where(a, self.tree(depth - 1))
            case "m":
                return a.maximum(self.tree(depth - 1))
            case "b":
                return self.bits(a, k)
        b = self.tree(depth - 2)
        return rng.choice((a * b, a // b, a % b))

    def bits(self, a: UOp, k: UOp) -> UOp:
        if self.dtype.kind == "uint" and self.rng.random() < 0.5:
            n = self.rng.randrange(self.dtype.bits + 2)
            return a << n if self.rng.random() < 0.5 else a >> n
        return self.rng.choice((a & k, a | k, a ^ k))

    def truth(self, depth: int) -> UOp:
        """A bool."""
        a, b = self.tree(depth), self.tree(depth - 1)
        k = self.number()
        less = self.rng.choice((a < k, a < k, k < a, k < a, a < b, a.ne(b), a.ne(k)))
        match self.rng.choice("......!!&|x"):
            case "!":
                return less.logical_not()
            case "&":
                return less & (b < k)
            case "|":
                return less | (k < b)
            case "x":
                return less.ne(b.cast(boolean))
        return less

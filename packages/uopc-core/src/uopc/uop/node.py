"""The node: immutable, hash-consed, with its shape and dtype inferred."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, Union

from uopc.dtype import DType, boolean, f32, i32
from uopc.uop.forking import fork_safe
from uopc.uop.literal import Literal, Scalar
from uopc.uop.opdef import OpDef
from uopc.uop.ops import Ops
from uopc.uop.walk import toposort

Operand: TypeAlias = Union["UOp", Scalar]


class _Entry(weakref.ref["UOp"]):
    """A weak reference in the intern table that knows its key."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


# The intern table: the one process-wide table. Look-ups and insertions are
# single dict operations; only what concerns dead entries needs the lock.
_table: dict[tuple[Any, ...], _Entry] = {}
_lock = fork_safe(threading.RLock())


def _forget(entry: weakref.ref[UOp]) -> None:
    key = entry.key  # type: ignore[attr-defined]
    with _lock:
        # A new node may have taken the key since the old one died.
        if _table.get(key) is entry:
            del _table[key]


def live_nodes() -> int:
    """How many nodes exist now."""
    return len(_table)


class _Draft:
    """A node while its maker fills it in. It becomes a UOp, which is closed."""

    __slots__ = ("__weakref__", "arg", "dtype", "op", "shape", "src")
    op: OpDef
    src: tuple[UOp, ...]
    arg: Any
    shape: tuple[int, ...]
    dtype: DType


class UOp(_Draft):
    """One node of a graph, at every stage of the compiler.

    ``UOp(op, src, arg)`` returns the existing node if a structurally equal one
    is alive, so equality is identity. Shape and dtype are inferred and checked
    when a node is made; the errors name the op and what it was given.
    Arithmetic operators build nodes; a Python number becomes a constant of the
    node's shape and dtype. Nothing is ever simplified here.

    Attributes:
        op: the row of the op table.
        src: the sources.
        arg: the argument, as the row's ``arg`` describes it.
        shape: lengths of the axes.
        dtype: the element type (``void`` for statements).
    """

    __slots__ = ()

    def __new__(cls, op: OpDef, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp:
        """The node for (op, src, arg): an existing one if there is one."""
        key = (op, src, arg)
        try:
            entry = _table.get(key)
        except TypeError:
            got = f"{src!r} and {arg!r}"
            raise TypeError(
                f"{op.name}: expected a tuple of sources and a hashable argument "
                f"(tuples, not lists), got {got}"
            ) from None
        if entry is not None:
            node = entry()
            if node is not None and (arg is node.arg or _alike(arg, node.arg)):
                return node
        arity = op.arity
        if arity is not None and len(src) != arity:
            raise ValueError(f"{op.name}: expected {arity} sources, got {len(src)}")
        normal, shape, dtype = op.infer(op, src, arg)
        # Filling in an open object and closing it takes half the time that writing
        # around a closed one's __setattr__ takes; nobody else has it yet.
        made: Any = _Draft()
        made.op, made.src, made.arg = op, src, normal
        made.shape, made.dtype = shape, dtype
        made.__class__ = cls
        mine = _Entry(made, _forget)
        mine.key = key if normal is arg else (op, src, normal)
        if _table.setdefault(mine.key, mine) is mine:
            return made  # type: ignore[no-any-return]
        return _settle(mine, made)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"UOp is immutable; cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"UOp is immutable; cannot delete {name!r}")

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: object) -> UOp:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        from uopc.uop.pickling import reduce_node  # not at import, for start-up's sake

        return reduce_node(self)

    # -- constructors ---------------------------------------------------------

    @staticmethod
    def const(value: Scalar, dtype: DType) -> UOp:
        """A scalar constant of shape ()."""
        return UOp(Ops.CONST, (), Literal.of(value, dtype))

    @staticmethod
    def buffer(
        size: int, dtype: DType, slot: int, version: int = 0, space: str = "global"
    ) -> UOp:
        """A flat buffer of ``size`` elements."""
        return UOp(Ops.BUFFER, (), (size, dtype, slot, version, space))

    @staticmethod
    def param(slot: int, dtype: DType, shape: Sequence[int] = ()) -> UOp:
        """A placeholder of the given shape."""
        return UOp(Ops.PARAM, (), (slot, dtype, tuple(shape)))

    @staticmethod
    def stack(sources: Sequence[UOp]) -> UOp:
        """Join nodes of one shape along a new first axis."""
        return UOp(Ops.STACK, tuple(sources))

    def const_like(self, value: Scalar) -> UOp:
        """A constant broadcast to this node's shape, of its dtype."""
        return UOp.const(value, self.dtype).broadcast_scalar(self.shape)

    def broadcast_scalar(self, shape: tuple[int, ...]) -> UOp:
        """This scalar under ``shape``: reshaped to ones, then expanded."""
        return self.reshape((1,) * len(shape)).expand(shape) if shape else self

    def with_src(self, src: tuple[UOp, ...]) -> UOp:
        """The same op and argument over other sources."""
        return self if src == self.src else UOp(self.op, src, self.arg)

    # -- arithmetic -----------------------------------------------------------

    def _operand(self, other: Operand) -> UOp:
        return other if isinstance(other, UOp) else self.const_like(other)

    def __add__(self, other: Operand) -> UOp:
        return UOp(Ops.ADD, (self, self._operand(other)))

    def __radd__(self, other: Operand) -> UOp:
        return UOp(Ops.ADD, (self._operand(other), self))

    def __mul__(self, other: Operand) -> UOp:
        return UOp(Ops.MUL, (self, self._operand(other)))

    def __rmul__(self, other: Operand) -> UOp:
        return UOp(Ops.MUL, (self._operand(other), self))

    def __neg__(self) -> UOp:
        # All bits set is -1 in every integer type, signed or not.
        minus_one = self.dtype.max if self.dtype.kind == "uint" else -1
        return self * minus_one

    def __sub__(self, other: Operand) -> UOp:
        return self + -self._operand(other)

    def __rsub__(self, other: Operand) -> UOp:
        return self._operand(other) + -self

    def __truediv__(self, other: Operand) -> UOp:
        return UOp(Ops.DIV, (self, self._operand(other)))

    def __floordiv__(self, other: Operand) -> UOp:
        return UOp(Ops.FLOORDIV, (self, self._operand(other)))

    def __mod__(self, other: Operand) -> UOp:
        return UOp(Ops.FLOORMOD, (self, self._operand(other)))

    def __and__(self, other: Operand) -> UOp:
        return UOp(Ops.AND, (self, self._operand(other)))

    def __or__(self, other: Operand) -> UOp:
        return UOp(Ops.OR, (self, self._operand(other)))

    def __xor__(self, other: Operand) -> UOp:
        return UOp(Ops.XOR, (self, self._operand(other)))

    def __lshift__(self, other: Operand) -> UOp:
        return UOp(Ops.SHL, (self, self._operand(other)))

    def __rshift__(self, other: Operand) -> UOp:
        return UOp(Ops.SHR, (self, self._operand(other)))

    def __lt__(self, other: Operand) -> UOp:
        return UOp(Ops.CMPLT, (self, self._operand(other)))

    def __gt__(self, other: Operand) -> UOp:
        return UOp(Ops.CMPLT, (self._operand(other), self))

    def ne(self, other: Operand) -> UOp:
        """Elementwise ``!=`` (``==`` on nodes is identity)."""
        return UOp(Ops.CMPNE, (self, self._operand(other)))

    def eq(self, other: Operand) -> UOp:
        """Elementwise ``==``."""
        return self.ne(other).logical_not()

    def logical_not(self) -> UOp:
        """Not, of a bool node."""
        return self.ne(True)

    def where(self, a: UOp, b: UOp) -> UOp:
        """``a`` where this bool node is true, else ``b``."""
        return UOp(Ops.WHERE, (self, a, b))

    def maximum(self, other: Operand) -> UOp:
        """The larger of two; NaN if either is NaN."""
        return UOp(Ops.MAX, (self, self._operand(other)))

    def recip(self) -> UOp:
        """1 / x."""
        return UOp(Ops.RECIP, (self,))

    def exp2(self) -> UOp:
        """2 to the power x."""
        return UOp(Ops.EXP2, (self,))

    def log2(self) -> UOp:
        """Logarithm to base 2."""
        return UOp(Ops.LOG2, (self,))

    def sqrt(self) -> UOp:
        """Square root."""
        return UOp(Ops.SQRT, (self,))

    def sin(self) -> UOp:
        """Sine."""
        return UOp(Ops.SIN, (self,))

    def cast(self, dtype: DType) -> UOp:
        """Convert to ``dtype``; the node itself if it has that dtype already."""
        return self if self.dtype is dtype else UOp(Ops.CAST, (self,), dtype)

    # -- movement, reduction, selection ---------------------------------------

    def reshape(self, shape: Sequence[int]) -> UOp:
        """The same elements, in row-major order, under another shape."""
        return UOp(Ops.RESHAPE, (self,), tuple(shape))

    def expand(self, shape: Sequence[int]) -> UOp:
        """Repeat axes of length 1."""
        return UOp(Ops.EXPAND, (self,), tuple(shape))

    def permute(self, axes: Sequence[int]) -> UOp:
        """Reorder axes: output axis k is input axis ``axes[k]``."""
        return UOp(Ops.PERMUTE, (self,), tuple(axes))

    def shrink(self, window: Sequence[tuple[int, int]]) -> UOp:
        """Keep a (begin, end) window of every axis."""
        return UOp(Ops.SHRINK, (self,), tuple(map(tuple, window)))

    def flip(self, axes: Sequence[int]) -> UOp:
        """Reverse the named axes, given in ascending order."""
        return UOp(Ops.FLIP, (self,), tuple(axes))

    def reduce(self, op: OpDef, n: int) -> UOp:
        """Combine the last ``n`` axes with ``op`` (ADD, MUL or MAX)."""
        return UOp(Ops.REDUCE, (self,), (op, n))

    def index(self, *idx: UOp | int) -> UOp:
        """The slice at the given leading indices; 0 where out of range."""
        nodes = (i if isinstance(i, UOp) else UOp.const(i, i32) for i in idx)
        return UOp(Ops.INDEX, (self, *nodes))

    def detach(self) -> UOp:
        """The same value, through which no gradient flows."""
        return UOp(Ops.STAGE, (self,), "detach")

    def after(self, other: UOp) -> UOp:
        """The same value, computed (again, if need be) once ``other`` is known."""
        return UOp(Ops.STAGE, (self, other), "after")

    # -- inspection -----------------------------------------------------------

    @property
    def value(self) -> Scalar:
        """The value of a CONST."""
        literal: Literal = self.arg
        return literal.value

    def toposort(self) -> list[UOp]:
        """Every node this one depends on, itself last: children first."""
        return toposort([self])

    def __iter__(self) -> Iterator[UOp]:
        raise TypeError("a UOp is not iterable; use .src or .toposort()")

    def __bool__(self) -> bool:
        raise TypeError("a UOp has no truth value; compare nodes with 'is'")

    def __repr__(self) -> str:
        arg = "" if self.arg is None else f", arg={self.arg!r}"
        return (
            f"<{self.op} {self.dtype.name}{list(self.shape)}"
            f" of {len(self.src)} sources{arg}>"
        )


def _alike(a: Any, b: Any) -> bool:
    """Whether equal arguments have equal types: 2.0 is no length because 2 is one."""
    if not isinstance(a, tuple):
        return type(a) is type(b)
    for x, y in zip(a, b, strict=True):
        if x is not y and (type(x) is not type(y) or not _alike(x, y)):
            return False
    return True


def _settle(mine: _Entry, node: UOp) -> UOp:
    """Another thread's equal node that is alive, or else ``node``."""
    with _lock:
        # The key may be free by now, and another thread may take it: ask again.
        entry = _table.setdefault(mine.key, mine)
        existing = None if entry is mine else entry()
        if existing is not None:
            return existing
        _table[mine.key] = mine
        return node


def scalar_dtype(value: Scalar) -> DType:
    """The dtype a bare Python number gets: bool, i32 or f32."""
    if isinstance(value, bool):
        return boolean
    return i32 if isinstance(value, int) else f32

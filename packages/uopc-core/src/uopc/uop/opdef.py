"""What one row of the op table says about an op."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

if TYPE_CHECKING:
    from uopc.dtype import DType
    from uopc.uop.node import UOp

OpKind = Literal["leaf", "elementwise", "movement", "reduce", "select", "loop"]
FieldType = Literal["int", "ints", "pairs", "dtype", "op", "name", "literal"]
Shape = tuple[int, ...]
Infer = Callable[["OpDef", tuple["UOp", ...], Any], "tuple[Any, Shape, DType]"]

Array = np.ndarray[Any, Any]

REQUIRED: Any = object()
_F16 = np.dtype(np.float16)
_NAME = re.compile("[a-z_][a-z0-9_]*")


class Field(NamedTuple):
    """One part of a node's argument, as the text form writes it.

    An argument of one field is that field's value; of several, a tuple.
    Positional fields follow the operands; the others follow a colon as
    ``name=value`` and are left out when equal to ``default``.
    """

    name: str
    type: FieldType
    positional: bool = True
    default: Any = REQUIRED


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class OpDef:
    """One op: a row of the table, and the object that nodes carry.

    Rows compare by identity, so ``match u.op: case Ops.ADD`` works and a
    plugin's op is simply a constant of the plugin's module.

    Attributes:
        name: how the text form spells it; lower case.
        kind: what family it belongs to; decides the stages it is legal in.
        arity: number of sources, or None for any number.
        infer: ``(op, src, arg) -> (normalized arg, shape, dtype)``; raises
            ValueError or TypeError naming the op, the shapes and the dtypes. A
            normalized argument is made of integers, names, dtypes, ops and Literals:
            no floats, of which 0.0 equals -0.0, and no nodes, which are sources.
        doc: one line of documentation.
        arg: the fields of the argument, in order.
        numpy: the meaning, ``(node, *arrays) -> array``. None for loop ops. Called
            by ``compute``, which keeps half types away from it.
        commutative: sources may be swapped without changing any bit.
        exact: the result is fully determined by the types (correctly
            rounded, or integer), so constants may be folded at compile time.
        identity: what leaves the other source unchanged, by dtype: what a
            reduction starts from. REDUCE takes ADD, MUL and MAX only.
        cost: work per element, in units of one addition.
        domain: where inputs for tests are drawn: "real", "positive",
            "nonzero", "unit" (open interval (-1, 1)) or "integer".
        samples: examples of the op, given a placeholder of shape (2, 3): what the
            reference page shows and the tests run. An elementwise op over sources
            of one dtype needs none.
        differentiable: False puts the op on the explicit list of ops through
            which no gradient flows.
        lower: the op written in other ops, ``node -> UOp`` of equal shape and
            dtype; used by a backend that has no spelling for it.
    """

    name: str
    kind: OpKind
    arity: int | None
    infer: Infer
    doc: str
    arg: tuple[Field, ...] = ()
    numpy: Callable[..., Any] | None = None
    commutative: bool = False
    exact: bool = False
    identity: Callable[[DType], bool | int | float] | None = None
    cost: int = 1
    domain: str = "real"
    samples: Callable[[UOp], Sequence[UOp]] | None = None
    differentiable: bool = True
    lower: Callable[[UOp], UOp] | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(OpKind):
            known = ", ".join(get_args(OpKind))
            raise ValueError(f"op {self.name!r}: no kind {self.kind!r}; kinds: {known}")
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"op {self.name!r}: a name has lower-case letters, digits and "
                "underscores, so that the text form can write it"
            )

    def examples(self, x: UOp) -> list[UOp]:
        """The op on ``x``, a placeholder; none if it takes no such type.

        These are the row's samples; an op without any gets a placeholder per source.
        """
        try:
            if self.samples is not None:
                return list(self.samples(x))
            places = range(2 if self.arity is None else self.arity)
            src = tuple(x.param(i, x.dtype, x.shape) for i in places)
            return [type(x)(self, src)]
        except TypeError:
            return []

    def compute(self, node: UOp, *sources: Array) -> Array:
        """The NumPy meaning of ``node``, given the values of its sources.

        Arithmetic on half types is arithmetic in f32, rounded once at the end; a
        sum or product over axes of them is thus accumulated in f32.
        """
        assert self.numpy is not None, f"{self.name} has no NumPy meaning"
        if self.kind not in ("elementwise", "reduce"):
            return np.asarray(self.numpy(node, *sources))
        wide = (x.astype(np.float32) if x.dtype == _F16 else x for x in sources)
        return node.dtype.round(np.asarray(self.numpy(node, *wide)))

    def __copy__(self) -> OpDef:
        return self

    def __deepcopy__(self, memo: object) -> OpDef:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        from uopc.uop.pickling import reduce_op  # not at import, for start-up's sake

        return reduce_op(self)

    def __repr__(self) -> str:
        return f"Ops.{self.name.upper()}"

    __str__ = __repr__

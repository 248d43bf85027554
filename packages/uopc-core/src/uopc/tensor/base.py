"""What every part of Tensor builds on: the node, its data, its gradient."""

from __future__ import annotations

import math
import operator
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Self, Union

import numpy as np

from uopc.composite import broadcast_shape, broadcast_to
from uopc.dtype import DType, as_dtype, boolean, from_numpy, promote, promote_scalar
from uopc.runtime import buffer_data, new_buffer
from uopc.runtime.buffers import copied, empty, filled
from uopc.runtime.capture import capturing, note_change, note_read
from uopc.runtime.origins import record_lines, recording
from uopc.runtime.values import (
    add_live,
    add_pending,
    constant_of,
    held,
    is_state,
    live_tensors,
    lock,
    reads_memory,
    realize_all,
    release_unread,
    wait_until_written,
)
from uopc.tensor.given import from_data, python_scalar
from uopc.uop import Ops, Scalar, UOp

if TYPE_CHECKING:
    from uopc.tensor.tensor import Tensor

Operand = Union["Base", Scalar]


class Base:
    """A node and what belongs to it; see Tensor.

    Attributes:
        uop: the graph that computes the value.
        requires_grad: whether gradients flow to (or through) this tensor.
        grad: the gradient that ``backward`` left here, a lazy tensor, or None.
    """

    __slots__ = ("__weakref__", "_assigned", "_graph", "_home", "_leaf", "_wants",
                 "_was", "grad", "uop")  # fmt: skip
    uop: UOp
    grad: Tensor | None
    _graph: UOp | None  # the graph before the value replaced it
    _home: UOp | None  # the buffer an assignment makes a new version of
    _was: weakref.ref[UOp] | None  # the node of this value before it was computed
    _leaf: bool
    _wants: bool
    _assigned: bool

    def __init__(
        self, data: Any, dtype: Any = None, requires_grad: bool = False
    ) -> None:
        dtype = None if dtype is None else as_dtype(dtype)
        if isinstance(data, UOp):
            node = data if dtype is None else data.cast(dtype)
        elif isinstance(data, Base):
            raise TypeError("this is a Tensor already; use .detach() for a copy")
        else:
            node = from_data(data, dtype)
        self._init(node, False, leaf=True)
        self.requires_grad = requires_grad

    def _init(
        self, node: UOp, requires_grad: bool, leaf: bool, made_of: Sequence[Base] = ()
    ) -> None:
        self.uop, self._wants, self._leaf = node, requires_grad, leaf
        self.grad = self._graph = self._home = self._was = None
        self._assigned = False
        if recording():
            record_lines(node, [t.uop for t in made_of])
        add_live(self)

    def _new(self, node: UOp, *others: Base) -> Self:
        """A tensor computed from this one and others."""
        t = object.__new__(type(self))
        wanted = self._wants or any(o._wants for o in others)
        needed = wanted and node.dtype.is_float
        t._init(node, needed, not needed, (self, *others))
        return t

    # -- gradients ------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to (or through) this tensor."""
        return self._wants

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if wanted and not self.dtype.is_float:
            raise TypeError(
                f"requires_grad: {self.dtype}{list(self.shape)} has no derivative; "
                "cast it to a float type first"
            )
        if not wanted and self._wants and not self._leaf:
            raise RuntimeError(
                "requires_grad: this tensor is computed from one that requires a "
                "gradient; use detach() for its value alone"
            )
        if wanted and not self._wants and self._leaf:
            self._graph = self._was = None  # gradients start here, from now on
            self._become_unique()
        self._wants = wanted

    def _become_unique(self) -> None:
        """Have a node that nothing else is.

        Equal graphs are one node, and a gradient with respect to a node counts all of
        its uses.
        """
        held_by = _view_of(self.uop)
        if held_by.op is not Ops.BUFFER or not (
            set(_references(self)) == _alone()  # so it mostly is, of new data
            or all(t is self or _view_of(t.uop) is not held_by for t in live_tensors())
        ):
            self._copy_later()

    def _copy_later(self) -> None:
        """Have a node that nothing else is, to be computed: it waits for nothing."""
        self.uop = self.uop.after(new_buffer(empty(0, boolean), boolean))

    # -- what it is -----------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.uop.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.uop.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.uop.shape)

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor is a starting point, not the result of others."""
        return self._leaf

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.uop.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles hold the value; only of a leaf whether it is trained."""
        memory = self._memory().copy()
        trained = self._leaf and self._wants
        return _rebuilt, (type(self), memory, self.dtype, self.shape, trained)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __repr__(self) -> str:
        grad = ", requires_grad=True" if self.requires_grad else ""
        if held(self.uop) is None:
            return f"<Tensor {self.dtype}{list(self.shape)} lazy{grad}>"
        text = np.array2string(self.numpy(), prefix="Tensor(", separator=", ")
        return f"Tensor({text}, dtype={self.dtype}{grad})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """What ``np.asarray(tensor)`` calls: the value, copied."""
        if copy is False:
            raise ValueError("a Tensor's value is always copied to a NumPy array")
        return np.asarray(self.numpy(), dtype)

    # -- its value ------------------------------------------------------------

    def realize(self) -> Self:
        """Compute the value now; returns the tensor."""
        realize_all([self])
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value as a NumPy array of its own; of bf16, as f32."""
        values = self.dtype.load(self._memory())
        return copied(values, from_numpy(values.dtype)).reshape(self.shape)

    def _memory(self) -> np.ndarray[Any, Any]:
        """The flat array that holds the value, computed now if it was not."""
        note_read()
        while True:
            realize_all([self])
            with lock:
                node = held(self.uop)  # None if another thread has just assigned it
                if node is not None and not wait_until_written(node):
                    return buffer_data(node)

    def item(self) -> Any:
        """The value of the only element, as a Python number."""
        if self.numel() != 1:
            raise ValueError(f"item() needs one element, got shape {self.shape}")
        return self.numpy().item()

    def tolist(self) -> Any:
        """The value as nested lists of Python numbers."""
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ValueError(
                f"the truth value of a tensor of shape {self.shape} is not defined; "
                "reduce it to one element first"
            )
        return bool(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.numel() == 1 else str(self)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def assign(self, value: Operand) -> Self:
        """Give this tensor a new value, of the same shape and dtype, or a number.

        Everything built from it before keeps the old value. No gradient flows
        through an assignment. A value that is the same constant everywhere becomes
        data at once, so that one plan serves all of them.
        """
        node = self._assigned_node(value)
        note_change(self)
        with lock:
            now = held(self.uop)
            self._home = home = self._home if now is None else now
            self.uop, self._graph, self._was = node, None, None
            self._leaf = self._assigned = True
            # A parameter stays in its slot, by which old losses know it.
            if home is not None and not self._wants and _replaces(node, home):
                self._home = None
                release_unread([] if is_state(self) else [home])
        if self._wants:
            add_pending(self)
            if _is_plain(node) or not reads_memory(node):
                self._copy_later()
        return self

    def _assigned_node(self, value: Operand) -> UOp:
        """The node of a value to be assigned."""
        if isinstance(value, Base):
            node = value.uop
            if node.shape != self.shape or node.dtype is not self.dtype:
                raise ValueError(
                    f"assign: cannot put {node.dtype}{list(node.shape)} into "
                    f"{self.dtype}{list(self.shape)}; cast or reshape the value"
                )
        else:
            try:
                number = from_data(python_scalar(value), self.dtype)
            except (TypeError, OverflowError) as error:
                raise explained(error, "assign", self) from None
            node = broadcast_to(number, self.shape)
        constant = None if capturing() is not None else constant_of(node)
        if constant is None:
            return node
        data = new_buffer(filled(self.numel(), constant), self.dtype)
        return data.reshape(self.shape)

    def apply(self, function: Callable[..., UOp], *others: Base) -> Self:
        """The tensor of ``function(node, *other nodes)``.

        This is how a function that is not a method, such as a plugin's op, joins in:
        gradients flow through its result as through that of any method. It neither
        broadcasts nor promotes: the nodes have the tensors' own shapes and dtypes.
        Raises TypeError for an argument that is no Tensor or a result that is no UOp.
        """
        for i, other in enumerate(others, 1):
            if not isinstance(other, Base):
                raise TypeError(
                    f"apply: argument {i} is a {type(other).__name__}; expected a "
                    "Tensor, or close over it"
                )
        node = function(self.uop, *(t.uop for t in others))
        if not isinstance(node, UOp):
            raise TypeError(f"apply: the function gave {node!r}; expected a UOp")
        return self._new(node, *others)

    def _nodes(self) -> list[UOp]:
        """The nodes that stand for this value in graphs.

        Two where graphs built before the value was computed are still alive.
        """
        was = None if self._was is None else self._was()
        return [self.uop] if was is None or was is self.uop else [self.uop, was]

    # -- helpers of the parts -------------------------------------------------

    def _pair(self, other: Operand, what: str) -> tuple[UOp, UOp, tuple[Base, ...]]:
        """Both operands, promoted and broadcast, and the tensors among them.

        ``what`` is the operation's name, for errors.
        """
        if isinstance(other, Base):
            try:
                dtype = promote(self.dtype, other.dtype)
                shape = broadcast_shape(self.shape, other.shape)
            except (TypeError, ValueError) as error:
                raise explained(error, what, self, other) from None
            a, b = (broadcast_to(t.uop.cast(dtype), shape) for t in (self, other))
            return a, b, (self, other)
        try:
            other = python_scalar(other)
        except TypeError as error:
            raise explained(error, what, self) from None
        a = self.uop.cast(promote_scalar(self.dtype, other))
        return a, a.const_like(other), (self,)

    def _axes(self, axis: int | Sequence[int] | None) -> list[int]:
        """Axis numbers counted from the front; all of them for None."""
        if axis is None:
            return list(range(self.ndim))
        given = list(axis) if isinstance(axis, Sequence) else [axis]
        axes = sorted(self._axis(a) for a in given)
        if len(set(axes)) < len(axes):
            raise ValueError(f"an axis appears twice in {axis}, shape {self.shape}")
        return axes

    def _axis(self, axis: int, extra: int = 0) -> int:
        rank, axis = self.ndim + extra, operator.index(axis)
        if not -rank <= axis < rank:
            raise IndexError(f"axis {axis} is out of range for shape {self.shape}")
        return axis % rank

    def _float(self) -> UOp:
        """The node, cast to f32 if it is an integer or bool."""
        return self.uop.cast(promote_scalar(self.dtype, 1.0))


def _rebuilt(
    kind: type[Base],
    memory: np.ndarray[Any, Any],
    dtype: DType,
    shape: tuple[int, ...],
    requires_grad: bool,
) -> Base:
    """The tensor that ``__reduce__`` took apart, in memory of its own."""
    flat = copied(memory, dtype)
    return kind(new_buffer(flat, dtype).reshape(shape), requires_grad=requires_grad)


def explained(error: Exception, what: str, *given: Base | UOp) -> Exception:
    """The error again, with the operation and what it was given."""
    got = ", ".join(f"{t.dtype}{list(t.shape)}" for t in given)
    return type(error)(f"{what}({got}): {error}")


def _view_of(u: UOp) -> UOp:
    """What ``u`` is a mere view of, in the end."""
    while u.op.kind == "movement":
        u = u.src[0]
    return u


def _references(t: Base) -> Iterator[int]:
    """How many references there are to a tensor's node, and to what it is a view of."""
    u = t.uop
    yield sys.getrefcount(u)
    while u.op.kind == "movement":
        u = u.src[0]
        yield sys.getrefcount(u)


@cache
def _alone() -> set[int]:
    """The references to nodes of data that one tensor has, and nothing else.

    They are counted, as what is counted besides differs between versions of Python.
    """
    return set(_references(Base(np.zeros((1, 1), np.float32))))


def _replaces(node: UOp, home: UOp) -> bool:
    """Whether a value is in other memory already; not in a call that may be undone."""
    return capturing() is None and held(node) not in (None, home)


def _is_plain(u: UOp) -> bool:
    """Whether ``u`` is a mere view of a constant or a buffer."""
    return _view_of(u).op.kind == "leaf"

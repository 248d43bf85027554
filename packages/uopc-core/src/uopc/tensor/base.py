"""What every part of Tensor builds on: the node, its data, its gradient."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, Union

import numpy as np

from uopc.composite import broadcast_shape, broadcast_to, full
from uopc.dtype import DType, from_numpy, promote, promote_scalar
from uopc.runtime import buffer_data, new_buffer, next_version, realize, release
from uopc.runtime.buffers import empty
from uopc.uop import Ops, Scalar, UOp, scalar_dtype, toposort

if TYPE_CHECKING:
    from uopc.tensor.tensor import Tensor

Operand = Union["Base", Scalar]

# Every live tensor, so that an update knows who still reads the old value.
_live: weakref.WeakSet[Base] = weakref.WeakSet()
# Nodes whose values have been computed, and the buffers that hold them.
_computed: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()


class Base:
    """A node and what belongs to it; see Tensor.

    Attributes:
        uop: the graph that computes the value.
        requires_grad: whether gradients flow to (or through) this tensor.
        grad: the gradient that ``backward`` left here, a lazy tensor, or None.
    """

    __slots__ = ("__weakref__", "_assigned", "_graph", "_home", "_leaf", "_was",
                 "grad", "requires_grad", "uop")  # fmt: skip
    uop: UOp
    requires_grad: bool
    grad: Tensor | None
    _graph: UOp | None  # the graph before the value replaced it
    _home: UOp | None  # the buffer an assignment makes a new version of
    _was: weakref.ref[UOp] | None  # the node of this value before it was computed
    _leaf: bool
    _assigned: bool

    def __init__(
        self, data: Any, dtype: DType | None = None, requires_grad: bool = False
    ) -> None:
        if isinstance(data, UOp):
            node = data if dtype is None else data.cast(dtype)
        elif isinstance(data, Base):
            raise TypeError("this is a Tensor already; use .detach() for a copy")
        else:
            node = _from_data(data, dtype)
        self._init(node, requires_grad, leaf=True)

    def _init(self, node: UOp, requires_grad: bool, leaf: bool) -> None:
        self.uop, self.requires_grad, self._leaf = node, requires_grad, leaf
        self.grad = self._graph = self._home = self._was = None
        self._assigned = False
        _live.add(self)

    def _new(self, node: UOp, *others: Base) -> Self:
        """A tensor computed from this one and others."""
        t = object.__new__(type(self))
        needed = self.requires_grad or any(o.requires_grad for o in others)
        t._init(node, needed, leaf=not needed)
        return t

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

    # -- its value ------------------------------------------------------------

    def realize(self) -> Self:
        """Compute the value now; returns the tensor."""
        realize_all([self])
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value as a NumPy array of its own."""
        realize_all([self])
        node = held(self.uop)
        assert node is not None
        return buffer_data(node).reshape(self.shape).copy()

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

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def assign(self, value: Base) -> Self:
        """Give this tensor a new value, of the same shape and dtype.

        Everything built from it before keeps the old value. No gradient flows
        through an assignment.
        """
        if value.shape != self.shape or value.dtype is not self.dtype:
            raise ValueError(
                f"assign: cannot put {value.dtype}{list(value.shape)} into "
                f"{self.dtype}{list(self.shape)}; cast or reshape the value"
            )
        now = held(self.uop)
        self._home = self._home if now is None else now
        self.uop, self._graph, self._was = value.uop, None, None
        self._leaf = self._assigned = True
        return self

    def apply(self, function: Callable[..., UOp], *others: Base) -> Self:
        """The tensor of ``function(node, *other nodes)``.

        This is how a function that is not a method, such as a plugin's op, joins in:
        gradients flow through its result as through that of any method.
        """
        return self._new(function(self.uop, *(t.uop for t in others)), *others)

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
                raise type(error)(
                    f"{what}({self.dtype}{list(self.shape)}, "
                    f"{other.dtype}{list(other.shape)}): {error}"
                ) from None
            a, b = (broadcast_to(t.uop.cast(dtype), shape) for t in (self, other))
            return a, b, (self, other)
        if not isinstance(other, (bool, int, float)):
            other = _python_scalar(other)
        a = self.uop.cast(promote_scalar(self.dtype, other))
        return a, a.const_like(other), (self,)

    def _axes(self, axis: int | Sequence[int] | None) -> list[int]:
        """Axis numbers counted from the front; all of them for None."""
        if axis is None:
            return list(range(self.ndim))
        axes = [axis] if isinstance(axis, int) else list(axis)
        return sorted({self._axis(a) for a in axes})

    def _axis(self, axis: int, extra: int = 0) -> int:
        rank = self.ndim + extra
        if not -rank <= axis < rank:
            raise IndexError(f"axis {axis} is out of range for shape {self.shape}")
        return axis % rank

    def _float(self) -> UOp:
        """The node, cast to f32 if it is an integer or bool."""
        return (
            self.uop.cast(promote_scalar(self.dtype, 1.0))
            if (not self.dtype.is_float)
            else self.uop
        )


def _python_scalar(value: Any) -> Scalar:
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("wrap the NumPy array in a Tensor first")
    try:
        return value.item()  # type: ignore[no-any-return]
    except AttributeError:
        raise TypeError(
            f"expected a Tensor or a number, got {type(value).__name__}"
        ) from None


def _from_data(data: Any, dtype: DType | None) -> UOp:
    """A node for numbers, nested lists or a NumPy array, which is copied."""
    if isinstance(data, (bool, int, float)):
        return UOp.const(data, dtype or scalar_dtype(data))
    array = np.asarray(data)
    if dtype is None and not isinstance(data, (np.ndarray, np.generic)):
        # Lists of Python numbers take the types of bare numbers.
        kinds = {"i": np.int32, "f": np.float32}
        array = array.astype(kinds.get(array.dtype.kind, array.dtype))
    wanted = dtype or from_numpy(array.dtype)
    flat = empty(array.size, wanted)
    flat[:] = array.reshape(-1)
    return new_buffer(flat).reshape(array.shape)


def held(u: UOp) -> UOp | None:
    """The buffer that holds the value of ``u``, if it has been computed."""
    while u.op is Ops.RESHAPE and u not in _computed:
        u = u.src[0]
    return u if u.op is Ops.BUFFER else _computed.get(u)


def realize_all(tensors: Iterable[Base]) -> None:
    """Compute several tensors together: one plan, one native call.

    The state of the random generator is brought up to date with them.
    """
    wanted = [t for t in tensors if held(t.uop) is None]
    pending = [t for t in _state if held(t.uop) is None]
    if not wanted and not pending:
        return
    group = [*wanted, *pending]
    arrays = realize([t.uop for t in group], dict(_computed))
    replaced: list[UOp] = []
    for t, array in zip(group, arrays, strict=True):
        _settle(t, array, replaced)
    _release_unread(replaced)


# Tensors whose updates are realized along with whatever is: random counters.
_state: list[Base] = []


def _settle(t: Base, array: np.ndarray[Any, Any], replaced: list[UOp]) -> None:
    """Bind a computed value to its tensor."""
    node = t.uop
    buf = held(node)
    if buf is None:
        home = t._home
        buf = new_buffer(array) if home is None else next_version(home, array)
        _computed[node] = buf
    if t._home is not None:
        replaced.append(t._home)
        t._home = None
    if t._leaf:
        # The value replaces the graph, so that a loop that feeds on itself does
        # not grow; ``backward`` still finds the graph of this one step.
        t._graph = None if t._assigned or t.requires_grad else node
        t._was = weakref.ref(node)
        t.uop = buf.reshape(t.shape)


def _release_unread(replaced: list[UOp]) -> None:
    """Free the old data of assigned tensors, unless someone still reads it."""
    if not replaced:
        return
    readers = [t.uop for t in _live if held(t.uop) is None]
    holders = {held(t.uop) for t in _live}
    read = set(toposort(readers, lambda u: () if u in _computed else u.src))
    for buf in replaced:
        if buf not in read and buf not in holders:
            release(buf, "its tensor has been assigned a new value since")


def constant(shape: Sequence[int], value: Scalar, dtype: DType) -> UOp:
    """A node filled with one value."""
    return full(shape, value, dtype)

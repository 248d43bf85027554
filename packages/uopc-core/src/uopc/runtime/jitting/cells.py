"""The memory of a captured call: where programs read and write, call by call.

What a program reads and writes are cells. A cell is bound at every call: to the memory
of an argument, of a tensor that the function uses (its state), or of a new result.
State that the program updates in place stays where it is; then nothing is to be done
for it but to make sure that nobody else sees its memory.
"""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import attrgetter, is_
from sys import getrefcount
from typing import Any

import numpy as np

from uopc.dtype import DType, f32
from uopc.runtime.backends import Program
from uopc.runtime.buffers import buffer_data, copied, empty, new_buffer, next_version
from uopc.runtime.counters import count
from uopc.runtime.values import Holder, cut, held, lock, realize_all
from uopc.uop import Ops, UOp

Array = np.ndarray[Any, Any]

# Results of earlier calls that are kept to be used again.
SPARE = 2


class Cell:
    """A buffer of one or more programs, whose memory may move from call to call."""

    __slots__ = ("uses",)

    def __init__(self) -> None:
        self.uses: list[tuple[Any, int]] = []  # tables of programs, and places there

    def put(self, address: Any) -> None:
        """Tell the programs where the memory is."""
        for table, i in self.uses:
            table[i] = address

    def memory(self) -> Array:
        """The array that it is now."""
        raise NotImplementedError


class Fixed(Cell):
    """Memory that stays: constants of the function, and results that nobody sees."""

    __slots__ = ("array", "node")

    def __init__(self, array: Array, node: UOp | None = None) -> None:
        super().__init__()
        self.array, self.node = array, node

    def memory(self) -> Array:
        """The array."""
        return self.array


class Argument(Cell):
    """The memory of a tensor among the arguments; let go after the call."""

    __slots__ = ("_address", "_former", "_former_address", "_last", "view")

    def __init__(self) -> None:
        super().__init__()
        self.view: UOp | None = None  # while there is a call
        # Results of one call are often arguments of the next, and then there are two
        # pieces of memory that take turns.
        self._last = self._former = _gone
        self._address: Any = None
        self._former_address: Any = None

    @property
    def node(self) -> UOp | None:
        """The buffer."""
        return None if self.view is None else held(self.view)

    def memory(self) -> Array:
        """What the argument of this call has."""
        node = self.node
        assert node is not None
        return buffer_data(node)

    def knows(self, view: UOp) -> bool:
        """Whether this was the argument lately: then the programs know where it is."""
        if self._last() is view:
            return True
        if self._former() is not view:
            return False
        # An interrupt may come anywhere: what is noted must be true by then.
        former, self._last = self._last, _gone
        self.put(self._former_address)
        self._address, self._former_address = self._former_address, self._address
        self._former, self._last = former, self._former
        return True

    def bind(self, program: Program | None) -> None:
        """Find the memory of an argument that is not known."""
        assert self.view is not None
        address = address_of(program, self.memory())
        former, self._last, self._former = self._last, _gone, _gone
        self.put(address)
        self._former_address, self._address = self._address, address
        self._former, self._last = former, weakref.ref(self.view)


def _gone() -> Any:
    """A weak reference to nothing."""
    return None


class State(Cell):
    """The memory of a tensor that the function uses apart from its arguments.

    Args:
        t: the tensor.
        spec: what it must be, as `spec_of` gives it.
        of_grad: mean the gradient that it has at the time instead.
        twins: tensors that share the memory, and must do so at every call.
    """

    __slots__ = (
        "_array", "_node", "is_written", "of_grad", "ref", "spec", "twins", "view"
    )  # fmt: skip

    def __init__(
        self,
        t: Holder,
        spec: tuple[Any, ...],
        of_grad: bool = False,
        twins: Sequence[Holder] = (),
    ) -> None:
        super().__init__()
        self.ref, self.of_grad = weakref.ref(t), of_grad
        self.twins = [weakref.ref(x) for x in twins]
        self.is_written = False
        self.spec = spec
        # Weak, since it is by their counts of references that others are noticed.
        self.view: Callable[[], UOp | None] = _gone
        self._node: Callable[[], UOp | None] = _gone
        self._array: Callable[[], Array | None] = _gone

    def tensor(self) -> Holder | None:
        """The tensor, if it still exists."""
        t = self.ref()
        return t.grad if self.of_grad and t is not None else t

    def memory(self) -> Array:
        """What the tensor has."""
        array = self._array()
        assert array is not None
        return array

    @property
    def node(self) -> UOp | None:
        """The buffer; None before the first call."""
        return self._node()

    @property
    def ends(self) -> tuple[Callable[[], Any], ...]:
        """What others may refer to: the view, its buffer and the memory."""
        return self.view, self._node, self._array

    def bind(self, t: Holder, program: Program | None, busy: bool = False) -> None:
        """Find the memory; if it will be written, have it for this tensor alone.

        What is ``busy`` is being read: the tensor leaves it in any case.
        """
        if held(t.uop) is None:
            realize_all([t])
        if self.is_written:
            self._note(t, self._memory_of(t))
            own = t.uop.op is Ops.RESHAPE and t.uop.src[0].op is Ops.BUFFER
            if busy or not own or counts(self.ends) != counts_alone():
                _move(t)
            t._graph = t._was = t._home = None
            t._leaf = t._assigned = True
        self.view = _gone  # until the programs know
        array = self._memory_of(t)
        self.put(address_of(program, array))
        self._note(t, array)

    def follow(self, view: UOp, entry: Entry) -> None:
        """Go on with the result that is the tensor's new value."""
        self.view = _gone
        self.put(entry.address)
        self._node, self._array = weakref.ref(entry.node), weakref.ref(entry.array)
        self.view = weakref.ref(view)

    def _memory_of(self, t: Holder) -> Array:
        node = held(t.uop)
        assert node is not None
        return buffer_data(node)

    def _note(self, t: Holder, array: Array) -> None:
        node = held(t.uop)
        assert node is not None
        self._node, self._array = weakref.ref(node), weakref.ref(array)
        self.view = weakref.ref(t.uop)


def spec_of(t: Holder) -> tuple[Any, ...]:
    """What a program was made for, of a tensor: shape, dtype, whether it is trained."""
    return t.uop.shape, t.uop.dtype, t.requires_grad


def other_spec(t: Holder, spec: tuple[Any, ...]) -> str:
    """In words how a tensor differs from what a program was made for."""
    return f"has {_words(spec_of(t))} and had {_words(spec)}"


def _words(spec: tuple[Any, ...]) -> str:
    shape, dtype, wants = spec
    return f"{dtype}{list(shape)}" + (", requires_grad" if wants else "")


def _move(t: Holder) -> None:
    """Move a tensor into memory of its own; who reads the old one goes on doing so."""
    node = held(t.uop)
    assert node is not None
    old = buffer_data(node)
    array = copied(old, node.dtype)
    count(bytes_allocated=array.nbytes)
    with lock:
        t.uop = next_version(node, array).reshape(t.shape)


def counts(refs: Iterable[Callable[[], Any]]) -> list[int]:
    """How many references there are to what weak references refer to."""
    return list(map(getrefcount, map(operator.call, refs)))


@cache
def counts_alone() -> list[int]:
    """Those of the ends of a state, if no one has it but one tensor."""

    class Example:
        uop: UOp

    t = Example()
    t.uop = new_buffer(empty(1, f32)).reshape((1,))
    ref = weakref.ref
    return counts([ref(t.uop), ref(t.uop.src[0]), ref(buffer_data(t.uop.src[0]))])


class Entry:
    """One piece of memory for a result, with the tensors that show it."""

    __slots__ = (
        "address", "array", "at_rest", "node", "shown", "shown_views", "tensors",
        "things", "views"
    )  # fmt: skip

    def __init__(self, cell: Made, program: Program | None) -> None:
        self.array = empty(cell.size, cell.dtype)
        self.address = address_of(program, self.array)
        self.node = new_buffer(self.array, cell.dtype)
        self.views = [self.node.reshape(shape) for shape, _, _ in cell.parts]
        self.tensors = [
            None if kind is None else tensor_of(kind, view)
            for view, (_, kind, _) in zip(self.views, cell.parts, strict=True)
        ]
        if any(is_cut for _, _, is_cut in cell.parts):
            cut.add(self.node)
        pairs = zip(self.tensors, self.views, strict=True)
        self.shown_views = [view for t, view in pairs if t is not None]
        self.shown = [t for t in self.tensors if t is not None]
        self.things = [self.array, self.node, *self.views, *self.shown]

    def settle(self) -> Entry:
        """Take note that nobody has anything of it, not even a local variable."""
        self.at_rest = list(map(getrefcount, self.things))
        return self

    def is_free(self) -> bool:
        """Whether nobody else has anything of it."""
        return are_free([self])


_uop, _wants, _grad = map(attrgetter, ("uop", "_wants", "grad"))


def are_free(entries: Sequence[Entry]) -> bool:
    """Whether nobody else has anything of some entries, nor has changed the tensors.

    There are many in a training step, so the loops are not Python's.
    """
    chain = itertools.chain.from_iterable
    if list(map(getrefcount, chain([e.things for e in entries]))) != list(
        chain([e.at_rest for e in entries])
    ):
        return False
    shown = [e.shown for e in entries]
    views = chain([e.shown_views for e in entries])
    return (
        all(map(is_, map(_uop, chain(shown)), views))
        and not any(map(_wants, chain(shown)))
        and all(map(is_, map(_grad, chain(shown)), itertools.repeat(None)))
    )


class Made(Cell):
    """A result that somebody gets to see, in memory that is nobody's so far.

    Attributes:
        parts: in which shapes it is shown; as a tensor of which class, or None for the
            new value of one that exists; and whether gradients would have gone through.
    """

    __slots__ = ("dtype", "entry", "parts", "size", "spare")

    def __init__(self, size: int, dtype: DType) -> None:
        super().__init__()
        self.size, self.dtype = size, dtype
        self.parts: list[tuple[tuple[int, ...], type | None, bool]] = []
        self.spare: list[Entry] = []
        self.entry: Entry | None = None

    @property
    def now(self) -> Entry:
        """The memory of this call."""
        assert self.entry is not None
        return self.entry

    def memory(self) -> Array:
        """What the results of this call have."""
        return self.now.array

    def bind(self, program: Program | None) -> None:
        """Take memory that is free, or more of it."""
        for entry in self.spare:  # what was not used for longest is first
            if entry.is_free():
                break
        else:
            entry = Entry(self, program).settle()
            count(bytes_allocated=entry.array.nbytes)
            self.spare = [*self.spare[1 - SPARE :], entry]
        self._use(entry)

    def turn(self) -> None:
        """Take the memory that was not used for longest, which is known to be free."""
        self._use(self.spare[0])

    def _use(self, entry: Entry) -> None:
        if entry is not self.entry:
            self.entry = None
            if self.spare[-1] is not entry:
                self.spare.remove(entry)
                self.spare.append(entry)
            self.put(entry.address)
            self.entry = entry


def tensor_of(kind: type, view: UOp) -> Any:
    """A tensor of a class, whose value is a node's."""
    t: Any = object.__new__(kind)
    t._init(view, False, leaf=True)
    return t


def address_of(program: Program | None, array: Array) -> Any:
    """What goes into the table of a program for an array."""
    find = getattr(program, "address", None)
    return None if find is None else find(array)

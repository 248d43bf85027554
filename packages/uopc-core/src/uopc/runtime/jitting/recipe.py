"""All that a captured call does, as data: runs, arguments, effects, results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from uopc.runtime.backends import Program
from uopc.runtime.buffers import buffer_data, copied, new_buffer
from uopc.runtime.jitting.cells import (
    Argument,
    Cell,
    Fixed,
    Made,
    State,
    address_of,
    tensor_of,
)
from uopc.runtime.jitting.surroundings import Surroundings
from uopc.runtime.run import Run, call_program
from uopc.runtime.tree import Structure
from uopc.runtime.values import Holder, cut, held
from uopc.uop import UOp


class Call:
    """One run of a program, over cells."""

    __slots__ = ("_cells", "_run", "_written", "native", "table")

    def __init__(self, run: Run, cells: Sequence[Cell]) -> None:
        assert run.runnable is not None
        self._run, self._cells = replace(run, inputs=(), arrays=()), cells
        places = range(len(run.inputs), len(cells))
        self._written = [i for i in places if isinstance(cells[i], State)]
        program = run.runnable.program
        make = getattr(program, "table", None)
        self.native: Callable[[Any], Any] = self.plainly
        self.table: Any = None
        if make is None:
            return
        self.native, self.table = make(len(cells))
        for i, cell in enumerate(cells):
            cell.uses.append((self.table, i))
            if isinstance(cell, Fixed):
                self.table[i] = address_of(program, cell.array)

    @property
    def program(self) -> Program:
        """What runs."""
        assert self._run.runnable is not None
        return self._run.runnable.program

    def plainly(self, _: Any = None) -> None:
        """Run on a list of arrays; kernel by kernel, if somebody watches."""
        arrays = [cell.memory() for cell in self._cells]
        call_program(replace(self._run, arrays=arrays), self._written)


class Moved:
    """A copy of memory between runs."""

    __slots__ = ("native", "table")
    program: Program | None = None

    def __init__(self, old: Cell, new: Cell) -> None:
        self.table = (old, new)
        self.native = self.plainly

    def plainly(self, _: Any = None) -> None:
        """Copy."""
        old, new = self.table
        new.memory()[:] = old.memory()


@dataclass(frozen=True)
class Expected:
    """What an argument was in the captured call: a tensor, or something else.

    Attributes:
        name: what to call it.
        value: what is no tensor, to be the same again.
        ref: a weak reference to that, if it can have one.
        kind: the class of the tensor; None for what is none.
        spec: shape, dtype, and whether it requires a gradient.
        cell: where programs read it; None if they do not.
        shares: the state or the earlier argument whose memory it has as well.
        only: the tensor that it must be, since the call changes it.
        is_bare: whether it has no gradient.
    """

    name: str
    value: Any = None
    ref: Callable[[], Any] | None = None
    kind: Any = None
    spec: tuple[Any, ...] = ()
    cell: Argument | None = None
    shares: State | int | None = None
    only: Callable[[], Any] | None = None
    is_bare: bool = True


@dataclass(frozen=True)
class Source:
    """Where the value of a tensor comes from after a call: a cell, in this shape.

    Attributes:
        part: which of the parts of a `Made` cell.
        kind: the class of a tensor that is made to show the memory of another cell.
        is_cut: whether gradients would have gone through it.
    """

    cell: Cell
    shape: tuple[int, ...] = ()
    part: int = 0
    kind: type | None = None
    is_cut: bool = False

    def view(self) -> UOp:
        """The node that stands for the value."""
        cell = self.cell
        if isinstance(cell, Made):
            return cell.now.views[self.part]
        node: UOp | None = getattr(cell, "node", None)
        assert node is not None
        return node.reshape(self.shape)

    def tensor(self) -> Any:
        """A tensor of the value."""
        if isinstance(self.cell, Made):
            return self.cell.now.tensors[self.part]
        assert self.kind is not None
        return shown(self.kind, self.view(), self.is_cut)


def shown(kind: type, view: UOp, is_cut: bool) -> Any:
    """A tensor of a value that others have as well.

    If a gradient would have gone through, it has a buffer of its own, to say so.
    """
    if is_cut:
        node = held(view)
        assert node is not None
        node = new_buffer(copied(buffer_data(node), node.dtype), node.dtype)
        cut.add(node)
        view = node.reshape(view.shape)
    return tensor_of(kind, view)


@dataclass(frozen=True)
class Effect:
    """What a call does to a tensor that was there before: a new value, or gradient."""

    ref: Callable[[], Holder | None]
    source: Source | None  # None: the gradient is gone
    of_grad: bool = False
    state: State | None = None  # the cell of its former value, if that is read


@dataclass
class Recipe:
    """All that a call does, as `trace` has found it.

    Attributes:
        fingerprint: equal for calls that compute the same: the plans, where they read,
            checksums of the tensors that the function makes of NumPy's data, and where
            effects and results come from.
        distinct: how many different tensors there are among the arguments.
        own: the tensors that it sees or changes apart from its arguments, by identity.
        seen: the tensors that it can see, ...
        wanted: whether they require a gradient, and ...
        bare: whether they have none.
    """

    fingerprint: tuple[Any, ...]
    structure: Structure
    expected: list[Expected]
    surroundings: Surroundings
    states: list[State]
    distinct: int
    own: frozenset[int]
    seen: list[Holder]
    wanted: list[bool]
    bare: list[bool]
    made: list[Made]
    calls: list[Call | Moved]
    effects: list[Effect]
    results: list[Any]  # Source, the number of an argument's leaf, or a Constant
    result_structure: Structure


@dataclass(frozen=True)
class Constant:
    """A result that is no new tensor."""

    value: Any

"""From the runs of a call to what a replay does: a cell for each array.

Arrays are told apart by their identity. What is updated in place has one array, before
and after; what shares memory is bound together, and must share it at every call.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from uopc.dtype import DType
from uopc.runtime.buffers import buffer_data, empty
from uopc.runtime.capture import Capture
from uopc.runtime.jitting.cells import Argument, Cell, Fixed, Made, State, spec_of
from uopc.runtime.jitting.places import Places
from uopc.runtime.jitting.recipe import (
    Call,
    Constant,
    Effect,
    Expected,
    Moved,
    Recipe,
    Source,
)
from uopc.runtime.jitting.snapshot import Before, Snapshot
from uopc.runtime.jitting.surroundings import Surroundings
from uopc.runtime.tree import Structure
from uopc.runtime.values import Holder, held
from uopc.uop import UOp

Array = np.ndarray[Any, Any]

# Results that are what they are, and hold nothing that a call has made.
_PLAIN = (int, float, complex, str, bytes, type(None), type, Enum, DType, np.generic)


@dataclass(frozen=True)
class Given:
    """What a call was given, and what it gave.

    Attributes:
        structure: how the arguments are nested.
        names: what to call each of their leaves.
        leaves: the leaves.
        surroundings: all else that the function can see.
        results: the leaves of the result.
        result_structure: how they are nested.
    """

    structure: Structure
    names: list[str]
    leaves: list[Any]
    surroundings: Surroundings
    results: list[Any]
    result_structure: Structure


def recipe_of(
    capture: Capture, before: Snapshot, given: Given, is_tensor: Callable[[Any], bool]
) -> Recipe:
    """All that a call did; it is of no use if ``capture`` has met trouble."""
    change = given.surroundings.change()
    if change:
        capture.refuse(
            f"it changes what Python sees, and a replay would not: {change}; keep "
            "numbers that change in 0-d Tensors, and return what is made"
        )
    other = before.changed_by_others()
    if other is not None:
        capture.refuse(
            f"a tensor {other.uop.dtype}{list(other.shape)} that it can see was given "
            "another value meanwhile, by another thread or in place"
        )
    if not given.surroundings.whole:
        capture.refuse(
            "it can see too many containers to watch them; have it see what it needs"
        )
    for step in capture.steps:
        used = before.used(step.roots)
        if used is not None:
            capture.refuse(
                f"it uses a tensor {used.uop.dtype}{list(used.shape)} that stands for "
                "a graph built outside of it; detach() it, or build it inside"
            )
    arrays = _Arrays(capture, before, given, is_tensor)
    return arrays.recipe()


class _Arrays:
    """The arrays of a call, by identity, and their cells."""

    def __init__(
        self,
        capture: Capture,
        before: Snapshot,
        given: Given,
        is_tensor: Callable[[Any], bool],
    ) -> None:
        self._capture, self._before, self._given = capture, before, given
        self._is_tensor = is_tensor
        self._changed, self._regraded = before.changed(), before.regraded()
        self._cells: dict[int, Cell] = {}
        self._states: list[State] = []
        self._sources: dict[int, Source] = {}  # by tensor
        # Tensors among the arguments that must be the same again: the call changes
        # them, or the function can see them by another way.
        own = {id(b.t) for b in (*self._changed, *self._regraded)}
        self._own = own | set(given.surroundings.leaves)
        self._rank = {i: n for n, i in enumerate((*given.surroundings.leaves, *own))}
        tensors = [x for x in given.leaves if is_tensor(x)]
        self._free = {
            id(x) for x in tensors if id(x) not in self._own and x.grad is None
        }
        # Who has which array when the call begins.
        self._arguments = {id(before.all[i].array) for i in self._free}
        self._holders: dict[int, list[Before]] = {}
        for b in before.all.values():
            if b.array is not None and id(b.t) not in self._free:
                self._holders.setdefault(id(b.array), []).append(b)
        self._owners = {
            id(b.grad): b.t for b in before.all.values() if b.grad is not None
        }
        self._places = places = Places(capture, before, self._holders, self._arguments)
        after = [(t, a) for t in self._after() if (a := _array(t)) is not None]
        for b in self._changed:
            now = _array(b.t)
            if now is not None:
                others = {id(a) for t, a in after if t is not b.t}
                places.join(b, now, others)
        places.note_runs()
        self._visible = {places.key(a) for _, a in after}

    def _after(self) -> list[Holder]:
        """The tensors that show values of the call when it is over."""
        grads = [b.t.grad for b in self._regraded if b.t.grad is not None]
        results = filter(self._is_tensor, self._given.results)
        return [*results, *(b.t for b in self._changed), *grads]

    # -- cells ----------------------------------------------------------------

    def _cell(self, array: Array, node: UOp | None = None) -> Cell:
        """The cell of an array; ``node`` is the buffer that it is the value of."""
        key = self._places.key(array)
        if key not in self._cells:
            self._cells[key] = self._new_cell(key, array, node)
        return self._cells[key]

    def _new_cell(self, key: int, array: Array, node: UOp | None) -> Cell:
        if key in self._holders:
            return self._new_state(key)
        if key in self._arguments:
            return Argument()
        if key not in self._places.computed:
            return Fixed(array, node)
        dtype = self._places.computed[key]
        if key in self._visible:
            return Made(array.size, dtype)
        # The captured one may be the value of a node that somebody else still has.
        return Fixed(empty(array.size, dtype))

    def _new_state(self, key: int) -> State:
        """The cell of what tensors had that are no arguments."""
        first = self._holder(key)
        others = [b for b in self._holders[key] if b is not first]
        owner = self._owners.get(id(first.t))
        state = State(
            first.t if owner is None else owner,
            first.spec,
            owner is not None,
            [b.t for b in others if id(b.t) in self._own],
        )
        state.is_written = key in self._places.written
        if state.is_written and others:
            self._capture.refuse("it overwrites memory that tensors share")
        self._states.append(state)
        return state

    def _holder(self, key: int) -> Before:
        """The tensor that stands for an array: one that the function can see, if any.

        A gradient is found through its tensor, for another may be there next time.
        """
        last = len(self._rank)
        return min(
            self._holders[key],
            key=lambda b: (id(b.t) in self._owners, self._rank.get(id(b.t), last)),
        )

    def _source(self, t: Holder) -> Source:
        """Where the value of a tensor comes from."""
        if id(t) in self._sources:
            return self._sources[id(t)]
        node = held(t.uop)
        assert node is not None
        cell = self._cell(buffer_data(node), node)
        kind = None if t in self._before else type(t)
        is_cut = kind is not None and t.requires_grad
        part = 0
        if isinstance(cell, Made):
            part = len(cell.parts)
            cell.parts.append((t.shape, kind, is_cut))
        source = Source(cell, t.shape, part, kind, is_cut)
        self._sources[id(t)] = source
        return source

    # -- the parts of the recipe ----------------------------------------------

    def recipe(self) -> Recipe:
        """All of it."""
        given = self._given
        effects = self._effects()
        results = [self._result(x) for x in given.results]
        calls = self._calls()
        states = {id(s.ref()): s for s in self._states if not s.of_grad}
        effects = [
            e if e.of_grad else replace(e, state=states.get(id(e.ref())))
            for e in effects
        ]
        expected = self._expected()
        made = [c for c in self._cells.values() if isinstance(c, Made)]
        seen = {**given.surroundings.leaves, **{id(b.t): b.t for b in self._regraded}}
        was = [self._before.all[i] for i in seen]
        tensors = {id(x) for x in given.leaves if self._is_tensor(x)}
        return Recipe(
            fingerprint=self._fingerprint(),
            structure=given.structure,
            expected=expected,
            surroundings=given.surroundings,
            states=self._states,
            distinct=len(tensors),
            own=frozenset(self._own - (tensors - self._free)),
            seen=list(seen.values()),
            wanted=[b.spec[2] for b in was],
            bare=[b.grad is None for b in was],
            made=made,
            calls=calls,
            effects=effects,
            results=results,
            result_structure=given.result_structure,
        )

    def _fingerprint(self) -> tuple[Any, ...]:
        """What two calls that compute the same have in common."""
        at = {id(x): i for i, x in enumerate(self._given.leaves)}
        arguments = {
            id(self._before.all[i].array): ("argument", at[i]) for i in self._free
        }

        def origin(array: Array | None) -> tuple[Any, ...]:
            key = id(array)
            if key in arguments:
                return arguments[key]
            if key in self._holders:
                first = self._holder(key)
                owner = self._owners.get(id(first.t))
                return ("state", id(first.t if owner is None else owner))
            return ("made",)

        made, reads = self._places.last_writers(), self._places.reads

        def result(x: Any) -> Any:
            if id(x) in at:
                return ("argument", at[id(x)])
            if not self._is_tensor(x):
                return x if isinstance(x, (int, float, str, bytes)) else type(x)
            return id(x) if x in self._before else made.get(id(_array(x)))

        results = [result(x) for x in self._given.results]
        effects = [
            (id(b.t), made.get(id(_array(b.t))) or origin(_array(b.t)))
            for b in self._changed
        ]
        return (
            tuple(self._places.plans),
            tuple(self._places.checksums),
            tuple(origin(a) for a in reads),
            tuple(sorted(effects)),
            tuple(sorted(id(b.t) for b in self._regraded)),
            tuple(results),
        )

    def _effects(self) -> list[Effect]:
        effects: list[Effect] = []
        for b in self._changed:
            array = _array(b.t)
            if array is None:
                continue
            if b.array is not None and self._places.key(array) == id(b.array):
                self._cell(array)  # it is written in place
            else:
                effects.append(Effect(weakref.ref(b.t), self._source(b.t)))
        for b in self._regraded:
            grad = b.t.grad
            if grad is not None and grad in self._before:
                self._capture.refuse("it sets a gradient to a tensor from outside")
            source = None if grad is None else self._source(grad)
            effects.append(Effect(weakref.ref(b.t), source, True))
        return effects

    def _result(self, x: Any) -> Any:
        at = [i for i, leaf in enumerate(self._given.leaves) if leaf is x]
        if at:
            return at[0]
        if self._is_tensor(x) and x not in self._before:
            return self._source(x)
        if not self._is_tensor(x) and not isinstance(x, _PLAIN):
            self._capture.refuse(
                f"it returns a {type(x).__name__}, which may hold what the call has "
                "made; return tensors in tuples, lists, dicts, named tuples or "
                "dataclasses"
            )
        return Constant(x)

    def _calls(self) -> list[Call | Moved]:
        calls: list[Call | Moved] = []
        for i, step in enumerate(self._capture.steps):
            run = step.run
            for copy in self._places.copies:
                if copy.step == i:
                    pair = (self._cell(copy.old), self._cell(copy.new))
                    calls.append(Moved(*pair))
            if run.runnable is None:
                continue
            nodes = [*run.inputs, *[None] * (len(run.arrays) - len(run.inputs))]
            cells = [self._cell(*pair) for pair in zip(run.arrays, nodes, strict=True)]
            calls.append(Call(run, cells))
        return calls

    def _expected(self) -> list[Expected]:
        found: list[Expected] = []
        first: dict[int, int] = {}
        for i, (x, name) in enumerate(
            zip(self._given.leaves, self._given.names, strict=True)
        ):
            if not self._is_tensor(x):
                found.append(Expected(name, *_weakly(x)))
                continue
            spec, is_bare = spec_of(x), self._before.all[id(x)].grad is None
            if id(x) not in self._free:
                only = weakref.ref(x)
                e = Expected(
                    name, None, None, type(x), spec, only=only, is_bare=is_bare
                )
                found.append(e)
                continue
            key = id(self._before.all[id(x)].array)
            cell = self._cells.get(key)
            shares: State | int | None = cell if isinstance(cell, State) else None
            if shares is None and first.setdefault(key, i) != i:
                shares = first[key]
            reads = cell if isinstance(cell, Argument) and shares is None else None
            found.append(
                Expected(name, kind=type(x), spec=spec, cell=reads, shares=shares)
            )
        return found


def _weakly(x: Any) -> tuple[Any, Any]:
    """An object as a value, or as a weak reference so that it is not kept alive."""
    try:
        return (x, None) if isinstance(x, _PLAIN) else (None, weakref.ref(x))
    except TypeError:
        return x, None


def _array(t: Holder) -> Array | None:
    """The memory of a tensor's value, if it has been computed."""
    node = held(t.uop)
    return None if node is None else buffer_data(node)

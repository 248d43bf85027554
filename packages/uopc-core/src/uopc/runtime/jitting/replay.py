"""A call that can be repeated: what it holds for, and how it is done."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from operator import attrgetter, is_
from typing import Any

from uopc.config import get, overrides
from uopc.runtime.counters import count
from uopc.runtime.jitting.cells import (
    Argument,
    Made,
    State,
    are_free,
    counts,
    counts_alone,
    spec_of,
)
from uopc.runtime.jitting.recipe import Call, Constant, Recipe, Source
from uopc.runtime.jitting.surroundings import difference, same
from uopc.runtime.profiling import profiled
from uopc.runtime.values import Holder, held
from uopc.uop import UOp

_uop, _wants = attrgetter("uop"), attrgetter("requires_grad")


class Replay:
    """A captured call, to be repeated with other values."""

    def __init__(self, recipe: Recipe) -> None:
        self._it = recipe
        self.fingerprint = recipe.fingerprint
        # Whether another call has computed the same.
        self.is_confirmed = False
        self._overrides, self._is_printed = overrides(), get("UOPC_DEBUG") >= 1
        # How many arguments there are, if these are leaves themselves.
        positional, named = recipe.structure.parts
        is_plain = not named.size and all(p.kind is None for p in positional.parts)
        self._plain_arguments = len(positional.parts) if is_plain else -1
        self._natives = [c.native for c in recipe.calls]
        self._native_calls = sum(isinstance(c, Call) for c in recipe.calls)
        self._tables = [c.table for c in recipe.calls]
        programs = [c.program for c in recipe.calls if c.program is not None]
        self._program = programs[0] if programs else None
        self._arguments = [e.cell for e in recipe.expected if e.cell is not None]
        self._written = [s for s in recipe.states if s.is_written]
        # Arguments and states that are elsewhere than at the last call.
        self._new: list[Argument] = []
        self._moved: list[tuple[State, Holder]] = []
        # Most states stay what they are; these are asked all at once.
        follow = {id(e.state) for e in recipe.effects}
        odd = [bool(s.of_grad or s.twins or id(s) in follow) for s in recipe.states]
        self._odd = [s for s, is_odd in zip(recipe.states, odd, strict=True) if is_odd]
        self._calm = [s for s in recipe.states if s not in self._odd]
        self._refs = [s.ref for s in self._calm]
        self._wants = [s.spec[2] for s in self._calm]
        self._views: list[Callable[[], UOp | None]] = []
        self._ends: list[Callable[[], Any]] = []
        read = {id(s.ref()) for s in recipe.states if s.of_grad}
        # Gradients that nobody reads again: their memory is free for the new ones.
        self._old_grads = [
            e.ref for e in recipe.effects if e.of_grad and id(e.ref()) not in read
        ]
        grads = {id(e.source.cell) for e in recipe.effects if e.of_grad and e.source}
        self._quiet = [m for m in recipe.made if id(m) in grads]
        self._shown = [m for m in recipe.made if id(m) not in grads]

    def leaves(self, args: Any, kwargs: Any) -> Sequence[Any] | str:
        """The leaves of arguments for which it holds, or in words why it does not."""
        now = overrides()
        if now is not self._overrides and now != self._overrides:
            return "settings of uopc are overridden that were not, or the reverse"
        leaves: Any = args
        if kwargs or len(args) != self._plain_arguments:
            leaves = self._it.structure.leaves_of((args, kwargs))
        if leaves is None:
            return "the arguments are nested in another way"
        return (
            self._other_state()
            or self._other_argument(leaves)
            or self._it.surroundings.change()
            or leaves
        )

    def _is_calm(self) -> bool:
        """Whether all tensors but the odd ones are what the last call left."""
        tensors = list(map(operator.call, self._refs))
        views = map(operator.call, self._views)
        try:
            return (
                len(self._views) == len(tensors)
                and all(map(is_, map(_uop, tensors), views))
                and list(map(_wants, tensors)) == self._wants
            )
        except AttributeError:  # of None: a tensor is gone
            return False

    def _other_state(self) -> str:
        self._moved = []
        for state in self._odd if self._is_calm() else self._it.states:
            t = state.tensor() if state.of_grad else state.ref()
            if t is None:
                return "a tensor that it used, or its gradient, is gone"
            if t.uop is not state.view():
                self._moved.append((state, t))
            elif t.requires_grad is state.spec[2] and not state.twins:
                continue
            if spec_of(t) != state.spec:
                spec = _words(state.spec)
                return f"a tensor that it uses has {_told(t)} and had {spec}"
            for twin_ref in state.twins:
                twin = twin_ref()
                if twin is not None and held(twin.uop) is not held(t.uop):
                    return "tensors that shared one memory do so no more"
        for ref, had in self._it.had_grad:
            owner = ref()
            if owner is None:
                return "a tensor that got a gradient is gone"
            if (owner.grad is not None) is not had:
                return "a tensor has a gradient that had none, or the reverse"
        return ""

    def _other_argument(self, leaves: Sequence[Any]) -> str:
        self._new = []
        for x, e in zip(leaves, self._it.expected, strict=True):
            if e.kind is None and same(x, e.value):
                continue
            if x.__class__ is not e.kind:
                return f"{e.name} {difference(x, e.value)}"
            cell = e.cell
            if cell is not None:
                cell.view = x.uop
                if cell.knows(x.uop) and x.requires_grad is e.spec[2]:
                    continue
            if spec_of(x) != e.spec:
                return f"{e.name} has {_told(x)} and had {_words(e.spec)}"
            if e.only is not None and e.only() is not x:
                return f"{e.name}, which it changes, is another tensor"
            node = held(x.uop)
            if node is None:
                return f"{e.name} was not computed yet"
            if e.shares is not None:
                other = e.shares
                t: Any = other.tensor() if isinstance(other, State) else leaves[other]
                if t is None or held(t.uop) is not node:
                    return f"{e.name} shared memory with another tensor"
            elif cell is not None:
                self._new.append(cell)
        return ""

    def run(self, leaves: Sequence[Any]) -> Any:
        """Repeat the call. The caller sees to it that no other thread does."""
        self._bind()
        count(native_calls=self._native_calls)
        done: list[Any] = []
        try:
            if self._is_printed or profiled():
                for call in self._it.calls:
                    call.plainly()
                    done.append(None)
            else:
                # One call from Python's view, which nothing interrupts half-way.
                done.extend(map(operator.call, self._natives, self._tables))
            return self._publish(leaves)
        except BaseException:
            if len(done) == len(self._natives):
                self._publish(leaves)
            raise
        finally:
            for cell in self._arguments:
                cell.view = None

    def _bind(self) -> None:
        """Tell the programs where everything is."""
        program = self._program
        for cell in self._new:
            cell.bind(program)
        for state, moved in self._moved:
            state.bind(moved, program)
        if self._moved:
            self._look_again()
        if counts(self._ends) != counts_alone() * len(self._written):
            for state in self._written:
                # Somebody else may see the value that would be overwritten.
                if (owner := state.tensor()) is not None:
                    state.bind(owner, program)
            self._look_again()
        for ref in self._old_grads:
            if (t := ref()) is not None:
                t.grad = None
        if not self._are_quiet():
            for made in self._quiet:
                made.bind(program)
        for made in self._shown:
            made.bind(program)

    def _look_again(self) -> None:
        self._views = [s.view for s in self._calm]
        self._ends = [ref for s in self._written for ref in s.ends]

    def _are_quiet(self) -> bool:
        """Whether the memory of the gradients can be used again, as it mostly can."""
        entries = [m.entry for m in self._quiet]
        return None not in entries and are_free([e for e in entries if e is not None])

    def _publish(self, leaves: Sequence[Any]) -> Any:
        """Have tensors show what was computed."""
        results = []
        for r in self._it.results:
            if isinstance(r, Source):
                results.append(r.tensor())
            else:
                results.append(r.value if isinstance(r, Constant) else leaves[r])
        # All views are taken first, since some are of what others are about to replace.
        effects = [
            (t, e, e.source, None if e.of_grad or e.source is None else e.source.view())
            for e in self._it.effects
            if (t := e.ref()) is not None
        ]
        for t, e, source, view in effects:
            if source is None or view is None:
                t.grad = None if source is None else source.tensor()
                continue
            t.uop = view
            t._graph = t._was = t._home = None
            t._leaf = t._assigned = True
            if e.state is not None and isinstance(source.cell, Made):
                e.state.follow(view, source.cell.now)
        return self._it.result_structure.filled(results)


def _told(t: Holder) -> str:
    return _words(spec_of(t))


def _words(spec: tuple[Any, ...]) -> str:
    shape, dtype, wants = spec
    return f"{dtype}{list(shape)}" + (", requires_grad" if wants else "")

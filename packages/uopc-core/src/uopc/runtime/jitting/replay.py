"""A call that can be repeated: what it holds for, and how it is done."""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Callable, Sequence
from operator import attrgetter, is_
from typing import Any

from uopc.config import get, overrides
from uopc.runtime.counters import count
from uopc.runtime.jitting.cells import (
    Argument,
    Entry,
    Made,
    State,
    are_free,
    counts,
    counts_alone,
    other_spec,
    spec_of,
)
from uopc.runtime.jitting.recipe import Call, Constant, Expected, Recipe, Source
from uopc.runtime.jitting.surroundings import difference, same
from uopc.runtime.profiling import profiled
from uopc.runtime.values import (
    Holder,
    ended,
    held,
    lock,
    running,
)
from uopc.uop import UOp

_uop, _wants, _grad = map(attrgetter, ("uop", "_wants", "grad"))
_nones = itertools.repeat(None)


AGAIN = object()


class Replay:
    """A captured call, to be repeated with other values.

    Of the states, those are *calm* whose tensors are mostly what the last call left;
    they are asked all at once.
    """

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
        self._tables = [c.table for c in recipe.calls]
        self._native_calls = sum(isinstance(c, Call) for c in recipe.calls)
        programs = [c.program for c in recipe.calls if c.program is not None]
        self._program = programs[0] if programs else None
        self._arguments = [e.cell for e in recipe.expected if e.cell is not None]
        self._tensors_at = [
            i for i, e in enumerate(recipe.expected) if e.kind is not None
        ]
        self._sort_states(recipe)
        # Gradients that nobody reads again, so that the new ones may lie there.
        read = {id(s.ref()) for s in recipe.states if s.of_grad}
        grads = [e for e in recipe.effects if e.of_grad and id(e.ref()) not in read]
        self._grads = [
            (e.ref, e.source.cell, e.source.part)
            for e in grads
            if e.source is not None and isinstance(e.source.cell, Made)
        ]

    def _sort_states(self, recipe: Recipe) -> None:
        follow = {id(e.state) for e in recipe.effects}
        odd = [bool(s.of_grad or s.twins or id(s) in follow) for s in recipe.states]
        self._odd = [s for s, is_odd in zip(recipe.states, odd, strict=True) if is_odd]
        self._calm = [s for s in recipe.states if s not in self._odd]
        self._written = [s for s in recipe.states if s.is_written]
        self._refs = [s.ref for s in self._calm]
        self._wants = [s.spec[2] for s in self._calm]
        self._views: list[Callable[[], UOp | None]] = []
        self._ends: list[Callable[[], Any]] = []
        # Arguments and states that are elsewhere than at the last call.
        self._new: list[Argument] = []
        self._moved: list[tuple[State, Holder]] = []
        self._busy: set[UOp | None] = set()  # what other threads are reading

    # -- whether it holds -----------------------------------------------------

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
        why = (
            self._other_state()
            or self._other_argument(leaves)
            or self._other_traits()
            or self._it.surroundings.change()
        )
        if why:
            self._let_go()
        return why or leaves

    def is_over(self) -> bool:
        """Whether an object is gone that was an argument."""
        return any(e.ref is not None and e.ref() is None for e in self._it.expected)

    def _let_go(self) -> None:
        for cell in self._arguments:
            cell.view = None

    def _is_calm(self) -> bool:
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
                return f"a tensor that it uses {other_spec(t, state.spec)}"
            for twin_ref in state.twins:
                twin = twin_ref()
                if twin is not None and held(twin.uop) is not held(t.uop):
                    return (
                        f"two tensors {t.uop.dtype}{list(t.shape)} had one memory and "
                        "have two now"
                    )
        return ""

    def _other_argument(self, leaves: Sequence[Any]) -> str:
        self._new = []
        ids = {id(leaves[i]) for i in self._tensors_at}
        if len(ids) != self._it.distinct:
            return "a tensor is there twice that was not, or the reverse"
        if not ids.isdisjoint(self._it.own):
            return "an argument is a tensor that it also sees or changes by itself"
        for x, e in zip(leaves, self._it.expected, strict=True):
            if e.kind is None:
                if same(x, e.value if e.ref is None else e.ref()):
                    continue
                return f"{e.name} {difference(x, e.value)}"
            if x.__class__ is not e.kind:
                return f"{e.name} {difference(x, e.value)}"
            if x.requires_grad is not e.spec[2] or (x.grad is None) is not e.is_bare:
                return f"{e.name} requires or has a gradient, or did before"
            cell = e.cell
            if cell is not None:
                cell.view = x.uop
                if cell.knows(x.uop):
                    continue
            if why := self._other_tensor(x, e, leaves):
                return f"{e.name} {why}"
            if cell is not None:
                self._new.append(cell)
        return ""

    def _other_tensor(self, x: Any, e: Expected, leaves: Sequence[Any]) -> str:
        if spec_of(x) != e.spec:
            return other_spec(x, e.spec)
        if e.only is not None and e.only() is not x:
            return "is another tensor, and it changes or sees that one by itself"
        node = held(x.uop)
        if node is None:
            return "was not computed yet"
        if e.shares is not None:
            other = e.shares
            t: Any = other.tensor() if isinstance(other, State) else leaves[other]
            if t is None or held(t.uop) is not node:
                return "shared memory with another tensor"
        return ""

    def _other_traits(self) -> str:
        """What is different about tensors that it can see, besides their values."""
        it = self._it
        if list(map(_wants, it.seen)) == it.wanted and all(
            map(operator.eq, map(is_, map(_grad, it.seen), _nones), it.bare)
        ):
            return ""
        for t, wanted, is_bare in zip(it.seen, it.wanted, it.bare, strict=True):
            what = f"a tensor {t.uop.dtype}{list(t.shape)} that it can see"
            if t.requires_grad is not wanted:
                return f"{what} requires a gradient, or did before"
            if (t.grad is None) is not is_bare:
                return f"{what} has a gradient, or had one"
        return ""

    # -- doing it -------------------------------------------------------------

    def run(self, leaves: Sequence[Any]) -> Any:
        """Repeat the call. The caller sees to it that no other thread does.

        Or returns AGAIN, if another thread was writing over what the call needs: it has
        done so now, and the call may be another.
        """
        if threading.active_count() == 1:
            return self._run(leaves)
        self.thread = threading.get_ident()
        with lock:
            others = [g for g in list(running) if g.thread != self.thread]
            if not {b for g in others for b in g.spare}.isdisjoint(self.reads()):
                ended.wait()
                return AGAIN
            # What others are reading stays what it is: the tensors move.
            self._busy = {b for g in others for b in g.reads()}
            running.add(self)
        try:
            return self._run(leaves)
        finally:
            self._busy = set()
            with lock:
                running.discard(self)
                ended.notify_all()

    @property
    def spare(self) -> dict[UOp, Any]:
        """The buffers that it writes over; for other threads."""
        nodes = [s.node for s in self._written]
        return dict.fromkeys([n for n in nodes if n is not None])

    def reads(self) -> set[UOp]:
        """The buffers that it reads; for other threads."""
        nodes = [s.node for s in self._it.states] + [a.node for a in self._arguments]
        return {n for n in nodes if n is not None}

    def _run(self, leaves: Sequence[Any]) -> Any:
        done: list[Any] = []
        dropped: list[tuple[Holder, Entry, int]] = []
        try:
            self._drop_grads(dropped)
            self._bind()
            count(native_calls=self._native_calls)
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
            elif not done:
                for t, entry, part in dropped:
                    t.grad = entry.tensors[part]
            raise
        finally:
            self._let_go()

    def _drop_grads(self, dropped: list[tuple[Holder, Entry, int]]) -> None:
        """Take away gradients of the last call: their memory is for those of this."""
        for ref, made, part in self._grads:
            t, entry = ref(), made.entry
            if t is not None and entry is not None and t.grad is entry.tensors[part]:
                dropped.append((t, entry, part))
                t.grad = None

    def _bind(self) -> None:
        """Tell the programs where everything is."""
        program = self._program
        for cell in self._new:
            cell.bind(program)
        for state, moved in self._moved:
            state.bind(moved, program)
        if self._moved:
            self._look_again()
        if self._busy or counts(self._ends) != counts_alone() * len(self._written):
            for state in self._written:
                # Somebody else may see the value that would be overwritten.
                if (owner := state.tensor()) is not None:
                    state.bind(owner, program, state.node in self._busy)
            self._look_again()
        made = self._it.made
        spare = [m.spare[0] for m in made if m.spare]
        if len(spare) == len(made) and are_free(spare):
            for m in made:
                m.turn()
        else:
            for m in made:
                m.bind(program)

    def _look_again(self) -> None:
        self._views = [s.view for s in self._calm]
        self._ends = [ref for s in self._written for ref in s.ends]

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

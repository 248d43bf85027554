"""`jit`: call a function of tensors again without building its graph again."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from uopc.runtime.capture import capturing
from uopc.runtime.jitting.replay import AGAIN, Replay
from uopc.runtime.jitting.trace import (
    has_placeholders,
    is_tensor,
    trace,
    values_of,
)
from uopc.runtime.origins import recording
from uopc.runtime.tree import flatten
from uopc.runtime.values import held, realize_all
from uopc.uop import warn_caller

P = ParamSpec("P")
R = TypeVar("R")

# How many traces a function keeps; the one that was not used for longest goes.
MOST_TRACES = 16
# After so many traces in a row that were used once, a warning says why.
PATIENCE = 5
# After so many calls in a row that cannot be repeated, no more are tried.
MOST_FAILURES = 3
# Generators and coroutines run after the call.
_LATER = 0x20 | 0x80 | 0x200


_all: weakref.WeakSet[Jitted[Any, Any]] = weakref.WeakSet()


def _unlock() -> None:
    """In a forked child: there is no thread to end the calls of the parent's."""
    for jitted in _all:
        if not jitted._lock.acquire(blocking=False):
            jitted._replays = []  # they may be half bound
        jitted._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


class Jitted(Generic[P, R]):
    """A function whose calls are captured and repeated; made by `jit`.

    Attributes:
        traces: how many calls were captured.
        reason: why the last call that was not repeated was not; for people.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        if not callable(function):
            raise TypeError(f"jit takes a function, not {function!r}")
        inner: Any = function
        while isinstance(inner, partial):
            inner = inner.func
        code = getattr(inner, "__code__", None)
        if code is not None and code.co_flags & _LATER:
            raise TypeError(
                f"jit: {inner.__qualname__} is a generator or a coroutine, which "
                "runs after its call; jit what it calls"
            )
        update_wrapper(self, function)
        self._function = function
        self._lock = threading.RLock()
        self._replays: list[Replay] = []
        self._fingerprint: tuple[Any, ...] | None = None  # of the last call
        self._is_first = True
        self._failures = 0
        self._unused = 0
        self.traces = 0
        self.reason = ""
        _all.add(self)

    def __repr__(self) -> str:
        name = getattr(self._function, "__qualname__", repr(self._function))
        why = f", {self.reason}" if self.reason else ""
        return f"<jit of {name}: {self.traces} traces{why}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles hold the function; they have no traces yet."""
        return Jitted, (self._function,)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, or repeat what a call has done."""
        if capturing() is not None:
            return self._function(*args, **kwargs)
        while True:
            with self._lock:
                replay, leaves = self._fitting(args, kwargs)
                if replay is None or not replay.is_confirmed:
                    break
                self._unused = 0
                result = replay.run(leaves)
            if result is not AGAIN:
                return result  # type: ignore[no-any-return]
        return self._called_anew(args, kwargs, replay)

    def _fitting(self, args: Any, kwargs: Any) -> tuple[Replay | None, Sequence[Any]]:
        """The replay that holds for a call, and the leaves of its arguments."""
        for i, replay in enumerate(self._replays):
            leaves = replay.leaves(args, kwargs)
            if not isinstance(leaves, str):
                if i:
                    self._replays.insert(0, self._replays.pop(i))
                return replay, leaves
            if not i:
                self.reason = leaves
        return None, ()

    def _called_anew(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], like: Replay | None = None
    ) -> R:
        """A call for which there is no replay, or one that is to be confirmed."""
        tensors = [x for x in flatten((args, kwargs))[0] if is_tensor(x)]
        if has_placeholders(tensors):
            return self._function(*args, **kwargs)
        if any(held(t.uop) is None for t in tensors):
            realize_all(tensors)
            return self(*args, **kwargs)
        if self._failures >= MOST_FAILURES or recording():
            return values_of(self._function, args, kwargs)  # type: ignore[no-any-return]
        with self._lock:
            self._replays = [r for r in self._replays if not r.is_over()]
            result, found = trace(self._function, args, kwargs)
            if found is not None:
                self._judge(found, like)
        return result  # type: ignore[no-any-return]

    def _judge(self, found: Replay | str, like: Replay | None) -> None:
        """Keep the replay of a call, if there is one that can be trusted."""
        is_first, self._is_first = self._is_first, False
        if isinstance(found, str):
            if not is_first:
                self._refuse(found)
            return
        last, self._fingerprint = self._fingerprint, found.fingerprint
        found.is_confirmed = found.fingerprint == last
        if is_first:
            return  # what it makes at first, it will not make again
        if like is None:
            self.traces += 1
            self._failures = 0
            self._count_unused()
        else:
            self._replays.remove(like)
            found.is_confirmed |= found.fingerprint == like.fingerprint
            if not found.is_confirmed:
                self._refuse(
                    "it computes something else for the same arguments; tensors of "
                    "NumPy arrays, numbers and choices that differ from call to call "
                    "must come in as Tensors"
                )
        self._replays = [found, *self._replays][:MOST_TRACES]

    def _refuse(self, why: str) -> None:
        self.reason = why
        self._failures += 1
        if self._failures == MOST_FAILURES:
            warn_caller(f"jit: {self._name} runs without replays, at full cost: {why}")

    def _count_unused(self) -> None:
        self._unused += 1
        if self._unused == PATIENCE:
            warn_caller(
                f"jit: {self._name} has been traced {PATIENCE} times in a row, and no "
                f"trace was used again: {self.reason}; what changes from call to call "
                "must be in Tensors"
            )

    @property
    def _name(self) -> str:
        return str(getattr(self._function, "__qualname__", self._function))


def jit(function: Callable[P, R]) -> Jitted[P, R]:
    """Have calls of a function of tensors repeated by native calls alone.

    A call is noted as it runs. After two that computed the same, later ones only bind
    memory and run the programs.

    Args:
        function: takes and returns tensors, nested in tuples, lists, dicts, named
            tuples and dataclasses, and other things as well. The tensors that it uses
            apart from its arguments are its state: parameters, the moments of an
            optimizer, the random counter. What it assigns to them, and the gradients
            that it leaves, are there after every call.

    A call is repeated only if what the function can see is as it was: shapes, dtypes
    and nesting of arguments; other arguments; closure cells, the globals that it names,
    and what these hold. Else it is traced again, and former traces are kept. Where a
    replay would not do, as when a value is read inside, the function is called as if
    there were no jit, and a warning says why. What cannot be noticed, such as changes
    inside of NumPy arrays, is listed in docs/runtime.md.

    Results carry no graph: gradients are taken inside. Raises TypeError for what is no
    function, or a generator or coroutine function.
    """
    return Jitted(function)

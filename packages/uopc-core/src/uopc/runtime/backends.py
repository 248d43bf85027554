"""Which backend runs a plan."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from uopc.config import get
from uopc.kernelize import Plan
from uopc.plugins import current, registry
from uopc.uop import OpDef, fork_safe, warn_caller

T = TypeVar("T")


class Program(Protocol):
    """A compiled plan."""

    def __call__(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Run on one flat array per plan buffer, writing the outputs."""


class Backend(Protocol):
    """What a backend plugin's factory returns.

    One that says ``in_place = True`` gets plans with kernels that write over inputs:
    then the arrays of `Kernel.out` and `Kernel.over` are one. Its programs leave every
    array as it was when they raise an error.

    One with a method ``in_one_nest`` is asked which kernels it can run as one loop
    nest, and what would be in scratch there: see `uopc.kernelize.recompute`.
    """

    name: str
    priority: int

    def unavailable(self) -> str | None:
        """Why it cannot run here, or None."""

    def supports(self, op: OpDef) -> bool:
        """Whether ``op`` runs as it is; others are lowered first."""

    def compile(self, plan: Plan) -> Program:
        """A program for ``plan``."""


_instances: dict[tuple[str, str], Backend] = {}
_told: set[str] = set()
_lock = fork_safe(threading.RLock())  # while a backend is imported and made


def backend_named(name: str) -> Backend:
    """The backend registered as ``name``, made at first use."""
    reg = registry()
    key = (name, reg.stamp)
    if key not in _instances:
        if name not in reg.backends:
            known = ", ".join(sorted(reg.backends)) or "none"
            hint = "; pip install uopc-backend-c" if name == "c" else ""
            raise RuntimeError(
                f"no backend named {name!r} (known: {known}){hint}"
                f"{current().failure_note()}"
            )
        with _lock:
            if key not in _instances:
                _instances[key] = reg.backends[name]()
    return _instances[key]


def default_backend() -> Backend:
    """UOPC_BACKEND if set, else the available one of highest priority.

    A better backend that cannot run here is named once, in a warning.
    """
    if wanted := get("UOPC_BACKEND"):
        return backend_named(wanted)
    candidates = sorted(
        (backend_named(name) for name in registry().backends),
        key=lambda b: (-b.priority, b.name),
    )
    for backend in candidates:
        why = backend.unavailable()
        if why is None:
            return backend
        if backend.name not in _told:
            _told.add(backend.name)
            warn_caller(
                f"backend {backend.name!r} cannot run here, using the next one: {why}"
            )
    raise RuntimeError(f"no backend can run here{current().failure_note()}")


_making: weakref.WeakKeyDictionary[Plan, threading.RLock] = weakref.WeakKeyDictionary()


def made_once(plan: Plan, name: str, make: Callable[[], T]) -> T:
    """What ``plan.programs`` holds under a name, made at first need.

    Of several threads that need it at once, one makes it while the others wait. If
    that one fails, the next one tries.
    """
    found: T | None = plan.programs.get(name)
    if found is not None:
        return found
    with _making.setdefault(plan, threading.RLock()):
        found = plan.programs.get(name)
        if found is None:
            found = plan.programs[name] = make()
    return found


if hasattr(os, "register_at_fork"):
    # A child has none of the threads that hold them.
    os.register_at_fork(after_in_child=_making.clear)

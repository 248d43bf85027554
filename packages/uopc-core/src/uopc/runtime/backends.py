"""Which backend runs a plan."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from uopc.config import get
from uopc.kernelize import Plan
from uopc.plugins import current, registry
from uopc.uop import OpDef


class Program(Protocol):
    """A compiled plan."""

    def __call__(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Run on one flat array per plan buffer, writing the outputs."""


class Backend(Protocol):
    """What a backend plugin's factory returns."""

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
            warnings.warn(
                f"backend {backend.name!r} cannot run here, using the next one: {why}",
                RuntimeWarning,
                stacklevel=2,
            )
    raise RuntimeError(f"no backend can run here{current().failure_note()}")

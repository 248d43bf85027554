"""Core's own plugin: the built-in ops and the reference backend.

It goes through the same entry-point group and the same hooks as any other plugin.
"""

from __future__ import annotations

from typing import Any

from uopc.plugins.hookspecs import BackendRegister, OpRegister, hookimpl
from uopc.uop import BUILTIN_OPS


@hookimpl
def uopc_register_ops(register: OpRegister) -> None:
    """Register the built-in op table."""
    for opdef in BUILTIN_OPS:
        register(opdef)


@hookimpl
def uopc_register_backends(register: BackendRegister) -> None:
    """Register the reference backend, "interp"."""
    register("interp", _reference_backend)


def _reference_backend() -> Any:
    # The interpreter is imported when it is used, for start-up's sake.
    from uopc.interp import ReferenceBackend

    return ReferenceBackend()

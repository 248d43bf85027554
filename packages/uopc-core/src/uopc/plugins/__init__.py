"""Plugins: the hooks, the host that loads who implements them, and what failed.

A distribution joins in by an entry point of group `uopc.plugins` that names a module
with functions marked `@hookimpl`. Importing this package loads no plugin: the first
question to `registry()` does.
"""

from typing import TYPE_CHECKING, Any

from uopc.plugins.failures import PluginError, PluginFailure, PluginWarning
from uopc.plugins.host import (
    PluginHost,
    PluginInfo,
    current,
    note_owner,
    registry,
    use,
)
from uopc.plugins.lowering import endless, lowered
from uopc.plugins.registry import Command, DuplicateError, Registry

if TYPE_CHECKING:
    from uopc.plugins.hookspecs import (
        BackendRegister,
        BatchingRegister,
        CommandAdder,
        JvpRegister,
        OpRegister,
        RewritesRegister,
        SpellingRegister,
        VjpRegister,
        hookimpl,
        hookspec,
    )

__all__ = [
    "BackendRegister",
    "BatchingRegister",
    "Command",
    "CommandAdder",
    "DuplicateError",
    "JvpRegister",
    "OpRegister",
    "PluginError",
    "PluginFailure",
    "PluginHost",
    "PluginInfo",
    "PluginWarning",
    "Registry",
    "RewritesRegister",
    "SpellingRegister",
    "VjpRegister",
    "current",
    "endless",
    "hookimpl",
    "hookspec",
    "lowered",
    "note_owner",
    "registry",
    "use",
]


def __getattr__(name: str) -> Any:
    """What plugins import; it needs pluggy, which takes a while to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from uopc.plugins import hookspecs

    return getattr(hookspecs, name)

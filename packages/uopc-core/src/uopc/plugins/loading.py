"""Loading one plugin: import, validate, run its hooks into a staging table.

Pluggy and the metadata of distributions are imported when the first plugin is loaded:
they would be a large part of the time that `import uopc.tensor` takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uopc.plugins.registry import Registry, Staging

if TYPE_CHECKING:
    import pluggy

GROUP = "uopc.plugins"
CORE = "core"
CORE_DISTRIBUTION = "uopc-core"

# The hooks that fill the registry, in the order in which they run: the name, the
# argument, and what the argument is.
REGISTER_HOOKS: tuple[tuple[str, str, Callable[[Staging], Any]], ...] = (
    ("uopc_register_ops", "register", lambda staging: staging.add_op),
    ("uopc_register_vjps", "register", lambda staging: staging.add_vjp),
    ("uopc_register_jvps", "register", lambda staging: staging.add_jvp),
    ("uopc_register_batchings", "register", lambda staging: staging.add_batching),
    ("uopc_register_rewrites", "register", lambda staging: staging.add_rewrites),
    ("uopc_register_backends", "register", lambda staging: staging.add_backend),
    ("uopc_register_spellings", "register", lambda staging: staging.add_spelling),
    ("uopc_register_commands", "cli", lambda staging: staging),
)


@dataclass(frozen=True)
class Source:
    """Where a plugin comes from, before anything of it is imported."""

    name: str
    distribution: str
    version: str
    load: Callable[[], object]

    def origin(self) -> str:
        """The distribution and version, in words."""
        return f"{self.distribution} {self.version}".strip() or "an in-process plugin"


def new_manager() -> pluggy.PluginManager:
    """A pluggy manager that knows uopc's hooks and no plugin."""
    import pluggy

    from uopc.plugins import hookspecs

    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def sources(entry_points: Iterable[Any] | None) -> list[Source]:
    """The plugins of `entry_points` (None: the installed ones) in loading order."""
    if entry_points is None:
        import importlib.metadata

        entry_points = importlib.metadata.entry_points(group=GROUP)
    return sorted(map(_source, entry_points), key=_order)


def _source(entry_point: Any) -> Source:
    try:
        dist = entry_point.dist
        name, version = str(dist.name or ""), str(dist.version or "")
    except Exception:
        # No distribution, or one whose metadata is broken: no reason not to load it.
        name, version = "", ""
    return Source(entry_point.name, name, version, entry_point.load)


def _order(source: Source) -> tuple[bool, str, bool, str]:
    # Core comes first; should another distribution call its plugin "core" as well, it
    # is that one which finds the name taken.
    name, distribution = source.name, source.distribution
    return name != CORE, name, distribution != CORE_DISTRIBUTION, distribution


class Attempt:
    """One attempt to load a plugin; `phase` is the step that it has come to.

    The attempt has a pluggy manager of its own, so a plugin that fails leaves no
    trace: neither the registry nor the host's manager has seen it.
    """

    def __init__(self, source: Source, registry: Registry) -> None:
        self.phase = "import"
        self.plugin: object = None
        self.staging = Staging(registry, source.name)
        self.registered: dict[str, int] = {}
        self._source = source

    def run(self) -> None:
        """Take all steps; raises what the plugin raised."""
        self.plugin = self._source.load()
        self.phase = "validate"
        manager = new_manager()
        _check_names(manager, self.plugin)
        manager.register(self.plugin, self._source.name)
        for hook, argument, target in REGISTER_HOOKS:
            self.phase = hook
            caller = getattr(manager.hook, hook)
            results = caller(**{argument: target(self.staging)})
            if results:
                # A generator or a coroutine function, say: its body has not run.
                raise TypeError(f"{hook} must return None, not {results[0]!r}")
        self.phase = "validate"
        self.staging.close()
        self.registered = self.staging.counts() | _other_hooks(manager, self.plugin)


def plugin_file(plugin: object) -> str:
    """The file that a plugin was loaded from, or ""."""
    named = plugin if inspect.ismodule(plugin) else type(plugin)
    try:
        return inspect.getfile(named)
    except (TypeError, OSError):
        return ""


def _check_names(manager: pluggy.PluginManager, plugin: object) -> None:
    """Refuse what pluggy would pass over in silence: misspelt or unmarked hooks."""
    import difflib

    import pluggy

    if inspect.isclass(plugin):
        raise TypeError(f"{plugin!r} is a class; a plugin is a module or an instance")
    known = [name for name in vars(manager.hook) if name.startswith("uopc_")]
    for name in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, name)
        if options is not None:
            hook = options.get("specname") or name
            if hook not in known and not options.get("optionalhook"):
                close = difflib.get_close_matches(hook, known, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                message = f"unknown hook {hook!r}{hint}"
                raise pluggy.PluginValidationError(plugin, message)
        elif name.startswith("uopc_") and inspect.isroutine(getattr(plugin, name)):
            message = f"{name!r} is not marked with @hookimpl (uopc_ is for hooks)"
            raise pluggy.PluginValidationError(plugin, message)


def _other_hooks(manager: pluggy.PluginManager, plugin: object) -> dict[str, int]:
    """The hooks that a plugin implements and that register nothing, each once."""
    register_hooks = [hook for hook, _, _ in REGISTER_HOOKS]
    callers = manager.get_hookcallers(plugin) or []
    names = sorted(caller.name for caller in callers)
    return {
        name.removeprefix("uopc_"): 1 for name in names if name not in register_hooks
    }

"""The plugin host: loads plugins once, each by itself, and keeps what they registered.

Nothing loads at import. `registry()` is the usual way in; tests build a host of their
own and make it the active one with `use`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uopc import config
from uopc.plugins.failures import PluginError, PluginFailure, PluginWarning
from uopc.plugins.loading import Attempt, Source, new_manager, plugin_file, sources
from uopc.plugins.registry import Registry
from uopc.uop import fork_safe, lazy, warn_caller

if TYPE_CHECKING:
    import pluggy

_serial = itertools.count(1)
_lock = fork_safe(threading.RLock())  # while plugins are loaded


@dataclass(frozen=True)
class PluginInfo:
    """One plugin that the host knows of.

    `status` is "loaded", "blocked" or "failed". `registered` counts what it registered
    by kind, and each other hook that it implements, such as "gradient", as one.
    """

    name: str
    distribution: str
    version: str
    file: str
    registered: dict[str, int]
    status: str


class PluginHost:
    """A set of plugins and what they registered.

    `entry_points` are those to load: objects with `.name`, `.load()` and `.dist`; None
    means the installed ones of group `uopc.plugins`. `block` names plugins to leave
    out, besides UOPC_PLUGINS_BLOCK. With `strict` (None: UOPC_PLUGINS_STRICT) a plugin
    that fails is a `PluginError`, otherwise a warning.

    A plugin may not wait, while it loads, for another thread that uses this host.
    """

    def __init__(
        self,
        entry_points: Iterable[Any] | None = None,
        block: Iterable[str] = (),
        strict: bool | None = None,
    ) -> None:
        self._entry_points = None if entry_points is None else tuple(entry_points)
        self._block = frozenset(block)
        self._strict = strict
        self._registry = Registry()
        self._pending: list[Source] | None = None
        self._loading = False
        self._ready = False
        self._plugins: list[PluginInfo] = []
        self._failures: list[PluginFailure] = []
        self._stamps: list[str] = []

    @lazy
    def _manager(self) -> pluggy.PluginManager:
        return new_manager()

    @property
    def registry(self) -> Registry:
        """What the plugins registered; loads them at first need."""
        return self._registry if self._ready else self.load()

    @property
    def hook(self) -> pluggy.HookRelay:
        """The hooks, to be called: `host.hook.uopc_doctor()`."""
        self.load()
        return self._manager.hook

    @property
    def plugins(self) -> list[PluginInfo]:
        """The plugins, in loading order; asking neither warns nor raises."""
        self.load(quiet=True)
        return list(self._plugins)

    @property
    def failures(self) -> list[PluginFailure]:
        """The plugins that failed; asking neither warns nor raises."""
        self.load(quiet=True)
        return list(self._failures)

    def load(self, *, quiet: bool = False) -> Registry:
        """Load all plugins, unless that is done; then report failures, unless `quiet`.

        The report is one warning for each plugin that failed, once. In strict mode it
        is a `PluginError`, each time, and the registry stays out of reach.
        """
        with _lock:
            # A plugin that asks while it loads sees what was committed before it.
            if self._ready or self._loading:
                return self._registry
            self._load_pending()
            if quiet:
                return self._registry
            failures = tuple(self._failures)
            self._raise_if_strict(failures)
            self._ready = True
        _warn(failures)
        return self._registry

    def register_module(self, plugin: object, name: str) -> PluginInfo:
        """Add one plugin in-process, after the others: a module, or an object.

        A failure is reported as those of entry points are.
        """
        self.load()
        with _lock:
            source = Source(name, "", "", lambda: plugin)
            self._forget_failure(source)
            failures = self._add(source)
            info = self._plugins[-1]
        self._raise_if_strict(failures)
        _warn(failures)
        return info

    def call_each(
        self, hook: str, **arguments: Any
    ) -> list[tuple[str, Any, Exception | None]]:
        """Call a hook's implementations one by one: plugin name, result, exception.

        For where one plugin's mistake must not take the others' results away. Loads
        plugins quietly; wrappers are passed over.
        """
        self.load(quiet=True)
        outcomes: list[tuple[str, Any, Exception | None]] = []
        for impl in getattr(self._manager.hook, hook).get_hookimpls():
            if impl.wrapper or impl.hookwrapper:
                continue
            try:
                result = impl.function(*(arguments[name] for name in impl.argnames))
                outcomes.append((impl.plugin_name, result, None))
            except Exception as error:
                outcomes.append((impl.plugin_name, None, error))
        return outcomes

    def failure_note(self) -> str:
        """What to append to an error that a failed plugin may have caused, or ""."""
        return "".join(f"; note: {failure}" for failure in self._failures)

    def _load_pending(self) -> None:
        if self._pending is None:
            self._pending = sources(self._entry_points)
        self._loading = True
        try:
            # A KeyboardInterrupt leaves the rest, this one included, for the next time.
            while self._pending:
                self._add(self._pending[0])
                del self._pending[0]
        finally:
            self._loading = False

    def _add(self, source: Source) -> tuple[PluginFailure, ...]:
        """Load one plugin and note the outcome; the failure is returned, if any."""
        name, distribution, version = source.name, source.distribution, source.version
        if name in self._block or name in config.get("UOPC_PLUGINS_BLOCK"):
            info = PluginInfo(name, distribution, version, "", {}, "blocked")
            self._plugins.append(info)
            return ()
        attempt = Attempt(source, self._registry)
        failures: tuple[PluginFailure, ...] = ()
        try:
            self._check_name_is_free(source, attempt)
            attempt.run()
            self._manager.register(attempt.plugin, name)
        except (Exception, SystemExit) as error:
            failures = (
                PluginFailure(name, distribution, version, attempt.phase, error),
            )
            self._failures.extend(failures)
        else:
            attempt.staging.commit()
            self._add_stamp(source)
        file = plugin_file(attempt.plugin)
        registered = {} if failures else attempt.registered
        status = "failed" if failures else "loaded"
        self._plugins.append(
            PluginInfo(name, distribution, version, file, registered, status)
        )
        return failures

    def _check_name_is_free(self, source: Source, attempt: Attempt) -> None:
        for info in self._plugins:
            if info.name == source.name and info.status == "loaded":
                attempt.phase = "validate"
                other = Source(info.name, info.distribution, info.version, lambda: None)
                raise ValueError(
                    f"the plugin name {source.name!r} is used by {other.origin()} and "
                    f"by {source.origin()}"
                )

    def _forget_failure(self, source: Source) -> None:
        # In a notebook one mends a plugin and registers it again.
        key = (source.name, source.distribution, "failed")
        self._plugins = [
            info
            for info in self._plugins
            if (info.name, info.distribution, info.status) != key
        ]
        self._failures = [
            failure
            for failure in self._failures
            if (failure.name, failure.distribution) != key[:2]
        ]

    def _add_stamp(self, source: Source) -> None:
        # Without a version nothing tells two plugins of one name apart, or one from
        # its next edit, so such a plugin is like no other.
        version = source.version or f"#{next(_serial)}"
        self._stamps.append(f"{source.name} {source.distribution} {version}")
        text = "\n".join(sorted(self._stamps))
        import hashlib  # not at import, for start-up's sake

        self._registry.stamp = hashlib.sha256(text.encode()).hexdigest()[:16]

    def _raise_if_strict(self, failures: tuple[PluginFailure, ...]) -> None:
        strict = self._strict
        if strict is None:
            strict = config.get("UOPC_PLUGINS_STRICT")
        if failures and strict:
            raise PluginError(failures) from failures[0].error


def _warn(failures: Iterable[PluginFailure]) -> None:
    for failure in failures:
        message = f"{failure}; it is left out (see `uopc plugins`)"
        warn_caller(message, PluginWarning)


_default = PluginHost()
_current: ContextVar[PluginHost] = ContextVar("uopc_plugin_host", default=_default)


def current() -> PluginHost:
    """The active host: that of the innermost `use`, or the process-wide one."""
    return _current.get()


def registry() -> Registry:
    """What the active host's plugins registered; loads them at first need."""
    return _current.get().registry


@contextmanager
def use(host: PluginHost) -> Iterator[PluginHost]:
    """Make `host` the active one in this context; other threads do not see it."""
    token = _current.set(host)
    try:
        yield host
    finally:
        _current.reset(token)


def note_owner(error: BaseException, what: str, kind: str, key: Hashable) -> None:
    """Add to an error that came out of `what` which plugin registered that.

    `kind` and `key` are those of `Registry.owners`. The error keeps its type; without
    an owner, or with the note there already, it stays as it is. Call it from an
    `except` block and raise the error again, which costs nothing while all is well.
    """
    host = current()
    owner = host.load(quiet=True).owners.get((kind, key))
    if owner is None:
        return
    origins = {i.name: f"{i.distribution} {i.version}".strip() for i in host.plugins}
    where = f", {origins[owner]}" if origins.get(owner) else ""
    note = f"raised by the {what} (plugin {owner!r}{where})"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)

"""Stand-ins for what the plugin host meets: ops, plugins, entry points."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from uopc import config
from uopc.plugins import PluginHost, hookimpl, use


class FakeOp:
    """An op as far as the registry looks: it has a name and identity."""

    def __init__(self, name: str) -> None:
        self.name = name


@dataclass
class FakeEntryPoint:
    """What the host reads of an `importlib.metadata.EntryPoint`, counting loads."""

    name: str
    target: Any
    dist: Any = None
    loads: int = 0
    threads: set[int] = field(default_factory=set)

    def load(self) -> Any:
        self.loads += 1
        self.threads.add(threading.get_ident())
        if isinstance(self.target, BaseException):
            raise self.target
        return self.target() if isinstance(self.target, Loader) else self.target


@dataclass
class Loader:
    """A target that runs `action` when its entry point is loaded."""

    action: Callable[[], Any]

    def __call__(self) -> Any:
        return self.action()


def make_plugin(**hooks: Callable[..., Any]) -> ModuleType:
    """A module with these functions, marked as hook implementations."""
    module = ModuleType("uopc_fake")
    module.__file__ = "/somewhere/uopc_fake.py"
    for name, function in hooks.items():
        setattr(module, name, hookimpl(function))
    return module


def make_entry_point(name: str, target: Any, dist: str = "") -> FakeEntryPoint:
    """An entry point; `dist` is "name version"."""
    if not dist:
        return FakeEntryPoint(name, target)
    dist_name, version = dist.split()
    return FakeEntryPoint(
        name, target, SimpleNamespace(name=dist_name, version=version)
    )


def op_plugin(*ops: FakeOp, override: bool = False) -> ModuleType:
    """A plugin that registers `ops`."""

    def uopc_register_ops(register: Any) -> None:
        for op in ops:
            register(op, override=override)

    return make_plugin(uopc_register_ops=uopc_register_ops)


@pytest.fixture
def fake() -> SimpleNamespace:
    """The makers above, under one name."""
    return SimpleNamespace(
        Op=FakeOp,
        Loader=Loader,
        plugin=make_plugin,
        entry_point=make_entry_point,
        op_plugin=op_plugin,
    )


@pytest.fixture(autouse=True)
def unset_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see the defaults, whatever the caller's environment has."""
    for variable in config.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)


@pytest.fixture
def erf(fake: SimpleNamespace) -> Iterator[SimpleNamespace]:
    """A host in use, with one plugin of each kind that works."""
    op = FakeOp("erf")
    plugin = fake.plugin(
        uopc_register_ops=lambda register: register(op),
        uopc_register_backends=lambda register: register("toy", object),
    )
    entry_point = make_entry_point("erf", plugin, "uopc-erf 0.2")
    host = PluginHost([entry_point])
    with use(host):
        yield SimpleNamespace(op=op, host=host, entry_point=entry_point)

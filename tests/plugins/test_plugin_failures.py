"""Each way in which a plugin fails: one warning, a failure, and nothing of it left."""

from __future__ import annotations

import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from uopc.plugins import (
    PluginError,
    PluginFailure,
    PluginHost,
    PluginWarning,
    hookimpl,
)
from uopc.plugins.hookspecs import OpRegister


def load_quietly(host: PluginHost) -> list[str]:
    """Load, ask again in every way, and return the warnings that were given."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        host.load()
        host.load()
        assert host.registry is host.registry
        assert host.hook is host.hook
    assert {warning.category for warning in caught} <= {PluginWarning}
    return [str(warning.message) for warning in caught]


def failing_halfway(fake: SimpleNamespace) -> ModuleType:
    """A plugin that registers a good deal before it raises."""

    def uopc_register_vjps(register: Any) -> None:
        register(fake.Op("other"), lambda node, g: (g,))
        raise LookupError("no table\nof coefficients")

    plugin: ModuleType = fake.plugin(
        uopc_register_ops=lambda register: register(fake.Op("erf")),
        uopc_register_vjps=uopc_register_vjps,
        uopc_register_backends=lambda register: register("toy", dict),
        uopc_gradient=lambda root, seed, targets: [root],
    )
    return plugin


def misspelt(fake: SimpleNamespace) -> Any:
    return fake.plugin(uopc_regster_ops=lambda register: None)


def unmarked(fake: SimpleNamespace) -> Any:
    module = ModuleType("unmarked")

    def uopc_register_ops(register: OpRegister) -> None:
        """Lacks the marker."""

    module.uopc_register_ops = uopc_register_ops  # type: ignore[attr-defined]
    return module


def yielding(register: Any) -> Any:
    yield register


class AClass:
    @hookimpl
    def uopc_register_ops(self, register: OpRegister) -> None:
        """Cannot be called without an instance."""


def with_ops_hook(function: Any) -> Any:
    return lambda fake: fake.plugin(uopc_register_ops=function)


WAYS: list[Any] = [
    ("import", "ImportError: no", lambda fake: ImportError("no")),
    ("import", "SystemExit: 3", lambda fake: SystemExit(3)),
    ("validate", "'regstr'", with_ops_hook(lambda regstr: None)),
    ("validate", "did you mean 'uopc_register_ops'?", misspelt),
    ("validate", "not marked with @hookimpl", unmarked),
    ("validate", "is a class", lambda fake: AClass),
    ("uopc_register_ops", "must return None", with_ops_hook(yielding)),
    (
        "uopc_register_ops",
        "expected an OpDef",
        with_ops_hook(lambda register: register(1)),
    ),
    ("uopc_register_vjps", "LookupError: no table of coefficients", failing_halfway),
]


@pytest.mark.parametrize(("phase", "text", "make"), WAYS)
def test_each_way_to_fail(
    fake: SimpleNamespace, phase: str, text: str, make: Any
) -> None:
    target = make(fake)
    good = fake.op_plugin(fake.Op("add"))
    host = PluginHost(
        [
            fake.entry_point("core", good),
            fake.entry_point("erf", target, "uopc-erf 0.2"),
            fake.entry_point("zeta", fake.op_plugin(fake.Op("zeta"))),
        ]
    )
    [warning] = load_quietly(host)
    [failure] = host.failures
    assert failure.phase == phase
    assert warning.startswith(f"plugin 'erf' (uopc-erf 0.2) failed in {phase}: ")
    assert text in warning
    reg = host.registry
    assert list(reg.ops) == ["add", "zeta"]
    assert not (reg.vjps or reg.backends or reg.rewrites or reg.spellings)
    assert set(reg.owners.values()) == {"core", "zeta"}
    assert host.hook.uopc_gradient(root=1, seed=1, targets=[]) is None
    assert [(p.name, p.status) for p in host.plugins] == [
        ("core", "loaded"),
        ("erf", "failed"),
        ("zeta", "loaded"),
    ]
    assert host.plugins[1].registered == {}


@pytest.mark.parametrize(
    ("hook", "call"),
    [
        ("uopc_register_ops", lambda register, op: register(op)),
        ("uopc_register_vjps", lambda register, op: register(op, print)),
        ("uopc_register_backends", lambda register, op: register("toy", dict)),
        ("uopc_register_spellings", lambda register, op: register("c", op, "x")),
        (
            "uopc_register_commands",
            lambda cli, op: cli.add("shout", "help", print, print),
        ),
    ],
)
def test_two_owners_of_a_key(fake: SimpleNamespace, hook: str, call: Any) -> None:
    op = fake.Op("erf")

    def plugin() -> Any:
        if hook == "uopc_register_commands":
            return fake.plugin(**{hook: lambda cli: call(cli, op)})
        return fake.plugin(**{hook: lambda register: call(register, op)})

    host = PluginHost([fake.entry_point(name, plugin()) for name in ("one", "two")])
    [warning] = load_quietly(host)
    assert "plugin 'one'" in warning
    assert "plugin 'two'" in warning
    assert set(host.registry.owners.values()) == {"one"}


def test_a_key_twice_in_one_plugin(fake: SimpleNamespace) -> None:
    plugin = fake.op_plugin(fake.Op("erf"), fake.Op("erf"))
    host = PluginHost([fake.entry_point("erf", plugin)])
    [warning] = load_quietly(host)
    assert "plugin 'erf' registers op 'erf' twice" in warning


def test_a_spelling_conflict_names_backend_and_op(fake: SimpleNamespace) -> None:
    op = fake.Op("erf")

    def plugin() -> Any:
        return fake.plugin(
            uopc_register_spellings=lambda register: register("c", op, "x")
        )

    host = PluginHost([fake.entry_point(name, plugin()) for name in "ab"])
    [warning] = load_quietly(host)
    assert "spelling 'erf' of 'c' is registered by plugin 'a' and by" in warning
    assert "override=True" in warning


def test_the_names_of_own_commands_are_reserved(fake: SimpleNamespace) -> None:
    plugin = fake.plugin(
        uopc_register_commands=lambda cli: cli.add("doctor", "mine", print, print)
    )
    host = PluginHost([fake.entry_point("erf", plugin)])
    [warning] = load_quietly(host)
    assert "command 'doctor' is one of uopc's own" in warning


def test_two_plugins_of_one_name(fake: SimpleNamespace) -> None:
    host = PluginHost(
        [
            fake.entry_point("core", fake.op_plugin(fake.Op("x")), "aaa 1"),
            fake.entry_point("core", fake.op_plugin(fake.Op("add")), "uopc-core 1"),
        ]
    )
    [warning] = load_quietly(host)
    assert "name 'core' is used by uopc-core 1 and by aaa 1" in warning
    assert list(host.registry.ops) == ["add"]


def test_one_module_under_two_names(fake: SimpleNamespace) -> None:
    plugin = fake.plugin(uopc_doctor=lambda: [])
    host = PluginHost([fake.entry_point(name, plugin) for name in "ab"])
    [warning] = load_quietly(host)
    assert warning.startswith("plugin 'b' failed in validate: ValueError")
    assert len(host.call_each("uopc_doctor")) == 1


def test_register_does_not_outlive_its_hook(fake: SimpleNamespace) -> None:
    kept: list[Any] = []
    plugin = fake.plugin(
        uopc_register_ops=lambda register: kept.append(register),
        uopc_register_rewrites=lambda register: kept.append(register),
    )
    host = PluginHost([fake.entry_point("a", plugin)])
    host.load()
    for late in (lambda: kept[0](fake.Op("erf")), lambda: kept[1]("simplify", [])):
        with pytest.raises(RuntimeError, match="after its hook has returned"):
            late()
    assert host.registry.ops == {}


def test_each_failure_warns_once(fake: SimpleNamespace) -> None:
    host = PluginHost([fake.entry_point(name, ImportError(name)) for name in "abb"])
    assert len(host.failures) == 3
    assert len(load_quietly(host)) == 3
    assert host.failure_note().count("; note: plugin") == 3


def test_strict_raises_and_goes_on_raising(fake: SimpleNamespace) -> None:
    points = [
        fake.entry_point("a", ImportError("x"), "uopc-a 1"),
        fake.entry_point("b", fake.op_plugin(fake.Op("erf"))),
        fake.entry_point("c", failing_halfway(fake)),
    ]
    host = PluginHost(points, strict=True)
    for ask in (host.load, lambda: host.registry, lambda: host.hook):
        with pytest.raises(PluginError) as caught:
            ask()
        assert "plugin 'a' (uopc-a 1) failed in import: ImportError: x" in str(
            caught.value
        )
        assert [failure.name for failure in caught.value.failures] == ["a", "c"]
        assert isinstance(caught.value.__cause__, ImportError)
    assert [point.loads for point in points] == [1, 1, 1]
    assert [info.status for info in host.plugins] == ["failed", "loaded", "failed"]


def test_strict_by_variable(
    fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UOPC_PLUGINS_STRICT", "1")
    with pytest.raises(PluginError):
        PluginHost([fake.entry_point("a", ImportError("x"))]).load()
    host = PluginHost([fake.entry_point("a", ImportError("x"))], strict=False)
    assert len(load_quietly(host)) == 1


def test_strict_without_failures(fake: SimpleNamespace) -> None:
    host = PluginHost([fake.entry_point("a", fake.op_plugin())], strict=True)
    assert host.load() is host.registry


def test_register_module_reports_and_can_be_repeated(fake: SimpleNamespace) -> None:
    host = PluginHost([])
    with pytest.warns(PluginWarning, match="plugin 'mine' failed in uopc_register_vj"):
        info = host.register_module(failing_halfway(fake), "mine")
    assert info.status == "failed"
    assert host.failure_note() != ""
    assert host.register_module(fake.op_plugin(fake.Op("erf")), "mine").status == (
        "loaded"
    )
    assert host.failure_note() == ""
    assert [plugin.status for plugin in host.plugins] == ["loaded"]


def test_register_module_in_strict_mode(fake: SimpleNamespace) -> None:
    host = PluginHost([], strict=True)
    with pytest.raises(PluginError, match="'mine'"):
        host.register_module(failing_halfway(fake), "mine")
    assert host.registry.ops == {}


def test_the_failure_note(fake: SimpleNamespace) -> None:
    host = PluginHost([fake.entry_point("erf", failing_halfway(fake), "uopc-erf 0.2")])
    assert host.failure_note() == ""
    load_quietly(host)
    assert f"no gradient rule for op 'erf'{host.failure_note()}" == (
        "no gradient rule for op 'erf'; note: plugin 'erf' (uopc-erf 0.2) failed in "
        "uopc_register_vjps: LookupError: no table of coefficients"
    )


def test_a_failure_without_distribution_or_message() -> None:
    failure = PluginFailure("erf", "", "", "import", ZeroDivisionError())
    assert str(failure) == "plugin 'erf' failed in import: ZeroDivisionError"

"""The plugin host: what it loads, when, in which order, and who sees it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from uopc import config
from uopc.plugins import (
    PluginHost,
    current,
    hookimpl,
    registry,
    use,
)

# Rewrite rules as far as the registry looks: it asks for a pattern and a function.
RULES = [type("FakeRule", (), {"pattern": k, "build": print})() for k in "abc"]


def test_nothing_loads_before_the_first_need(fake: SimpleNamespace) -> None:
    entry_point = fake.entry_point("erf", fake.op_plugin(fake.Op("erf")))
    host = PluginHost([entry_point])
    assert entry_point.loads == 0
    with use(host):
        assert entry_point.loads == 0
        assert list(registry().ops) == ["erf"]
    host.load()
    assert list(host.registry.ops) == ["erf"]
    assert entry_point.loads == 1


@pytest.mark.parametrize("question", ["registry", "hook", "plugins", "failures"])
def test_each_question_loads(fake: SimpleNamespace, question: str) -> None:
    entry_point = fake.entry_point("erf", fake.op_plugin())
    getattr(PluginHost([entry_point]), question)
    assert entry_point.loads == 1


def test_many_threads_load_once_and_wait(fake: SimpleNamespace) -> None:
    def slowly() -> Any:
        time.sleep(0.05)
        return fake.op_plugin(fake.Op("erf"))

    entry_point = fake.entry_point("erf", fake.Loader(slowly))
    host = PluginHost([entry_point])
    barrier = threading.Barrier(8)
    seen: list[list[str]] = []

    def ask() -> None:
        barrier.wait()
        seen.append(list(host.registry.ops))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [["erf"]] * 8
    assert entry_point.loads == 1


def test_everything_is_registered_with_its_owner(fake: SimpleNamespace) -> None:
    op, ran = fake.Op("erf"), []

    def rule(node: Any, g: Any) -> tuple[Any, ...]:
        return (g,)

    def add_commands(cli: Any) -> None:
        cli.add("shout", "say it", ran.append, lambda args: 0)

    plugin = fake.plugin(
        uopc_register_ops=lambda register: register(op),
        uopc_register_vjps=lambda register: register(op, rule),
        uopc_register_rewrites=lambda register: register("simplify", iter(RULES[:2])),
        uopc_register_backends=lambda register: register("toy", dict),
        uopc_register_spellings=lambda register: register("c", op, "erf({0})"),
        uopc_register_commands=add_commands,
        uopc_gradient=lambda root, seed, targets: [root],
    )
    host = PluginHost([fake.entry_point("erf", plugin, "uopc-erf 0.2")])
    reg = host.registry
    assert reg.ops == {"erf": op}
    assert reg.vjps == {op: rule}
    assert reg.rewrites == {"simplify": RULES[:2]}
    assert reg.backends == {"toy": dict}
    assert reg.spellings == {("c", op): "erf({0})"}
    assert reg.commands["shout"].help == "say it"
    assert reg.owners == {
        ("ops", "erf"): "erf",
        ("vjps", op): "erf",
        ("rewrites", RULES[0]): "erf",
        ("rewrites", RULES[1]): "erf",
        ("backends", "toy"): "erf",
        ("spellings", ("c", op)): "erf",
        ("commands", "shout"): "erf",
    }
    [info] = host.plugins
    assert (info.name, info.distribution, info.version) == ("erf", "uopc-erf", "0.2")
    assert info.file == "/somewhere/uopc_fake.py"
    assert info.status == "loaded"
    assert info.registered == {
        "ops": 1,
        "vjps": 1,
        "rewrites": 2,
        "backends": 1,
        "spellings": 1,
        "commands": 1,
        "gradient": 1,
    }
    assert host.hook.uopc_gradient(root=1, seed=2, targets=[]) == [1]


def test_core_comes_first_then_names_in_order(fake: SimpleNamespace) -> None:
    order: list[str] = []

    def entry_point(name: str) -> Any:
        def load() -> Any:
            order.append(name)
            return fake.op_plugin()

        return fake.entry_point(name, fake.Loader(load))

    PluginHost(map(entry_point, ["erf", "core", "alpha"])).load()
    assert order == ["core", "alpha", "erf"]


def test_rewrites_for_no_stage_are_an_error(fake: SimpleNamespace) -> None:
    plugin = fake.plugin(uopc_register_rewrites=lambda register: register("early", []))
    host = PluginHost([fake.entry_point("early", plugin)])
    host.load(quiet=True)
    (failure,) = host.failures
    assert "there is no rewrite stage 'early'; stages: simplify" in str(failure)


def test_a_rewrite_that_is_no_rule_is_an_error(fake: SimpleNamespace) -> None:
    plugin = fake.plugin(
        uopc_register_rewrites=lambda register: register("simplify", [lambda x: x])
    )
    host = PluginHost([fake.entry_point("odd", plugin)])
    host.load(quiet=True)
    (failure,) = host.failures
    assert "expected a uopc.simplify.Rule, got <function" in str(failure)


def test_rewrites_of_plugins_add_up(fake: SimpleNamespace) -> None:
    def plugin(*rules: Any) -> Any:
        return fake.plugin(
            uopc_register_rewrites=lambda register: register("simplify", rules)
        )

    host = PluginHost(
        [
            fake.entry_point("b", plugin(RULES[2])),
            fake.entry_point("a", plugin(*RULES[:2])),
        ]
    )
    assert host.registry.rewrites == {"simplify": RULES}


@pytest.mark.parametrize("way", ["argument", "variable"])
def test_blocked_plugins_are_listed_and_not_imported(
    fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    entry_point = fake.entry_point("erf", fake.op_plugin(fake.Op("erf")), "uopc-erf 1")
    if way == "variable":
        monkeypatch.setenv("UOPC_PLUGINS_BLOCK", "other, erf")
    host = PluginHost([entry_point], block=["erf"] if way == "argument" else [])
    assert host.registry.ops == {}
    assert entry_point.loads == 0
    [info] = host.plugins
    assert (info.name, info.version, info.status) == ("erf", "1", "blocked")
    assert not host.failures


def test_override_replaces_and_takes_ownership(fake: SimpleNamespace) -> None:
    first, second = fake.Op("erf"), fake.Op("erf")
    host = PluginHost(
        [
            fake.entry_point("a", fake.op_plugin(first)),
            fake.entry_point("b", fake.op_plugin(second, override=True)),
        ]
    )
    assert host.registry.ops == {"erf": second}
    assert host.registry.owners == {("ops", "erf"): "b"}


def test_use_scopes_the_active_host(fake: SimpleNamespace) -> None:
    default = current()
    outer, inner = PluginHost([]), PluginHost([])
    with use(outer) as entered:
        assert entered is outer is current()
        with use(inner):
            assert current() is inner
            assert registry() is inner.registry
        assert current() is outer
        with pytest.raises(ZeroDivisionError), use(inner):
            raise ZeroDivisionError
        assert current() is outer
    assert current() is default


def test_other_threads_keep_their_host() -> None:
    seen: list[PluginHost] = []
    default = current()
    with use(PluginHost([])):
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
    assert seen == [default]


def test_hosts_share_nothing(fake: SimpleNamespace) -> None:
    full = PluginHost([fake.entry_point("erf", fake.op_plugin(fake.Op("erf")))])
    empty = PluginHost([])
    assert list(full.registry.ops) == ["erf"]
    assert empty.registry.ops == {}


def test_register_module_adds_after_the_others(fake: SimpleNamespace) -> None:
    host = PluginHost([fake.entry_point("core", fake.op_plugin(fake.Op("add")))])
    info = host.register_module(fake.op_plugin(fake.Op("erf")), "mine")
    assert info.status == "loaded"
    assert list(host.registry.ops) == ["add", "erf"]
    assert [plugin.name for plugin in host.plugins] == ["core", "mine"]


def test_a_plugin_can_be_an_object() -> None:
    class Viewer:
        def __init__(self) -> None:
            self.seen: list[str] = []

        @hookimpl
        def uopc_after_pass(self, name: str) -> None:
            self.seen.append(name)

    viewer, host = Viewer(), PluginHost([])
    info = host.register_module(viewer, "viewer")
    assert info.registered == {"after_pass": 1}
    assert info.file == __file__
    host.hook.uopc_after_pass(name="simplify", before=1, after=2, seconds=0.1)
    assert viewer.seen == ["simplify"]


def test_a_plugin_that_asks_while_it_loads_sees_what_came_before(
    fake: SimpleNamespace,
) -> None:
    seen: list[list[str]] = []

    def uopc_register_ops(register: Any) -> None:
        register(fake.Op("erf"))
        seen.append(list(registry().ops))

    asking = fake.plugin(uopc_register_ops=uopc_register_ops)
    core = fake.entry_point("core", fake.op_plugin(fake.Op("add")))
    host = PluginHost([core, fake.entry_point("erf", asking)])
    with use(host):
        assert list(registry().ops) == ["add", "erf"]
    assert seen == [["add"]]


def test_the_stamp_tells_sets_of_plugins_apart(fake: SimpleNamespace) -> None:
    def stamp(*names: str) -> str:
        points = [fake.entry_point(n.split()[0], fake.op_plugin(), n) for n in names]
        return PluginHost(points).registry.stamp

    assert stamp("a 1", "b 1") == stamp("b 1", "a 1")
    assert len({stamp("a 1"), stamp("a 2"), stamp("b 1"), stamp("a 1", "b 1")}) == 4


def test_a_stamp_without_a_version_is_unique(fake: SimpleNamespace) -> None:
    hosts = [PluginHost([fake.entry_point("a", fake.op_plugin())]) for _ in range(2)]
    assert hosts[0].registry.stamp != hosts[1].registry.stamp


def test_broken_metadata_is_no_reason_to_fail(fake: SimpleNamespace) -> None:
    entry_point = fake.entry_point("erf", fake.op_plugin(fake.Op("erf")))
    entry_point.dist = SimpleNamespace(name=None)
    host = PluginHost([entry_point])
    assert list(host.registry.ops) == ["erf"]
    assert host.plugins[0].distribution == ""


def test_an_interrupted_load_goes_on_where_it_stopped(fake: SimpleNamespace) -> None:
    good = fake.entry_point("a", fake.op_plugin(fake.Op("erf")))
    bad = fake.entry_point("b", KeyboardInterrupt())
    host = PluginHost([good, bad])
    with pytest.raises(KeyboardInterrupt):
        host.load()
    bad.target = fake.op_plugin(fake.Op("gamma"))
    assert list(host.registry.ops) == ["erf", "gamma"]
    assert (good.loads, bad.loads) == (1, 2)


def test_call_each_keeps_results_apart(fake: SimpleNamespace) -> None:
    broken = fake.plugin(uopc_doctor=lambda: 1 // 0)
    fine = fake.plugin(uopc_doctor=lambda: [("compiler", "cc")])
    host = PluginHost([fake.entry_point("a", broken), fake.entry_point("b", fine)])
    first, second = host.call_each("uopc_doctor")
    assert first[0] == "a"
    assert isinstance(first[2], ZeroDivisionError)
    assert second == ("b", [("compiler", "cc")], None)


def test_an_override_of_the_block_is_scoped(fake: SimpleNamespace) -> None:
    host = PluginHost([fake.entry_point("erf", fake.op_plugin())])
    with config.overriding(UOPC_PLUGINS_BLOCK=("erf",)):
        assert host.plugins[0].status == "blocked"

"""The name of an op is one that the text form can write."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from uopc.plugins import PluginHost


@pytest.mark.parametrize("name", ["erf", "_x", "scatter_add2", "true", "inf"])
def test_names_that_can_be_written(fake: SimpleNamespace, name: str) -> None:
    host = PluginHost([fake.entry_point("mine", fake.op_plugin(fake.Op(name)))])
    assert list(host.registry.ops) == [name]


@pytest.mark.parametrize("name", ["a b", "a-b", "a.b", "2d", "é", "a\n", "%0", "#"])
def test_names_that_cannot(fake: SimpleNamespace, name: str) -> None:
    host = PluginHost([fake.entry_point("mine", fake.op_plugin(fake.Op(name)))])
    host.load(quiet=True)
    [failure] = host.failures
    assert "the name of an op has letters, digits and underscores" in str(failure)
    assert repr(name) in str(failure)

"""C that cannot be compiled or loaded: the error says whose spellings are in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from uopc.backend_c import CompileError, Spelling
from uopc.backend_c.load import LoadError
from uopc.config import overriding
from uopc.plugins import PluginHost, hookimpl, use
from uopc.tensor import Tensor
from uopc.uop import OpDef, UOp, elementwise

pytestmark = pytest.mark.usefixtures("own_cache")

AT_FAULT = {
    "(no_such_function({0}))": (LoadError, "undefined symbol: no_such_function"),
    "({0}+)": (CompileError, "expected expression"),
}


def op(name: str) -> OpDef:
    return OpDef(name, "elementwise", 1, elementwise(("float",)), "The same.")


BAD, FINE, FOREIGN = op("bad"), op("fine"), op("foreign")


@pytest.fixture
def host() -> Iterator[PluginHost]:
    with use(PluginHost()) as found, overriding(UOPC_BACKEND="c"):
        yield found


def register(host: PluginHost, name: str, backend: str, spelled: Any) -> None:
    class Plugin:
        @hookimpl
        def uopc_register_ops(self, register: Any) -> None:
            for op in spelled:
                register(op)

        @hookimpl
        def uopc_register_spellings(self, register: Any) -> None:
            for op, text in spelled.items():
                register(backend, op, Spelling(text))

    host.register_module(Plugin(), name)


def applied(x: Tensor, *ops: OpDef) -> Tensor:
    for each in ops:
        x = x.apply(lambda u, each=each: UOp(each, (u,)))  # type: ignore[misc]
    return x


@pytest.mark.parametrize("text", AT_FAULT)
def test_the_plugins_whose_spellings_are_in_it_are_named(
    host: PluginHost, text: str
) -> None:
    register(host, "one", "c", {BAD: text})
    register(host, "other", "c", {FINE: "{0}"})
    kind, words = AT_FAULT[text]
    with pytest.raises(kind, match=words) as caught:
        applied(Tensor([1.0]) * 2.0, BAD, FINE).realize()
    (note,) = caught.value.__notes__
    assert note.startswith("ops of this program, by who spelled them in C: ")
    for row in ("mul (plugin 'c')", "bad (plugin 'one')", "fine (plugin 'other')"):
        assert row in note


def test_an_op_that_is_not_in_the_program_is_not_named(host: PluginHost) -> None:
    register(host, "one", "c", {BAD: "({0}+)", FINE: "{0}"})
    with pytest.raises(CompileError) as caught:
        applied(Tensor([1.0]), BAD).realize()
    assert "fine" not in caught.value.__notes__[0]


def test_an_op_without_a_spelling_says_which_backends_have_one(
    host: PluginHost,
) -> None:
    register(host, "one", "metal", {FOREIGN: "{0}"})
    with pytest.raises(NotImplementedError) as caught:
        applied(Tensor([1.0]), FOREIGN).realize()
    assert "backend 'c' has no spelling for foreign" in str(caught.value)
    assert "(backends that have one: 'metal')" in str(caught.value)
    assert "UOPC_BACKEND=interp" in str(caught.value)
    with pytest.raises(NotImplementedError, match=r"backends that have one: none"):
        applied(Tensor([1.0]), op("nobodys")).realize()

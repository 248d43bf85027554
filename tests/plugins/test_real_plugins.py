"""Hooks with the real built-in plugin: what a plugin registers, the compiler uses.

Only core's own plugin is loaded, whatever else is installed.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uopc.dtype import f32
from uopc.interp import ReferenceBackend
from uopc.plugins import PluginHost, registry, use
from uopc.runtime import backend_named, default_backend, lower
from uopc.simplify import RULES, Op, Rule, Simplifier, Var
from uopc.tensor import Tensor
from uopc.testing import buf
from uopc.uir import UirError, parse_uir, to_uir
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp, toposort

ENGINE = "backward needs a gradient engine: pip install uopc-autodiff"


@pytest.fixture
def host() -> Iterator[PluginHost]:
    """A host in use, with the plugins of the distribution uopc-core."""
    points = importlib.metadata.distribution("uopc-core").entry_points
    with use(PluginHost(points.select(group="uopc.plugins"), strict=True)) as found:
        yield found


def an_op(name: str, **columns: Any) -> OpDef:
    """A unary op on floats; its meaning is that of sine."""
    row: dict[str, Any] = {"numpy": Ops.SIN.numpy, **columns}
    return OpDef(name, "elementwise", 1, Ops.SIN.infer, "An op.", **row)


def add(host: PluginHost, fake: SimpleNamespace, **hooks: Any) -> None:
    assert host.register_module(fake.plugin(**hooks), "mine").status == "loaded"


def test_core_registers_its_ops_and_the_reference(host: PluginHost) -> None:
    [info] = host.plugins
    assert (info.name, info.distribution) == ("core", "uopc-core")
    assert info.registered == {"ops": len(BUILTIN_OPS), "backends": 1}
    reg = host.registry
    assert reg.ops == {op.name: op for op in BUILTIN_OPS}
    assert set(reg.owners.values()) == {"core"}
    assert isinstance(default_backend(), ReferenceBackend)


def test_no_engine_no_gradient(host: PluginHost) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(RuntimeError) as caught:
        (w * w).sum().backward([w])
    assert str(caught.value) == ENGINE
    assert w.grad is None


def test_backward_calls_the_engine_that_is_registered(
    host: PluginHost, fake: SimpleNamespace
) -> None:
    asked: list[tuple[UOp, Any, list[UOp]]] = []

    def uopc_gradient(root: UOp, seed: Any, targets: list[UOp]) -> list[UOp]:
        asked.append((root, seed, list(targets)))
        return [t.const_like(7.0) for t in targets]

    add(host, fake, uopc_gradient=uopc_gradient)
    v, w = (Tensor(x, requires_grad=True) for x in ([1.0], [2.0, 3.0]))
    loss = v.sum() * w.sum()
    loss.backward([v, w])
    assert [x.grad.tolist() for x in (v, w)] == [[7.0], [7.0, 7.0]]
    [(root, seed, targets)] = asked
    assert root is loss.uop
    assert seed is None
    assert targets == [v.uop, w.uop]


def test_an_engine_may_decline(host: PluginHost, fake: SimpleNamespace) -> None:
    add(host, fake, uopc_gradient=lambda root, seed, targets: None)
    with pytest.raises(RuntimeError, match=ENGINE):
        Tensor([1.0], requires_grad=True).sum().backward()


def test_a_rewrite_of_a_plugin_is_applied(
    host: PluginHost, fake: SimpleNamespace
) -> None:
    x = Var("x")
    twice = Op(Ops.SIN, Op(Ops.SIN, x))
    rule = Rule("sine-twice", twice, lambda x: x.sqrt())
    scalar = UOp.param(0, f32)
    before = scalar.sin().sin()
    assert Simplifier()(before) is before
    add(
        host, fake, uopc_register_rewrites=lambda register: register("simplify", [rule])
    )
    assert Simplifier()(before) is scalar.sqrt()
    assert Simplifier(RULES)(before) is before
    # And by the passes: the loops of a kernel have it, too.
    ops = {u.op for u in toposort([lower(buf(0, 8).sin().sin(), "k")])}
    assert Ops.SQRT in ops
    assert Ops.SIN not in ops


def test_an_observer_sees_every_pass(host: PluginHost, fake: SimpleNamespace) -> None:
    seen: list[tuple[str, UOp, UOp]] = []

    def uopc_after_pass(name: str, before: UOp, after: UOp, seconds: float) -> None:
        assert seconds >= 0
        seen.append((name, before, after))

    add(host, fake, uopc_after_pass=uopc_after_pass)
    ast = buf(0, 8).sin()
    sink = lower(ast, "k")
    assert [name for name, _, _ in seen] == ["rangeify", "schedule"]
    assert seen[0][1] is ast
    assert seen[0][2] is seen[1][1]
    assert seen[-1][2] is sink


def test_an_observer_that_fails_is_a_warning(
    host: PluginHost, fake: SimpleNamespace
) -> None:
    add(host, fake, uopc_after_pass=lambda name: 1 // 0)
    with pytest.warns(RuntimeWarning, match="'mine' failed in uopc_after_pass"):
        assert lower(buf(0, 8).sin(), "k").op is Ops.SINK


class Counting(ReferenceBackend):
    """The reference, under another name, counting the plans that it compiles."""

    name = "counting"
    priority = 5

    def __init__(self, unsupported: OpDef | None = None, why: str | None = None):
        self.plans = 0
        self._unsupported = unsupported
        self._why = why

    def unavailable(self) -> str | None:
        return self._why

    def supports(self, op: OpDef) -> bool:
        return op is not self._unsupported and super().supports(op)

    def compile(self, plan: Any) -> Any:
        self.plans += 1
        return super().compile(plan)


def test_a_better_backend_of_a_plugin_runs(
    host: PluginHost, fake: SimpleNamespace
) -> None:
    made: list[Counting] = []

    def factory() -> Counting:
        made.append(Counting())
        return made[0]

    add(
        host,
        fake,
        uopc_register_backends=lambda register: register("counting", factory),
    )
    assert made == []
    assert (Tensor([1.0, 2.0]) * 2).tolist() == [2.0, 4.0]
    assert (Tensor([3.0, 4.0]) * 2).tolist() == [6.0, 8.0]
    assert [backend.plans for backend in made] == [1]
    assert default_backend() is made[0]
    assert backend_named("interp").name == "interp"


def test_a_backend_that_cannot_run_is_passed_over_with_one_warning(
    host: PluginHost, fake: SimpleNamespace
) -> None:
    add(
        host,
        fake,
        uopc_register_backends=lambda register: register(
            "absent", lambda: Absent(why="no such machine")
        ),
    )
    with pytest.warns(
        RuntimeWarning, match="'absent' cannot run here.*no such mach"
    ) as w:
        assert default_backend().name == "interp"
    assert w[0].filename == __file__
    assert default_backend().name == "interp"


class Absent(Counting):
    name = "absent"


def test_an_unknown_backend_names_the_known(host: PluginHost) -> None:
    with pytest.raises(RuntimeError, match=r"no backend named 'gpu' \(known: interp\)"):
        backend_named("gpu")


def register_op_and_backend(
    host: PluginHost, fake: SimpleNamespace, op: OpDef, name: str
) -> None:
    """An op, and a backend that has it not."""
    add(
        host,
        fake,
        uopc_register_ops=lambda register: register(op),
        uopc_register_backends=lambda register: register(name, lambda: Counting(op)),
    )


def test_an_op_is_lowered_where_a_backend_lacks_it(
    host: PluginHost, fake: SimpleNamespace
) -> None:
    op = an_op("doubled", lower=lambda u: u.src[0] * 2.0)
    register_op_and_backend(host, fake, op, "lacking")
    x = Tensor([1.0, 2.0]).apply(lambda u: UOp(op, (u,)))
    assert x.tolist() == [2.0, 4.0]


def test_an_op_with_no_way_to_run_quotes_what_failed(
    host: PluginHost, fake: SimpleNamespace
) -> None:
    op = an_op("opaque")
    register_op_and_backend(host, fake, op, "lacking")
    host._strict = False
    with pytest.warns(RuntimeWarning, match="'bad'"):
        host.register_module(fake.plugin(uopc_register_ops=lambda register: 1), "bad")
    with pytest.raises(NotImplementedError) as caught:
        Tensor([1.0]).apply(lambda u: UOp(op, (u,))).numpy()
    assert "no spelling for opaque" in str(caught.value)
    assert "; note: plugin 'bad' failed in uopc_register_ops" in str(caught.value)
    with pytest.raises(UirError, match=r"got 'sine'; note: plugin 'bad' failed in"):
        parse_uir("%0 = sine 1.0")


def test_the_text_form_reads_the_ops_of_the_host_in_use(
    host: PluginHost, fake: SimpleNamespace
) -> None:
    op = an_op("sine")
    graph = UOp(op, (buf(0, 3),))
    text = "%0 = buffer 3 : dtype=f32 slot=0\n%1 = sine %0"
    assert to_uir(graph) == text
    with pytest.raises(UirError, match="line 2, column 6: expected the name of an op"):
        parse_uir(text)
    add(host, fake, uopc_register_ops=lambda register: register(op))
    assert parse_uir(text) is graph
    with use(PluginHost([])), pytest.raises(UirError, match="line 1, column 6"):
        parse_uir(text)


def test_apply_joins_the_graph(host: PluginHost) -> None:
    """What a plugin's functions on tensors are made with."""
    a = Tensor([[1.0, 2.0]], requires_grad=True)
    b = Tensor([[3.0, 5.0]])
    c = a.apply(lambda x, y: x * y + x, b)
    assert c.requires_grad
    assert not c.is_leaf
    assert not b.apply(lambda x: x.sin()).requires_grad
    assert b.apply(lambda x, y: x + y, a).requires_grad
    np.testing.assert_array_equal(c.numpy(), [[4.0, 12.0]])


def test_the_registry_is_that_of_the_host_in_use(host: PluginHost) -> None:
    assert registry() is host.registry
    with use(PluginHost([])):
        assert registry().ops == {}

"""A third party's op: one row in one file, and everything else follows from it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from uopc.autodiff import gradient
from uopc.cli.main import main
from uopc.config import overriding
from uopc.dtype import DTYPES, bf16, f16, f32, f64
from uopc.interp import evaluate
from uopc.kernelize import make_plan
from uopc.nn import SGD
from uopc.plugins import PluginHost, registry, use
from uopc.runtime import backend_named
from uopc.simplify import fold
from uopc.tensor import Tensor
from uopc.testing import check_op, compare, random_graph
from uopc.uir import UirError, parse_uir, to_uir
from uopc.uop import OpDef, Ops, UOp, toposort

# The whole plugin.
PLUGIN = '''
"""hypot(a, b), the length of a vector."""

import numpy as np
from uopc.plugins import hookimpl
from uopc.uop import OpDef, elementwise

HYPOT = OpDef(
    "hypot", "elementwise", 2, elementwise(("float",)),
    "sqrt(a * a + b * b).",
    numpy=lambda u, a, b: np.sqrt(a * a + b * b),
    commutative=True, cost=6, domain="nonzero",
    lower=lambda u: (u.src[0] * u.src[0] + u.src[1] * u.src[1]).sqrt(),
)


@hookimpl
def uopc_register_ops(register):
    register(HYPOT)
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The file, imported and registered in a host of its own."""
    (tmp_path / "uopc_hypot.py").write_text(textwrap.dedent(PLUGIN))
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__("uopc_hypot")
    host = PluginHost()
    with use(host):
        assert host.register_module(module, "hypot").status == "loaded"
        yield module
    del sys.modules["uopc_hypot"]


def node(op: OpDef, dtype=f32, shape: tuple[int, ...] = (4,)) -> UOp:
    return UOp(op, tuple(UOp.param(i, dtype, shape) for i in (0, 1)))


def test_the_row_passes_every_check_on_every_backend(plugin: ModuleType) -> None:
    """Text, stages, meaning, properties, lower, C, gradients to second order."""
    assert check_op(plugin.HYPOT, backends=("interp", "c")) == 4


def test_the_text_form_knows_it_while_it_is_registered(plugin: ModuleType) -> None:
    u = node(plugin.HYPOT)
    text = to_uir(u)
    assert text.splitlines()[-1] == "%2 = hypot %0, %1"
    assert parse_uir(text) is u
    with (
        use(PluginHost()),
        pytest.raises(UirError, match=r"line 3, column 6: .*'hypot'"),
    ):
        parse_uir(text)


def test_inference_checks_its_operands(plugin: ModuleType) -> None:
    assert node(plugin.HYPOT, f64).dtype is f64
    with pytest.raises(ValueError, match=r"hypot\(f32\[2\], f32\[3\]\): shape mismat"):
        UOp(plugin.HYPOT, (UOp.param(0, f32, (2,)), UOp.param(1, f32, (3,))))
    with pytest.raises(TypeError, match=r"hypot\(.*expected a dtype of kind float"):
        node(plugin.HYPOT, DTYPES["i32"])


def test_the_interpreter_runs_it(plugin: ModuleType) -> None:
    u = node(plugin.HYPOT)
    given = {u.src[0]: np.float32([3, 5, 0, -8]), u.src[1]: np.float32([4, 12, 0, 6])}
    assert evaluate([u], given)[0].tolist() == [5, 13, 0, 10]
    halves = node(plugin.HYPOT, bf16)
    (value,) = evaluate([halves], dict(zip(halves.src, given.values(), strict=True)))
    assert value.tolist() == [5, 13, 0, 10]


def test_it_folds_only_if_the_row_calls_it_exact(plugin: ModuleType) -> None:
    three, four = UOp.const(3.0, f32), UOp.const(4.0, f32)
    assert fold(UOp(plugin.HYPOT, (three, four))) is None
    assert fold(UOp(Ops.ADD, (three, four))) is UOp.const(7.0, f32)


def test_c_and_gradients_come_from_lower(plugin: ModuleType) -> None:
    live = [Tensor([3.0, 5.0]), Tensor([4.0, 12.0])]
    root = UOp(plugin.HYPOT, tuple(t.uop for t in live))
    plan, _ = make_plan([root], None, backend_named("c").supports, "c")
    ops = {u.op for k in plan.kernels for u in toposort([k.ast])}
    assert Ops.SQRT in ops
    assert plugin.HYPOT not in ops
    (slope,) = gradient(root, [live[0].uop])
    np.testing.assert_allclose(Tensor(slope).numpy(), [3 / 5, 5 / 13], rtol=1e-6)


@pytest.mark.parametrize("backend", ["c", "interp"])
def test_a_model_trains_through_it(plugin: ModuleType, backend: str) -> None:
    with overriding(UOPC_BACKEND=backend):
        x = Tensor(np.float32([1.0, 2.0, 3.0]))
        w = Tensor([0.5], requires_grad=True)
        opt = SGD([w], lr=0.05)
        for _ in range(60):
            y = x.apply(lambda a, b: UOp(plugin.HYPOT, (a, b)), w.expand(3))
            loss = (y - Tensor([2.0**0.5, 5**0.5, 10**0.5])).square().sum()
            loss.backward([w])
            opt.step(loss)
            opt.zero_grad()
        assert abs(w.item() - 1) < 0.02


def test_half_types_and_plain_tensors(plugin: ModuleType) -> None:
    for dtype in (f16, bf16):
        a, b = Tensor([3.0], dtype=dtype), Tensor([4.0], dtype=dtype)
        with overriding(UOPC_BACKEND="c"):
            got = a.apply(lambda x, y: UOp(plugin.HYPOT, (x, y)), b)
            assert (got.dtype, got.tolist()) == (dtype, [5.0])


def test_random_graphs_take_it_up(plugin: ModuleType) -> None:
    few = (Ops.CONST, Ops.BUFFER, Ops.ADD, Ops.REDUCE, Ops.EXPAND, plugin.HYPOT)
    graphs = [random_graph(s, ops=few) for s in range(40)]
    used = [g for g in graphs if any(u.op is plugin.HYPOT for u in toposort(g.roots))]
    assert len(used) > 3
    assert not any(compare(used, "c"))


def test_the_reference_page_shows_it(
    plugin: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "hypot" in registry().ops
    assert main(["ops"]) == 0
    row = "| `hypot` | 2 |  | floats | commutative, lowered | sqrt(a * a + b * b). |"
    assert row in capsys.readouterr().out

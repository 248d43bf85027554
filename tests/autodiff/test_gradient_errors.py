"""What gradient() refuses, and what the errors say."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from uopc.autodiff import NoGradientRule, batched, gradient, tangents
from uopc.dtype import DType, boolean, f32, f64, i32, u8
from uopc.plugins import PluginHost, PluginWarning, hookimpl, use
from uopc.testing import buf
from uopc.uop import OpDef, Ops, UOp
from uopc.uop.infer import elementwise
from uopc.uop.opdef import OpKind

# -- graphs with loops and effects --------------------------------------------

B = buf(0, 4)
RANGE = UOp(Ops.RANGE, (), (0, 4, i32))
STORE = UOp(Ops.STORE, (B, RANGE, UOp.const(1.0, f32)))
END = UOp(Ops.END, (RANGE, STORE))
SINK = UOp(Ops.SINK, (END,), "kernel")
CALL = UOp(Ops.CALL, (SINK, B))
AFTER = UOp(Ops.AFTER, (B, CALL))
EFFECTS = [RANGE, STORE, END, SINK, CALL, AFTER]


@pytest.mark.parametrize("node", EFFECTS, ids=lambda u: u.op.name)
def test_loops_and_effects_are_refused_by_name_and_reason(node: UOp) -> None:
    with pytest.raises(NotImplementedError) as info:
        gradient(node, [B])
    text = str(info.value)
    assert f"no gradient rule for {node.op.name} " in text
    assert "autodiff only works on pure shape graphs" in text


INSIDE: dict[str, tuple[UOp, str]] = {
    "a read after a write": (AFTER * AFTER, "after"),
    "a loop variable as a number": (B.index(0) * RANGE.cast(f32), "range"),
    "a loop variable as an index": (B.index(RANGE) * 2.0, "range"),
    "off the path to the target": (B + UOp(Ops.AFTER, (buf(1, 4), CALL)), "after"),
}


@pytest.mark.parametrize("name", INSIDE)
def test_loops_and_effects_are_refused_anywhere_in_the_graph(name: str) -> None:
    root, op = INSIDE[name]
    with pytest.raises(NotImplementedError, match=f"no gradient rule for {op} "):
        gradient(root, [B])


# -- types --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [i32, u8, boolean])
def test_an_integer_target_or_root_is_an_error_that_names_its_type(
    dtype: DType,
) -> None:
    k = buf(0, 4, dtype)
    with pytest.raises(TypeError, match=f"target 1 has dtype {dtype.name}.*float type"):
        gradient(B, [B, k])
    with pytest.raises(TypeError, match=f"root has dtype {dtype.name}.*float type"):
        gradient(k, [B])


@pytest.mark.parametrize("seed", [buf(1, 3), buf(1, 4, f64), UOp.const(1.0, f32)])
def test_a_seed_that_does_not_fit_the_root_is_an_error(seed: UOp) -> None:
    with pytest.raises(ValueError, match=r"seed is .*, expected f32\[4\]"):
        gradient(B * 2.0, [B], seed)


# -- gathers ------------------------------------------------------------------

TOKENS = buf(5, 3, i32)
GATHER = UOp.param(0, f32, (7, 2)).index(TOKENS)


def test_a_gather_off_the_path_or_below_the_target_is_no_obstacle() -> None:
    w = UOp.param(1, f32, (3, 2))
    (g,) = gradient(GATHER * w, [w])
    assert g is GATHER.const_like(1.0) * GATHER
    (h,) = gradient(GATHER * GATHER, [GATHER])
    assert h.shape == GATHER.shape


# -- ops of plugins -----------------------------------------------------------


def _op(name: str, kind: OpKind = "elementwise", **kwargs: Any) -> OpDef:
    return OpDef(name, kind, 1, elementwise(("float",)), "A test op.", **kwargs)


CUBE = _op("cube", numpy=lambda u, x: x**3)
STEP = _op("step", numpy=lambda u, x: np.sign(x), differentiable=False)
LOWERED = _op(
    "fourth",
    numpy=lambda u, x: x**4,
    lower=lambda u: u.src[0] * u.src[0] * u.src[0] * u.src[0],
)
NESTED = OpDef(
    "both",
    "elementwise",
    2,
    elementwise(("float",)),
    "A lower that uses an op that has a lower only.",
    numpy=lambda u, x, y: x**4 * 2**y,
    lower=lambda u: UOp(LOWERED, u.src[:1]) * u.src[1].exp2(),
)


def _fails(u: UOp) -> UOp:
    raise ArithmeticError("no idea")


BAD_LOWERS: dict[OpDef, str] = {
    _op("fails", "movement", lower=_fails): "no idea",
    _op("longer", "movement", lower=lambda u: UOp.stack([u.src[0]] * 2)): (
        r"longer: 'lower' gave f64\[2, 3\], expected f64\[3\]"
    ),
    _op("nothing", "movement", lower=lambda u: cast(UOp, None)): (
        "nothing: 'lower' gave None, expected a node"
    ),
}


class PluginOps:
    """A plugin with ops, and with rules for some of them."""

    def __init__(self, rules: dict[OpDef, Callable[[UOp, UOp], Any]]) -> None:
        self.rules = rules

    @hookimpl
    def uopc_register_ops(self, register: Any) -> None:
        for op in (CUBE, LOWERED, STEP, NESTED, *BAD_LOWERS):
            register(op)

    @hookimpl
    def uopc_register_vjps(self, register: Any) -> None:
        for op, rule in self.rules.items():
            register(op, rule)


def _host(rules: dict[OpDef, Callable[[UOp, UOp], Any]] | None = None) -> PluginHost:
    host = PluginHost()
    host.register_module(PluginOps(rules or {}), "test-ops")
    return host


X = UOp.param(0, f64, (3,))


def cube(x: UOp) -> UOp:
    return UOp(CUBE, (x,))


def test_an_op_without_a_rule_is_named_with_the_hook_that_registers_one() -> None:
    with use(_host()), pytest.raises(NoGradientRule) as info:
        gradient(cube(X) * 2.0, [X])
    text = str(info.value)
    assert "no gradient rule for cube " in text and "uopc_register_vjps" in text
    assert "note:" not in text


def test_the_error_quotes_a_plugin_that_failed() -> None:
    class Broken:
        @hookimpl
        def uopc_register_vjps(self, register: Any) -> None:
            raise RuntimeError("no table of cubes")

    broken = SimpleNamespace(
        name="cubes",
        load=Broken,
        dist=SimpleNamespace(name="uopc-cubes", version="0.2"),
    )
    host = PluginHost([*entry_points(group="uopc.plugins"), broken])
    with pytest.warns(PluginWarning, match="cubes"):
        host.load()
    with use(host), pytest.raises(NoGradientRule) as info:
        gradient(cube(X), [X])
    assert str(info.value).endswith(
        "note: plugin 'cubes' (uopc-cubes 0.2) failed in uopc_register_vjps: "
        "RuntimeError: no table of cubes"
    )


def test_an_op_without_a_rule_off_the_path_is_no_obstacle() -> None:
    with use(_host()):
        (g,) = gradient(cube(buf(3, 3, f64)) * X, [X])
    assert g.op is Ops.MUL


def test_a_rule_of_a_plugin_is_used_to_any_order(checker: SimpleNamespace) -> None:
    def rule(u: UOp, g: UOp) -> tuple[UOp]:
        return (g * u.src[0] * u.src[0] * 3.0,)

    with use(_host({CUBE: rule})):
        checker.check(cube, [np.array([0.5, -1.0, 2.0])])


@pytest.mark.parametrize("op", [LOWERED, NESTED], ids=["lower", "lower in a lower"])
def test_a_lower_serves_as_a_rule(checker: SimpleNamespace, op: OpDef) -> None:
    arrays = [np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.5, -0.5])][: op.arity]
    with use(_host()):
        checker.check(lambda *xs: UOp(op, xs), arrays)
        checker.check(lambda x: UOp(op, (x,) * len(arrays)), arrays[:1])


def test_a_rule_is_preferred_to_a_lower() -> None:
    with use(_host({LOWERED: lambda u, g: (g * 7.0,)})):
        (g,) = gradient(UOp(LOWERED, (X,)), [X])
    assert g is X.const_like(1.0) * 7.0


def test_an_op_listed_as_not_differentiable_stops_gradients() -> None:
    with use(_host()):
        assert gradient(UOp(STEP, (X,)), [X]) == [X.const_like(0.0)]


WRONG: dict[str, tuple[Callable[[UOp, UOp], Any], str]] = {
    "too many": (lambda u, g: (g, g), "cube gave 2 gradients for 1 sources"),
    "none at all": (lambda u, g: (), "cube gave 0 gradients for 1 sources"),
    "a wrong shape": (
        lambda u, g: (g.reduce(Ops.ADD, 1),),
        r"cube: the gradient of source 0 is f64\[\], expected f64\[3\]",
    ),
    "a wrong type": (
        lambda u, g: (g.cast(f32),),
        r"cube: the gradient of source 0 is f32\[3\], expected f64\[3\]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_that_gives_what_does_not_fit_is_an_error_that_names_the_op(
    name: str,
) -> None:
    rule, message = WRONG[name]
    with use(_host({CUBE: rule})), pytest.raises(ValueError, match=message):
        gradient(cube(X) * 2.0, [X])


WAYS: dict[str, Callable[[UOp], object]] = {
    "gradient": lambda u: gradient(u, [X]),
    "tangents": lambda u: tangents([u], [X], [X.const_like(1.0)]),
    "batched": lambda u: batched([u], {X: UOp.stack([X, X])}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("op", BAD_LOWERS, ids=lambda op: op.name)
def test_a_lower_that_is_wrong_is_an_error_that_names_its_plugin(
    op: OpDef, way: str
) -> None:
    kinds = (ArithmeticError, ValueError, TypeError)
    with use(_host()), pytest.raises(kinds, match=BAD_LOWERS[op]) as info:
        WAYS[way](UOp(op, (X,)) * 2.0)
    assert info.value.__notes__ == [
        f"raised by the 'lower' of op {op.name!r} (plugin 'test-ops')"
    ]

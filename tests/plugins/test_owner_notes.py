"""An error out of a plugin's code keeps its type and says whose code it is."""

from __future__ import annotations

import importlib.metadata
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from uopc.config import overriding
from uopc.dtype import f32
from uopc.interp import ReferenceBackend, evaluate
from uopc.plugins import PluginHost, note_owner, use
from uopc.runtime import lower, realize
from uopc.simplify import Op, Rule, Simplifier, Var
from uopc.tensor import Tensor
from uopc.testing import buf
from uopc.uop import OpDef, Ops, UOp


class Trouble(Exception):
    """What the plugin raises."""


def fail(*args: Any) -> Any:
    raise Trouble("no idea")


BAD = OpDef("bad", "elementwise", 1, Ops.SIN.infer, "Fails.", numpy=fail, lower=fail)
RULE = Rule("unlucky", Op(Ops.SIN, Var("x")), lambda x: fail())
WHOSE = "(plugin 'mine', uopc-mine 3.1)"


class Lacking(ReferenceBackend):
    """The reference without the op, so that it is lowered."""

    def supports(self, op: OpDef) -> bool:
        return op is not BAD and super().supports(op)


@pytest.fixture(autouse=True)
def host(fake: Any) -> Iterator[PluginHost]:
    """Core's plugin, and one of which everything fails later."""
    points = importlib.metadata.distribution("uopc-core").entry_points
    plugin = fake.plugin(
        uopc_register_ops=lambda register: register(BAD),
        uopc_register_rewrites=lambda register: register("simplify", [RULE]),
    )
    mine = fake.entry_point("mine", plugin, "uopc-mine 3.1")
    every = [*points.select(group="uopc.plugins"), mine]
    with use(PluginHost(every, strict=True)) as found, overriding(UOPC_BACKEND=""):
        yield found


def simplify() -> Any:
    return Simplifier()(UOp.param(0, f32).sin())


def compute() -> Any:
    return evaluate([UOp(BAD, (buf(0, 2),))], {buf(0, 2): np.zeros(2, np.float32)})


def compute_loops() -> Any:
    with overriding(UOPC_CHECK=3):
        return lower(UOp(BAD, (buf(0, 2),)), "k")


def compute_lowered() -> Any:
    x = Tensor([1.0, 2.0])
    return realize([UOp(BAD, (x.uop,))], None, Lacking())


WAYS = {
    simplify: "raised by the rewrite rule 'unlucky'",
    compute: "raised by the NumPy meaning of op 'bad'",
    compute_loops: "raised by the NumPy meaning of op 'bad'",
    compute_lowered: "raised by the 'lower' of op 'bad'",
}


@pytest.mark.parametrize("run", WAYS, ids=lambda f: f.__name__)
def test_an_error_names_the_plugin(run: Any) -> None:
    with pytest.raises(Trouble) as caught:
        run()
    assert caught.value.__notes__ == [f"{WAYS[run]} {WHOSE}"]
    assert str(caught.value) == "no idea"
    assert WHOSE in "".join(traceback.format_exception(caught.value))


def test_a_note_is_added_once_and_only_where_there_is_an_owner(
    host: PluginHost, fake: Any
) -> None:
    error = Trouble()
    note_owner(error, "thing", "ops", "nobody's")
    assert not hasattr(error, "__notes__")
    for _ in range(2):
        note_owner(error, "thing", "ops", "bad")
    host.register_module(fake.op_plugin(fake.Op("here")), "in process")
    note_owner(error, "thing", "ops", "here")
    assert error.__notes__ == [
        f"raised by the thing {WHOSE}",
        "raised by the thing (plugin 'in process')",
    ]

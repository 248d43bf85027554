"""Several kernels as one C function, and the files that parallel functions are in."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from uopc.backend_c import emit, print_plan
from uopc.backend_c.backend import spellings
from uopc.backend_c.cache import build
from uopc.backend_c.emit import ENTRY, plan_text
from uopc.backend_c.load import load
from uopc.config import overriding
from uopc.kernelize import Plan, make_plan
from uopc.runtime import backend_named, new_buffer, profile, realize
from uopc.tensor import Tensor, realize_all
from uopc.uop import Ops, UOp

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def in_c() -> object:
    with overriding(UOPC_BACKEND="c", UOPC_OPT=1):
        yield


def drawn(n: int, count: int) -> list[Array]:
    rng = np.random.default_rng(n)
    return [rng.standard_normal(n).astype(np.float32) for _ in range(count)]


def steps_of_adam(data: list[Array], steps: int) -> list[list[float]]:
    """Parameter and moments after some updates in place, one plan each."""
    p, m, v, g = (Tensor(x.copy()) for x in data)
    for _ in range(steps):
        m.assign(m * 0.9 + g * 0.1)
        v.assign(v * 0.99 + g * g * 0.01)
        p.assign(p - m * 0.5 / (v.sqrt() + 1e-8))
        realize_all([m, v, p])
    return [t.tolist() for t in (p, m, v)]


@pytest.mark.parametrize("n", [1, 7, 64, 1003])
def test_updates_in_place_are_those_of_the_reference(n: int) -> None:
    p, m, v, g = drawn(n, 4)
    data = [p, m, v * v, g]
    got = steps_of_adam(data, 3)
    with overriding(UOPC_OPT=0):
        assert got == steps_of_adam(data, 3)
    with overriding(UOPC_BACKEND="interp"):
        np.testing.assert_allclose(got, steps_of_adam(data, 3), rtol=1e-6)


def made(root: UOp) -> UOp:
    return UOp(Ops.STAGE, (root,), "contiguous")


def chain(x: UOp, y: UOp) -> list[UOp]:
    """Two results that read one value which nobody else reads, and is dear."""
    dear = x
    for _ in range(8):
        dear = (dear * y).sin()
    dear = made(dear)
    return [dear + 1.0, dear * y]


def planned(roots: list[UOp]) -> Plan:
    return make_plan(roots, None, backend_named("c").supports, "c")[0]


def signatures(source: str) -> dict[str, int]:
    """The functions, and how many pointers each takes."""
    found = re.findall(r"^void (\w+)\((.*)\) \{", source, re.MULTILINE)
    return {name: text.count("*") for name, text in found if name != ENTRY}


def test_what_is_only_passed_on_is_not_stored() -> None:
    data = drawn(1003, 2)
    roots = chain(*map(new_buffer, data))
    plan = planned(roots)
    assert [(k.joined, k.passing) for k in plan.kernels] == [
        (False, True),
        (True, False),
        (True, False),
    ]
    assert signatures(print_plan(plan, spellings())) == {"e_1003_x3": 4}
    got = realize(roots)
    want = realize(chain(*map(new_buffer, data)), backend=backend_named("interp"))
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_equal_nests_are_emitted_once() -> None:
    roots = [r for _ in range(3) for r in chain(*map(new_buffer, drawn(20, 2)))]
    source = print_plan(planned(roots), spellings())
    assert signatures(source) == {"e_20_x3": 4}
    assert source.count("  e_20_x3(table[") == 3


def test_a_profile_has_the_kernels_one_by_one() -> None:
    data = drawn(64, 2)
    together = realize(chain(*map(new_buffer, data)))
    with profile() as seen:
        apart = realize(chain(*map(new_buffer, data)))
    assert [r.kernel.name for r in seen.runs] == ["e_64"] * 3
    for x, y in zip(together, apart, strict=True):
        np.testing.assert_array_equal(x, y)


def test_files_share_one_variable_for_parallel_loops(monkeypatch: Any) -> None:
    """It is defined beside the entry, as a plain loop, and declared elsewhere."""
    monkeypatch.setattr(emit, "UNIT_COST", 400)
    data = drawn(100_000, 3)
    x, y, z = map(new_buffer, data)
    plan = planned([x + 1.0, y.sin() * 2.0, z.reduce(Ops.MAX, 1)])
    text = plan_text(plan.kernels, spellings())
    units = text.units()
    assert isinstance(units, dict)
    assert len(units) > 2
    for name, unit in units.items():
        assert unit.count(" = uopc_serial;") == (name == "entry")
        if "uopc_parallel(" in unit and name != "entry":
            assert unit.count("extern void (*uopc_parallel)") == 1
    assert text.source.count(" = uopc_serial;") == 1
    memory = [*data, *(np.zeros(b.size, np.float32) for b in plan.buffers[3:])]
    for made_of in (units, text.source):
        table = np.array([a.ctypes.data for a in memory], np.uintp)
        with load(build(made_of, 1)) as library:
            assert library.address("uopc_parallel") is not None
            library.function(ENTRY)(table.ctypes.data)
        np.testing.assert_array_equal(memory[plan.outputs[0]], data[0] + 1)
        assert memory[plan.outputs[2]][0] == data[2].max()
        memory[3:] = [np.zeros_like(a) for a in memory[3:]]


def test_small_plans_know_nothing_of_threads() -> None:
    source = print_plan(planned([new_buffer(drawn(8, 1)[0]) + 1.0]), spellings())
    assert "parallel" not in source

"""Small inputs with right values, from faults that people met in other systems.

``cases.json`` holds them. Each has a state here: it passes, or it waits for something
that does not exist yet. A case that waits and passes fails the test, so that the table
stays true.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapter import constant, decoded, grads, run
from registry import HAND_WRITTEN

from uopc.config import overriding

for module in ("value_cases", "system_cases"):
    importlib.import_module(module)  # they fill HAND_WRITTEN

CASES: dict[str, dict[str, Any]] = {
    c["id"]: c
    for c in json.loads((Path(__file__).parent / "cases.json").read_text())["cases"]
}
PROGRAMS = [id for id, c in CASES.items() if c["kind"] == "program"]
OTHERS = [id for id in CASES if id not in PROGRAMS]

LATER: dict[str, str] = {
    "export-c-buffer-sizes": "export of C",
}


def expect(id: str, passes: bool, why: str) -> None:
    """Hold the outcome of a case against the table."""
    if id in LATER:
        assert not passes, f"{id} passes now: take it out of LATER"
    else:
        assert passes, f"{id}: {why}"


def outcome(attempt: Any, *args: Any) -> tuple[bool, str]:
    try:
        attempt(*args)
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"
    return True, ""


def check_program(case: dict[str, Any]) -> None:
    """The value, and the gradients of its sum."""
    inputs = {name: constant(data) for name, data in case["input"].items()}
    value = run(case["program"], inputs)
    wrt, right = case["wrt"], decoded(case["expected"])
    # All graphs are built before any value is read.
    first = dict(zip(wrt, grads(value, [inputs[n] for n in wrt]), strict=True))
    second = {n: grads(first[n], [inputs[n]])[0] for n in right.get("second_grads", {})}
    near = {k: case["tolerance"][k] for k in ("rtol", "atol")}
    np.testing.assert_allclose(value.numpy(), right["value"], **near)
    for found, name in ((first, "grads"), (second, "second_grads")):
        for n, g in found.items():
            np.testing.assert_allclose(g.numpy(), right[name][n], **near)


@pytest.mark.parametrize("backend", ["c", "interp"])
@pytest.mark.parametrize("id", PROGRAMS)
def test_program(id: str, backend: str):
    with overriding(UOPC_BACKEND=backend):
        expect(id, *outcome(check_program, CASES[id]))


@pytest.mark.parametrize("id", OTHERS)
def test_behaviour(id: str, tmp_path: Path):
    expect(id, *outcome(HAND_WRITTEN[id], tmp_path))


def test_every_case_is_in_one_table():
    assert set(HAND_WRITTEN) == set(OTHERS)
    assert set(LATER) <= set(CASES)
